//! Rules that several requests share and that their types cannot express.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_types::LockName;

use crate::limits::{MAX_HOST_BYTES, MAX_META_BYTES, MAX_NAMES, MAX_ROUND};
use crate::problem::Problem;

/// A ttl of at least a millisecond. How long it may be, the server's configuration and its engine
/// say.
pub(crate) fn ttl(member: &str, ttl_ms: u64) -> Result<(), Problem> {
    match ttl_ms {
        0 => {
            Err(Problem::invalid(member, "must be at least 1, in milliseconds; leave it out for the default"))
        }
        _ => Ok(()),
    }
}

/// The longest that one call stays open.
pub(crate) fn open_for(member: &str, ms: u64) -> Result<(), Problem> {
    let most = MAX_ROUND.as_millis();
    if u128::from(ms) > most {
        let rule =
            format!("must be at most {most}, because proxies cut longer calls; repeat the call to go on");
        return Err(Problem::invalid(member, rule));
    }
    Ok(())
}

/// Keys and values that fit together.
pub(crate) fn meta(meta: &BTreeMap<String, String>) -> Result<(), Problem> {
    let bytes: usize = meta.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_META_BYTES {
        let rule = format!(
            "has {bytes} bytes, at most {MAX_META_BYTES} fit; keep large things elsewhere and put a reference here"
        );
        return Err(Problem::invalid("meta", rule));
    }
    Ok(())
}

/// A host's name that can be shown on one line.
pub(crate) fn host(host: Option<&str>) -> Result<(), Problem> {
    let is_wrong = |host: &str| host.len() > MAX_HOST_BYTES || host.contains(char::is_control);
    match host.is_some_and(is_wrong) {
        true => Err(Problem::invalid(
            "host",
            format!("must have at most {MAX_HOST_BYTES} bytes and no control characters; leave it out"),
        )),
        false => Ok(()),
    }
}

/// A set of locks: at least one, each once, and not too many.
pub(crate) fn names(names: &[LockName]) -> Result<(), Problem> {
    if names.is_empty() || names.len() > MAX_NAMES {
        let rule =
            format!("must have 1 to {MAX_NAMES} names, not {}; take larger sets as one lock", names.len());
        return Err(Problem::invalid("names", rule));
    }
    let mut seen = BTreeSet::new();
    match names.iter().position(|name| !seen.insert(name)) {
        Some(at) => Err(Problem::invalid(
            format!("names[{at}]"),
            format!("is {:?}, which is there twice; name each lock once", names[at]),
        )),
        None => Ok(()),
    }
}
