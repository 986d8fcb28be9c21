//! One connection to a node, and what was learnt when it was opened. It never reconnects by itself: what a node said of
//! itself counts for this connection alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisError, Value};
use tollgate_core::Moment;

use crate::endpoint::Endpoint;
use crate::redlock::script::{self, RECORD, member_of};
use crate::redlock::trouble::Trouble;
use crate::redlock::voter::Member;
use crate::wire::Wire;

/// How long a node may take to answer before it is set aside.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How many requests may wait for the driver's task: more than tasks that share a connection usually are.
const QUEUE: usize = 1024;

/// How many bytes a few answers to those who take locks have.
const FEW_ANSWERS: usize = 128;

/// An open connection.
pub(crate) struct Link {
    wire: Wire,
    /// By which the node knows it.
    pub(crate) id: u64,
    /// Under which the node runs.
    pub(crate) run_id: String,
    /// The key that it has if it votes.
    pub(crate) member: String,
    /// How long the node had run, at least, when this was opened, and when that was.
    uptime: (Duration, Instant),
    /// Above what its tokens were then.
    pub(crate) g: u64,
    /// What the node's clock said then.
    time: (Duration, Instant),
    /// Since when nobody has waited for an answer long enough to get one; 0 while answers come.
    unheard_since: AtomicU64,
    checked: AtomicBool,
    /// When it was last asked whether the node votes.
    looked: AtomicU64,
}

impl Link {
    /// Connects, learns who the node is, and teaches it the scripts.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<(Self, Option<Member>), Trouble> {
        // The patience is ours, around all nodes' answers together.
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(QUEUE);
        let wire = Wire::open(endpoint, config, Arc::default(), Arc::default(), FEW_ANSWERS).await?;
        let mut connection = wire.connection();
        let mut greeting = redis::pipe();
        greeting.cmd("CLIENT").arg("ID").cmd("INFO").arg("server").cmd("GET").arg(RECORD).cmd("TIME");
        for lua in script::ALL {
            greeting.cmd("SCRIPT").arg("LOAD").arg(lua.code).ignore();
        }
        let (id, info, member, time): (u64, String, Option<String>, (u64, u64)) =
            greeting.query_async(&mut connection).await.map_err(Trouble::connecting)?;
        let said = |what: &str| info.lines().find_map(|line| line.strip_prefix(what)).map(str::trim);
        let run_id = said("run_id:").filter(|id| !id.is_empty()).ok_or_else(|| {
            let message =
                "the INFO of the node has no run_id; only a Redis that shows when it was restarted can be \
                 a node";
            Trouble::new(tollgate_core::ErrorKind::Config, message)
        })?;
        if said("redis_mode:") == Some("cluster") {
            let message = "the node belongs to a cluster; a Redlock node must be an independent Redis server";
            return Err(Trouble::new(tollgate_core::ErrorKind::Config, message));
        }
        // The difference of two times that were cut off to whole seconds: up to one too much.
        let seconds = said("uptime_in_seconds:").and_then(|seconds| seconds.parse::<u64>().ok()).unwrap_or(0);
        let member = member.and_then(|member| Member::parse(&member));
        let link = Self {
            wire,
            g: member.as_ref().map_or(0, |member| member.g),
            id,
            run_id: run_id.to_owned(),
            member: member_of(run_id),
            uptime: (Duration::from_secs(seconds.saturating_sub(1)), Instant::now()),
            time: (Duration::new(time.0, 0) + Duration::from_micros(time.1), Instant::now()),
            unheard_since: AtomicU64::new(0),
            checked: AtomicBool::new(false),
            looked: AtomicU64::new(0),
        };
        Ok((link, member))
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.wire.is_closed()
    }

    /// Nobody uses it again.
    pub(crate) fn close(&self) {
        self.wire.tap().close();
    }

    /// How long the node has run by now, at least.
    pub(crate) fn uptime(&self) -> Duration {
        self.uptime.0 + self.uptime.1.elapsed()
    }

    /// What the node's clock says by now, in microseconds, if nobody has set it since.
    pub(crate) fn time(&self) -> u64 {
        u64::try_from((self.time.0 + self.time.1.elapsed()).as_micros()).unwrap_or(u64::MAX)
    }

    /// Sends commands in one go. Each is answered by itself.
    pub(crate) async fn ask_all(&self, requests: Vec<Cmd>) -> Result<Value, Trouble> {
        self.judged(self.wire.commands(requests).await.map(Value::Array))
    }

    /// Asks for something.
    pub(crate) async fn ask(&self, request: Cmd) -> Result<Value, Trouble> {
        match self.wire.command(&request).await {
            Err(error) if error.code() == Some("NOSCRIPT") => Box::pin(self.teach_and_ask(&request)).await,
            answer => self.judged(answer),
        }
    }

    /// As [`ask`](Self::ask), within the patience, and read as a `T`.
    pub(crate) async fn query<T: FromRedisValue>(&self, request: Cmd) -> Result<T, Trouble> {
        self.query_within(PATIENCE, request).await
    }

    /// The same, with another patience.
    pub(crate) async fn query_within<T: FromRedisValue>(
        &self,
        patience: Duration,
        request: Cmd,
    ) -> Result<T, Trouble> {
        let answer = tokio::time::timeout(patience, self.ask(request)).await;
        let value = answer.unwrap_or_else(|_| Err(silent()))?;
        redis::from_redis_value(value).map_err(|error| Trouble::asking(error.into()))
    }

    /// Somebody had the node forget its scripts; it says that it did nothing.
    async fn teach_and_ask(&self, request: &Cmd) -> Result<Value, Trouble> {
        let mut connection = self.wire.connection();
        let mut teach = redis::pipe();
        for lua in script::ALL {
            teach.cmd("SCRIPT").arg("LOAD").arg(lua.code).ignore();
        }
        let taught: Result<(), RedisError> = teach.query_async(&mut connection).await;
        taught.map_err(Trouble::asking)?;
        self.judged(self.wire.command(request).await)
    }

    fn judged(&self, answer: Result<Value, RedisError>) -> Result<Value, Trouble> {
        answer.map_err(|error| {
            let trouble = Trouble::asking(error);
            if trouble.is_unknown() {
                self.close();
            }
            trouble
        })
    }

    /// An answer came.
    pub(crate) fn heard(&self) {
        // Mostly it is so already, and a write would move the line between cores.
        if self.unheard_since.load(Ordering::Relaxed) != 0 {
            self.unheard_since.store(0, Ordering::Relaxed);
        }
    }

    /// A request of `sent` was decided without this node's answer. Answers whether it has been so for longer than the
    /// patience, so that somebody should find out whether the node still answers at all.
    pub(crate) fn is_suspect(&self, sent: Moment) -> bool {
        let since = self.unheard_since.load(Ordering::Relaxed);
        if since == 0 {
            self.unheard_since.store(sent.as_nanos().max(1), Ordering::Relaxed);
            return false;
        }
        sent.since(Moment::from_nanos(since)) > PATIENCE && !self.checked.swap(true, Ordering::AcqRel)
    }

    /// Whether it is time to ask again whether the node votes: once in a while.
    pub(crate) fn is_due_for_a_look(&self, now: Moment) -> bool {
        let last = self.looked.load(Ordering::Relaxed);
        let due = now.since(Moment::from_nanos(last)) > PATIENCE;
        due && self
            .looked
            .compare_exchange(last, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether the node votes; an error if it does not answer within the patience.
    pub(crate) async fn answers(&self) -> Result<bool, Trouble> {
        let mut look = Cmd::new();
        look.arg("EXISTS").arg(&self.member);
        let votes = self.query::<u64>(look).await?;
        self.heard();
        self.checked.store(false, Ordering::Release);
        Ok(votes == 1)
    }
}

/// It did not answer.
pub(crate) fn silent() -> Trouble {
    let message = format!("the node did not answer within {PATIENCE:?}; it may still execute the request");
    Trouble::new(tollgate_core::ErrorKind::Indeterminate, message)
}
