//! The contract's side: what each call means for Redis.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use redis::{Client, Cmd, IntoConnectionInfo, ProtocolVersion, Script, ScriptInvocation};
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, LockName, LockState, LossCause, Mode, Moment, OwnerId, Release,
    Result, Revocation, Token, events,
};

use crate::capabilities::capabilities;
use crate::error::of_connect;
use crate::inbox::{HandOver, Inbox};
use crate::keys::{Keys, encode_prefix, name_of, starting_with};
use crate::links::{Link, Links};
use crate::reply::{Acquired, Inspected, Wait, state, written};
use crate::script;

/// How often locks are looked at for events.
const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// How often the first waiter looks whether its turn has come, if messages arrive here and if not.
const HEARING: Duration = Duration::from_secs(1);
const DEAF: Duration = Duration::from_millis(50);
/// How often the first waiter looks whether a client of another kind has left.
const FOREIGN_EVERY: Duration = Duration::from_millis(100);

/// Which Redis, and which part of it.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    /// As the driver reads it: `redis://USER:PASSWORD@HOST:PORT/DB`.
    pub url: String,
    /// What the keys of locks start with.
    pub prefix: String,
}

impl RedisConfig {
    /// The Redis at `url`, with the prefix that other clients use too.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), prefix: "lock:".to_owned() }
    }
}

/// Locks on one Redis.
pub struct RedisBackend {
    links: Links,
    prefix: String,
    channel: String,
    inbox: Arc<Inbox>,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
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
        let info = config.url.as_str().into_connection_info().map_err(|error| {
            Error::invalid("this is no URL of a Redis; write redis://HOST:PORT/").caused_by(error)
        })?;
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = Client::open(info).map_err(of_connect)?;
        let channel = format!("tollgate:{}", OwnerId::random().to_hex());
        let inbox = Arc::new(Inbox::default());
        let links = Links::new(client, channel.clone(), inbox.clone());
        links.here().await?;
        let (prefix, capabilities) = (config.prefix, capabilities());
        Ok(Self { links, prefix, channel, inbox, clock, capabilities, unanswered: Mutex::default() })
    }

    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        self.run::<u64>(&script::FLOOR, name, |script| {
            script.arg(floor.get());
        })
        .await
        .map(drop)
    }

    /// As [`run`](Self::run), once more if the connection failed: only for what acts by owner id.
    async fn run_again<T: redis::FromRedisValue + Send>(
        &self,
        script: &Script,
        name: &LockName,
        arguments: impl Fn(&mut ScriptInvocation<'_>),
    ) -> Result<T> {
        match self.run(script, name, &arguments).await {
            Err(error) if error.kind() == ErrorKind::Indeterminate => {
                self.run(script, name, &arguments).await
            }
            answer => answer,
        }
    }

    /// Runs a script on the keys of `name`, over this runtime's connection.
    async fn run<T: redis::FromRedisValue + Send>(
        &self,
        script: &Script,
        name: &LockName,
        arguments: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T> {
        let link = self.links.here().await?;
        self.links.invoke(&link, &self.prepared(script, name, arguments)).await
    }

    fn prepared<'a>(
        &self,
        script: &'a Script,
        name: &LockName,
        arguments: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        for key in Keys::of(&self.prefix, name).0 {
            invocation.key(key);
        }
        arguments(&mut invocation);
        invocation
    }

    /// Asks once, to get in or to wait.
    async fn ask(&self, claim: &Claim, wait: bool) -> Result<Acquired> {
        let link = self.links.here().await?;
        let details = written(&claim.details)?;
        let (kind, limit) = match claim.mode {
            Mode::Exclusive => ("x", 0),
            Mode::Shared => ("s", 0),
            Mode::Permit { limit } => ("p", limit.get()),
        };
        let owner = claim.owner.to_hex();
        self.unanswered().insert(claim.owner, link.clone());
        let sent = self.clock.now();
        let request = self.prepared(&script::ACQUIRE, &claim.name, |script| {
            script.arg(owner).arg(kind).arg(limit).arg(millis(claim.ttl)).arg(sent.as_nanos());
            script.arg(&self.channel).arg(details).arg(u8::from(wait));
        });
        let answer = self.links.invoke::<Vec<String>>(&link, &request).await?;
        self.unanswered().remove(&claim.owner);
        Acquired::parse(&answer)
    }

    fn grant(&self, claim: &Claim, token: Token, sent: Moment) -> Grant {
        let age = claim.party.as_ref().and_then(|party| party.stamp().age);
        Grant::new(claim, token, Deadline::counted_from(sent, claim.ttl)).with_age(age)
    }

    async fn wait(&self, claim: &Claim) -> Result<Grant> {
        let mut expected = self.inbox.expect(claim.owner);
        let mut waited = false;
        loop {
            let mut losses = self.inbox.losses();
            let wait = match self.ask(claim, true).await? {
                Acquired::Granted { token, sent, age } => {
                    note_age(claim, age);
                    if waited && expected.arrives.try_recv().is_err() {
                        self.inbox.missed();
                    }
                    return Ok(Grant { waited, ..self.grant(claim, token, sent) });
                }
                Acquired::Queued { wait, age } => {
                    note_age(claim, age);
                    wait
                }
                Acquired::Busy { contention, .. } => return Err(crate::error::unexpected(&contention)),
            };
            waited = true;
            tokio::select! {
                biased;
                Ok(HandOver { token, sent }) = &mut expected.arrives => {
                    return Ok(self.grant(claim, token, sent).after_waiting());
                }
                // The message may have gone with the connection.
                Ok(()) = losses.changed() => {}
                () = self.clock.sleep_until(self.clock.now() + self.pause(claim.ttl, wait)) => {}
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
        let inspected: Inspected = self.run(&script::INSPECT, &name, |_| {}).await?;
        state(name, inspected)
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<OwnerId, Link>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note_age(claim: &Claim, age: Age) {
    if let Some(party) = &claim.party {
        party.note(age);
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
                Acquired::Queued { wait, .. } => Err(crate::error::unexpected(&wait)),
            }
        })
    }

    fn acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Grant>> {
        Box::pin(self.wait(claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let owner = claim.owner.to_hex();
            let request = self.prepared(&script::WITHDRAW, &claim.name, |script| {
                script.arg(owner.as_str());
            });
            let link = self.unanswered().get(&claim.owner).cloned();
            if let Some(link) = link {
                // Behind the acquire, or, if that connection is dead, after it is surely closed on both sides.
                if self.links.invoke::<u64>(&link, &request).await.is_err() {
                    self.links.cut(&link).await?;
                    self.links.invoke::<u64>(&self.links.here().await?, &request).await?;
                }
                self.unanswered().remove(&claim.owner);
                return Ok(());
            }
            self.links.invoke::<u64>(&self.links.here().await?, &request).await.map(drop)
        })
    }

    fn extend<'a>(
        &'a self,
        grant: &'a Grant,
        ttl: Duration,
        details: Option<&'a Details>,
    ) -> BoxFuture<'a, Result<Extension>> {
        Box::pin(async move {
            let details = details.map(written).transpose()?;
            let link = self.links.here().await?;
            let sent = self.clock.now();
            let request = self.prepared(&script::EXTEND, &grant.name, |script| {
                script.arg(grant.owner.to_hex()).arg(millis(ttl));
                if let Some(details) = details {
                    script.arg(details);
                }
            });
            Ok(match self.links.invoke::<u64>(&link, &request).await? {
                0 => Extension::Lost { cause: LossCause::Gone },
                _ => Extension::Extended { deadline: Deadline::counted_from(sent, ttl) },
            })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let owner = grant.owner.to_hex();
            let with_owner = |script: &mut ScriptInvocation<'_>| {
                script.arg(owner.as_str());
            };
            let released: u64 = self.run_again(&script::RELEASE, &grant.name, with_owner).await?;
            Ok(if released == 0 { Release::AlreadyLost } else { Release::Released })
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
            let revoked: u64 = self
                .run(&script::REVOKE, name, |script| {
                    script.arg(token.to_string());
                })
                .await?;
            Ok(if revoked == 0 { Revocation::NotHeld } else { Revocation::Revoked })
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.links.close();
        Box::pin(std::future::ready(()))
    }
}

/// A walk over the keys of locks, which blocks Redis no longer than a step takes.
struct Scan {
    /// What is still to be searched for: locks that are held, and locks that are only waited for.
    patterns: VecDeque<String>,
    prefix: String,
    cursor: u64,
    found: VecDeque<LockName>,
    seen: HashSet<LockName>,
}

impl Scan {
    fn new(keys: &str, names: &str) -> Self {
        let start = starting_with(&format!("{keys}{}", encode_prefix(names)));
        let patterns = VecDeque::from([start.clone(), format!("{{{start}}}:queue")]);
        Self { patterns, prefix: names.to_owned(), cursor: 0, found: VecDeque::new(), seen: HashSet::new() }
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
            let link = self.links.here().await?;
            let (cursor, keys): (u64, Vec<String>) = self.links.command(&link, &step).await?;
            scan.cursor = cursor;
            if cursor == 0 {
                scan.patterns.pop_front();
            }
            for name in keys.iter().filter_map(|key| name_of(&self.prefix, key)) {
                if name.as_str().starts_with(&scan.prefix) && scan.seen.insert(name.clone()) {
                    scan.found.push_back(name);
                }
            }
        }
    }
}
