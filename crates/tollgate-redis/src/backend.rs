//! The contract's side: what each call means for Redis.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, LockName, LockState, LossCause, Mode, Moment, OwnerId, Release,
    Result, Revocation, Token, events,
};

use crate::capabilities::capabilities;
use crate::config::RedisConfig;
use crate::error::{of_request, unexpected};
use crate::inbox::{Expected, HandOver, Inbox};
use crate::keys::{encode_prefix, key_of, name_of, starting_with};
use crate::link::Link;
use crate::links::Subscription;
use crate::recent::Recent;
use crate::reply::{Acquired, Inspected, Wait, state, written};
use crate::script::{self, Request, Script};
use crate::site::Site;

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// How often the first waiter looks whether its turn has come, if messages arrive here and if not.
const HEARING: Duration = Duration::from_secs(1);
const DEAF: Duration = Duration::from_millis(50);
/// For how long a name counts as wanted by others.
const CONTENDED: Duration = Duration::from_secs(2);
/// How long an idle lock's token is remembered, in seconds: seven days, and the hour after which that is said again.
const REMEMBERED: u64 = 7 * 24 * 3600 + EXPIRY_EVERY.as_secs();
const EXPIRY_EVERY: Duration = Duration::from_secs(3600);
/// How often the first waiter looks whether a client of another kind has left.
const FOREIGN_EVERY: Duration = Duration::from_millis(100);

/// Locks on one Redis.
pub struct RedisBackend {
    site: Site,
    prefix: String,
    channel: Arc<str>,
    inbox: Arc<Inbox>,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
    /// Names that somebody else wanted, too: there scripts are quicker.
    contended: Recent,
    /// Names whose tokens are remembered long enough.
    remembered: Recent,
    /// Acquires that were sent and not answered, and over which connection: a withdrawal must not overtake them.
    unanswered: Mutex<HashMap<OwnerId, Link>>,
}

impl RedisBackend {
    /// Connects, so that what is wrong is told at once.
    pub async fn connect(config: RedisConfig, clock: Arc<dyn Clock>) -> Result<Self> {
        if config.prefix.contains(['{', '}']) {
            return Err(Error::invalid(
                "a prefix with braces would tear a lock's keys apart; leave them out",
            ));
        }
        // Long enough that nobody else has the same.
        let channel: Arc<str> = format!("tg:{}", &OwnerId::random().to_hex()[..16]).into();
        let inbox = Arc::new(Inbox::default());
        let subscription = Subscription { channel: channel.clone(), inbox: inbox.clone() };
        let site = Site::new(&config, Some(subscription), clock.clone())?;
        site.open().await?;
        let (prefix, capabilities) = (config.prefix, capabilities());
        let (contended, remembered) = (Recent::new(CONTENDED), Recent::new(EXPIRY_EVERY));
        let unanswered = Mutex::default();
        Ok(Self { site, prefix, channel, inbox, clock, capabilities, contended, remembered, unanswered })
    }

    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        let key = key_of(&self.prefix, name);
        self.run(&key, &Request::new(&script::FLOOR, &key).arg(floor.get())).await.map(drop)
    }

    /// Runs a script on the lock with the key `key`.
    async fn run(&self, key: &str, request: &Request) -> Result<Value> {
        self.site.run(key, request, |_| ()).await
    }

    /// As [`run`](Self::run), once more if the connection failed: only for what acts by owner id.
    async fn run_again(&self, key: &str, request: &Request) -> Result<Value> {
        match self.run(key, request).await {
            Err(error) if error.kind() == ErrorKind::Indeterminate => self.run(key, request).await,
            answer => answer,
        }
    }

    /// A script that acts on what `owner` has or wants of a lock.
    fn by_owner(&self, script: &'static Script, key: &str, owner: OwnerId) -> Request {
        Request::new(script, key).arg(owner.to_hex())
    }

    /// Asks once, to get in or to wait.
    async fn ask(&self, claim: &Claim, wait: bool) -> Result<Acquired> {
        let key = key_of(&self.prefix, &claim.name);
        let sent = self.clock.now();
        let rest = format!("{} {} {}", sent.as_nanos(), self.channel, written(&claim.details)?);
        let mut asking = Asking { backend: self, owner: claim.owner, over: None };
        let answer = self.ask_over(&mut asking, claim, &key, &rest, sent, wait).await;
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
        rest: &str,
        sent: Moment,
        wait: bool,
    ) -> Result<Acquired> {
        if claim.mode == Mode::Exclusive
            && !self.contended.has(key, sent)
            && let Some(taken) = self.take(asking, claim, key, rest, sent).await?
        {
            return Ok(taken);
        }
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
        let request = request.arg(kind).arg(millis(claim.ttl)).arg(rest).arg(if wait { "1" } else { "0" });
        Acquired::parse(&self.site.run(key, &request, |link| asking.over = Some(link.clone())).await?)
    }

    /// Takes a lock that nobody has, which is the way of most locks, with plain commands: they cost Redis half of
    /// what a script does. `None` if it is not to be had like that.
    ///
    /// The token is proposed: the server's time, as it is known here. Redis keeps the largest, and says whether it
    /// was larger than all before; if not, or if that is not sure, another is drawn by a script.
    async fn take(
        &self,
        asking: &mut Asking<'_>,
        claim: &Claim,
        key: &str,
        rest: &str,
        sent: Moment,
    ) -> Result<Option<Acquired>> {
        let link = self.site.link(key).await?;
        asking.over = Some(link.clone());
        let Ok(token) = Token::new(link.clock().at(self.clock.now())) else { return Ok(None) };
        let commands = self.taking(claim, key, token, rest, sent);
        let mut answers =
            link.commands(&commands).await.map_err(|error| of_request(error, &link))?.into_iter();
        match (answers.next(), answers.next()) {
            (Some(Value::Okay), Some(Value::Int(1))) => {
                Ok(Some(Acquired::Granted { token, sent, age: Age(token.get()) }))
            }
            (Some(Value::Okay), _) => self.redraw(asking, claim, key).await.map(Some),
            // Somebody has it, or it is on another server of the cluster: the script finds out.
            (Some(Value::Nil), _) => Ok(None),
            (Some(Value::ServerError(error)), _) if matches!(error.code(), "MOVED" | "ASK") => Ok(None),
            (Some(Value::ServerError(error)), _) => Err(of_request(error.into(), &link)),
            (answer, _) => Err(unexpected(&answer)),
        }
    }

    /// Takes the lock if it is free, and raises the largest token.
    fn taking(&self, claim: &Claim, key: &str, token: Token, rest: &str, sent: Moment) -> Pipeline {
        let ttl = millis(claim.ttl);
        let record = format!("tg1 {} x {token} 0 {ttl} {rest}", claim.owner.to_hex());
        let fence = format!("{{{key}}}:fence");
        let mut take = Cmd::with_capacity(6, key.len() + record.len() + 24);
        take.arg("SET").arg(key).arg(record).arg("NX").arg("PX").arg(ttl);
        let mut raise = Cmd::with_capacity(6, fence.len() + 32);
        raise.arg("ZADD").arg(&fence).arg("GT").arg("CH").arg(token.get()).arg("f");
        let mut commands = Pipeline::with_capacity(3);
        commands.add_command(take).add_command(raise);
        if !self.remembered.has(key, sent) {
            commands.cmd("EXPIRE").arg(&fence).arg(REMEMBERED);
            self.remembered.note(key, sent);
        }
        commands
    }

    /// Another token for a lock that is taken.
    async fn redraw(&self, asking: &mut Asking<'_>, claim: &Claim, key: &str) -> Result<Acquired> {
        let request = self.by_owner(&script::REDRAW, key, claim.owner);
        let answer = self.site.run(key, &request, |link| asking.over = Some(link.clone())).await?;
        if matches!(answer, Value::Nil) {
            return Err(Error::new(
                ErrorKind::Lost,
                "the lock was lost in the moment it was taken; try again",
            ));
        }
        let drawn = Acquired::parse(&answer)?;
        if let (Acquired::Granted { age, .. }, Some(link)) = (&drawn, &asking.over) {
            link.clock().set(age.0, self.clock.now());
        }
        // Whoever proposed too small a token would do so again.
        self.contended.note(key, self.clock.now());
        Ok(drawn)
    }

    fn grant(&self, claim: &Claim, token: Token, sent: Moment) -> Grant {
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        Grant::new(claim, token, Deadline::counted_from(sent, claim.ttl)).with_age(age)
    }

    async fn wait(&self, claim: &Claim) -> Result<Grant> {
        let mut expected: Option<Expected> = None;
        loop {
            let mut losses = self.inbox.losses();
            let wait = match self.ask(claim, true).await? {
                Acquired::Granted { token, sent, age } => {
                    note_age(claim, age);
                    let waited = expected.is_some();
                    if expected.is_some_and(|mut expected| expected.arrives.try_recv().is_err()) {
                        self.inbox.missed();
                    }
                    return Ok(Grant { waited, ..self.grant(claim, token, sent) });
                }
                Acquired::Queued { wait, age } => {
                    note_age(claim, age);
                    wait
                }
                Acquired::Busy { contention, .. } => return Err(unexpected(&contention)),
            };
            let expected = expected.get_or_insert_with(|| self.inbox.expect(claim.owner));
            tokio::select! {
                biased;
                Ok(HandOver { token, sent }) = &mut expected.arrives => {
                    return Ok(self.grant(claim, token, sent).after_waiting());
                }
                // The message may have gone with the connection.
                Ok(()) = losses.changed() => {}
                // On this runtime's own timers: the keeper's would wake its thread for every wait.
                () = tokio::time::sleep(self.pause(claim.ttl, wait)) => {}
            }
        }
    }

    /// Until a waiter asks again: its place is refreshed every third of its ttl, and it looks now and then
    /// whether its turn has come without a message, the more often the nearer it is. All of a queue together ask
    /// about as often as a few of them would.
    fn pause(&self, ttl: Duration, wait: Wait) -> Duration {
        let look = if self.inbox.hears() { HEARING } else { DEAF };
        let pause = (ttl / 3).min(look * (wait.ahead + 1));
        match wait.free_in {
            _ if wait.ahead > 0 => pause,
            _ if wait.foreign => pause.min(FOREIGN_EVERY),
            Some(free_in) => pause.min(free_in + Duration::from_millis(1)),
            None => pause,
        }
    }

    async fn seen(&self, name: LockName) -> Result<Option<LockState>> {
        let key = key_of(&self.prefix, &name);
        let answer = self.run(&key, &Request::new(&script::INSPECT, &key)).await?;
        let inspected = Inspected::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer))?;
        state(name, inspected)
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<OwnerId, Link>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
            self.backend.unanswered().insert(self.owner, link);
        }
    }
}

fn note_age(claim: &Claim, age: Age) {
    if let Some(party) = &claim.party {
        party.note(age);
    }
}

/// What scripts answer that did something, or found nothing to do.
fn yes(answer: &Value) -> Result<bool> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        other => Err(unexpected(other)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Backend for RedisBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.ask(claim, false).await? {
                Acquired::Granted { token, sent, age } => {
                    note_age(claim, age);
                    Ok(Attempt::Granted(self.grant(claim, token, sent)))
                }
                Acquired::Busy { contention, age } => {
                    note_age(claim, age);
                    Ok(Attempt::Busy(contention))
                }
                Acquired::Queued { wait, .. } => Err(unexpected(&wait)),
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.wait(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, &claim.name);
            let request = self.by_owner(&script::WITHDRAW, &key, claim.owner);
            let link = self.unanswered().get(&claim.owner).cloned();
            if let Some(link) = link {
                // Behind the acquire, or, if that connection is dead, after it is surely closed on both sides.
                if link.run(&request).await.is_err() {
                    self.site.cut(&link).await?;
                    self.run(&key, &request).await?;
                }
                self.unanswered().remove(&claim.owner);
                return Ok(());
            }
            self.run(&key, &request).await.map(drop)
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, &grant.name);
            let mut request = self.by_owner(&script::EXTEND, &key, grant.owner).arg(millis(ttl));
            if let Some(details) = details {
                request = request.arg(written(details)?);
            }
            let mut sent = self.clock.now();
            // To connect may have taken its time.
            let answer = self.site.run(&key, &request, |_| sent = self.clock.now()).await?;
            Ok(match yes(&answer)? {
                false => Extension::Lost { cause: LossCause::Gone },
                true => Extension::Extended { deadline: Deadline::counted_from(sent, ttl) },
            })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, &grant.name);
            let answer = self.run_again(&key, &self.by_owner(&script::RELEASE, &key, grant.owner)).await?;
            Ok(if yes(&answer)? { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.seen(name.clone()))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let start = Scan::new(&self.prefix, prefix);
        Box::pin(stream::try_unfold(start, move |mut scan| async move {
            while let Some(name) = self.next_name(&mut scan).await? {
                if let Some(state) = self.seen(name).await? {
                    return Ok(Some((state, scan)));
                }
            }
            Ok(None)
        }))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revoke<'a>(&'a self, name: &'a LockName, token: Token) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, name);
            let answer = self.run(&key, &Request::new(&script::REVOKE, &key).arg(token.get())).await?;
            Ok(if yes(&answer)? { Revocation::Revoked } else { Revocation::NotHeld })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.site.close();
        Box::pin(std::future::ready(()))
    }
}

/// A walk over the keys of locks, which blocks Redis no longer than a step takes.
struct Scan {
    /// What is still to be searched for: locks that are held, and locks that are only waited for.
    patterns: VecDeque<String>,
    prefix: String,
    /// Which server is being asked, and where it is.
    server: usize,
    cursor: u64,
    found: VecDeque<LockName>,
    seen: HashSet<LockName>,
}

impl Scan {
    fn new(keys: &str, names: &str) -> Self {
        let start = starting_with(&format!("{keys}{}", encode_prefix(names)));
        let patterns = VecDeque::from([start.clone(), format!("{{{start}}}:queue")]);
        Self {
            patterns,
            prefix: names.to_owned(),
            server: 0,
            cursor: 0,
            found: VecDeque::new(),
            seen: HashSet::new(),
        }
    }
}

impl RedisBackend {
    async fn next_name(&self, scan: &mut Scan) -> Result<Option<LockName>> {
        loop {
            if let Some(name) = scan.found.pop_front() {
                return Ok(Some(name));
            }
            let Some(pattern) = scan.patterns.front() else { return Ok(None) };
            let mut step = Cmd::new();
            step.arg("SCAN").arg(scan.cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(512);
            let answer = self.site.command(scan.server, &step).await?;
            let (cursor, keys): (u64, Vec<String>) = match &answer {
                Some(answer) => {
                    FromRedisValue::from_redis_value_ref(answer).map_err(|_| unexpected(answer))?
                }
                None => (0, Vec::new()),
            };
            scan.cursor = cursor;
            if cursor == 0 {
                scan.server += 1;
                if scan.server >= self.site.count().await? {
                    scan.server = 0;
                    scan.patterns.pop_front();
                }
            }
            for name in keys.iter().filter_map(|key| name_of(&self.prefix, key)) {
                if name.as_str().starts_with(&scan.prefix) && scan.seen.insert(name.clone()) {
                    scan.found.push_back(name);
                }
            }
        }
    }
}
