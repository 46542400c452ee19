//! Exact decimals with a fixed number of places, in PostgreSQL's binary form of
//! `numeric`, so that money is neither rounded nor formatted as text.
//!
//! The wire form is a sign and base-10000 digits: `ndigits`, `weight` (the
//! power of 10000 of the first digit), `sign`, `dscale`, then the digits, each
//! 16 bits, big-endian.

use std::error::Error;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

/// `self.0` divided by 10^`PLACES`; `PLACES` is 0 to 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fixed<const PLACES: u32>(pub i64);

/// Money: two places.
pub type Cents = Fixed<2>;
/// Rates (taxes and discounts): four places.
pub type Rate = Fixed<4>;

const NEGATIVE: u16 = 0x4000;

impl<const PLACES: u32> ToSql for Fixed<PLACES> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // With four places, the last digit is the fraction and the others are
        // the whole part.
        let scaled = i128::from(self.0) * 10_i128.pow(4 - PLACES);
        let mut rest = scaled.unsigned_abs();
        let mut digits = [0_u16; 8];
        let mut count = 0;
        while rest > 0 {
            digits[count] = (rest % 10_000) as u16;
            rest /= 10_000;
            count += 1;
        }
        out.put_u16(count as u16);
        out.put_i16(count as i16 - 2);
        out.put_u16(if scaled < 0 { NEGATIVE } else { 0 });
        out.put_u16(PLACES as u16);
        for digit in digits[..count].iter().rev() {
            out.put_u16(*digit);
        }
        Ok(IsNull::No)
    }

    accepts!(NUMERIC);
    to_sql_checked!();
}

impl<'a, const PLACES: u32> FromSql<'a> for Fixed<PLACES> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (words, []) = raw.as_chunks::<2>() else {
            return Err("a numeric with half a word".into());
        };
        let word = |index: usize| words.get(index).map(|word| u16::from_be_bytes(*word));
        let (Some(count), Some(weight), Some(sign)) = (word(0), word(1), word(2)) else {
            return Err("a numeric without a header".into());
        };
        if sign != 0 && sign != NEGATIVE {
            return Err("a numeric that is not a number".into());
        }
        // Sum of digit * 10000^power, in units of 10^-PLACES.
        let mut units = 0_i128;
        for index in 0..usize::from(count) {
            let digit = i128::from(word(4 + index).ok_or("a numeric cut short")?);
            let power = i32::from(weight as i16) - index as i32;
            let exponent = power * 4 + PLACES as i32;
            units += if exponent >= 0 {
                let factor = 10_i128.checked_pow(exponent as u32).ok_or("too large")?;
                digit.checked_mul(factor).ok_or("too large")?
            } else {
                digit / 10_i128.pow(exponent.unsigned_abs())
            };
        }
        let units = i64::try_from(units)?;
        Ok(Fixed(if sign == NEGATIVE { -units } else { units }))
    }

    accepts!(NUMERIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_the_wire<const P: u32>(value: i64) -> i64 {
        let mut wire = BytesMut::new();
        Fixed::<P>(value).to_sql(&Type::NUMERIC, &mut wire).unwrap();
        Fixed::<P>::from_sql(&Type::NUMERIC, &wire).unwrap().0
    }

    #[test]
    fn money_and_rates_survive_the_wire() {
        for value in [
            0,
            1,
            -1,
            99,
            100,
            -1000,
            500_000,
            30_000_000,
            9_999_999_999,
            -12_345_678,
        ] {
            assert_eq!(through_the_wire::<2>(value), value);
            assert_eq!(through_the_wire::<4>(value), value);
            assert_eq!(through_the_wire::<0>(value), value);
        }
    }

    #[test]
    fn the_server_may_drop_trailing_zeros() {
        // 300000.00 as the server sends it: one digit, 30, times 10000^1.
        let wire = [0, 1, 0, 1, 0, 0, 0, 2, 0, 30];
        assert_eq!(
            Cents::from_sql(&Type::NUMERIC, &wire).unwrap(),
            Fixed(30_000_000)
        );
    }

    #[test]
    fn not_a_number_is_an_error() {
        assert!(Cents::from_sql(&Type::NUMERIC, &[0, 0, 0, 0, 0xC0, 0, 0, 0]).is_err());
        assert!(Cents::from_sql(&Type::NUMERIC, &[0, 1, 0, 0]).is_err());
    }
}
