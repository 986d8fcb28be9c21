//! What is tested: an engine, and how to become a client of it.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{
    Backend, BootClock, BoxFuture, Capabilities, Claim, Clock, Keeper, LockName, LockState, Locks, Mode,
    OwnerId, Result,
};

use crate::fault::Operation;
use crate::proxy::{Caught, Deed, Proxy, Which};

/// A backend under test.
pub trait Subject: Send + Sync + 'static {
    /// Its name, for the lines that are printed.
    fn name(&self) -> &'static str;

    /// Where the engine is, started now if it is not there yet. Helper processes get this string. An engine
    /// that lives in the test's own process answers with a new place every time.
    fn address(&self) -> String;

    /// Becomes a client of the engine at `address`, with deadlines read from `clock`.
    fn open<'a>(&'a self, address: &'a str, clock: Arc<dyn Clock>)
    -> BoxFuture<'a, Result<Arc<dyn Backend>>>;

    /// A proxy in front of the engine at `address`. Every backend that is reached over a network has one: the
    /// cases on what a network does to requests fail without.
    fn through(&self, address: &str) -> Option<Chaos> {
        let _ = address;
        None
    }

    /// Why the case called `case` cannot be tried on this engine's wire, if it cannot. It is printed.
    fn exempt(&self, case: &str) -> Option<&'static str> {
        let _ = case;
        None
    }

    /// Removes what the engine left behind, after the last case.
    fn finish(&self) {}
}

/// Puts layers around a backend.
pub type Wrap = fn(Arc<dyn Backend>, Arc<dyn Clock>) -> Arc<dyn Backend>;

/// Another subject's backend with layers around it.
pub struct Wrapped {
    name: &'static str,
    inner: Arc<dyn Subject>,
    wrap: Wrap,
}

impl Wrapped {
    /// `inner` within what `wrap` puts around it. The name is the inner one's, a `+`, and the layer's.
    pub fn subject(name: &'static str, inner: Arc<dyn Subject>, wrap: Wrap) -> Arc<dyn Subject> {
        Arc::new(Self { name, inner, wrap })
    }
}

impl Subject for Wrapped {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let backend = self.inner.open(address, clock.clone()).await?;
            Ok((self.wrap)(backend, clock))
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        self.inner.through(address)
    }

    fn exempt(&self, case: &str) -> Option<&'static str> {
        self.inner.exempt(case)
    }

    fn finish(&self) {
        self.inner.finish();
    }
}

/// A troubled way to an engine.
pub struct Chaos {
    /// What makes the trouble.
    pub proxy: Proxy,
    /// What [`Subject::open`] takes to go through it.
    pub address: String,
    /// Whether a request of the proxy's protocol does what is asked for by this operation.
    pub is: fn(Operation, &[u8]) -> bool,
    /// How a request is repeated: [`Deed::RepeatElsewhere`], or [`Deed::Repeat`] where connections need a
    /// greeting.
    pub repeat: Deed,
}

impl Chaos {
    /// Does something to the next request for `operation`, on every node.
    pub fn on(&self, operation: Operation, deed: Deed) -> Caught {
        let is = self.is;
        self.proxy.on_each(|| Which::matching(move |frame| is(operation, frame)), deed)
    }
}

/// What one case gets: clients of one engine, and names that no other case uses.
#[derive(Clone)]
pub struct World {
    subject: Arc<dyn Subject>,
    address: String,
    prefix: String,
    clock: Arc<dyn Clock>,
    first: Arc<dyn Backend>,
}

impl World {
    /// A world on the boot clock.
    pub async fn new(subject: Arc<dyn Subject>) -> Self {
        let keeper = Keeper::global().expect("a test can start a thread");
        Self::with_clock(subject, Arc::new(BootClock::new(keeper))).await
    }

    /// A world whose clients read `clock`.
    pub async fn with_clock(subject: Arc<dyn Subject>, clock: Arc<dyn Clock>) -> Self {
        let address = subject.address();
        let first = subject.open(&address, clock.clone()).await.expect("the engine under test can be opened");
        let prefix = format!("case-{}", &OwnerId::random().to_hex()[..12]);
        Self { subject, address, prefix, clock, first }
    }

    /// The same subject in a world of its own, on another clock.
    pub async fn on(&self, clock: Arc<dyn Clock>) -> Self {
        Self::with_clock(self.subject.clone(), clock).await
    }

    /// A client of its own: in the engine's eyes somebody else.
    pub async fn backend(&self) -> Arc<dyn Backend> {
        self.subject
            .open(&self.address, self.clock.clone())
            .await
            .expect("the engine under test can be opened")
    }

    /// Locks of a client of its own.
    pub async fn locks(&self) -> Locks {
        self.wrap(self.backend().await)
    }

    /// Locks of a client of its own whose way to the engine can be troubled.
    pub async fn troubled_locks(&self) -> (Locks, Chaos) {
        let chaos = self.subject.through(&self.address).expect(
            "a backend that is reached over a network is tested with a proxy in between; give its Subject \
             a `through`",
        );
        let backend = self.subject.open(&chaos.address, self.clock.clone()).await;
        (self.wrap(backend.expect("the engine under test can be opened")), chaos)
    }

    /// Locks on a backend made by the case.
    pub fn wrap(&self, backend: Arc<dyn Backend>) -> Locks {
        Locks::with_clock(backend, self.clock.clone()).expect("a test can start a thread")
    }

    /// The clock clients read.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// What the backend declares.
    pub fn capabilities(&self) -> &Capabilities {
        self.first.capabilities()
    }

    /// A name no other case uses.
    pub fn name(&self, name: &str) -> LockName {
        LockName::new(format!("{}/{name}", self.prefix)).expect("case names are short and plain")
    }

    /// What all names of this case start with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A ttl that is short but leaves a loaded machine room.
    pub fn ttl(&self) -> Duration {
        let shortest = self.capabilities().ttl.min;
        // An engine with a longer one may take whole seconds alone.
        if shortest < Duration::from_secs(1) { Duration::from_millis(1400) } else { shortest }
    }

    /// A claim as the core would make it.
    pub fn claim(&self, name: &LockName, mode: Mode) -> Claim {
        Claim::new(name.clone(), mode, self.ttl())
    }

    /// What the engine says of `name`, through a client that takes part in nothing else.
    pub async fn look(&self, name: &LockName) -> Option<LockState> {
        self.first.inspect(name).await.expect("inspect answers")
    }

    /// Waits until the engine shows `holders` and `waiters` on `name`. Engines without a queue show no
    /// waiters: for them this only gives the waiters time to arrive.
    pub async fn until(&self, name: &LockName, holders: usize, waiters: usize) {
        let queue = self.capabilities().queue == tollgate_core::capabilities::Queue::Fifo;
        let seen = || async {
            let state = self.look(name).await;
            let count = state.map_or((0, 0), |state| (state.holders.len(), state.waiters.len()));
            (count.0 == holders && (count.1 == waiters || !queue)).then_some(())
        };
        eventually(&format!("{holders} hold and {waiters} wait for {name:?}"), seen).await;
        if !queue && waiters > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until nobody holds `name` and nobody waits for it.
    pub async fn until_idle(&self, name: &LockName) {
        self.until(name, 0, 0).await;
    }

    /// The subject's name.
    pub fn subject_name(&self) -> &'static str {
        self.subject.name()
    }

    /// Where helper processes find the engine.
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// Polls `condition` until it gives something, for as long as a loaded machine may need.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, condition: impl Fn() -> F) -> T {
    let until = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(std::time::Instant::now() < until, "it never happened that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How long anything may take that should happen soon.
pub const PATIENCE: Duration = Duration::from_secs(20);
