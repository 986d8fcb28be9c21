//! Instants: wall-clock times, in the form of RFC 3339.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A wall-clock time in whole milliseconds, written as `2026-11-19T21:47:08.250Z`. For display
/// only: nothing about a lock is decided by it.
///
/// ```
/// use tollgate_proto::Timestamp;
///
/// let at: Timestamp = "2026-11-19T21:47:08.250Z".parse()?;
/// assert_eq!(at, "2026-11-19T22:47:08.25+01:00".parse()?);
/// assert_eq!(at.to_string(), "2026-11-19T21:47:08.250Z");
/// # Ok::<(), tollgate_proto::InvalidTimestamp>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String, format = DateTime))]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(u64);

/// A text that is not a time from 1970 to 9999 in the form of RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time is written like 2026-11-19T21:47:08.250Z")]
pub struct InvalidTimestamp;

const DAY_MS: u64 = 86_400_000;

impl Timestamp {
    /// The last millisecond of the year 9999, the last that RFC 3339 can write.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The time so many milliseconds after the beginning of 1970.
    pub fn from_unix_ms(ms: u64) -> Self {
        Self(ms.min(Self::MAX.0))
    }

    /// Milliseconds since the beginning of 1970.
    pub fn unix_ms(self) -> u64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::from_unix_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        UNIX_EPOCH + Duration::from_millis(time.0)
    }
}

/// The day so many days after 1970-01-01, by counting in years that begin in March, so that the
/// leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date: the inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year / 400, year % 400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    (era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year).checked_sub(719_468)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / DAY_MS);
        let ms = self.0 % DAY_MS;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
    }
}

/// Reads the fixed places of the form, so that a number out of its range is found below.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn parse(text: &str) -> Option<Timestamp> {
    let places = text.get(..19)?.as_bytes();
    let separators = [(4, b"-"), (7, b"-"), (10, b"Tt"), (13, b":"), (16, b":")] as [(usize, &[u8]); 5];
    if !separators.iter().all(|(at, allowed)| allowed.contains(&places[*at])) {
        return None;
    }
    let place = |range: std::ops::Range<usize>| number(text.get(range)?);
    let (year, month, day) = (place(0..4)?, place(5..7)?, place(8..10)?);
    let (hour, minute, second) = (place(11..13)?, place(14..16)?, place(17..19)?);
    // A second of 60 is a leap second.
    if year < 1970 || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days(year, month, day)?;
    if date(days) != (year, month, day) {
        return None;
    }
    let zone_at = 19 + text[19..].find(|c: char| c != '.' && !c.is_ascii_digit())?;
    let millis = match text[19..zone_at].strip_prefix('.') {
        Some(fraction) if !fraction.is_empty() => number(&format!("{fraction:0<3}")[..3])?,
        None if zone_at == 19 => 0,
        _ => return None,
    };
    let local = days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1000 + millis;
    let time = match text[zone_at..].split_at_checked(1)? {
        ("Z" | "z", "") => local,
        ("+", zone) => local.checked_sub(offset(zone)?)?,
        ("-", zone) => local + offset(zone)?,
        _ => return None,
    };
    (time <= Timestamp::MAX.0).then_some(Timestamp(time))
}

/// How far a zone like `05:30` is from UTC, in milliseconds.
fn offset(zone: &str) -> Option<u64> {
    let (hour, minute) =
        zone.split_once(':').filter(|(hour, minute)| (hour.len(), minute.len()) == (2, 2))?;
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour < 24 && minute < 60).then_some(hour * 3_600_000 + minute * 60_000)
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        parse(text).ok_or(InvalidTimestamp)
    }
}

impl TryFrom<String> for Timestamp {
    type Error = InvalidTimestamp;
    fn try_from(text: String) -> Result<Self, InvalidTimestamp> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_rfc_3339_says() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799_999, "2024-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            let time = Timestamp::from_unix_ms(ms);
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse(), Ok(time));
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[test]
    fn every_day_is_written_and_read_back() {
        for day in 0..=Timestamp::MAX.0 / DAY_MS {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), Some(day));
        }
    }

    #[test]
    fn zones_and_any_number_of_decimals_are_read() {
        let expected = Ok(Timestamp::from_unix_ms(1_709_164_799_500));
        for text in [
            "2024-02-28T23:59:59.5Z",
            "2024-02-28t23:59:59.500999999z",
            "2024-02-29T05:29:59.50+05:30",
            "2024-02-28T15:59:59.5-08:00",
        ] {
            assert_eq!(text.parse(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2024-02-28",
            "2024-02-28 23:59:59Z",
            "2024-02-28T23:59:59",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00.1.2Z",
            "2024-01-01T00:00:00+1:00",
            "2024-01-01T00:00:00Zx",
            "+024-01-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2024-01-01T00:00:0é",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(InvalidTimestamp), "{text}");
        }
    }
}
