//! Taking a lock: with a script and a place in the queue, or with plain commands where nobody else wants it.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tollgate_core::inbox::Inbox;
use tollgate_core::queued::{Queue, Wait};
use tollgate_core::{Age, Claim, Error, ErrorKind, Mode, Moment, OwnerId, Result, Token};

use crate::backend::{EXPIRY_EVERY, RedisBackend, millis};
use crate::error::{of_request, unexpected};
use crate::keys::{fence_of, key_of};
use crate::link::Link;
use crate::reply::{Acquired, QueuePosition, acquired, write_details};
use crate::script;

/// How often the first waiter looks whether its turn has come, if messages arrive here and if not.
const HEARING: Duration = Duration::from_secs(1);
const DEAF: Duration = Duration::from_millis(50);
/// How often the first waiter looks whether a client of another kind has left.
const FOREIGN_EVERY: Duration = Duration::from_millis(100);
/// In the microseconds of tokens.
const A_SECOND: u64 = 1_000_000;
/// How long an idle lock's token is remembered, in seconds: seven days, and the hour after which that is said again.
pub(crate) const REMEMBERED: u64 = 7 * 24 * 3600 + EXPIRY_EVERY.as_secs();

/// How a claim asks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    /// To get in now.
    Once,
    /// To get in, or to wait.
    ToWait,
    /// It waits already: by the script alone, which knows it by its owner id and may be asked again. What plain
    /// commands took need not have a token yet that counts.
    AsWaiter(QueuePosition),
}

/// An acquire that was sent. Whoever gives it up leaves behind over which connection it went.
struct Asking<'a> {
    backend: &'a RedisBackend,
    owner: OwnerId,
    over: Option<Link>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.over.take() {
            self.backend.leave_behind(self.owner, link);
        }
    }
}

impl RedisBackend {
    /// Asks once.
    pub(crate) async fn ask(&self, claim: &Claim, how: Ask) -> Result<Acquired> {
        let key = key_of(&self.prefix, &claim.name);
        let sent = self.clock.now();
        let rest = self.rest(claim, sent)?;
        let mut asking = Asking { backend: self, owner: claim.owner, over: None };
        let answer = self.ask_over(&mut asking, claim, &key, &rest, sent, how).await;
        if let (Ok(Acquired::Granted { .. } | Acquired::Queued { .. }), Some(link)) = (&answer, &asking.over)
        {
            link.has_written();
        }
        if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Indeterminate) {
            asking.over = None;
        }
        if !matches!(&answer, Ok(Acquired::Granted { .. })) {
            self.contended.note(&key, sent);
        }
        answer
    }

    async fn ask_over(
        &self,
        asking: &mut Asking<'_>,
        claim: &Claim,
        key: &str,
        rest: &[u8],
        sent: Moment,
        how: Ask,
    ) -> Result<Acquired> {
        if claim.mode == Mode::Exclusive
            && self.remembered.has(key, sent)
            && !matches!(how, Ask::AsWaiter(_))
            && !self.contended.has(key, sent)
            && let Some(taken) = self.take(asking, claim, key, rest, sent).await?
        {
            return Ok(taken);
        }
        let answer = Box::pin(self.queue_up(asking, claim, key, rest, how)).await?;
        if matches!(answer, Acquired::Granted { .. }) {
            self.remembered.note(key, sent);
        }
        Ok(answer)
    }

    /// What follows the ttl in a record: when it was sent, by whom, and what people see.
    fn rest(&self, claim: &Claim, sent: Moment) -> Result<Vec<u8>> {
        let mut rest = Vec::with_capacity(256);
        // To write into memory does not fail.
        let _ = write!(rest, "{} {} ", sent.as_nanos(), self.channel);
        write_details(&mut rest, &claim.details)?;
        Ok(rest)
    }

    /// Asks by the script: it finds out who is in, and keeps a place in the queue.
    async fn queue_up(
        &self,
        asking: &mut Asking<'_>,
        claim: &Claim,
        key: &str,
        rest: &[u8],
        how: Ask,
    ) -> Result<Acquired> {
        let limit;
        let kind = match claim.mode {
            Mode::Exclusive => "x",
            Mode::Shared => "s",
            Mode::Permit { limit: many } => {
                limit = format!("p{many}");
                &limit
            }
        };
        let request = self.by_owner(&script::ACQUIRE, key, claim.owner);
        let (ttl, waits) = (millis(claim.ttl), u8::from(!matches!(how, Ask::Once)));
        let mut request = request.arg(kind).arg(ttl).arg(rest).arg(waits);
        if let Ask::AsWaiter(position) = how {
            request = request.arg(position.told_at.saturating_add(ttl)).arg(position.lease_end);
        }
        acquired(&self.site.run(key, &request, |link| asking.over = Some(link.clone())).await?)
    }

    /// Takes a lock that nobody has, and that this client had lately, with plain commands: they cost Redis half of what
    /// a script does. `None` if it is not to be had like that.
    ///
    /// The token is proposed: the server's time, as it is known here. Redis keeps the largest, and says whether it
    /// was larger than all before; if not, or if it has forgotten them, another is drawn by a script. How long the largest
    /// is remembered is said by the script that was asked first, once an hour for each name.
    async fn take(
        &self,
        asking: &mut Asking<'_>,
        claim: &Claim,
        key: &str,
        rest: &[u8],
        sent: Moment,
    ) -> Result<Option<Acquired>> {
        let link = self.site.link(key).await?;
        asking.over = Some(link.clone());
        let Ok(token) = Token::new(link.clock().at(self.clock.now())) else { return Ok(None) };
        let commands = taking(claim, key, token, rest);
        let mut answers =
            link.commands(commands).await.map_err(|error| of_request(error, &link))?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(Value::Okay), Some(Value::Int(1))) => {
                Ok(Some(Acquired::Granted { token, sent, age: Some(Age(token.get())) }))
            }
            (Some(Value::Okay), _) => Box::pin(self.redrawn(asking, claim, key)).await.map(Some),
            // Somebody has it, or it is on another server of the cluster: the script finds out.
            (Some(Value::Nil), _) => Ok(None),
            (Some(Value::ServerError(error)), _) if matches!(error.code(), "MOVED" | "ASK") => Ok(None),
            (Some(Value::ServerError(error)), _) => Err(of_request(error.into(), &link)),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Another token for a lock that is taken, or it is given back: it must not stay so for its ttl though nobody has it.
    async fn redrawn(&self, asking: &mut Asking<'_>, claim: &Claim, key: &str) -> Result<Acquired> {
        let drawn = self.redraw(asking, claim, key).await;
        if drawn.is_err() {
            let release = self.by_owner(&script::RELEASE, key, claim.owner);
            let _ = self.site.run(key, &release, |_| ()).await;
        }
        drawn
    }

    async fn redraw(&self, asking: &mut Asking<'_>, claim: &Claim, key: &str) -> Result<Acquired> {
        let request = self.by_owner(&script::REDRAW, key, claim.owner);
        let answer = self.site.run(key, &request, |link| asking.over = Some(link.clone())).await?;
        if matches!(answer, Value::Nil) {
            return Err(Error::new(
                ErrorKind::Lost,
                "the lock was lost at the moment it was taken; try again",
            ));
        }
        let drawn = acquired(&answer)?;
        if let (Acquired::Granted { age: Some(age), .. }, Some(link)) = (&drawn, &asking.over) {
            link.clock().set(age.0, self.clock.now());
        }
        // Tokens that are ahead of the clock stay so for a while, and proposals from it would be in vain.
        if matches!(&drawn, Acquired::Granted { token, age: Some(age), .. } if token.get() > age.0 + A_SECOND)
        {
            self.contended.note(key, self.clock.now());
        }
        Ok(drawn)
    }
}

impl Queue for RedisBackend {
    type Place = QueuePosition;

    async fn enter(&self, claim: &Claim) -> Result<Acquired> {
        self.ask(claim, Ask::ToWait).await
    }

    /// If it is not known what became of the last time, that connection is closed on both sides first: what is still on its
    /// way must not arrive when this claim is over.
    async fn again(&self, claim: &Claim, position: &QueuePosition) -> Result<Acquired> {
        let before = self.unanswered().get(&claim.owner).cloned();
        if let Some(link) = before {
            self.site.cut(&link).await?;
            self.unanswered().remove(&claim.owner);
        }
        self.ask(claim, Ask::AsWaiter(*position)).await
    }

    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// A waiter looks now and then whether its turn has come without a message, the more often the nearer it is. All of a
    /// queue together ask about as often as a few of them would.
    fn pause(&self, claim: &Claim, wait: Wait) -> Duration {
        let look = if self.inbox.hears() { HEARING } else { DEAF };
        let pause = (claim.ttl / 3).min(look * (wait.ahead + 1));
        match wait.free_in {
            _ if wait.ahead > 0 => pause,
            _ if wait.foreign => pause.min(FOREIGN_EVERY),
            Some(free_in) => pause.min(free_in + Duration::from_millis(1)),
            None => pause,
        }
    }
}

/// Takes the lock if it is free, and raises the largest token.
fn taking(claim: &Claim, key: &str, token: Token, rest: &[u8]) -> Vec<Cmd> {
    let ttl = millis(claim.ttl);
    let mut record = Vec::with_capacity(96 + rest.len());
    record.extend_from_slice(b"tg1 ");
    record.extend_from_slice(&claim.owner.hex_digits());
    // To write into memory does not fail.
    let _ = write!(record, " x {token} 0 {ttl} ");
    record.extend_from_slice(rest);
    let fence = fence_of(key);
    let mut take = Cmd::with_capacity(6, key.len() + record.len() + 24);
    take.arg("SET").arg(key).arg(record).arg("NX").arg("PX").arg(ttl);
    let mut raise = Cmd::with_capacity(6, fence.len() + 32);
    raise.arg("ZADD").arg(&fence).arg("XX").arg("GT").arg("CH").arg(token.get()).arg("f");
    vec![take, raise]
}
