//! Looking at locks from outside, asking a holder to leave, and clearing away what nobody uses.

use tollgate_core::{Holder, LockName, LockState, Token, Waiter};

use crate::dir::FilePath;
use crate::error::{Result, Trouble};
use crate::gated::Gated;
use crate::layout::{self, Entry};
use crate::lockfile::{self, LockFile};

/// How often a look is repeated that fell between a holder and the next.
const LOOKS: usize = 5;

/// The living claims of the lock in `file`; `None` if there are none.
pub(crate) fn look(file: &FilePath) -> Result<Option<LockState>> {
    let mut state = None;
    for _look in 0..LOOKS {
        let Some((lock, read)) = lockfile::visit(file, false, read)? else { return Ok(None) };
        let Some((name, claims)) = read else { return Ok(None) };
        // Outside the gate: thousands of questions must not hold up those who come and go.
        let seen = living(&lock, name, claims)?;
        let handing_over = seen.as_ref().is_some_and(|state| state.holders.is_empty());
        state = seen;
        if !handing_over {
            break;
        }
    }
    Ok(state)
}

type Claims = Vec<(Entry, Vec<u8>)>;

fn read(gated: &Gated<'_>) -> Result<Option<(LockName, Claims)>> {
    if !gated.anybody()? {
        return Ok(None);
    }
    let header = gated.lock().header()?;
    let name = std::str::from_utf8(&header.name).ok().and_then(|name| LockName::new(name).ok());
    let name =
        name.ok_or_else(|| Trouble::lock(gated.lock().path(), "the name in the file is not a lock name"))?;
    let mut claims = Vec::new();
    for (index, entry) in (header.head..).zip(gated.entries(&header, header.head, u32::MAX)?) {
        if !entry.left {
            claims.push((entry, gated.details(&header, index, &entry)?));
        }
    }
    Ok(Some((name, claims)))
}

fn living(lock: &LockFile, name: LockName, claims: Claims) -> Result<Option<LockState>> {
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for (entry, details) in claims {
        if !lock.is_locked(layout::alive(entry.ticket))? {
            continue;
        }
        // For people who look; what cannot be read is left out rather than hiding the claim.
        let details = serde_json::from_slice(&details).unwrap_or_default();
        match entry.token {
            Some(token) => {
                holders.push(Holder { mode: entry.mode, token: Some(token), expires_in: None, details });
            }
            None => waiters.push(Waiter { mode: entry.mode, details }),
        }
    }
    holders.sort_by_key(|holder| holder.token);
    let nobody = holders.is_empty() && waiters.is_empty();
    Ok((!nobody).then_some(LockState { name, holders, waiters }))
}

/// Asks the living holder with `token` to leave; `false` if there is none.
pub(crate) fn ask_to_leave(file: &FilePath, name: &LockName, token: Token) -> Result<bool> {
    let asked = lockfile::visit(file, false, |gated| {
        if !gated.anybody()? {
            return Ok(false);
        }
        let header = gated.header_of(name)?;
        for (index, entry) in (header.head..).zip(gated.entries(&header, header.head, u32::MAX)?) {
            let holds = entry.token == Some(token) && !entry.left;
            if holds && gated.lock().is_locked(layout::alive(entry.ticket))? {
                gated.write_entry(&header, index, &Entry { revoked: true, ..entry })?;
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    Ok(asked.is_some_and(|(_, asked)| asked))
}

/// Removes a lock's file if no claim waits or holds there.
pub(crate) fn clear_away(file: &FilePath) -> Result<()> {
    lockfile::visit(file, false, |gated| gated.remove_if_idle()).map(drop)
}
