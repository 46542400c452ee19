//! Bytes against values: order, rows, prefixes, refusals.

use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::row::RowBuf;
use crate::value::Value;

fn schema() -> Schema {
    Schema::builder("t")
        .column("a", Type::I32)
        .nullable("b", Type::Text)
        .column("c", Type::F64)
        .column("d", Type::Bytes)
        .column("e", Type::I64)
        .column("f", Type::Bool)
        .primary_key(["a"])
        .build()
        .unwrap()
}

type Parts = (i32, Option<String>, f64, Vec<u8>, i64, bool);

fn parts() -> impl Strategy<Value = Parts> {
    (
        prop_oneof![-2..2i32, any::<i32>()],
        proptest::option::of("[\\x00\\x01ab\u{ff}]{0,40}"),
        prop_oneof![Just(-0.0), Just(0.0), any::<f64>()],
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        prop_oneof![-2..2i64, any::<i64>()],
        any::<bool>(),
    )
}

fn compare(a: &Parts, b: &Parts) -> std::cmp::Ordering {
    let front = a.0.cmp(&b.0).then_with(|| a.1.cmp(&b.1));
    let middle = front.then_with(|| a.2.total_cmp(&b.2));
    middle.then_with(|| (&a.3, a.4, a.5).cmp(&(&b.3, b.4, b.5)))
}

fn encode(parts: &Parts) -> Vec<u8> {
    let spec = KeySpec::new("t", &schema(), &[0, 1, 2, 3, 4, 5]);
    let (a, b, c, d, e, f) = parts;
    let mut out = KeyBuf::new();
    let key = (a, b.as_ref(), c, &d[..], e, f);
    spec.whole(&key, &mut out).unwrap();
    out.as_slice().to_vec()
}

proptest! {
    #[test]
    fn bytes_compare_as_values_do(a in parts(), b in parts()) {
        prop_assert_eq!(encode(&a).cmp(&encode(&b)), compare(&a, &b));
    }

    #[test]
    fn a_row_has_the_key_of_its_values(parts in parts()) {
        let schema = schema();
        let (a, b, c, d, e, f) = &parts;
        let mut row = RowBuf::new(&schema);
        row.set_i32(0, *a).set_f64(2, *c).set_bytes(3, d).set_i64(4, *e).set_bool(5, *f);
        if let Some(text) = b {
            row.set_text(1, text);
        }
        let mut out = KeyBuf::new();
        KeySpec::new("t", &schema, &[0, 1, 2, 3, 4, 5]).of_row(row.raw(), &mut out);
        prop_assert_eq!(out.as_slice(), &encode(&parts)[..]);
    }

    #[test]
    fn a_prefix_covers_exactly_its_completions(a in parts(), b in parts()) {
        let schema = schema();
        let spec = KeySpec::new("t", &schema, &[0, 1, 2, 3, 4, 5]);
        let span = KeyRange::prefix((b.0, b.1.as_ref())).encode(&spec).unwrap();
        let key = encode(&a);
        let inside = span.from.as_slice() <= &key[..]
            && span.to.as_ref().is_none_or(|to| &key[..] < to.as_slice());
        prop_assert_eq!(inside, a.0 == b.0 && a.1 == b.1);
    }
}

#[test]
fn a_key_that_does_not_fit_is_refused_by_name() {
    let schema = schema();
    let spec = KeySpec::new("t", &schema, &[0, 1]);
    let says = |key: &dyn Fn(&mut KeyBuf) -> Result<(), SchemaError>, text: &str| {
        let error = key(&mut KeyBuf::new()).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    };
    says(&|out| spec.whole(&1i32, out), "2 columns, 1 were given");
    says(
        &|out| spec.whole(&("x", "y"), out),
        "'a' is an i32, the value given is text",
    );
    says(&|out| spec.whole(&(i64::MAX, "y"), out), "does not fit");
    says(&|out| spec.whole(&(u64::MAX, "y"), out), "does not fit");
    says(&|out| spec.whole(&(1, 2), out), "'b' is text");
    says(
        &|out| spec.whole(&(Value::Null, "y"), out),
        "must have a value",
    );
}

#[test]
fn ranges_that_hold_nothing_are_known_to() {
    let schema = schema();
    let spec = KeySpec::new("t", &schema, &[0, 4]);
    let empty = |range: KeyRange<(i32, i64), (i32, i64)>| range.encode(&spec).unwrap().empty;
    assert!(empty(KeyRange::between((1, 5), (1, 4))));
    assert!(!empty(KeyRange::between((1, 5), (1, 5))));
    assert!(empty(KeyRange::new(
        Bound::Excluded((1, 5)),
        Bound::Included((1, 5))
    )));
    assert!(empty(KeyRange::new(
        Bound::Included((1, 5)),
        Bound::Excluded((1, 5))
    )));
}
