//! Durations as people write them: `30s`, `1m30s`, `250ms`, `1.5h`.

use std::time::Duration;

/// Reads a duration as it is written in URLs and on the command line. A bare number is refused: nobody should
/// guess its unit.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::parse_duration;
/// assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
/// assert!(parse_duration("90").is_err());
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration; write for example 250ms, 30s, 1m30s or 2h");
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(|| {
            format!("{text:?} has no unit; write {text}s for seconds, {text}ms for milliseconds")
        })?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let after = &rest[digits..];
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let seconds = match &after[..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(wrong()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = &after[unit_end..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("2d", 172_800_000),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_what_to_write() {
        for text in ["", "s", "abc", "1x", "-1s", "1..5s", "1 s", "inf", "1e9s", "99999999999999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("30").unwrap_err().contains("30s"));
    }
}
