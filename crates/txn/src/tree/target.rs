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
        let mut first = [0; 16];
        let length = key.len().min(16);
        first[..length].copy_from_slice(&key[..length]);
        Target {
            key,
            first: u128::from_be_bytes(first),
        }
    }
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
    fn separators_are_short_and_separate() {
        assert_eq!(shortest_between(b"abc", b"abx"), b"abx");
        assert_eq!(shortest_between(b"abc", b"bbbbb"), b"b");
        assert_eq!(shortest_between(b"ab", b"abc"), b"abc");
    }
}
