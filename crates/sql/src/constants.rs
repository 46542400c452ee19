//! What functions may make of constants while a statement is planned.
//!
//! The optimizer computes calls whose arguments are constants, one after the other from the
//! inside, and so do `VALUES` and the arguments of table functions. A short text can have it
//! make any number of bytes, or take any time, in one step:
//!
//! ```text
//!   repeat('x', 1000000000)   range(0, 10000000000)   replace(replace(… 'a', 'aa'), 'a', 'aa')
//! ```
//!
//! Most functions make about as much as they are given. Those that make more, or take longer,
//! are wrapped ([`Measured`]): on a thread that plans, a wrapped function says what it is
//! about to make before it does, and is refused beyond the bound of `planner` (P3). Then the
//! whole statement is: computed by a worker, it would take as long, in one step of a task.
//!
//! C1. The estimate is not less than what is made, but for a constant factor.
//!     (tested for one call of each function)
//! C2. On all other threads, and with arguments that are columns, a wrapped function does
//!     what it did. (not asserted: `invoke_with_args` passes everything on)
//!
//! Known weakness: a function that a program adds is not measured.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use crate::planner;

/// The functions that make more than they are given, and what they make, bytes.
const MEASURED: [(&str, Measure); 12] = [
    ("repeat", |args| {
        text(args, 0).saturating_mul(count(args, 1))
    }),
    ("lpad", |args| count(args, 1)),
    ("rpad", |args| count(args, 1)),
    ("replace", |args| {
        let places = text(args, 0) / text(args, 1).max(1) + 1;
        places.saturating_mul(text(args, 2)) + text(args, 0)
    }),
    ("regexp_replace", |args| {
        (text(args, 0) + 1).saturating_mul(text(args, 2)) + text(args, 0)
    }),
    ("encode", |args| 2 * text(args, 0)),
    // Not bytes, but steps of some nanoseconds.
    ("levenshtein", |args| {
        text(args, 0).saturating_mul(text(args, 1)) / STEPS_PER_BYTE
    }),
    ("array_repeat", |args| {
        width(args, 0).saturating_mul(count(args, 1))
    }),
    ("array_resize", |args| {
        (width(args, 2) + WIDTH).saturating_mul(count(args, 1))
    }),
    ("array_to_string", |args| {
        (text(args, 1) + TEXT_OF_VALUE).saturating_mul(elements(args, 0)) + width(args, 0)
    }),
    ("range", |args| steps(args).saturating_mul(WIDTH)),
    ("generate_series", |args| steps(args).saturating_mul(WIDTH)),
];

type Measure = fn(&[ScalarValue]) -> usize;

/// Steps that take as long as a byte is worth: 32 MiB of them some tenths of a second.
const STEPS_PER_BYTE: usize = 8;
/// Bytes of a number, a date or a time.
const WIDTH: usize = 8;
/// Bytes of a number as a text.
const TEXT_OF_VALUE: usize = 24;

/// Has a session's functions measured.
pub(crate) fn measure(state: &mut SessionState) -> Result<()> {
    for (name, measure) in MEASURED {
        let inner = state.udf(name)?;
        let measured = Measured {
            inner,
            measure: Made(measure),
        };
        state.register_udf(Arc::new(ScalarUDF::new_from_impl(measured)))?;
    }
    Ok(())
}

/// A function that says what it is about to make.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Measured {
    inner: Arc<ScalarUDF>,
    measure: Made,
}

/// As much as its function is the same, this is.
#[derive(Debug)]
struct Made(Measure);

impl PartialEq for Made {
    fn eq(&self, _: &Made) -> bool {
        true
    }
}

impl Eq for Made {}

impl std::hash::Hash for Made {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl ScalarUDFImpl for Measured {
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if planner::is_planning()
            && let Some(constants) = constants(&args.args)?
        {
            planner::about_to_make((self.measure.0)(&constants))?;
        }
        self.inner.invoke_with_args(args)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.inner.return_type(arguments)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn simplify(&self, arguments: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.inner.simplify(arguments, info)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(arguments)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

/// The arguments, if there is one row of them.
fn constants(args: &[ColumnarValue]) -> Result<Option<Vec<ScalarValue>>> {
    let constant = |arg: &ColumnarValue| match arg {
        ColumnarValue::Scalar(value) => Some(Ok(value.clone())),
        ColumnarValue::Array(rows) if rows.len() == 1 => Some(ScalarValue::try_from_array(rows, 0)),
        ColumnarValue::Array(_) => None,
    };
    args.iter()
        .map(constant)
        .collect::<Option<Result<_>>>()
        .transpose()
}

/// Bytes of a text, or of binary data.
fn text(args: &[ScalarValue], index: usize) -> usize {
    match args.get(index) {
        Some(
            ScalarValue::Binary(Some(bytes))
            | ScalarValue::LargeBinary(Some(bytes))
            | ScalarValue::BinaryView(Some(bytes))
            | ScalarValue::FixedSizeBinary(_, Some(bytes)),
        ) => bytes.len(),
        Some(value) => value.try_as_str().flatten().map_or(0, str::len),
        None => 0,
    }
}

/// A number of times.
fn count(args: &[ScalarValue], index: usize) -> usize {
    let number = args.get(index).and_then(number);
    number.map_or(0, |number| {
        usize::try_from(number.max(0)).unwrap_or(usize::MAX)
    })
}

fn number(value: &ScalarValue) -> Option<i128> {
    match value.cast_to(&DataType::Int64) {
        Ok(ScalarValue::Int64(number)) => number.map(i128::from),
        _ => None,
    }
}

/// Bytes of a value in an array.
fn width(args: &[ScalarValue], index: usize) -> usize {
    args.get(index).map_or(0, |value| {
        let width = value.data_type().primitive_width();
        width.unwrap_or_else(|| match value.try_as_str() {
            Some(_) => text(args, index) + WIDTH,
            None => value.size(),
        })
    })
}

/// Elements of a list.
fn elements(args: &[ScalarValue], index: usize) -> usize {
    match args.get(index) {
        Some(ScalarValue::List(list)) => list.values().len(),
        Some(ScalarValue::LargeList(list)) => list.values().len(),
        Some(ScalarValue::FixedSizeList(list)) => list.values().len(),
        _ => 0,
    }
}

const NS_PER_DAY: i128 = 24 * 60 * 60 * 1_000_000_000;

/// How many values lie between two, in steps of a third.
fn steps(args: &[ScalarValue]) -> usize {
    let (from, to, step) = match args {
        [to] => (Some(0), place(to), Some(1)),
        [from, to] => (place(from), place(to), Some(1)),
        [from, to, step] => (place(from), place(to), length(step)),
        _ => return 0,
    };
    // One of them is NULL, and so is the list.
    let (Some(from), Some(to), Some(step)) = (from, to, step) else {
        return 0;
    };
    let steps = (to - from).unsigned_abs() / step.unsigned_abs().max(1);
    usize::try_from(steps)
        .unwrap_or(usize::MAX)
        .saturating_add(1)
}

/// A number, or a time in ns since 1970.
fn place(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Date32(days) => days.map(|days| i128::from(days) * NS_PER_DAY),
        ScalarValue::Date64(ms) => ms.map(|ms| i128::from(ms) * 1_000_000),
        ScalarValue::TimestampSecond(time, _) => time.map(|s| i128::from(s) * 1_000_000_000),
        ScalarValue::TimestampMillisecond(time, _) => time.map(|ms| i128::from(ms) * 1_000_000),
        ScalarValue::TimestampMicrosecond(time, _) => time.map(|us| i128::from(us) * 1000),
        ScalarValue::TimestampNanosecond(time, _) => time.map(i128::from),
        other => number(other),
    }
}

/// How long a step is, as a number or in ns. One of parts that go both ways may come to
/// nothing, so that the list has no end: the shortest step.
fn length(step: &ScalarValue) -> Option<i128> {
    let ScalarValue::IntervalMonthDayNano(interval) = step else {
        return number(step);
    };
    interval.map(|interval| {
        let (months, days, ns) = IntervalMonthDayNanoType::to_parts(interval);
        let parts = [
            i128::from(months) * 28 * NS_PER_DAY,
            i128::from(days) * NS_PER_DAY,
            i128::from(ns),
        ];
        let both_ways = parts.iter().any(|&part| part < 0) && parts.iter().any(|&part| part > 0);
        if both_ways { 1 } else { parts.iter().sum() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    fn measured(name: &str, args: &[ScalarValue]) -> usize {
        let (_, measure) = MEASURED.iter().find(|(of, _)| *of == name).unwrap();
        measure(args)
    }

    /// C1.
    #[test]
    fn what_is_about_to_be_made_is_estimated() {
        let text = |text: &str| ScalarValue::from(text);
        let number = |number: i64| ScalarValue::from(number);
        let date = |days: i32| ScalarValue::Date32(Some(days));
        let interval = |months, days, ns| {
            let interval = IntervalMonthDayNanoType::make_value(months, days, ns);
            ScalarValue::IntervalMonthDayNano(Some(interval))
        };
        for (name, args, bytes) in [
            ("repeat", vec![text("abc"), number(1000)], 3000),
            ("repeat", vec![text("abc"), number(i64::MAX)], usize::MAX),
            ("repeat", vec![text("abc"), number(-1)], 0),
            ("repeat", vec![text("abc"), ScalarValue::Int64(None)], 0),
            ("lpad", vec![text("abc"), number(1000)], 1000),
            ("replace", vec![text("aaaa"), text("a"), text("bb")], 14),
            (
                "regexp_replace",
                vec![text("aaaa"), text("a"), text("bb")],
                14,
            ),
            ("encode", vec![text("abc"), text("hex")], 6),
            ("levenshtein", vec![text("aaaa"), text("bbbb")], 2),
            ("array_repeat", vec![number(1), number(1000)], 8000),
            ("range", vec![number(1000)], 8008),
            ("range", vec![number(1000), number(0), number(-10)], 808),
            ("range", vec![date(0), date(100), interval(0, 1, 0)], 808),
            ("range", vec![date(0), date(280), interval(1, 0, 0)], 88),
            (
                "range",
                vec![date(0), date(100), interval(0, 1, -86_400)],
                8 * (8_640_000_000_000_000 + 1),
            ),
            (
                "generate_series",
                vec![number(i64::MIN), number(i64::MAX)],
                usize::MAX,
            ),
        ] {
            assert_eq!(measured(name, &args), bytes, "{name} of {args:?}");
        }
    }

    #[test]
    fn measured_functions_are_those_that_there_are() {
        let engine = Engine::builder().workers(1).build().unwrap();
        let state = engine.session().context().state();
        for (name, _) in MEASURED {
            let function = state.udf(name).unwrap();
            let measured = function.inner().downcast_ref::<Measured>();
            assert!(measured.is_some(), "{name}");
            for alias in function.aliases() {
                assert_eq!(state.udf(alias).unwrap(), function, "{name}");
            }
        }
    }
}
