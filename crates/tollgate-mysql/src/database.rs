//! The steps of the algorithm, as statements to MySQL or MariaDB.

use std::pin::Pin;
use std::time::Duration;

use mysql_async::Value;
use tollgate_core::queued::Acquired;
use tollgate_core::recent::Recent;
use tollgate_core::{
    Age, BoxFuture, Capabilities, Claim, Details, Error, ErrorKind, Grant, LockName, Mode, Moment, OwnerId,
    Result, Revocation, RevokeMode, Token,
};
use tollgate_sql::{
    Ask, Database, LeftBehind, Lent, Place as Seat, Seen, Ticket, millis, of_leases, unsaid, within, written,
};

use crate::error::{Trouble, silent};
use crate::link::{Answer, Link};
use crate::links::{Links, TO_ANSWER, TRIES};
use crate::place::Place;
use crate::rows::{acquired, nothing_to_do, number, seen};
use crate::statement::Statement;

/// How often the first waiter looks whether its turn has come. Nobody tells it.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// For how long a row that was used is known to be there: it stays a minute.
const ROW_STAYS: Duration = Duration::from_secs(45);
/// For how long a name counts as wanted by others.
const CONTENDED: Duration = Duration::from_secs(2);
/// How many that were left keep no place in the pool: nobody knows for how long they are on their way. The next ones do, or there
/// would be more connections than the server takes.
const LEFT_MOST: usize = 64;
/// How long an acquire that was left is waited for. Its connection may belong to a runtime that nobody drives any more.
const BEHIND: Duration = Duration::from_secs(2);
/// How long before it looks whether somebody sits on the row: then both would stand there, and the acquire is ended.
const MOMENT: Duration = Duration::from_millis(250);
/// How long a withdrawal waits for the row.
const TO_WITHDRAW: Duration = Duration::from_millis(300);
/// How often a release tries to get past somebody who sits on the row.
const BLOCKED_TRIES: u32 = 5;

/// One client of a MySQL or MariaDB.
pub struct MySql {
    links: Links,
    capabilities: Capabilities,
    /// Names whose row is there: plain statements find it.
    known: Recent,
    /// Names that somebody else wanted, too: there procedures are quicker.
    contended: Recent,
    /// Acquires that nobody waits for any more.
    left_behind: LeftBehind<Left>,
}

/// A statement on its way, with its connection. Nobody may drop it before it is answered and use the connection again.
type Flight = Pin<Box<dyn Future<Output = (Link, std::result::Result<Answer, Trouble>)> + Send>>;

/// An acquire that nobody waits for any more.
struct Left {
    /// Where its connection ends.
    place: Place,
    /// If it may still be answered.
    flight: Option<Flight>,
    /// What it keeps of the pool.
    seat: Option<Seat<Link>>,
}

/// An ask. Whoever gives it up leaves behind what is on its way.
struct Asking<'a> {
    database: &'a MySql,
    owner: OwnerId,
    link: Option<Lent<Link>>,
    left: Option<Left>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(mut left) = self.left.take() {
            if self.database.left_behind.count() < LEFT_MOST {
                left.seat = None;
            }
            self.database.left_behind.leave(self.owner, left);
        }
        if let Some(link) = self.link.take() {
            link.give_back();
        }
    }
}

impl Asking<'_> {
    /// Runs a statement. If it is not answered it is left behind.
    async fn run(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
    ) -> std::result::Result<Answer, Trouble> {
        let mut tries = 1;
        loop {
            let answer = self.run_once(statement, values.clone()).await;
            match answer {
                Err(trouble) if trouble.is_passing() && tries < TRIES => {
                    tokio::time::sleep(trouble.pause(tries)).await;
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    async fn run_once(
        &mut self,
        statement: Statement,
        values: Vec<Value>,
    ) -> std::result::Result<Answer, Trouble> {
        let (seat, mut link) = self.link.take().expect("what is not answered ends the ask").lift();
        let place = link.place().clone();
        let flight: Flight = Box::pin(async move {
            let answer = link.run(statement, values).await;
            (link, answer)
        });
        let left = self.left.insert(Left { place, flight: Some(flight), seat: Some(seat) });
        let flight = left.flight.as_mut().expect("it was put there a line ago");
        let Some((link, answer)) = within(TO_ANSWER, flight).await else {
            return Err(silent(TO_ANSWER));
        };
        left.flight = None;
        if answer.as_ref().err().is_none_or(Trouble::is_answer) {
            let seat = left.seat.take();
            self.left = None;
            self.link = seat.map(|seat| seat.put(link));
        }
        answer
    }
}

impl MySql {
    pub(crate) fn new(links: Links) -> Self {
        Self {
            links,
            capabilities: of_leases("mysql"),
            known: Recent::new(ROW_STAYS),
            contended: Recent::new(CONTENDED),
            left_behind: LeftBehind::default(),
        }
    }

    /// Whether plain statements will do for this lock.
    fn is_plain(&self, name: &LockName, mode: Mode, now: Moment) -> bool {
        mode == Mode::Exclusive && !self.contended.has(name.as_str(), now)
    }

    /// Asks once. `None` if somebody sits on the lock's row.
    async fn ask_once(&self, claim: &Claim, how: Ask, details: &str) -> Result<Option<Acquired<Ticket>>> {
        loop {
            let link = self.links.lend().await?;
            let was_used = link.was_used();
            let mut asking = Asking { database: self, owner: claim.owner, link: Some(link), left: None };
            let answer = self.ask_over(&mut asking, claim, how, details).await;
            drop(asking);
            match answer {
                Ok(acquired) => return acquired.map(Some),
                Err(trouble) if trouble.is_blocked() => return Ok(None),
                // It was closed while nobody used it, most likely. Once it is certain that nothing of this arrives any more
                // it is asked again, by the same owner: whatever came of it is found.
                Err(trouble) if was_used && trouble.is_of_connection() => {
                    self.catch_up(claim.owner, None).await?
                }
                Err(trouble) => return Err(trouble.into_error(Statement::Acquire.what())),
            }
        }
    }

    async fn ask_over(
        &self,
        asking: &mut Asking<'_>,
        claim: &Claim,
        how: Ask,
        details: &str,
    ) -> std::result::Result<Result<Acquired<Ticket>>, Trouble> {
        let (name, ttl) = (claim.name.as_str(), millis(claim.ttl));
        let sent = self.links.clock.now();
        let stamp = sent.as_nanos() as i64;
        let ticket = match how {
            Ask::Again(Ticket(ticket)) => Some(ticket),
            _ => None,
        };
        if let Some(ticket) = ticket {
            let values = vec![ticket.into(), owner(claim.owner), name.into()];
            let answer = asking.run(Statement::Look, values).await?;
            if let Some(wait) = answer.rows.first().and_then(nothing_to_do) {
                return Ok(Ok(Acquired::Queued { place: Ticket(ticket), wait, age: None }));
            }
        } else if has_its_age(claim)
            && self.is_plain(&claim.name, claim.mode, sent)
            && self.known.has(name, sent)
        {
            let take = Statement::take(self.links.dialect);
            let values =
                vec![owner(claim.owner), ttl.into(), ttl.into(), stamp.into(), details.into(), name.into()];
            let answer = asking.run(take, values).await?;
            if let Answer { changed: 1, number: Some(number), .. } = answer {
                return Ok(Token::new(number).map_err(Error::from).map(|token| Acquired::Granted {
                    token,
                    sent,
                    age: None,
                }));
            }
        }
        let (mode, places) = kind(claim.mode);
        let values = vec![
            name.into(),
            owner(claim.owner),
            mode.into(),
            places.into(),
            ttl.into(),
            stamp.into(),
            details.into(),
            (how != Ask::Once).into(),
            ticket.into(),
        ];
        let answer = acquired(&asking.run(Statement::Acquire, values).await?.rows);
        self.known.note(name, sent);
        if !matches!(answer, Ok(Acquired::Granted { .. })) || ticket.is_some() {
            self.contended.note(name, sent);
        }
        Ok(answer)
    }

    /// Makes sure that the last ask of `owner` has arrived, or never will. If it `leaves` a lock, and somebody
    /// sits on the row of that, it is ended at once.
    async fn catch_up(&self, owner: OwnerId, leaves: Option<&LockName>) -> Result<()> {
        let Some(mut left) = self.left_behind.kept(owner) else { return Ok(()) };
        // Counted from when it was left: whoever withdraws may be cut short each time, and begins again.
        let since = tokio::time::Instant::from_std(left.since());
        if let Some(flight) = &mut left.flight {
            let mut landed = tokio::time::timeout_at(since + MOMENT, &mut *flight).await.ok();
            let sat_on = match leaves {
                Some(_) if since.elapsed() > MOMENT + TO_WITHDRAW => true,
                Some(name) if landed.is_none() => !self.leaves(name, owner, TO_WITHDRAW).await?,
                _ => false,
            };
            if landed.is_none() && !sat_on {
                landed = tokio::time::timeout_at(since + BEHIND, flight).await.ok();
            }
            left.flight = None;
            if let Some((_, answer)) = landed
                && answer.as_ref().err().is_none_or(Trouble::is_answer)
            {
                left.settle();
                return Ok(());
            }
        }
        self.links.end(&left.place).await?;
        left.settle();
        Ok(())
    }

    /// Takes a claim out within `limit`. Answers whether the row was to be had; if not, it may still come to that later.
    async fn leaves(&self, name: &LockName, owner_id: OwnerId, limit: Duration) -> Result<bool> {
        let values = vec![name.as_str().into(), owner(owner_id), true.into()];
        let left = self.links.run_within(limit, Statement::Release, values).await?;
        Ok(left.is_some())
    }

    /// Runs a statement until nobody sits on the row, or for as long as that makes sense.
    async fn insist(&self, statement: Statement, values: Vec<Value>) -> Result<(Moment, Answer)> {
        let mut tries = 1;
        loop {
            let (sent, answer) = self.links.try_run(statement, values.clone()).await?;
            match answer {
                Err(trouble) if trouble.is_blocked() && tries < BLOCKED_TRIES => tries += 1,
                answer => {
                    return answer
                        .map(|answer| (sent, answer))
                        .map_err(|trouble| trouble.into_error(statement.what()));
                }
            }
        }
    }
}

impl Database for MySql {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn ask<'a>(
        &'a self,
        claim: &'a Claim,
        how: Ask,
        details: &'a str,
    ) -> BoxFuture<'a, Result<Option<Acquired<Ticket>>>> {
        Box::pin(async move {
            self.catch_up(claim.owner, None).await?;
            self.ask_once(claim, how, details).await
        })
    }

    fn refresh<'a>(&'a self, claim: &'a Claim, ticket: Ticket) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let stamp = self.links.clock.now().as_nanos() as i64;
            let (name, ttl) = (claim.name.as_str(), millis(claim.ttl));
            let values = vec![ttl.into(), stamp.into(), name.into(), ticket.0.into(), owner(claim.owner)];
            let (_, answer) = self.links.run(Statement::Refresh, values).await?;
            Ok(answer.changed > 0)
        })
    }

    fn withdraw<'a>(&'a self, name: &'a LockName, owner_id: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            self.catch_up(owner_id, Some(name)).await?;
            self.leaves(name, owner_id, TO_WITHDRAW).await
        })
    }

    fn forget<'a>(&'a self, name: &'a LockName, owner_id: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (name, id) = (|| name.as_str().into(), || owner(owner_id));
            self.links.run(Statement::Forget, vec![id(), name()]).await?;
            let (_, answer) = self.links.run(Statement::Stands, vec![name(), id(), id(), name()]).await?;
            Ok(!answer.says_yes())
        })
    }

    fn leave<'a>(&'a self, name: &'a LockName, owner_id: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.leaves(name, owner_id, TO_ANSWER))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Option<Moment>>> {
        Box::pin(async move {
            let (name, patience, ttl) = (grant.name.as_str(), patience(ttl), millis(ttl));
            let details = details.map(written).transpose()?;
            let is_exclusive = grant.mode == Mode::Exclusive;
            let plain = if is_exclusive { Statement::Renew } else { Statement::RenewClaim };
            let said: Value = details.clone().into();
            let values = vec![
                ttl.into(),
                ttl.into(),
                said.clone(),
                said,
                name.into(),
                owner(grant.owner),
                owner(grant.owner),
            ];
            let mut answer = self.links.run_within(patience, plain, values).await?;
            if let Some((sent, Answer { changed: 1, .. })) = answer {
                self.known.note(name, sent);
                return Ok(Some(sent));
            }
            let says_something = details.is_some();
            let values = vec![name.into(), owner(grant.owner), ttl.into(), details.into()];
            if answer.is_some() {
                // It has expired in its row, or was written as it was, which counts as not changed.
                answer = self.links.run_within(patience, Statement::Extend, values.clone()).await?;
            }
            let (sent, answer) = match answer {
                Some(answer) => answer,
                // Somebody sits on the lock's row. That must cost nobody a lock.
                None if is_exclusive => {
                    let beside = self.links.run(Statement::ExtendBeside, values[..3].to_vec()).await?;
                    // What the holder says is in the row alone.
                    if says_something && beside.1.says_yes() {
                        return Err(unsaid());
                    }
                    beside
                }
                None => self.links.run(Statement::Extend, values).await?,
            };
            Ok(answer.says_yes().then_some(sent))
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let name = grant.name.as_str();
            if self.is_plain(&grant.name, grant.mode, self.links.clock.now()) {
                let values = vec![name.into(), owner(grant.owner)];
                let (_, answer, repeated) = self.links.try_repeatedly(Statement::Leave, values).await?;
                match answer {
                    Ok(answer) if answer.changed == 1 => return Ok(true),
                    // The first one may have given it back.
                    Ok(_) if repeated => return Err(unanswered()),
                    Ok(_) => {}
                    Err(trouble) if trouble.is_blocked() => {}
                    Err(trouble) => return Err(trouble.into_error(Statement::Leave.what())),
                }
            }
            let values = vec![name.into(), owner(grant.owner), false.into()];
            let mut tries = 1;
            loop {
                let (_, answer, repeated) =
                    self.links.try_repeatedly(Statement::Release, values.clone()).await?;
                match answer {
                    Ok(answer) if answer.says_yes() || !repeated => return Ok(answer.says_yes()),
                    Ok(_) => return Err(unanswered()),
                    Err(trouble) if trouble.is_blocked() && tries < BLOCKED_TRIES => tries += 1,
                    Err(trouble) => return Err(trouble.into_error(Statement::Release.what())),
                }
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Vec<Seen>>> {
        Box::pin(async move {
            let values = vec![name.as_str().into(), name.as_str().into()];
            let (_, answer) = self.links.run(Statement::Inspect, values).await?;
            Ok(answer.rows.iter().filter_map(seen).collect())
        })
    }

    fn page<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, Result<Vec<Seen>>> {
        Box::pin(async move {
            let end = end_of(prefix);
            let values = vec![prefix.into(), after.into(), end.clone().into(), end.into()];
            let (_, answer) = self.links.run(Statement::Page, values).await?;
            Ok(answer.rows.iter().filter_map(seen).collect())
        })
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let by_force = mode == RevokeMode::Force;
            let values = vec![name.as_str().into(), token.get().into(), by_force.into()];
            let (_, answer) = self.insist(Statement::Revoke, values).await?;
            Ok(match answer.rows.first().and_then(|row| row.get::<i64, _>(0)) {
                Some(1) => Revocation::Revoked,
                Some(2) => Revocation::Pending,
                _ => Revocation::NotHeld,
            })
        })
    }

    fn is_revoked<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (_, answer) = self.links.run(Statement::IsRevoked, vec![owner(grant.owner)]).await?;
            Ok(answer.says_yes())
        })
    }

    fn raise_floor<'a>(&'a self, name: &'a LockName, floor: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let values = vec![name.as_str().into(), floor.get().into()];
            self.insist(Statement::Floor, values).await.map(drop)
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            let (_, answer) = self.links.run(Statement::Now, Vec::new()).await?;
            let told = answer.rows.first().and_then(|row| number(row, 0));
            let told =
                told.ok_or_else(|| Error::new(ErrorKind::Unexpected, "the server reported no time"))?;
            Ok(Age(told.unsigned_abs()))
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.links.run(Statement::Sweep, Vec::new()).await.map(drop) })
    }

    fn reclaim(&self, age: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for (overdue, place) in self.left_behind.overdue(age, |left| left.place.clone()) {
                if self.links.end(&place).await.is_err() {
                    return;
                }
                self.left_behind.settle(&overdue);
            }
        })
    }

    fn look_every(&self, _hears: bool) -> Duration {
        LOOK_EVERY
    }

    fn close(&self) {
        self.links.close();
        self.left_behind.clear();
    }
}

/// An owner id as it is stored.
fn owner(id: OwnerId) -> Value {
    id.to_hex().into()
}

/// How long a renewal waits for the row of its lock: it has to be answered long before the ttl is over.
fn patience(ttl: Duration) -> Duration {
    (ttl / 12).clamp(Duration::from_millis(30), Duration::from_millis(500))
}

/// Whether nobody asks for the server's time, which plain statements do not tell: there is no party, or it has its age.
fn has_its_age(claim: &Claim) -> bool {
    claim.party.as_ref().is_none_or(|party| party.stamp().age.is_some())
}

fn kind(mode: Mode) -> (&'static str, i64) {
    match mode {
        Mode::Exclusive => ("x", 1),
        Mode::Shared => ("s", 0),
        Mode::Permit { limit } => ("p", i64::from(limit.get())),
    }
}

/// A release that was sent twice, of which only the second was answered.
fn unanswered() -> Error {
    Error::new(ErrorKind::Indeterminate, "the first answer to the release was lost")
}

/// The first bytes after all that start with `prefix`; none if there are no such.
fn end_of(prefix: &str) -> Option<Vec<u8>> {
    let mut bytes = prefix.as_bytes().to_vec();
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(bytes);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_name() {
        assert_eq!(end_of("a/"), Some(b"a0".to_vec()));
        assert_eq!(end_of(""), None);
    }
}
