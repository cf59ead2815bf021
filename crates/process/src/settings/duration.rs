//! Durations as people write them: `5s`, `100ms`, `1h30m`. Use as `#[serde(with = "settings::duration")]` on a
//! [`Duration`].

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Unit and its length in milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration: write a whole number with a unit (ms, s, m, h, d), such as 5s or 1h30m")]
pub struct InvalidDuration {
    text: String,
}

/// Parses whole numbers with units, one after the other.
///
/// # Errors
/// On anything else, a number without unit and an overflow included.
pub fn parse(text: &str) -> Result<Duration, InvalidDuration> {
    let invalid = || InvalidDuration { text: text.to_owned() };
    let mut rest = text.trim();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let (number, after) = rest.split_at(run(rest, |c| c.is_ascii_digit()));
        let (unit, after) = after.split_at(run(after, |c| c.is_ascii_alphabetic()));
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let part = number.checked_mul(*length).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

/// The shortest form [`parse`] reads back, down to milliseconds.
#[must_use]
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, length) in UNITS {
        if rest >= length {
            text.push_str(&format!("{}{unit}", rest / length));
            rest %= length;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// For serde.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// For serde.
///
/// # Errors
/// When the value is not a duration.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse(&text(deserializer)?).map_err(serde::de::Error::custom)
}

/// The value as text; a bare number too, so that the sentence about the missing unit is the one shown.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    })
}

fn run(text: &str, class: impl Fn(char) -> bool) -> usize {
    text.find(|c| !class(c)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, millis) in
            [("5s", 5_000), ("100ms", 100), ("1h", 3_600_000), ("1h30m", 5_400_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("30d"), Ok(Duration::from_secs(30 * 86_400)));
    }

    #[test]
    fn refuses_the_rest() {
        for text in
            ["", "5", "s", "5 s", "-1s", "1.5s", "5parsec", "99999999999999999999s", "18446744073709551615d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_back_what_it_writes() {
        for millis in [0, 1, 999, 1_000, 61_001, 90_061_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
