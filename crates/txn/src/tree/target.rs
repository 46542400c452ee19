//! Keys as nodes compare them.

/// A key to look for, with its first bytes as a number.
pub(super) struct Target<'k> {
    pub(super) key: &'k [u8],
    /// The first 16 bytes, padded with zeros.
    pub(super) first: u128,
}

impl<'k> Target<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8]) -> Target<'k> {
        Target {
            key,
            first: first_of(key),
        }
    }
}

/// The first 16 bytes, padded with zeros: by words, which is quicker than by a copy
/// of as many bytes as there are.
#[inline]
fn first_of(key: &[u8]) -> u128 {
    let word = |at: usize| key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    let word = |at: usize| word(at).map(u32::from_be_bytes);
    let mut first = 0;
    for at in [0, 4, 8, 12] {
        let Some(word) = word(at) else {
            for (byte, place) in key.iter().skip(at).zip(at..) {
                first |= u128::from(*byte) << (8 * (15 - place));
            }
            break;
        };
        first |= u128::from(word) << (8 * (12 - at));
    }
    first
}

/// The shortest key above `left` and not above `right`, given `left < right`.
pub(super) fn shortest_between<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    &right[..right.len().min(same + 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_are_compared_as_the_keys_are() {
        let bytes: Vec<u8> = (1..=20).collect();
        for length in 0..=20 {
            let mut padded = [0; 16];
            let kept = length.min(16);
            padded[..kept].copy_from_slice(&bytes[..kept]);
            let target = Target::new(&bytes[..length]);
            assert_eq!(target.first, u128::from_be_bytes(padded));
        }
    }

    #[test]
    fn separators_are_short_and_separate() {
        assert_eq!(shortest_between(b"abc", b"abx"), b"abx");
        assert_eq!(shortest_between(b"abc", b"bbbbb"), b"b");
        assert_eq!(shortest_between(b"ab", b"abc"), b"abc");
    }
}
