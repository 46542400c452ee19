//! One array of many parts, put together a part at a time.
//!
//! Arrow's `concat` makes it in one call, which takes tens of milliseconds for millions
//! of rows. These are the same builders with a stop after every part. They are given
//! their full size at once; the system adds the pages as they are written.
//!
//! Known weakness: nested, dictionary and fixed-size binary arrays have no builder that
//! takes parts. They are kept until the last one and then put together in one call.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, GenericByteBuilder, GenericByteViewBuilder,
    PrimitiveBuilder, downcast_primitive, new_empty_array,
};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, BinaryType, BinaryViewType, ByteArrayType, ByteViewType,
    DataType, LargeBinaryType, LargeUtf8Type, StringViewType, Utf8Type,
};
use datafusion::common::Result;
use datafusion::common::cast::as_boolean_array;

/// An array that is being put together.
pub(super) struct Growing {
    data_type: DataType,
    /// How many there will be.
    rows: usize,
    bytes: usize,
    /// Each is let go when it has been taken over.
    parts: Box<dyn Iterator<Item = Result<ArrayRef>> + Send>,
    /// The one part there is needs no copy.
    is_single: bool,
    builder: Option<Box<dyn Builder>>,
}

impl Growing {
    /// An array of these, so many rows together.
    pub(super) fn of(data_type: &DataType, rows: usize, parts: Vec<ArrayRef>) -> Growing {
        Growing {
            bytes: parts.iter().map(bytes).sum(),
            is_single: parts.len() == 1,
            ..Growing::made(data_type, rows, parts.into_iter().map(Ok))
        }
    }

    /// An array of parts that are made as they are asked for.
    pub(super) fn made(
        data_type: &DataType,
        rows: usize,
        parts: impl Iterator<Item = Result<ArrayRef>> + Send + 'static,
    ) -> Growing {
        Growing {
            data_type: data_type.clone(),
            rows,
            bytes: 0,
            parts: Box::new(parts),
            is_single: false,
            builder: None,
        }
    }

    /// Takes the next part; the array, if there is none.
    pub(super) fn grow(&mut self) -> Result<Option<ArrayRef>> {
        let builder = self.builder.get_or_insert_with(|| match self.is_single {
            true => Box::new(Kept::default()),
            false => builder(&self.data_type, self.rows, self.bytes),
        });
        match self.parts.next() {
            Some(part) => builder.append(part?).map(|()| None),
            None => builder.whole(&self.data_type).map(Some),
        }
    }
}

/// Bytes that an array's values take beside their offsets.
fn bytes(array: &ArrayRef) -> usize {
    fn used<T: ByteArrayType>(array: &ArrayRef) -> usize {
        let offsets = array.as_bytes::<T>().value_offsets();
        (offsets[offsets.len() - 1] - offsets[0]).as_usize()
    }
    match array.data_type() {
        DataType::Utf8 => used::<Utf8Type>(array),
        DataType::LargeUtf8 => used::<LargeUtf8Type>(array),
        DataType::Binary => used::<BinaryType>(array),
        DataType::LargeBinary => used::<LargeBinaryType>(array),
        _ => 0,
    }
}

/// What makes arrays of a type.
trait Builder: Send {
    fn append(&mut self, part: ArrayRef) -> Result<()>;
    fn whole(&mut self, data_type: &DataType) -> Result<ArrayRef>;
}

fn builder(data_type: &DataType, rows: usize, bytes: usize) -> Box<dyn Builder> {
    macro_rules! primitive {
        ($type:ty, $data_type:ident, $rows:ident) => {
            Box::new(
                PrimitiveBuilder::<$type>::with_capacity($rows).with_data_type($data_type.clone()),
            )
        };
    }
    fn of_bytes<T: ByteArrayType>(rows: usize, bytes: usize) -> Box<dyn Builder> {
        Box::new(GenericByteBuilder::<T>::with_capacity(rows, bytes))
    }
    downcast_primitive! {
        data_type => (primitive, data_type, rows),
        DataType::Boolean => Box::new(BooleanBuilder::with_capacity(rows)),
        DataType::Utf8 => of_bytes::<Utf8Type>(rows, bytes),
        DataType::LargeUtf8 => of_bytes::<LargeUtf8Type>(rows, bytes),
        DataType::Binary => of_bytes::<BinaryType>(rows, bytes),
        DataType::LargeBinary => of_bytes::<LargeBinaryType>(rows, bytes),
        DataType::Utf8View => {
            Box::new(GenericByteViewBuilder::<StringViewType>::with_capacity(rows))
        }
        DataType::BinaryView => {
            Box::new(GenericByteViewBuilder::<BinaryViewType>::with_capacity(rows))
        }
        _ => Box::new(Kept::default()),
    }
}

impl<T: ArrowPrimitiveType> Builder for PrimitiveBuilder<T> {
    fn append(&mut self, part: ArrayRef) -> Result<()> {
        self.append_array(part.as_primitive());
        Ok(())
    }

    fn whole(&mut self, _: &DataType) -> Result<ArrayRef> {
        Ok(Arc::new(self.finish()))
    }
}

impl Builder for BooleanBuilder {
    fn append(&mut self, part: ArrayRef) -> Result<()> {
        self.append_array(as_boolean_array(&part)?);
        Ok(())
    }

    fn whole(&mut self, _: &DataType) -> Result<ArrayRef> {
        Ok(Arc::new(self.finish()))
    }
}

impl<T: ByteArrayType> Builder for GenericByteBuilder<T> {
    fn append(&mut self, part: ArrayRef) -> Result<()> {
        Ok(self.append_array(part.as_bytes())?)
    }

    fn whole(&mut self, _: &DataType) -> Result<ArrayRef> {
        Ok(Arc::new(self.finish()))
    }
}

impl<T: ByteViewType> Builder for GenericByteViewBuilder<T> {
    fn append(&mut self, part: ArrayRef) -> Result<()> {
        self.append_array(part.as_byte_view());
        Ok(())
    }

    fn whole(&mut self, _: &DataType) -> Result<ArrayRef> {
        Ok(Arc::new(self.finish()))
    }
}

/// Parts of arrays that only come in one piece.
#[derive(Default)]
struct Kept(Vec<ArrayRef>);

impl Builder for Kept {
    fn append(&mut self, part: ArrayRef) -> Result<()> {
        self.0.push(part);
        Ok(())
    }

    fn whole(&mut self, data_type: &DataType) -> Result<ArrayRef> {
        match self.0.as_slice() {
            [] => Ok(new_empty_array(data_type)),
            [only] => Ok(Arc::clone(only)),
            parts => {
                let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                Ok(concat(&parts)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use datafusion::arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Int64Array, LargeStringArray,
        StringArray, StringViewArray, TimestampNanosecondArray,
    };
    use datafusion::arrow::datatypes::Int32Type;

    /// As long strings as are not kept inside of views, and short ones, and none.
    fn texts(from: usize) -> Vec<Option<String>> {
        let text = |row: usize| (row % 5 != 2).then(|| "grown ".repeat(row % 7));
        (from..from + 40).map(text).collect()
    }

    fn samples(from: usize) -> Vec<ArrayRef> {
        let numbers = (from..from + 40).map(|row| (row % 3 != 0).then_some(row as i64));
        let numbers: Vec<Option<i64>> = numbers.collect();
        let wide = numbers.iter().map(|number| number.map(i128::from));
        let wide: Decimal128Array = wide.collect();
        let texts = texts(from);
        let short: DictionaryArray<Int32Type> = texts.iter().map(|text| text.as_deref()).collect();
        let bytes: Vec<Option<&[u8]>> = (texts.iter())
            .map(|text| text.as_deref().map(str::as_bytes))
            .collect();
        vec![
            Arc::new(Int64Array::from(numbers.clone())),
            Arc::new(wide.with_precision_and_scale(20, 4).unwrap()),
            Arc::new(TimestampNanosecondArray::from(numbers).with_timezone("UTC")),
            Arc::new(BooleanArray::from_iter(
                (0..40).map(|row| Some(row % 3 == 1)),
            )),
            Arc::new(StringArray::from(texts.clone())),
            Arc::new(LargeStringArray::from(texts.clone())),
            Arc::new(BinaryArray::from(bytes)),
            Arc::new(StringViewArray::from_iter(texts.iter())),
            Arc::new(short),
        ]
    }

    #[test]
    fn parts_make_what_concat_makes() {
        // Parts of all lengths, one of them empty, some from the middle of an array.
        let parts: Vec<Vec<ArrayRef>> = vec![
            samples(0),
            samples(100)
                .iter()
                .map(|array| array.slice(7, 20))
                .collect(),
            samples(9).iter().map(|array| array.slice(3, 0)).collect(),
            samples(50).iter().map(|array| array.slice(39, 1)).collect(),
        ];
        for column in 0..parts[0].len() {
            for count in 0..=parts.len() {
                let parts: Vec<ArrayRef> = (parts[..count].iter())
                    .map(|part| Arc::clone(&part[column]))
                    .collect();
                let data_type = samples(0)[column].data_type().clone();
                let rows = parts.iter().map(|part| part.len()).sum();
                let expected = match count {
                    0 => new_empty_array(&data_type),
                    _ => {
                        let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
                        concat(&parts).unwrap()
                    }
                };
                let mut growing = Growing::of(&data_type, rows, parts);
                for _ in 0..count {
                    assert!(growing.grow().unwrap().is_none(), "a part at a time");
                }
                let whole = growing.grow().unwrap().expect("that was the last one");
                assert_eq!(&whole, &expected, "{data_type}, {count} parts");
            }
        }
    }

    #[test]
    fn memory_is_asked_for_once() {
        let parts = vec![samples(0).remove(4), samples(3).remove(4)];
        let used: usize = parts.iter().map(bytes).sum();
        let mut growing = Growing::of(&DataType::Utf8, 80, parts);
        let whole = loop {
            if let Some(whole) = growing.grow().unwrap() {
                break whole;
            }
        };
        let values = whole.as_string::<i32>().values();
        assert_eq!(values.len(), used);
        assert!(values.capacity() < used + 64, "{}", values.capacity());
    }

    #[test]
    fn one_part_is_not_copied() {
        let part = samples(0).remove(0);
        let mut growing = Growing::of(&DataType::Int64, 40, vec![Arc::clone(&part)]);
        assert!(growing.grow().unwrap().is_none());
        let whole = growing.grow().unwrap().unwrap();
        assert!(Arc::ptr_eq(&whole, &part));
    }
}
