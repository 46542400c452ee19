//! What is set comes back; what is no row is recognised.

use super::*;
use crate::error::SchemaError;

fn schema() -> Schema {
    Schema::builder("t")
        .column("k", Type::I32)
        .nullable("name", Type::Text)
        .nullable("sum", Type::I64)
        .nullable("blob", Type::Bytes)
        .nullable("rate", Type::F64)
        .nullable("flag", Type::Bool)
        .primary_key(["k"])
        .build()
        .unwrap()
}

#[test]
fn values_come_back_in_whatever_order_they_are_set() {
    let schema = schema();
    let mut row = RowBuf::new(&schema);
    row.set_bytes(3, b"xyz").set_text(1, "né").set_i32(0, -7);
    row.set_f64(4, 0.5).set_bool(5, true).set_i64(2, i64::MIN);
    let expected = |name: &str| {
        vec![
            Value::I32(-7),
            Value::from(name),
            Value::I64(i64::MIN),
            Value::Bytes(b"xyz".to_vec()),
            Value::F64(0.5),
            Value::Bool(true),
        ]
    };
    assert_eq!(row.values(), expected("né"));
    row.set_text(1, "longer than before");
    assert_eq!(row.values(), expected("longer than before"));
    row.set_text(1, "");
    assert_eq!(row.values(), expected(""));
    assert_eq!(schema.layout().check(row.raw()), Ok(()));
    row.set_null(1).set_null(2).set_null(3);
    assert_eq!(row.value(1), Value::Null);
    assert_eq!(row.as_row().f64(4), 0.5);
    assert_eq!(schema.layout().check(row.raw()), Ok(()));
}

#[test]
fn numbers_are_converted_where_they_fit() {
    let schema = schema();
    let mut row = RowBuf::new(&schema);
    row.set(2, 5i32).unwrap();
    assert_eq!(row.i64(2), 5);
    let error = row.set(0, i64::MAX).unwrap_err().to_string();
    assert!(error.contains("does not fit"), "{error}");
    let error = row.set(1, 1i32).unwrap_err().to_string();
    assert!(error.contains("'name' is text"), "{error}");
    assert_eq!(
        row.check_nulls().unwrap_err(),
        SchemaError::Null {
            table: "t".into(),
            column: "k".into()
        }
    );
}

#[test]
#[should_panic(expected = "column 0 is an i32, not text")]
fn a_column_of_another_type_is_a_bug() {
    let schema = schema();
    RowBuf::new(&schema).text(0);
}

#[test]
#[should_panic(expected = "column 1 is NULL")]
fn null_has_no_value() {
    let schema = schema();
    RowBuf::new(&schema).text(1);
}

#[test]
fn damaged_bytes_are_recognised() {
    let schema = schema();
    let mut row = RowBuf::new(&schema);
    row.set_i32(0, 1).set_text(1, "ab").set_bytes(3, b"c");
    let check = |bytes: &[u8]| schema.layout().check(bytes);
    let good = row.raw().to_vec();
    assert_eq!(check(&good), Ok(()));
    assert!(check(&good[..good.len() - 1]).is_err());
    assert!(check(&good[..3]).is_err());
    assert!(check(&[&good[..], b"x"].concat()).is_err());
    let ends = schema.layout().ends;
    for at in [0, ends, ends + 1, ends + 4, good.len() - 3] {
        let mut bad = good.clone();
        bad[at] ^= 0xff;
        assert!(check(&bad).is_err(), "byte {at}");
    }
}

/// Columns come and go, and rows of every age are read and written with every schema
/// that they may be: against a list of values.
mod columns_come_and_go {
    use proptest::prelude::*;

    use super::*;
    use crate::alter::{with_column, without_column};
    use crate::column::Column;

    #[derive(Clone, Debug)]
    enum Step {
        Add(Type, bool, usize),
        Drop(usize),
        NewRow,
        Set(usize, usize, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let ty = proptest::sample::select(vec![Type::Bool, Type::I64, Type::Text, Type::Bytes]);
        prop_oneof![
            3 => (ty, any::<bool>(), 0..4usize).prop_map(|(ty, null, at)| Step::Add(ty, null, at)),
            1 => any::<usize>().prop_map(Step::Drop),
            3 => Just(Step::NewRow),
            6 => (any::<usize>(), any::<usize>(), 0..4usize)
                .prop_map(|(row, column, at)| Step::Set(row, column, at)),
        ]
    }

    /// Some values of a type, of several lengths.
    fn value(ty: Type, nullable: bool, at: usize) -> Value {
        match (ty, at) {
            (_, 3) if nullable => Value::Null,
            (Type::Bool, _) => Value::Bool(at % 2 == 1),
            (Type::I64, _) => Value::I64(at as i64 - 1),
            (Type::Text, _) => Value::Text("é".repeat(3 * at)),
            _ => Value::Bytes(vec![7; 5 * at]),
        }
    }

    proptest! {
        #[test]
        fn values_stay(steps in proptest::collection::vec(step(), 1..40)) {
            let mut schema = Schema::builder("t")
                .column("k", Type::I32)
                .nullable("text", Type::Text)
                .column("more", Type::Text)
                .column("flag", Type::Bool)
                .primary_key(["k"])
                .build()
                .unwrap();
            // Bytes, and what the columns of today have in them.
            let mut rows: Vec<(Vec<u8>, Vec<Value>)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Add(ty, nullable, at) => {
                        let default = value(ty, nullable, at);
                        let name = format!("c{number}");
                        let column = Column { name, ty, nullable };
                        schema = with_column(&schema, column, default.clone()).unwrap();
                        rows.iter_mut().for_each(|(_, values)| values.push(default.clone()));
                    }
                    Step::Drop(at) => {
                        // Not the key.
                        let at = 1 + at % (schema.columns().len() - 1).max(1);
                        let Some(column) = schema.columns().get(at) else {
                            continue;
                        };
                        schema = without_column(&schema, &column.name.clone()).unwrap();
                        for (_, values) in &mut rows {
                            values.remove(at);
                        }
                    }
                    Step::NewRow => {
                        let mut row = RowBuf::new(&schema);
                        let mut values = Vec::new();
                        for (at, column) in schema.columns().iter().enumerate() {
                            let value = match at {
                                0 => Value::I32(number as i32),
                                _ => value(column.ty, column.nullable, number % 4),
                            };
                            row.set(at, value.clone()).unwrap();
                            values.push(value);
                        }
                        rows.push((row.raw().to_vec(), values));
                    }
                    Step::Set(row, column, at) => {
                        let count = rows.len();
                        let Some((bytes, values)) = rows.get_mut(row % count.max(1)) else {
                            continue;
                        };
                        let column = 1 + column % (schema.columns().len() - 1).max(1);
                        let Some(of) = schema.columns().get(column) else {
                            continue;
                        };
                        let value = value(of.ty, of.nullable, at);
                        let mut row = RowBuf::to_change(&schema, Vec::new(), bytes);
                        row.set(column, value.clone()).unwrap();
                        *bytes = row.raw().to_vec();
                        values[column] = value;
                    }
                }
                for (bytes, values) in &rows {
                    prop_assert_eq!(schema.layout().check(bytes), Ok(()));
                    let row = Row::new(&schema, bytes);
                    prop_assert_eq!(&row.values(), values);
                    let mut copy = row.to_owned();
                    prop_assert_eq!(&copy.values(), values);
                    // A copy may be written, also where the row has nothing.
                    let last = values.len() - 1;
                    copy.set(last, values[last].clone()).unwrap();
                    prop_assert_eq!(&copy.values(), values);
                    prop_assert_eq!(row.to_owned().check_nulls(), Ok(()));
                }
            }
            // What is cut is no row, unless it is cut between columns.
            for (bytes, _) in &rows {
                let ends = (0..bytes.len()).filter(|&end| schema.layout().check(&bytes[..end]).is_ok());
                let added = schema.layout().stored().0.len() - schema.layout().stored().1;
                prop_assert!(ends.count() <= added);
            }
        }
    }
}
