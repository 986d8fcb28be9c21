//! The margin between the time a server gives a grant and the time a client may rely on it.

use std::time::Duration;

/// How long a client may rely on a grant that has `left` to live at the server: `left` − 2 % − 5
/// ms, or `None` if nothing remains.
///
/// `left` counts from the moment the *client sent* the request (for a grant that waited: the wait
/// and the ttl), which is never later than the moment the server received it. Two errors remain,
/// and the margin is for them:
///
/// - Two clocks run at different speeds, and the difference grows with the time: 2 % is far more
///   than that of any working clock.
/// - Reading a clock, rounding to milliseconds and waking up a thread take a few milliseconds,
///   however short the time: 5 ms.
///
/// A grant with nothing left must be released and never reported: its client could only lose it.
///
/// ```
/// use std::time::Duration;
/// use tollgate_proto::valid;
///
/// assert_eq!(valid(Duration::from_secs(30)), Some(Duration::from_millis(29_395)));
/// assert_eq!(valid(Duration::from_millis(5)), None);
/// ```
pub fn valid(left: Duration) -> Option<Duration> {
    let margin = left / 50 + Duration::from_millis(5);
    left.checked_sub(margin).filter(|valid| !valid.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_whose_margin_eats_all_its_time_is_not_valid() {
        let millis = Duration::from_millis;
        assert_eq!(valid(Duration::ZERO), None);
        assert_eq!(valid(Duration::from_micros(5102)), None);
        assert_eq!(valid(millis(6)), Some(Duration::from_micros(880)));
        assert_eq!(valid(millis(1000)), Some(millis(975)));
        assert!(valid(Duration::MAX).is_some_and(|valid| valid < Duration::MAX));
    }
}
