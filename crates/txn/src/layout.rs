//! Where columns are in a row's bytes; `row` shows the bytes.

use crate::column::{Column, Type};

/// Where columns are in a row's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    /// Where the ends of the variable columns begin.
    pub(crate) ends: usize,
    /// Where the variable data begins: the length of a row without any.
    pub(crate) data: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) ty: Type,
    /// Fixed columns: offset of the value. Variable ones: which of them it is.
    pub(crate) at: u32,
}

impl Layout {
    pub(crate) fn new(columns: &[Column]) -> Layout {
        let mut offset = columns.len().div_ceil(8);
        let mut variable = 0;
        let places = columns
            .iter()
            .map(|column| {
                let at = match column.ty.fixed_bytes() {
                    Some(bytes) => {
                        offset += bytes;
                        offset - bytes
                    }
                    None => {
                        variable += 1;
                        variable - 1
                    }
                };
                Place {
                    ty: column.ty,
                    at: at as u32,
                }
            })
            .collect();
        Layout {
            places,
            ends: offset,
            data: offset + 4 * variable,
        }
    }

    #[inline]
    pub(crate) fn place(&self, column: usize, wanted: Type) -> usize {
        let place = self.places[column];
        assert!(
            place.ty == wanted,
            "column {column} is {}, not {wanted}",
            place.ty
        );
        place.at as usize
    }

    /// From where to where the data of variable column number `index` is.
    #[inline]
    pub(crate) fn span(&self, bytes: &[u8], index: usize) -> (usize, usize) {
        let end = |index: usize| {
            let at = self.ends + 4 * index;
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
        };
        let start = if index == 0 {
            self.data
        } else {
            end(index - 1)
        };
        (start, end(index))
    }

    /// Whether these bytes are a row, so that no accessor fails on them.
    pub(crate) fn check(&self, columns: &[Column], bytes: &[u8]) -> Result<(), &'static str> {
        if bytes.len() < self.data {
            return Err("they are too short");
        }
        let mut last = self.data;
        for (place, column) in self.places.iter().zip(columns) {
            if column.ty.fixed_bytes().is_some() {
                continue;
            }
            let (start, end) = self.span(bytes, place.at as usize);
            if start != last || end < start || end > bytes.len() {
                return Err("a column lies outside of them");
            }
            if place.ty == Type::Text && std::str::from_utf8(&bytes[start..end]).is_err() {
                return Err("text is not UTF-8");
            }
            last = end;
        }
        if last != bytes.len() {
            return Err("they are too long");
        }
        let null = |at: usize| bytes[at / 8] & (1 << (at % 8)) != 0;
        if (0..columns.len()).any(|at| null(at) && !columns[at].nullable) {
            return Err("a column that must have a value has none");
        }
        Ok(())
    }
}
