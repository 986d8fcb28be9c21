//! The steps of the algorithm, as statements to PostgreSQL.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tollgate_core::queued::{Acquired, Wait};
use tollgate_core::recent::Recent;
use tollgate_core::{
    Age, BoxFuture, Capabilities, Claim, Contention, Details, Error, ErrorKind, Grant, LockName, Mode,
    Moment, OwnerId, Result, Revocation, RevokeMode, Token,
};
use tollgate_sql::{Ask, Database, LeftBehind, Lent, Seen, Ticket, millis, of_leases, unsaid, written};

use crate::driven::Value;
use crate::error::Trouble;
use crate::link::Link;
use crate::links::{Links, TO_ANSWER, what};
use crate::listener::Listener;
use crate::owner::Owner;
use crate::places::Places;
use crate::statement::Statement;

/// How often the first waiter looks whether its turn has come, if messages arrive here and if not.
const HEARING: Duration = Duration::from_secs(1);
const DEAF: Duration = Duration::from_millis(50);
/// For how long a row that was used is known to be there: it stays a minute.
const ROW_STAYS: Duration = Duration::from_secs(45);
/// For how long a name counts as wanted by others.
const CONTENDED: Duration = Duration::from_secs(2);
/// How long a withdrawal waits behind its acquire. Its connection may be driven by a runtime that nobody drives any more.
const BEHIND: Duration = Duration::from_secs(2);
/// How long before it looks whether somebody sits on the row: then both would stand there, and the acquire is ended.
const MOMENT: Duration = Duration::from_millis(250);
/// How long a withdrawal waits for the row.
const TO_WITHDRAW: Duration = Duration::from_millis(300);
/// How often a release tries to get past somebody who sits on the row.
const BLOCKED_TRIES: u32 = 10;
/// The pause before a row that somebody sat on is asked for again.
const A_LITTLE: Duration = Duration::from_millis(20);

/// One client of a PostgreSQL.
pub struct Postgres {
    links: Arc<Links>,
    channel: String,
    capabilities: Capabilities,
    /// Names whose row is there: plain statements find it.
    known: Recent,
    /// Names that somebody else wanted, too: there functions are quicker.
    contended: Recent,
    left_behind: LeftBehind<Link>,
    places: Places,
    /// Ends with this.
    _listener: Listener,
}

/// An ask that was sent. Whoever gives it up leaves behind over which connection it went.
struct Asking<'a> {
    database: &'a Postgres,
    owner: OwnerId,
    link: Option<Lent<Link>>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            self.database.left_behind.leave(self.owner, link.take());
        }
    }
}

impl Postgres {
    pub(crate) fn new(links: Arc<Links>, channel: String, places: Places, listener: Listener) -> Self {
        Self {
            links,
            channel,
            capabilities: of_leases("postgres"),
            known: Recent::new(ROW_STAYS),
            contended: Recent::new(CONTENDED),
            left_behind: LeftBehind::default(),
            places,
            _listener: listener,
        }
    }

    /// Whether plain statements will do for this lock.
    fn is_plain(&self, name: &LockName, mode: Mode, now: Moment) -> bool {
        mode == Mode::Exclusive && !self.links.is_pooled() && !self.contended.has(name.as_str(), now)
    }

    /// Asks once. `None` if somebody sits on the lock's row.
    async fn ask_once(&self, claim: &Claim, how: Ask, details: &str) -> Result<Option<Acquired<Ticket>>> {
        let mut asking = Asking { database: self, owner: claim.owner, link: Some(self.links.lend().await?) };
        let link = asking.link.as_mut().expect("it was lent a line ago");
        let answer = self.ask_over(link, claim, how, details).await;
        let is_answered = !matches!(&answer, Err(trouble) if !trouble.is_answer());
        // What was not answered stays with its connection until it is withdrawn.
        if is_answered && let Some(link) = asking.link.take() {
            link.give_back();
        }
        match answer {
            Ok(acquired) => acquired.map(Some),
            Err(trouble) if trouble.is_blocked() => Ok(None),
            Err(trouble) => Err(trouble.into_error(what(Statement::Acquire))),
        }
    }

    async fn ask_over(
        &self,
        link: &mut Link,
        claim: &Claim,
        how: Ask,
        details: &str,
    ) -> std::result::Result<Result<Acquired<Ticket>>, Trouble> {
        let (name, owner, ttl) = (claim.name.as_str(), Owner(claim.owner), millis(claim.ttl));
        let sent = self.links.clock.now();
        let stamp = sent.as_nanos() as i64;
        if !matches!(how, Ask::Again(_))
            && self.is_plain(&claim.name, claim.mode, sent)
            && self.known.has(name, sent)
        {
            let values: [Value<'_>; 5] = [&name, &owner, &ttl, &stamp, &details];
            let (_, rows) = self.links.run_on(link, Statement::Take, &values).await;
            if let Some(row) = rows?.first() {
                return Ok(taken(row, sent));
            }
        }
        let (mode, places) = kind(claim.mode);
        let ticket = match how {
            Ask::Again(Ticket(ticket)) => Some(ticket),
            _ => None,
        };
        let waits = how != Ask::Once;
        let values: [Value<'_>; 10] =
            [&name, &owner, &mode, &places, &ttl, &stamp, &self.channel, &details, &waits, &ticket];
        let (_, rows) = self.links.run_on(link, Statement::Acquire, &values).await;
        let answer = acquired(&rows?);
        self.known.note(name, sent);
        if !matches!(answer, Ok(Acquired::Granted { .. })) || ticket.is_some() {
            self.contended.note(name, sent);
        }
        Ok(answer)
    }

    /// Makes sure that the last ask of `owner` has arrived, or never will.
    async fn catch_up(&self, owner: OwnerId) -> Result<()> {
        if let Some(link) = self.left_behind.kept(owner) {
            self.links.end(link.process).await?;
            link.settle();
        }
        Ok(())
    }

    /// Looks from behind an ask that was not answered, over its own connection. Answers whether it has arrived.
    async fn has_arrived(&self, link: &mut Link, name: &LockName, owner: OwnerId) -> Result<bool> {
        let values: [Value<'_>; 2] = [&Owner(owner), &name.as_str()];
        let mut behind = pin!(self.links.run_on(link, Statement::Stands, &values));
        let mut seen = tokio::time::timeout(MOMENT, &mut behind).await;
        // Behind a pooler nobody knows what to end.
        if seen.is_err() && (self.links.is_pooled() || self.leaves(name, owner, TO_WITHDRAW).await?) {
            seen = tokio::time::timeout(BEHIND, behind).await;
        }
        Ok(matches!(seen, Ok((_, Ok(_)))))
    }

    /// Takes a claim out within `limit`. Answers whether the row was to be had; if not, it may still come to that later.
    async fn leaves(&self, name: &LockName, owner: OwnerId, limit: Duration) -> Result<bool> {
        let values: [Value<'_>; 3] = [&name.as_str(), &Owner(owner), &true];
        let mut link = self.links.lend().await?;
        let leaving = self.links.run_on(&mut link, Statement::Release, &values);
        let Ok((_, rows)) = tokio::time::timeout(limit, leaving).await else { return Ok(false) };
        match self.links.settled(link, rows) {
            Ok(_) => Ok(true),
            Err(trouble) if trouble.is_blocked() => Ok(false),
            Err(trouble) => Err(trouble.into_error(what(Statement::Release))),
        }
    }
}

impl Database for Postgres {
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
            self.catch_up(claim.owner).await?;
            self.ask_once(claim, how, details).await
        })
    }

    fn refresh<'a>(&'a self, claim: &'a Claim, ticket: Ticket) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let stamp = self.links.clock.now().as_nanos() as i64;
            let (name, owner, ttl) = (claim.name.as_str(), Owner(claim.owner), millis(claim.ttl));
            let values: [Value<'_>; 5] = [&name, &ticket.0, &owner, &ttl, &stamp];
            let (_, rows) = self.links.run(Statement::Refresh, &values).await?;
            Ok(!rows.is_empty())
        })
    }

    fn keep<'a>(&'a self, claim: &'a Claim, ticket: Ticket) -> BoxFuture<'a, Result<Option<Wait>>> {
        Box::pin(async move {
            self.catch_up(claim.owner).await?;
            self.places.keep(claim, ticket).await
        })
    }

    fn withdraw<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            if let Some(mut link) = self.left_behind.kept(owner)
                && self.has_arrived(&mut link, name, owner).await?
            {
                link.settle();
            }
            self.catch_up(owner).await?;
            self.leaves(name, owner, TO_WITHDRAW).await
        })
    }

    fn forget<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let values: [Value<'_>; 2] = [&Owner(owner), &name.as_str()];
            self.links.run(Statement::Forget, &values).await?;
            // A statement of its own: it has to see what those did for whom the first one waited.
            let (_, rows) = self.links.run(Statement::Stands, &values).await?;
            Ok(rows.first().is_some_and(|row| !row.get::<_, bool>(0)))
        })
    }

    fn leave<'a>(&'a self, name: &'a LockName, owner: OwnerId) -> BoxFuture<'a, Result<bool>> {
        Box::pin(self.leaves(name, owner, TO_ANSWER))
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Option<Moment>>> {
        Box::pin(async move {
            let (name, owner, ttl) = (grant.name.as_str(), Owner(grant.owner), millis(ttl));
            let details = details.map(written).transpose()?;
            let values: [Value<'_>; 4] = [&name, &owner, &ttl, &details];
            if grant.mode != Mode::Exclusive {
                return self.links.run(Statement::RenewTogether, &values).await.map(said);
            }
            let (sent, rows) = self.links.run(Statement::Renew, &values).await?;
            self.known.note(name, sent);
            if !rows.is_empty() {
                return Ok(Some(sent));
            }
            // Somebody sits on the row, or its time is over.
            let beside = self.links.run(Statement::ExtendBeside, &values[..3]).await.map(said)?;
            if details.is_none() || beside.is_none() {
                return Ok(beside);
            }
            // What the holder says is in the row alone. Those who come and look sit on it for a moment each.
            let clock = &self.links.clock;
            for _ in 0..BLOCKED_TRIES {
                clock.sleep_until(clock.now() + A_LITTLE).await;
                let (sent, rows) = self.links.run(Statement::Renew, &values).await?;
                if !rows.is_empty() {
                    return Ok(Some(sent));
                }
            }
            Err(unsaid())
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (name, owner) = (grant.name.as_str(), Owner(grant.owner));
            let values: [Value<'_>; 3] = [&name, &owner, &false];
            let mut link = self.links.lend().await?;
            if self.is_plain(&grant.name, grant.mode, self.links.clock.now()) {
                let (_, rows) = self.links.run_on(&mut link, Statement::Leave, &values[..2]).await;
                match rows {
                    Ok(rows) if !rows.is_empty() => {
                        link.give_back();
                        return Ok(true);
                    }
                    Ok(_) => {}
                    Err(trouble) if trouble.is_blocked() => {}
                    Err(trouble) => return Err(trouble.into_error(what(Statement::Leave))),
                }
            }
            let mut tries = 1;
            loop {
                let (_, rows) = self.links.run_on(&mut link, Statement::Release, &values).await;
                match rows {
                    Err(trouble) if trouble.is_blocked() && tries < BLOCKED_TRIES => tries += 1,
                    rows => {
                        let rows = self.links.settled(link, rows);
                        let rows = rows.map_err(|trouble| trouble.into_error(what(Statement::Release)))?;
                        return Ok(rows.first().is_some_and(|row| row.get(0)));
                    }
                }
            }
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Vec<Seen>>> {
        Box::pin(async move {
            let (_, rows) = self.links.run(Statement::Inspect, &[&name.as_str()]).await?;
            Ok(rows.iter().map(seen).collect())
        })
    }

    fn page<'a>(&'a self, prefix: &'a str, after: &'a str) -> BoxFuture<'a, Result<Vec<Seen>>> {
        Box::pin(async move {
            let (_, rows) = self.links.run(Statement::Page, &[&prefix, &after, &end_of(prefix)]).await?;
            Ok(rows.iter().map(seen).collect())
        })
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let token = i64::try_from(token.get()).unwrap_or(i64::MAX);
            let by_force = mode == RevokeMode::Force;
            let (_, rows) = self.links.run(Statement::Revoke, &[&name.as_str(), &token, &by_force]).await?;
            Ok(match rows.first().map(|row| row.get::<_, i32>(0)) {
                Some(1) => Revocation::Revoked,
                Some(2) => Revocation::Pending,
                _ => Revocation::NotHeld,
            })
        })
    }

    fn is_revoked<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (_, rows) = self.links.run(Statement::IsRevoked, &[&Owner(grant.owner)]).await?;
            Ok(rows.first().is_some_and(|row| row.get(0)))
        })
    }

    fn raise_floor<'a>(&'a self, _name: &'a LockName, floor: Token) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let floor = i64::try_from(floor.get()).unwrap_or(i64::MAX);
            self.links.run(Statement::Floor, &[&floor]).await.map(drop)
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            let (_, rows) = self.links.run(Statement::Now, &[]).await?;
            let row = rows
                .first()
                .ok_or_else(|| Error::new(ErrorKind::Unexpected, "the server reported no time"))?;
            Ok(age(row.get(0)))
        })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.links.run(Statement::Sweep, &[]).await.map(drop) })
    }

    fn reclaim(&self, age: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for (overdue, process) in self.left_behind.overdue(age, |link| link.process) {
                if self.links.end(process).await.is_err() {
                    return;
                }
                self.left_behind.settle(&overdue);
            }
        })
    }

    fn look_every(&self, hears: bool) -> Duration {
        if hears { HEARING } else { DEAF }
    }

    fn close(&self) {
        self.links.close();
        self.left_behind.clear();
    }
}

/// When a renewal was sent, if it was answered with yes.
fn said((sent, rows): (Moment, Vec<Row>)) -> Option<Moment> {
    rows.first().is_some_and(|row| row.get(0)).then_some(sent)
}

/// What `take` answers.
fn taken(row: &Row, sent: Moment) -> Result<Acquired<Ticket>> {
    Ok(Acquired::Granted { token: token(row.get(0))?, sent, age: Some(age(row.get(1))) })
}

/// What `acquire` answers.
fn acquired(rows: &[Row]) -> Result<Acquired<Ticket>> {
    let row = rows.first().ok_or_else(|| unexpected("an acquire was answered with no row"))?;
    let outcome: i8 = row.get(0);
    let age = Some(age(row.get(6)));
    let (ahead, free_in): (Option<i64>, Option<i64>) = (row.get(4), row.get(5));
    let free_in = free_in.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)));
    match outcome as u8 {
        b'g' => {
            let sent: i64 = row.get(2);
            Ok(Acquired::Granted { token: token(row.get(1))?, sent: Moment::from_nanos(sent as u64), age })
        }
        b'q' => {
            let ahead = u32::try_from(ahead.unwrap_or(0)).unwrap_or(0);
            let place = Ticket(row.get(3));
            Ok(Acquired::Queued { place, wait: Wait { ahead, free_in, foreign: false, told: false }, age })
        }
        b'b' => {
            let ahead = ahead.and_then(|ahead| usize::try_from(ahead).ok());
            Ok(Acquired::Busy { contention: Contention { ahead, retry_after: free_in }, age })
        }
        other => Err(unexpected(&format!("an acquire was answered with {other}"))),
    }
}

fn seen(row: &Row) -> Seen {
    let mode: i8 = row.get("mode");
    let details: Option<String> = row.get("details");
    Seen {
        name: row.get("name"),
        mode: char::from(mode as u8),
        places: row.get("places"),
        token: row.get("token"),
        left_ms: row.get("left_ms"),
        details: details.unwrap_or_default(),
    }
}

fn kind(mode: Mode) -> (i8, i64) {
    match mode {
        Mode::Exclusive => (b'x' as i8, 1),
        Mode::Shared => (b's' as i8, 0),
        Mode::Permit { limit } => (b'p' as i8, i64::from(limit.get())),
    }
}

fn token(number: i64) -> Result<Token> {
    Ok(Token::new(number.unsigned_abs())?)
}

fn age(micros: i64) -> Age {
    Age(micros.unsigned_abs())
}

fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Unexpected, what)
}

/// The first text after all that start with `prefix`, in the order of bytes; none if there is no such.
fn end_of(prefix: &str) -> Option<String> {
    let mut letters: Vec<char> = prefix.chars().collect();
    while let Some(last) = letters.pop() {
        let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(end_of("a/"), Some("a0".to_owned()));
        assert_eq!(end_of(""), None);
        assert_eq!(end_of("a\u{d7ff}"), Some("a\u{e000}".to_owned()), "there are no letters in between");
        assert_eq!(end_of("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(end_of("\u{10ffff}"), None);
    }
}
