//! Byte sizes on the command line: `8`, `64,1K,1M`, `8..1M` (doubling).

use std::ops::RangeInclusive;
use std::str::FromStr;
use thiserror::Error;
use tsumugi_lab::{MTU_BYTES_MAX, MTU_BYTES_MIN};

/// The largest message the library carries, in bytes (1 GiB).
pub(crate) const MESSAGE_BYTES_MAX: u64 = 1 << 30;

/// Why a size was not understood.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SizeError {
    /// Nothing was written.
    #[error("an empty size; write bytes, as in `8`, `64,1K,1M` or `8..1M`")]
    Empty,
    /// No whole number of bytes.
    #[error("`{0}` is not a size; write a whole number of bytes with an optional K, M or G (powers of 1024)")]
    NotASize(String),
    /// Nothing can be measured of it.
    #[error("a size of 0 bytes cannot be measured; the smallest is 1")]
    Zero,
    /// More than a message has.
    #[error("`{0}` is over the limit of one message, 1G (1,073,741,824 bytes)")]
    OverTheLimit(String),
    /// A range that has nothing in it.
    #[error("the range `{0}` ends before it begins")]
    Backwards(String),
}

/// A list of message sizes in bytes, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

impl FromStr for Sizes {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Sizes, SizeError> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(message_size(part)?),
                Some((first, last)) => {
                    let (first, last) = (message_size(first)?, message_size(last)?);
                    if last < first {
                        return Err(SizeError::Backwards(part.trim().to_owned()));
                    }
                    // Doubling from the first; the last is always measured, also when doubling misses it.
                    sizes.extend(
                        std::iter::successors(Some(first), |size| Some(size * 2))
                            .take_while(|&size| size < last),
                    );
                    sizes.push(last);
                }
            }
        }
        Ok(Sizes(sizes))
    }
}

/// The size of one message: at least 1 and at most [`MESSAGE_BYTES_MAX`] bytes.
fn message_size(text: &str) -> Result<u64, SizeError> {
    match bytes(text)? {
        0 => Err(SizeError::Zero),
        size if size > MESSAGE_BYTES_MAX => Err(SizeError::OverTheLimit(text.trim().to_owned())),
        size => Ok(size),
    }
}

/// A number of bytes within a range, with an optional K, M or G, for an option whose values are called `what`.
pub(crate) fn within<T: TryFrom<u64>>(
    what: &'static str,
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let bytes = bytes(text).map_err(|why| why.to_string())?;
        let fitting = range.contains(&bytes).then(|| T::try_from(bytes).ok()).flatten();
        fitting.ok_or_else(|| {
            format!("{what} of {text} bytes is not possible; write {} to {}", range.start(), range.end())
        })
    }
}

/// The MTU of a lab's NICs, bytes.
///
/// # Errors
/// It is none that they can have.
pub fn mtu(text: &str) -> Result<u32, String> {
    within("an MTU", MTU_BYTES_MIN.into()..=MTU_BYTES_MAX.into())(text)
}

/// A number of bytes with an optional K, M or G (also KiB, kib, KB …: always powers of 1024).
///
/// # Errors
/// It is none.
pub fn bytes(text: &str) -> Result<u64, SizeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(SizeError::Empty);
    }
    let not_a_size = || SizeError::NotASize(text.to_owned());
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| not_a_size())?;
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(not_a_size()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| SizeError::OverTheLimit(text.to_owned()))
}

/// `8 B`, `64 KiB`, `1 MiB`; what is not a whole number of a unit stays in the smaller one.
pub(crate) fn show(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<u64>, SizeError> {
        text.parse::<Sizes>().map(|sizes| sizes.0)
    }

    #[test]
    fn lists_and_units() {
        assert_eq!(parse("8"), Ok(vec![8]));
        assert_eq!(parse("64,1K, 1MiB,1g"), Ok(vec![64, 1024, 1 << 20, 1 << 30]));
    }

    #[test]
    fn ranges_double_and_include_their_end() {
        assert_eq!(parse("8..64"), Ok(vec![8, 16, 32, 64]));
        assert_eq!(parse("8..100"), Ok(vec![8, 16, 32, 64, 100]));
        assert_eq!(parse("5..5"), Ok(vec![5]));
        assert_eq!(parse("1,8..16,1K"), Ok(vec![1, 8, 16, 1024]));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(parse(""), Err(SizeError::Empty));
        assert_eq!(parse("8,"), Err(SizeError::Empty));
        assert_eq!(parse("..8"), Err(SizeError::Empty));
        assert_eq!(parse("0"), Err(SizeError::Zero));
        assert_eq!(parse("-1"), Err(SizeError::NotASize("-1".into())));
        assert_eq!(parse("1.5K"), Err(SizeError::NotASize("1.5K".into())));
        assert_eq!(parse("8X"), Err(SizeError::NotASize("8X".into())));
        assert_eq!(parse("2G"), Err(SizeError::OverTheLimit("2G".into())));
        assert_eq!(parse("99999999999G"), Err(SizeError::OverTheLimit("99999999999G".into())));
        assert_eq!(parse("64..8"), Err(SizeError::Backwards("64..8".into())));
    }

    #[test]
    fn numbers_of_bytes_have_units_and_limits() {
        assert_eq!((mtu("1500"), mtu("9K")), (Ok(1500), Ok(9216)));
        assert_eq!(mtu("100"), Err("an MTU of 100 bytes is not possible; write 576 to 65535".into()));
        assert!(mtu("-1").is_err_and(|said| said.contains("`-1` is not a size")));
        assert!(within::<u16>("it", 0..=u64::MAX)("64K").is_err());
    }

    #[test]
    fn sizes_are_shown_in_their_own_unit() {
        assert_eq!(show(8), "8 B");
        assert_eq!(show(1500), "1500 B");
        assert_eq!(show(65536), "64 KiB");
        assert_eq!(show(1 << 20), "1 MiB");
    }
}
