//! Sizes as people write them: `64KiB`, `1MB`, `512`. Use as `#[serde(with = "settings::byte_size")]`
//! on a `u64` or `usize`.

use serde::{Deserialize, Deserializer, Serializer};

const UNITS: [(&str, u64); 8] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
];

/// Not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a size: write a whole number of bytes or one with a unit (KiB, MiB, GiB), such as 64KiB"
)]
pub struct InvalidSize {
    text: String,
}

/// Parses a whole number, of bytes or with a unit.
///
/// # Errors
/// On anything else, an overflow included.
pub fn parse(text: &str) -> Result<u64, InvalidSize> {
    let invalid = || InvalidSize { text: text.to_owned() };
    let trimmed = text.trim();
    let (number, unit) =
        trimmed.split_at(trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len()));
    let size = match unit.trim() {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?.1,
    };
    let number: u64 = number.parse().map_err(|_| invalid())?;
    number.checked_mul(size).ok_or_else(invalid)
}

/// The size in the largest binary unit that divides it.
#[must_use]
pub fn format(size: u64) -> String {
    let unit = UNITS[..3].iter().find(|(_, length)| size > 0 && size.is_multiple_of(*length));
    match unit {
        Some((unit, length)) => format!("{}{unit}", size / length),
        None => format!("{size}B"),
    }
}

/// For serde.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Copy + TryInto<u64>, S: Serializer>(size: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let size = (*size).try_into().map_err(|_| serde::ser::Error::custom("size out of range"))?;
    serializer.serialize_str(&format(size))
}

/// For serde.
///
/// # Errors
/// When the value is not a size, or too large for the type.
pub fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    let size = parse(&text).map_err(serde::de::Error::custom)?;
    T::try_from(size).map_err(|_| serde::de::Error::custom(InvalidSize { text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, size) in
            [("0", 0), ("512", 512), ("64KiB", 65_536), ("2 MiB", 2 << 20), ("1MB", 1_000_000)]
        {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "KiB", "-1", "1.5MiB", "1 parsec", "18446744073709551615KiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_back_what_it_writes() {
        for size in [0, 1, 1_000, 1_024, 65_536, 1 << 30, (1 << 20) + 1] {
            assert_eq!(parse(&format(size)), Ok(size));
        }
    }
}
