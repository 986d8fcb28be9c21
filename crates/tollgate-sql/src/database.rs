//! What the algorithm asks of a database: a method for each step, each of them one transaction.

use std::time::Duration;

use tollgate_core::queued::{Acquired, Wait};
use tollgate_core::{
    Age, BoxFuture, Capabilities, Claim, Details, Error, ErrorKind, Grant, Holder, LockName, Mode, Moment,
    OwnerId, Result, Revocation, RevokeMode, Token, Waiter,
};

/// A place in a lock's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub i64);

/// How a claim asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// To get in now.
    Once,
    /// To get in, or to wait.
    ToWait,
    /// It waits already, here.
    Again(Ticket),
}

/// A database with locks in it.
///
/// Whoever drops a future of these, or waits too long for it, does not know what becomes of the statement. All but
/// [`ask`](Self::ask) act by owner id or token and may be repeated.
pub trait Database: Send + Sync + 'static {
    /// What its locks can do.
    fn capabilities(&self) -> &Capabilities;

    /// Takes the lock, or a place in its queue, or asks again from there. `None` if somebody sits on the lock's row: then
    /// nothing was done. `details` are the claim's, as they are stored. If it is not known what became of the last ask of this
    /// claim, nothing of that may arrive after this one.
    fn ask<'a>(
        &'a self,
        claim: &'a Claim,
        how: Ask,
        details: &'a str,
    ) -> BoxFuture<'a, Result<Option<Acquired<Ticket>>>>;

    /// Keeps a claim's place in the queue, without what somebody may sit on. Answers whether it was there.
    fn refresh<'a>(&'a self, claim: &'a Claim, ticket: Ticket) -> BoxFuture<'a, Result<bool>>;

    /// Keeps a claim's place in the queue and tells how it stands, without what somebody may sit on. Nothing if it has to ask
    /// for that: its turn may have come, or it lost its place, or this database has no cheaper way.
    fn keep<'a>(&'a self, claim: &'a Claim, ticket: Ticket) -> BoxFuture<'a, Result<Option<Wait>>> {
        let _ = (claim, ticket);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Takes a claim out, wherever it stands, after the last ask of it has arrived or cannot arrive any more. `false` if
    /// somebody sits on the lock's row: the ask is out of the way all the same, and the rest may still be done later.
    fn withdraw<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>>;

    /// Ends a claim whose ask is out of the way, without what somebody may sit on: a place in the queue, or a grant that others
    /// share, counts as dead from now on, and nothing revives it. Answers whether nothing is left that lives; an exclusive grant
    /// is in the row itself.
    fn forget<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>>;

    /// Takes out a claim whose ask has arrived, and waits for the row as long as a statement may take. Answers whether that was
    /// to be had.
    fn leave<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>>;

    /// Renews a grant, and answers when that was sent; `None` if there is no such grant any more.
    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Option<Moment>>>;

    /// Gives a grant back and hands the lock on. Answers whether it was there.
    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>>;

    /// Everybody who holds one lock or waits for it.
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Vec<Seen>>>;

    /// Everybody who holds or waits for locks whose names start with `prefix`, sorted by name: those that come next after
    /// the lock called `after`, all of each lock or nothing. Empty if there are none.
    fn page<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, Result<Vec<Seen>>>;

    /// Breaks the lock of the holder with `token`: asks it to leave, or takes the lock away and hands it on.
    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>>;

    /// Whether an operator broke the lock of `grant`, which is not renewed any more.
    fn is_revoked<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>>;

    /// Makes every later token of `name` larger than `floor`.
    fn raise_floor<'a>(&'a self, name: &'a LockName, floor: Token) -> BoxFuture<'a, Result<()>>;

    /// What the server's clock says, in microseconds.
    fn age(&self) -> BoxFuture<'_, Result<Age>>;

    /// Removes rows of locks that nobody has used for a while.
    fn sweep(&self) -> BoxFuture<'_, Result<()>>;

    /// Ends asks at the server that were left behind for longer than `age`, and that nobody withdrew: the server was away, most
    /// likely. What cannot be ended now is another time.
    fn reclaim(&self, age: Duration) -> BoxFuture<'_, ()>;

    /// How often the first that waits looks whether its turn has come, if nothing is to be expected before. `hears` tells
    /// whether it would be told.
    fn look_every(&self, hears: bool) -> Duration;

    /// Closes all connections.
    fn close(&self) {}
}

/// Somebody who holds a lock or waits for it, as a row says it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Which lock.
    pub name: String,
    /// `x`, `s` or `p`.
    pub mode: char,
    /// How many may be in together, if it is a permit.
    pub places: i64,
    /// Those who hold it have one.
    pub token: Option<i64>,
    /// How long it lives unless it is renewed.
    pub left_ms: i64,
    /// Who it is.
    pub details: String,
}

impl Seen {
    fn mode(&self) -> Option<Mode> {
        match self.mode {
            'x' => Some(Mode::Exclusive),
            's' => Some(Mode::Shared),
            'p' => Mode::permit(u32::try_from(self.places).ok()?),
            _ => None,
        }
    }

    fn details(&self) -> Details {
        serde_json::from_str(&self.details).unwrap_or_default()
    }

    /// A holder; nothing if it waits.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let token = Token::new(u64::try_from(self.token?).ok()?).ok();
        let left = u64::try_from(self.left_ms).unwrap_or(0);
        let expires_in = Some(Duration::from_millis(left));
        Some(Holder { mode: self.mode()?, token, expires_in, details: self.details() })
    }

    /// A waiter; nothing if it is in.
    pub(crate) fn waiter(&self) -> Option<Waiter> {
        let waits = self.token.is_none();
        waits.then(|| Some(Waiter { mode: self.mode()?, details: self.details() })).flatten()
    }
}

/// Details as they are stored.
pub fn written(details: &Details) -> Result<String> {
    serde_json::to_string(details)
        .map_err(|error| Error::invalid("the details of this claim cannot be serialised").caused_by(error))
}

/// What a holder is told whose lock was renewed though nothing could be written into the lock's row.
pub fn unsaid() -> Error {
    let message = "another transaction holds the row lock of this lock, so that the holder's details could \
                   not be changed; the grant remains valid; try again";
    Error::new(ErrorKind::Unavailable, message)
}

/// In whole milliseconds, as databases count.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
