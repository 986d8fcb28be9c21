//! The contract's side: what each call means for Redis.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use redis::{FromRedisValue, Value};
use tollgate_core::inbox::Inbox;
use tollgate_core::queued::{self, granted, note_age};
use tollgate_core::recent::Recent;
use tollgate_core::{
    Age, Attempt, Backend, BoxFuture, BoxStream, Capabilities, Claim, Clock, Deadline, Details, Error,
    ErrorKind, Event, Extension, Grant, LockName, LockState, LossCause, OwnerId, Release, Result, Revocation,
    RevokeMode, Token, events,
};

use crate::acquire::Ask;
use crate::capabilities::capabilities;
use crate::config::RedisConfig;
use crate::error::{is_of_another_type, unexpected};
use crate::keys::{check_prefix, key_of};
use crate::link::Link;
use crate::links::Subscription;
use crate::reply::{Acquired, Inspected, state, written};
use crate::scan::Scan;
use crate::script::{self, Request, Script};
use crate::site::Site;

/// From how many acquires that were given up on the oldest are forgotten.
const LEFT_BEHIND: usize = 1 << 16;
/// How often locks are looked at for events.
pub(crate) const EVENTS_EVERY: Duration = Duration::from_millis(250);
/// How long a withdrawal waits behind its acquire. Its connection may be driven by a runtime that nobody drives any more.
const BEHIND: Duration = Duration::from_secs(2);
/// For how long a name counts as wanted by others.
pub(crate) const CONTENDED: Duration = Duration::from_secs(2);
/// How often a counter that is in use is told anew how long to live.
pub(crate) const EXPIRY_EVERY: Duration = Duration::from_secs(3600);

/// Locks on one Redis.
pub struct RedisBackend {
    pub(crate) site: Site,
    pub(crate) prefix: String,
    pub(crate) channel: Arc<str>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) clock: Arc<dyn Clock>,
    capabilities: Capabilities,
    /// Names that somebody else wanted, too: there scripts are quicker.
    pub(crate) contended: Recent,
    /// Names whose tokens are remembered long enough.
    pub(crate) remembered: Recent,
    /// Acquires that were sent and not answered, and over which connection: a withdrawal must not overtake them.
    unanswered: Mutex<HashMap<OwnerId, Link>>,
}

impl RedisBackend {
    /// Connects, so that what is wrong is told at once.
    pub fn connect(config: RedisConfig, clock: Arc<dyn Clock>) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            check_prefix(&config.prefix)?;
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
        })
    }

    /// Makes every later token of `name` larger than `floor`, as a move from another engine needs it.
    pub async fn raise_floor(&self, name: &LockName, floor: Token) -> Result<()> {
        tollgate_core::floor::check(floor)?;
        let key = key_of(&self.prefix, name);
        self.run(&key, &Request::new(&script::FLOOR, &key).arg(floor.get())).await.map(drop)
    }

    /// Runs a script on the lock with the key `key`.
    async fn run(&self, key: &str, request: &Request) -> Result<Value> {
        self.site.run(key, request, |_| ()).await
    }

    /// A script that acts on what `owner` has or wants of a lock.
    pub(crate) fn by_owner(&self, script: &'static Script, key: &str, owner: OwnerId) -> Request {
        Request::new(script, key).arg(owner.hex_digits().as_slice())
    }

    pub(crate) async fn seen(&self, name: LockName) -> Result<Option<LockState>> {
        let key = key_of(&self.prefix, &name);
        let answer = match self.run(&key, &Request::new(&script::INSPECT, &key)).await {
            Err(error) if is_of_another_type(&error) => return Err(self.in_our_place(&key, error).await),
            answer => answer?,
        };
        let inspected = Inspected::from_redis_value_ref(&answer).map_err(|_| unexpected(&answer))?;
        state(name, inspected)
    }

    /// Repeats a release whose answer was lost over `first`: it acts by owner id, so it may be. Answers whether the lock
    /// was ours until one of both.
    async fn release_again(
        &self,
        key: &str,
        request: &Request,
        grant: &Grant,
        first: Option<Link>,
    ) -> Result<bool> {
        let mut second = None;
        let answer = self.site.run(key, request, |link| second = Some(link.clone())).await?;
        // If it is gone, it was the first one that gave it back, unless it ended before: by its deadline, or with the
        // memory of a server that was restarted, or is another by now.
        let one_run = first.zip(second).is_some_and(|(first, second)| first.is_in_the_run_of(&second));
        let in_time = matches!(grant.deadline, Deadline::At(end) if self.clock.now() < end);
        Ok(yes(&answer)? || (one_run && in_time))
    }

    /// Remembers over which connection an acquire went that nobody waits for any more.
    pub(crate) fn leave_behind(&self, owner: OwnerId, link: Link) {
        let mut unanswered = self.unanswered();
        if unanswered.len() >= LEFT_BEHIND {
            // Those who were to withdraw them have given up, and what they wanted has ended by itself.
            unanswered.retain(|_, link| !link.is_closed());
        }
        unanswered.insert(owner, link);
    }

    pub(crate) fn unanswered(&self) -> MutexGuard<'_, HashMap<OwnerId, Link>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What scripts answer of a grant whose lock an operator broke.
const REVOKED: i64 = 2;

/// What scripts answer that did something, or found nothing to do.
fn yes(answer: &Value) -> Result<bool> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        other => Err(unexpected(other)),
    }
}

/// In whole milliseconds, as Redis counts.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Backend for RedisBackend {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn try_acquire<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<Attempt>> {
        Box::pin(async move {
            match self.ask(claim, Ask::Once).await? {
                Acquired::Granted { token, sent, age } => {
                    note_age(claim, age);
                    Ok(Attempt::Granted(granted(claim, token, sent)))
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
        Box::pin(queued::wait(self, claim))
    }

    fn withdraw<'a>(&'a self, claim: &'a Claim) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, &claim.name);
            let request = self.by_owner(&script::WITHDRAW, &key, claim.owner);
            let link = self.unanswered().get(&claim.owner).cloned();
            if let Some(link) = link {
                // Behind the acquire, or, if that connection is dead, after it is surely closed on both sides.
                let behind = tokio::time::timeout(BEHIND.min(claim.ttl / 6), link.run(&request)).await;
                if !matches!(behind, Ok(Ok(_))) {
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
            Ok(match answer {
                Value::Int(REVOKED) => Extension::Lost { cause: LossCause::Revoked },
                answer if yes(&answer)? => {
                    Extension::Extended { deadline: Deadline::counted_from(sent, ttl) }
                }
                _ => Extension::Lost { cause: LossCause::Gone },
            })
        })
    }

    fn release<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<Release>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, &grant.name);
            let request = self.by_owner(&script::RELEASE, &key, grant.owner);
            let mut first = None;
            let released = match self.site.run(&key, &request, |link| first = Some(link.clone())).await {
                Err(error) if error.kind() == ErrorKind::Indeterminate => {
                    self.release_again(&key, &request, grant, first).await?
                }
                answer => yes(&answer?)?,
            };
            Ok(if released { Release::Released } else { Release::AlreadyLost })
        })
    }

    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Option<LockState>>> {
        Box::pin(self.seen(name.clone()))
    }

    fn list(&self, prefix: &str) -> BoxStream<'_, Result<LockState>> {
        let start = Scan::new(&self.prefix, prefix);
        Box::pin(stream::unfold(Some(start), move |scan| async move {
            let mut scan = scan?;
            loop {
                match self.next_name(&mut scan).await {
                    Ok(None) => return None,
                    // Redis cannot be asked any further.
                    Err(error) => return Some((Err(error), None)),
                    Ok(Some(name)) => match self.seen(name.clone()).await {
                        Ok(None) => {}
                        Ok(Some(state)) => return Some((Ok(state), Some(scan))),
                        Err(error) => return Some((Err(error.on(&name)), Some(scan))),
                    },
                }
            }
        }))
    }

    fn events(&self, prefix: &str) -> BoxStream<'_, Result<Event>> {
        events::poll(self, self.clock.clone(), prefix, EVENTS_EVERY)
    }

    fn revocations(&self) -> Option<BoxStream<'static, OwnerId>> {
        Some(self.inbox.revocations())
    }

    fn revoke<'a>(
        &'a self,
        name: &'a LockName,
        token: Token,
        mode: RevokeMode,
    ) -> BoxFuture<'a, Result<Revocation>> {
        Box::pin(async move {
            let key = key_of(&self.prefix, name);
            let by_force = u8::from(mode == RevokeMode::Force);
            let request = Request::new(&script::REVOKE, &key).arg(token.get()).arg(by_force);
            Ok(match self.run(&key, &request).await? {
                Value::Int(REVOKED) => Revocation::Pending,
                answer if yes(&answer)? => Revocation::Revoked,
                _ => Revocation::NotHeld,
            })
        })
    }

    fn age(&self) -> BoxFuture<'_, Result<Age>> {
        Box::pin(async move {
            let told = self.site.command(0, &redis::cmd("TIME")).await?;
            let told = told.as_ref().and_then(|told| <(u64, u64)>::from_redis_value_ref(told).ok());
            let (seconds, micros) =
                told.ok_or_else(|| Error::new(ErrorKind::Unexpected, "Redis reported no time"))?;
            Ok(Age(seconds * 1_000_000 + micros))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.site.close();
        Box::pin(std::future::ready(()))
    }
}
