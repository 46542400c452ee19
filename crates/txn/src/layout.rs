//! Where columns are in a row's bytes; `row` shows the bytes.
//!
//! A row has a base and, behind it, one part for each column that was added to its
//! table later. Rows that are older than a column end before its part: then the column
//! has its *initial* value, which the layout knows. So no row is rewritten when a column
//! is added, and nothing is looked up to read one of the base.
//!
//! ```text
//!  row of the table as it was made      │ base │
//!  row since one column was added       │ base │ part │
//!  row since another one was            │ base │ part │ part │
//! ```
//!
//! A column that was dropped keeps its place, since rows have it. New rows have its
//! NULL there, or what takes least space if it could not be NULL: who reads with an
//! older schema finds a value.
//!
//! Known weakness: reading an added column costs one step for each column that was
//! added before it, and the place of a dropped one is never used again.

use crate::column::{Column, Type};

/// Where columns are in a row's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) places: Vec<Place>,
    /// Where the ends of the base's variable columns begin.
    pub(crate) ends: usize,
    /// Where the base's variable data begins: its length without any.
    pub(crate) data: usize,
    /// All columns there ever were, in the order of their numbers.
    stored: Vec<Stored>,
    /// So many of them are in the base.
    base: usize,
    /// A row that has as few values as it may.
    pub(crate) blank: Vec<u8>,
}

/// A column as rows have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) column: Column,
    pub(crate) dropped: bool,
    /// What its part has in rows that have no such part; nothing in the base.
    pub(crate) initial: Vec<u8>,
}

/// Where a column is. The same in all later layouts of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) ty: Type,
    /// Which of the columns there ever were.
    pub(crate) number: u16,
    /// Which part has it, from 1 on; 0 for the base.
    part: u16,
    /// Fixed columns: offset of the value. Variable ones in the base: which of them it
    /// is.
    pub(crate) at: u32,
}

/// In a part: where the value, or its length, is.
pub(crate) const VALUE: usize = 1;
/// In a part: where the data of a variable column is.
pub(crate) const DATA: usize = VALUE + 4;

impl Layout {
    /// The layout of rows that have these columns, the first `base` of them from the
    /// beginning.
    pub(crate) fn new(stored: Vec<Stored>, base: usize) -> Layout {
        let mut offset = base.div_ceil(8);
        let mut variable = 0;
        let mut places = Vec::new();
        for (number, stored) in stored.iter().enumerate() {
            let ty = stored.column.ty;
            let at = match ty.fixed_bytes() {
                _ if number >= base => VALUE,
                Some(bytes) => {
                    offset += bytes;
                    offset - bytes
                }
                None => {
                    variable += 1;
                    variable - 1
                }
            };
            if !stored.dropped {
                places.push(Place {
                    ty,
                    number: number as u16,
                    part: (number + 1).saturating_sub(base) as u16,
                    at: at as u32,
                });
            }
        }
        let mut layout = Layout {
            places,
            ends: offset,
            data: offset + 4 * variable,
            stored,
            base,
            blank: Vec::new(),
        };
        layout.blank = layout.make_blank();
        layout
    }

    fn make_blank(&self) -> Vec<u8> {
        let mut row = vec![0; self.data];
        for ends in row[self.ends..].chunks_exact_mut(4) {
            ends.copy_from_slice(&(self.data as u32).to_le_bytes());
        }
        for (number, stored) in self.stored.iter().enumerate() {
            let null = !stored.dropped || stored.column.nullable;
            if number < self.base {
                row[number / 8] |= u8::from(null) << (number % 8);
            } else {
                row.push(u8::from(null));
                let bytes = stored.column.ty.fixed_bytes().unwrap_or(DATA - VALUE);
                row.resize(row.len() + bytes, 0);
            }
        }
        row
    }

    /// All columns there ever were, and how many of them are in the base.
    pub(crate) fn stored(&self) -> (&[Stored], usize) {
        (&self.stored, self.base)
    }

    #[inline]
    pub(crate) fn place(&self, column: usize, wanted: Type) -> Place {
        let place = self.places[column];
        if place.ty != wanted {
            wrong_type(column, place.ty, wanted);
        }
        place
    }

    /// Whether the column is NULL.
    #[inline]
    pub(crate) fn is_null(&self, bytes: &[u8], place: Place) -> bool {
        match place.part {
            0 => bytes[usize::from(place.number / 8)] & (1 << (place.number % 8)) != 0,
            part => self.part(bytes, part)[0] != 0,
        }
    }

    /// What the place of a column that has a value counts from.
    ///
    /// # Panics
    /// The column has another type, or is NULL.
    #[inline]
    pub(crate) fn value<'a>(
        &'a self,
        bytes: &'a [u8],
        column: usize,
        wanted: Type,
    ) -> (&'a [u8], Place) {
        let place = self.place(column, wanted);
        let (from, null) = match place.part {
            0 => {
                let bit = 1 << (place.number % 8);
                (bytes, bytes[usize::from(place.number / 8)] & bit)
            }
            part => {
                let part = self.part(bytes, part);
                (part, part[0])
            }
        };
        if null != 0 {
            no_value(column);
        }
        (from, place)
    }

    /// The bytes of a variable column that has a value.
    ///
    /// # Panics
    /// The column has another type, or is NULL.
    #[inline]
    pub(crate) fn variable_value<'a>(
        &'a self,
        bytes: &'a [u8],
        column: usize,
        wanted: Type,
    ) -> &'a [u8] {
        let place = self.place(column, wanted);
        if place.part > 0 {
            return self.added_value(bytes, column, place);
        }
        if bytes[usize::from(place.number / 8)] & (1 << (place.number % 8)) != 0 {
            no_value(column);
        }
        let (start, end) = self.span(bytes, place.at as usize);
        &bytes[start..end]
    }

    /// The same for a column that was added.
    #[cold]
    fn added_value<'a>(&'a self, bytes: &'a [u8], column: usize, place: Place) -> &'a [u8] {
        let part = self.part(bytes, place.part);
        if part[0] != 0 {
            no_value(column);
        }
        &part[DATA..]
    }

    /// The bytes of a fixed column.
    #[inline]
    pub(crate) fn fixed<const N: usize>(&self, bytes: &[u8], place: Place) -> [u8; N] {
        let bytes = match place.part {
            0 => bytes,
            part => self.part(bytes, part),
        };
        let at = place.at as usize;
        bytes[at..at + N].try_into().expect("as long as asked for")
    }

    /// The bytes of a variable column.
    #[inline]
    pub(crate) fn variable<'a>(&'a self, bytes: &'a [u8], place: Place) -> &'a [u8] {
        match place.part {
            0 => {
                let (start, end) = self.span(bytes, place.at as usize);
                &bytes[start..end]
            }
            part => &self.part(bytes, part)[DATA..],
        }
    }

    /// From where to where the data of the base's variable column number `index` is.
    #[inline]
    pub(crate) fn span(&self, bytes: &[u8], index: usize) -> (usize, usize) {
        let end = |index: usize| u32_at(bytes, self.ends + 4 * index) as usize;
        let start = if index == 0 {
            self.data
        } else {
            end(index - 1)
        };
        (start, end(index))
    }

    /// Where the base ends.
    fn base_end(&self, bytes: &[u8]) -> usize {
        match self.ends == self.data {
            true => self.data,
            false => u32_at(bytes, self.data - 4) as usize,
        }
    }

    /// A column's part, or what it would be.
    #[cold]
    fn part<'a>(&'a self, bytes: &'a [u8], part: u16) -> &'a [u8] {
        match self.find_part(bytes, part) {
            Some((start, end)) => &bytes[start..end],
            None => &self.stored[self.base + usize::from(part) - 1].initial,
        }
    }

    /// From where to where a column's part is, if the row has it.
    #[cold]
    fn find_part(&self, bytes: &[u8], part: u16) -> Option<(usize, usize)> {
        let mut span = (0, self.base_end(bytes));
        for stored in &self.stored[self.base..self.base + usize::from(part)] {
            if span.1 == bytes.len() {
                return None;
            }
            span = (span.1, span.1 + part_bytes(stored, &bytes[span.1..])?);
        }
        Some(span)
    }

    /// From where to where a column's part is in a row that has it.
    #[inline]
    pub(crate) fn part_span(&self, bytes: &[u8], place: Place) -> Option<(usize, usize)> {
        (place.part > 0).then(|| {
            self.find_part(bytes, place.part)
                .expect("the row is complete")
        })
    }

    /// Adds the parts that a row is too old to have.
    pub(crate) fn complete(&self, row: &mut Vec<u8>) {
        let added = &self.stored[self.base..];
        if added.is_empty() {
            return;
        }
        let mut at = self.base_end(row);
        for stored in added {
            if at == row.len() {
                row.extend_from_slice(&stored.initial);
            }
            at += part_bytes(stored, &row[at..]).expect("parts are whole");
        }
    }

    /// Whether these bytes are a row, so that no accessor fails on them.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), &'static str> {
        const OUTSIDE: &str = "a column lies outside of them";
        if bytes.len() < self.data {
            return Err("they are too short");
        }
        let (base, added) = self.stored.split_at(self.base);
        let (mut last, mut variable) = (self.data, 0);
        for (number, stored) in base.iter().enumerate() {
            let null = bytes[number / 8] & (1 << (number % 8)) != 0;
            stored.check_null(null)?;
            if stored.column.ty.fixed_bytes().is_some() {
                continue;
            }
            let (start, end) = self.span(bytes, variable);
            variable += 1;
            if start != last || end < start || end > bytes.len() {
                return Err(OUTSIDE);
            }
            stored.check(&bytes[start..end])?;
            last = end;
        }
        for stored in added {
            if last == bytes.len() {
                break;
            }
            let length = part_bytes(stored, &bytes[last..]).ok_or(OUTSIDE)?;
            let part = bytes.get(last..last + length).ok_or(OUTSIDE)?;
            stored.check_part(part)?;
            last += length;
        }
        match last == bytes.len() {
            true => Ok(()),
            false => Err("they are too long"),
        }
    }
}

impl Stored {
    /// Whether these bytes are a part of a row.
    pub(crate) fn is_whole_part(&self, part: &[u8]) -> bool {
        part_bytes(self, part) == Some(part.len()) && self.check_part(part).is_ok()
    }

    fn check_part(&self, part: &[u8]) -> Result<(), &'static str> {
        self.check_null(part[0] != 0)?;
        match self.column.ty.fixed_bytes() {
            Some(_) => Ok(()),
            None => self.check(&part[DATA..]),
        }
    }

    /// Whether a row may have NULL, or not NULL, there.
    fn check_null(&self, null: bool) -> Result<(), &'static str> {
        match null && !self.column.nullable {
            true => Err("a column that must have a value has none"),
            false => Ok(()),
        }
    }

    /// Whether this is a value of a variable column.
    fn check(&self, data: &[u8]) -> Result<(), &'static str> {
        match self.column.ty == Type::Text && std::str::from_utf8(data).is_err() {
            true => Err("text is not UTF-8"),
            false => Ok(()),
        }
    }
}

/// How long the part is that these bytes begin with; `None` if they are too short to
/// tell.
fn part_bytes(stored: &Stored, bytes: &[u8]) -> Option<usize> {
    match stored.column.ty.fixed_bytes() {
        Some(length) => Some(VALUE + length),
        None if bytes.len() < DATA => None,
        None => Some(DATA + u32_at(bytes, VALUE) as usize),
    }
}

/// Apart, so that reading a column is short enough to be compiled into who reads.
#[cold]
#[inline(never)]
fn wrong_type(column: usize, is: Type, wanted: Type) -> ! {
    panic!("column {column} is {is}, not {wanted}")
}

/// Apart, as above.
#[cold]
#[inline(never)]
fn no_value(column: usize) -> ! {
    panic!("column {column} is NULL")
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}
