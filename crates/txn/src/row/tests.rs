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
    assert_eq!(schema.layout().check(schema.columns(), row.raw()), Ok(()));
    row.set_null(1).set_null(2).set_null(3);
    assert_eq!(row.value(1), Value::Null);
    assert_eq!(row.as_row().f64(4), 0.5);
    assert_eq!(schema.layout().check(schema.columns(), row.raw()), Ok(()));
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
    let check = |bytes: &[u8]| schema.layout().check(schema.columns(), bytes);
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
