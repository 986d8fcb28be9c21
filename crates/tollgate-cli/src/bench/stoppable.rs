//! A contender that can be stopped during a measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_bench::{Client, Contender, Held, Waiting};

/// The stop flag that all [`Stoppable`]s with a copy of it obey.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on no lock is taken. Acquires that wait already still end with a grant.
    pub(super) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn refuses<'a, T: Send + 'a>(&self) -> Option<Waiting<'a, T>> {
        let refusal = || Box::pin(async { Err("the measurement was interrupted".into()) }) as Waiting<'a, T>;
        self.0.load(Ordering::Relaxed).then(refusal)
    }
}

/// Another contender, until it is stopped. It costs the measurement one look at a flag.
pub(super) struct Stoppable<C> {
    contender: C,
    stop: Stop,
}

impl<C: Contender> Stoppable<C> {
    pub(super) fn new(contender: C, stop: Stop) -> Self {
        Self { contender, stop }
    }
}

impl<C: Contender> Contender for Stoppable<C> {
    fn name(&self) -> &str {
        self.contender.name()
    }

    fn client(&self) -> Waiting<'_, Arc<dyn Client>> {
        self.stop.refuses().unwrap_or_else(|| {
            Box::pin(async move {
                let client = self.contender.client().await?;
                Ok(Arc::new(StoppableClient { client, stop: self.stop.clone() }) as Arc<dyn Client>)
            })
        })
    }

    fn can_wait(&self) -> bool {
        self.contender.can_wait()
    }

    fn holds_many(&self) -> bool {
        self.contender.holds_many()
    }
}

struct StoppableClient {
    client: Arc<dyn Client>,
    stop: Stop,
}

impl Client for StoppableClient {
    fn lock<'a>(&'a self, name: &'a str) -> Waiting<'a, Box<dyn Held>> {
        self.stop.refuses().unwrap_or_else(|| self.client.lock(name))
    }
}
