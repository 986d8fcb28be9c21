//! The answered owner: the owner id, and what the engine needs to find the grant again.
//!
//! It is `ID.MODE-TOKEN-TTL-DELAY[-HANDLE]`: the mode is `x`, `s` or `pLIMIT`, ttl and lock-delay are
//! in milliseconds, and the handle is in hexadecimal digits. An `m` before the mode says that the
//! lock is a member of a set: at the engine each member has an owner id of its own, because some
//! engines have one session for each owner id.

use std::time::Duration;

use tollgate_core::{Deadline, Grant, LockName, Mode, OwnerId, Token};
use tollgate_proto::{Owner, Problem};

use super::problems::unexpected;

/// The owner id that a client's claim has at the engine.
pub(super) fn engine_owner(owner: OwnerId, name: &LockName, is_member: bool) -> OwnerId {
    /// FNV-1a: the same on every server, for ever.
    fn hash(name: &str) -> u128 {
        let step = |hash: u128, byte: u8| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        };
        name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step)
    }
    if is_member { OwnerId::from_bits(owner.to_bits() ^ hash(name.as_str())) } else { owner }
}

/// The owner of a grant as it is answered to the client with this owner id.
pub(super) fn owner_of(grant: &Grant, client: OwnerId) -> Result<Owner, Problem> {
    let member = if grant.owner == client { "" } else { "m" };
    let mode = match grant.mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Shared => "s".to_owned(),
        Mode::Permit { limit } => format!("p{limit}"),
    };
    let mut rest =
        format!("{member}{mode}-{}-{}-{}", grant.token, grant.ttl.as_millis(), grant.lock_delay.as_millis());
    if let Some(handle) = &grant.handle {
        rest.push('-');
        rest.extend(handle.bytes().flat_map(|byte| [byte >> 4, byte & 15]).map(hex));
    }
    Owner::with_rest(client, &rest)
        .map_err(|_| unexpected("the engine's handle of the grant is too long to be answered"))
}

fn hex(nibble: u8) -> char {
    char::from_digit(nibble.into(), 16).unwrap_or('0')
}

/// The grant that an answered owner names; its deadline is not known here.
pub(super) fn grant_of(name: &LockName, owner: &Owner) -> Result<Grant, Problem> {
    let wrong = || {
        Problem::invalid(
            "owner",
            "must be the one that the grant was answered with: this server's engine needs all of it",
        )
    };
    let mut parts = owner.rest().ok_or_else(wrong)?.split('-');
    let mut part = || parts.next().ok_or_else(wrong);
    let (is_member, mode) = match part()? {
        member if member.starts_with('m') => (true, &member[1..]),
        mode => (false, mode),
    };
    let mode = match mode {
        "x" => Mode::Exclusive,
        "s" => Mode::Shared,
        permit => {
            permit.strip_prefix('p').and_then(|limit| Mode::permit(limit.parse().ok()?)).ok_or_else(wrong)?
        }
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    let token = Token::new(number(part()?)?).map_err(|_| wrong())?;
    let (ttl, lock_delay) = (number(part()?)?, number(part()?)?);
    let handle = parts.next().map(|text| unhex(text).ok_or_else(wrong)).transpose()?;
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(Grant {
        name: name.clone(),
        mode,
        owner: engine_owner(owner.id(), name, is_member),
        token,
        ttl: Duration::from_millis(ttl),
        deadline: Deadline::Unknown,
        age: None,
        standalone: true,
        lock_delay: Duration::from_millis(lock_delay),
        handle,
        waited: false,
    })
}

fn unhex(text: &str) -> Option<String> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_all_that_the_engine_needs() {
        for (mode, handle) in [
            (Mode::Exclusive, None),
            (Mode::Shared, Some("7587848943239472".to_owned())),
            (Mode::permit(3).unwrap(), Some("a/b é".to_owned())),
        ] {
            let grant = Grant {
                name: LockName::new("a").unwrap(),
                mode,
                owner: OwnerId::from_bits(7),
                token: Token::new(42).unwrap(),
                ttl: Duration::from_secs(30),
                deadline: Deadline::Unknown,
                age: None,
                standalone: true,
                lock_delay: Duration::from_millis(5),
                handle,
                waited: false,
            };
            let owner = owner_of(&grant, grant.owner).unwrap();
            assert_eq!(grant_of(&grant.name, &owner).unwrap(), grant);
            let member = engine_owner(grant.owner, &grant.name, true);
            assert_ne!(member, grant.owner);
            let member = Grant { owner: member, ..grant.clone() };
            let owner = owner_of(&member, grant.owner).unwrap();
            assert_eq!((owner.id(), grant_of(&member.name, &owner).unwrap()), (grant.owner, member));
        }
    }

    #[test]
    fn an_owner_that_was_not_answered_here_is_refused() {
        let name = LockName::new("a").unwrap();
        for rest in [
            "",
            ".x",
            ".x-1-2",
            ".q-1-2-3",
            ".x-0-2-3",
            ".x-1-2-3-4",
            ".x-1-2-3-41-5",
            ".p0-1-2-3",
            ".x-1-2-3-zz",
        ] {
            let owner: Owner = format!("{:032x}{rest}", 7).parse().unwrap();
            assert_eq!(grant_of(&name, &owner).unwrap_err().member.as_deref(), Some("owner"), "{rest}");
        }
    }
}
