//! A claim's place in a lock's queue, from taking a ticket to leaving.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::{Claim, Details, LockName, Mode, Token};

use crate::counter::{Block, Reserved};
use crate::error::{Result, Trouble};
use crate::folder::{Address, Folder};
use crate::gated::Gated;
use crate::layout::{self, Entry, Header, Ticket};
use crate::lockfile::{self, LockFile, PATIENCE};
use crate::queue::{self, Verdict};
use crate::sys::Range;

/// Who leaves may as well be gone without a trace: it does not wait long for a gate.
const LEAVING: Duration = Duration::from_secs(1);
/// How many entries are read at a time when looking ahead.
const CHUNK: u32 = 64;

/// A claim that has a ticket, and holds its byte as long as this is not [left](Self::leave).
#[derive(Debug)]
pub(crate) struct Place {
    lock: LockFile,
    name: LockName,
    shard: u8,
    /// As it was written first; a grant adds the token.
    entry: Entry,
    at: Mutex<Position>,
    /// Tokens that are left for the next claim, if it is ours.
    block: Option<Block>,
}

/// A lock's file that stays open after a claim has left, and what the next one can use of it.
#[derive(Debug)]
pub(crate) struct Kept {
    lock: LockFile,
    shard: u8,
    block: Option<Block>,
}

/// Where the entry was last seen: right as long as the list has the same generation.
#[derive(Debug, Clone, Copy)]
struct Position {
    generation: u64,
    index: u32,
}

/// How trying to get a place ended.
#[derive(Debug)]
pub(crate) enum Joined<'a> {
    /// There is a place, and this is what to do next.
    Place(Place, Verdict),
    /// There is a place, nobody was there, and once its token is drawn the lock is held.
    Alone(Place, Reserved<'a>),
    /// Somebody is in the way, and there was no wish to wait.
    Busy,
}

/// Takes a place in the queue of `claim`'s lock; only if it can go at once unless `wait` is set. `kept` is
/// the lock's file if it is still open from before.
pub(crate) fn join<'a>(
    folder: &'a Folder,
    kept: Option<Kept>,
    claim: &Claim,
    wait: bool,
) -> Result<Joined<'a>> {
    let prepared = folder.prepared()?;
    let (counters, Address { file, shard }) = (&prepared.counters, prepared.address(&claim.name));
    let details = encode_details(&claim.details);
    let (open, before) = kept.map_or((None, None), |kept| (Some(kept.lock), kept.block));
    let join = |gated: &Gated<'_>| {
        if gated.anybody()? {
            join_queue(gated, claim, &details, wait)
        } else {
            be_first(gated, claim, &details, counters.try_reserve(shard, before)?).map(Some)
        }
    };
    let Some((lock, Some(step))) = lockfile::visit_again(open, &file, true, join)? else {
        return Ok(Joined::Busy);
    };
    let block = step.reserved.as_ref().map(|reserved| reserved.block);
    let (name, at) = (claim.name.clone(), Mutex::new(step.at));
    let place = Place { lock, name, shard, entry: step.entry, at, block };
    Ok(match step.reserved {
        Some(reserved) => Joined::Alone(place, reserved),
        None => Joined::Place(place, step.verdict),
    })
}

/// Takes the lock if that needs neither the disk nor anybody else: its file is still open, nobody uses it, and
/// a token is left. Never waits. Otherwise everything is as it was, and `kept` is given back.
pub(crate) fn join_at_once(
    folder: &Folder,
    kept: Kept,
    claim: &Claim,
) -> Result<std::result::Result<(Place, Token), Kept>> {
    let details = encode_details(&claim.details);
    let step = {
        let Some(gated) = kept.lock.try_gate()? else { return Ok(Err(kept)) };
        match first_at_once(folder, &kept, &gated, claim, &details) {
            Ok(step) => step,
            Err(error) => {
                kept.lock.unlock(Range::ALL);
                return Err(error);
            }
        }
    };
    let Some((step, token, block)) = step else { return Ok(Err(kept)) };
    let (name, at) = (claim.name.clone(), Mutex::new(step.at));
    let Kept { lock, shard, .. } = kept;
    Ok(Ok((Place { lock, name, shard, entry: step.entry, at, block: Some(block) }, token)))
}

fn first_at_once<'a>(
    folder: &'a Folder,
    kept: &Kept,
    gated: &Gated<'_>,
    claim: &Claim,
    details: &[u8],
) -> Result<Option<(Step<'a>, Token, Block)>> {
    let Some(block) = kept.block else { return Ok(None) };
    if !kept.lock.is_current()? || gated.anybody()? {
        return Ok(None);
    }
    let Some(reserved) = folder.counters()?.spend(kept.shard, block)? else { return Ok(None) };
    let (token, block) = (reserved.token, reserved.block);
    let step = be_first(gated, claim, details, Some(reserved))?;
    Ok(Some((step, token, block)))
}

/// The place of a claim with `token` that `lock` holds: another process took it, and this one goes on with it.
/// `None` if `lock` holds no such place.
pub(crate) fn inherit(folder: &Folder, claim: &Claim, token: Token, lock: OwnedFd) -> Result<Option<Place>> {
    let Address { file, shard } = folder.prepared()?.address(&claim.name);
    let lock = LockFile::inherited(&file, lock)?;
    // Through a description of its own: the other process may still work with the one that it left.
    let take_over = |gated: &Gated<'_>| {
        if !gated.anybody()? || !lock.is_current()? {
            return Ok(None);
        }
        let mut header = gated.header_of(&claim.name)?;
        let entries = gated.entries(&header, header.head, u32::MAX)?;
        let is_it = |entry: &Entry| entry.token == Some(token) && entry.mode == claim.mode && !entry.left;
        let Some((index, mut entry)) = (header.head..).zip(entries).find(|(_, entry)| is_it(entry)) else {
            return Ok(None);
        };
        let alive = layout::alive(entry.ticket);
        // Locked for everybody but `lock`: so it is `lock` that has it.
        if !gated.lock().is_locked(alive)? || lock.is_locked(alive)? {
            return Ok(None);
        }
        let mut details: Details =
            serde_json::from_slice(&gated.details(&header, index, &entry)?).unwrap_or_default();
        (details.host, details.pid) = (claim.details.host.clone(), claim.details.pid);
        let index = gated.write_details(&mut header, index, &mut entry, &encode_details(&details))?;
        Ok(Some((entry, Position { generation: header.generation, index })))
    };
    let Some((_, Some((entry, at)))) = lockfile::visit(&file, false, take_over)? else { return Ok(None) };
    Ok(Some(Place { lock, name: claim.name.clone(), shard, entry, at: Mutex::new(at), block: None }))
}

/// What happened under the gate.
struct Step<'a> {
    entry: Entry,
    at: Position,
    verdict: Verdict,
    reserved: Option<Reserved<'a>>,
}

fn new_entry(claim: &Claim, details: &[u8]) -> Entry {
    Entry {
        ticket: 0,
        mode: claim.mode,
        token: None,
        left: false,
        revoked: false,
        details_len: details.len() as u32,
    }
}

/// The way of a lock nobody else wants. Its token, if it could be reserved without waiting, is written
/// down at once, which spares a second visit: it may be seen a moment before it is drawn and granted.
fn be_first<'a>(
    gated: &Gated<'_>,
    claim: &Claim,
    details: &[u8],
    reserved: Option<Reserved<'a>>,
) -> Result<Step<'a>> {
    let token = reserved.as_ref().map(|reserved| reserved.token);
    let mut entry = Entry { token, ..new_entry(claim, details) };
    let header = gated.start(&claim.name, &mut entry, details)?;
    let at = Position { generation: header.generation, index: 0 };
    Ok(Step { entry, at, verdict: Verdict::Go, reserved })
}

fn join_queue<'a>(gated: &Gated<'_>, claim: &Claim, details: &[u8], wait: bool) -> Result<Option<Step<'a>>> {
    let mut header = gated.header_of(&claim.name)?;
    let verdict = look_ahead(gated, &header, header.len, claim.mode)?;
    if verdict != Verdict::Go && !wait {
        return Ok(None);
    }
    let entry = Entry { ticket: header.next, ..new_entry(claim, details) };
    gated.lock().take(layout::alive(entry.ticket))?;
    if verdict != Verdict::Go && matches!(claim.mode, Mode::Permit { .. }) {
        gated.lock().take(layout::waiting(entry.ticket))?;
    }
    let index = gated.append(&mut header, &entry, details)?;
    let at = Position { generation: header.generation, index };
    Ok(Some(Step { entry, at, verdict, reserved: None }))
}

/// What a claim of `mode` has to do that stands, or would stand, at `index`.
fn look_ahead(gated: &Gated<'_>, header: &Header, index: u32, mode: Mode) -> Result<Verdict> {
    let chunks = (header.head..index).step_by(CHUNK as usize).collect::<Vec<_>>();
    let ahead = chunks.into_iter().rev().flat_map(|from| {
        match gated.entries(header, from, CHUNK.min(index - from)) {
            Ok(entries) => entries.into_iter().rev().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    });
    queue::decide(mode, ahead, |ticket| gated.lock().is_locked(layout::alive(ticket)))
}

impl Place {
    /// The claim's ticket.
    pub(crate) fn ticket(&self) -> Ticket {
        self.entry.ticket
    }

    /// The lock's name.
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    /// The counter that numbers the lock's grants.
    pub(crate) fn shard(&self) -> u8 {
        self.shard
    }

    /// Looks again at everything ahead.
    pub(crate) fn look(&self) -> Result<Verdict> {
        // Needs no gate: whoever is gone stays gone, and nobody comes in ahead.
        match layout::everybody_before(self.entry.ticket) {
            Some(before) if self.lock.is_locked(before)? => {}
            _ => return Ok(Verdict::Go),
        }
        let gated = self.lock.gate(PATIENCE)?;
        let header = gated.header_of(&self.name)?;
        let index = self.index(&gated, &header)?;
        look_ahead(&gated, &header, index, self.entry.mode)
    }

    /// Waits for the one claim `verdict` names. `false` when interrupted first.
    pub(crate) fn wait(&self, range: Range) -> Result<bool> {
        self.lock.wait(range)
    }

    /// Whether one of `tickets` is gone.
    pub(crate) fn is_any_gone(&self, tickets: &[Ticket]) -> Result<bool> {
        for ticket in tickets {
            if !self.lock.is_locked(layout::alive(*ticket))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes down that the claim is granted.
    pub(crate) fn grant(&self, token: Token) -> Result<()> {
        let gated = self.lock.gate(PATIENCE)?;
        // Others find another file, or none, and would not see that this one is held.
        if !self.lock.is_current()? {
            return Err(Trouble::Vanished { path: self.lock.path().to_owned() });
        }
        let header = gated.header_of(&self.name)?;
        let index = self.index(&gated, &header)?;
        // A claim that waits is asked nothing, so its entry is what was written.
        let entry = Entry { token: Some(token), ..self.entry };
        gated.write_entry(&header, index, &entry)?;
        if matches!(self.entry.mode, Mode::Permit { .. }) {
            self.lock.unlock(layout::waiting(self.entry.ticket));
        }
        Ok(())
    }

    /// Leaves without touching the file, which never blocks. Only when nobody else waits or holds: to
    /// those a claim that left in silence is like one that was killed, and costs them a question.
    pub(crate) fn leave_at_once(&self) -> bool {
        match self.lock.is_locked(layout::ANYBODY) {
            Ok(false) => {
                self.lock.unlock(Range::ALL);
                true
            }
            _ => false,
        }
    }

    /// What a claim that has left keeps for the next one; `None` if a child may have its file, too.
    pub(crate) fn into_kept(self) -> Option<Kept> {
        let (shard, block) = (self.shard, self.block);
        self.lock.into_unshared().map(|lock| Kept { lock, shard, block })
    }

    /// Leaves the queue, or gives the lock back. Frees the claim's bytes whatever else fails.
    pub(crate) fn leave(&self) {
        if let Ok(gated) = self.lock.gate(LEAVING) {
            // What cannot be written down is found out by the next one who asks the kernel.
            let _ = self.sign_out(&gated);
        }
        self.lock.unlock(Range::ALL);
    }

    fn sign_out(&self, gated: &Gated<'_>) -> Result<()> {
        if !gated.anybody()? {
            return Ok(());
        }
        let mut header = gated.header_of(&self.name)?;
        let index = self.index(gated, &header)?;
        let entry = Entry { left: true, ..self.entry };
        gated.write_entry(&header, index, &entry)?;
        // So that nobody passes over the same dead claims again and again.
        let head = header.head;
        'advance: while header.head < header.len {
            for entry in gated.entries(&header, header.head, CHUNK)? {
                if !entry.left && self.lock.is_locked(layout::alive(entry.ticket))? {
                    break 'advance;
                }
                header.head += 1;
            }
        }
        if header.head != head { gated.write_header(&header) } else { Ok(()) }
    }

    /// Whether the lock is still held, as others see it: the file is in its place and the byte is locked.
    pub(crate) fn is_held(&self) -> Result<bool> {
        // First: if the folder itself is gone, the lock is lost, and that is no error.
        if !self.lock.is_current()? {
            return Ok(false);
        }
        let seen = lockfile::visit(self.lock.at(), false, |gated| {
            gated.lock().is_locked(layout::alive(self.entry.ticket))
        })?;
        Ok(self.lock.is_current()? && seen.is_some_and(|(_, held)| held))
    }

    /// Whether the file that others find is still the one this claim is in.
    pub(crate) fn is_current(&self) -> bool {
        self.lock.is_current().unwrap_or(true)
    }

    /// Replaces what others see of the claim.
    pub(crate) fn describe(&self, details: &Details) -> Result<()> {
        let gated = self.lock.gate(PATIENCE)?;
        let mut header = gated.header_of(&self.name)?;
        let index = self.index(&gated, &header)?;
        let mut entry = self.lock.entry(&header, index)?;
        let index = gated.write_details(&mut header, index, &mut entry, &encode_details(details))?;
        self.remember(Position { generation: header.generation, index });
        Ok(())
    }

    /// Whether an operator asked this holder to leave.
    pub(crate) fn is_revoked(&self) -> Result<bool> {
        // Without the gate, because it is asked often. While the list has the generation in which we know
        // our index, the entry there is ours; a move in between is noticed the next time.
        let header = self.lock.header()?;
        let position = self.position();
        if header.generation == position.generation {
            let entry = self.lock.entry(&header, position.index)?;
            return Ok(entry.ticket == self.entry.ticket && entry.revoked);
        }
        let gated = self.lock.gate(PATIENCE)?;
        let header = gated.header_of(&self.name)?;
        let index = self.index(&gated, &header)?;
        Ok(self.lock.entry(&header, index)?.revoked)
    }

    /// The open description the claim's bytes belong to.
    pub(crate) fn descriptor(&self) -> Result<OwnedFd> {
        self.lock.duplicate()
    }

    fn index(&self, gated: &Gated<'_>, header: &Header) -> Result<u32> {
        let position = self.position();
        if position.generation == header.generation {
            return Ok(position.index);
        }
        let found = gated.find(header, self.entry.ticket)?;
        let index = found.ok_or_else(|| Trouble::lock(self.lock.path(), "a claim is missing in its list"))?;
        self.remember(Position { generation: header.generation, index });
        Ok(index)
    }

    fn position(&self) -> Position {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, position: Position) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }
}

/// Details as they are stored.
fn encode_details(details: &Details) -> Vec<u8> {
    serde_json::to_vec(details).expect("strings and numbers can be written as JSON")
}
