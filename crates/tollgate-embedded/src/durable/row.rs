//! How grants, lock-delays and marks are written down.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tollgate_core::{LockName, Mode, OnDeadlock, OwnerId, Party, Token};
use tollgate_engine::StoredGrant;

/// A grant as JSON. Its name and owner are the key.
#[derive(Serialize, Deserialize)]
struct GrantRow<D> {
    token: Token,
    mode: Mode,
    ttl_ns: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    lock_delay_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    party: Option<Party>,
    #[serde(default, skip_serializing_if = "is_default")]
    on_deadlock: OnDeadlock,
    #[serde(default, skip_serializing_if = "is_default")]
    is_revoked: bool,
    details: D,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The owner's 16 bytes, then the name.
pub(super) fn grant_key(name: &LockName, owner: OwnerId) -> Vec<u8> {
    let mut key = owner.to_bits().to_be_bytes().to_vec();
    key.extend_from_slice(name.as_str().as_bytes());
    key
}

pub(super) fn write_grant<D: Serialize>(grant: &StoredGrant<D>) -> Vec<u8> {
    let row = GrantRow {
        token: grant.token,
        mode: grant.mode,
        ttl_ns: nanos(grant.ttl),
        lock_delay_ns: nanos(grant.lock_delay),
        party: grant.party,
        on_deadlock: grant.on_deadlock,
        is_revoked: grant.is_revoked,
        details: &grant.details,
    };
    serde_json::to_vec(&row).expect("numbers, strings and maps with string keys can be written as JSON")
}

/// The grant of a row, or what is wrong with the row.
pub(super) fn read_grant<D: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<StoredGrant<D>, String> {
    let (owner, name) = key.split_first_chunk::<16>().ok_or("the key of a grant is too short")?;
    let row: GrantRow<D> =
        serde_json::from_slice(value).map_err(|error| format!("a grant cannot be read: {error}"))?;
    Ok(StoredGrant {
        name: read_name(name)?,
        owner: OwnerId::from_bits(u128::from_be_bytes(*owner)),
        mode: row.mode,
        token: row.token,
        ttl: Duration::from_nanos(row.ttl_ns),
        lock_delay: Duration::from_nanos(row.lock_delay_ns),
        party: row.party,
        on_deadlock: row.on_deadlock,
        is_revoked: row.is_revoked,
        details: row.details,
    })
}

pub(super) fn write_delay(delay: Duration) -> Vec<u8> {
    nanos(delay).to_be_bytes().to_vec()
}

pub(super) fn read_delay(key: &[u8], value: &[u8]) -> Result<(LockName, Duration), String> {
    Ok((read_name(key)?, Duration::from_nanos(read_number(value, "a lock-delay")?)))
}

pub(super) fn write_mark(mark: Token) -> Vec<u8> {
    mark.get().to_be_bytes().to_vec()
}

pub(super) fn read_mark(key: &[u8], value: &[u8]) -> Result<(String, Token), String> {
    let resource = std::str::from_utf8(key).map_err(|_| "the name of a resource is not UTF-8")?;
    let mark = Token::new(read_number(value, "a mark")?)
        .map_err(|_| format!("the mark of {resource:?} is no token"))?;
    Ok((resource.to_owned(), mark))
}

fn read_number(value: &[u8], what: &str) -> Result<u64, String> {
    let bytes = value.try_into().map_err(|_| format!("{what} has {} bytes instead of 8", value.len()))?;
    Ok(u64::from_be_bytes(bytes))
}

fn read_name(bytes: &[u8]) -> Result<LockName, String> {
    let name = std::str::from_utf8(bytes).map_err(|_| "a lock name is not UTF-8")?;
    LockName::new(name).map_err(|error| format!("a lock name is invalid: {error}"))
}
