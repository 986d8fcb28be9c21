//! Every layer, and what drives the blocking API, under the suite every backend must pass.

#[path = "support/memory.rs"]
mod memory;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollgate_core::layer::{Metrics, Namespace, Timeout, Trace};
use tollgate_core::{Backend, BoxFuture, Clock, Keeper, Result};
use tollgate_testkit::blocked::Blocked;
use tollgate_testkit::fakes::session::{self, SessionBackend};
use tollgate_testkit::subject::Wrapped;
use tollgate_testkit::{Chaos, Subject, conformance, fakes};

use memory::Memory;

/// A session-shaped engine over TCP.
#[derive(Default)]
struct Session {
    engine: OnceLock<String>,
}

impl Subject for Session {
    fn name(&self) -> &'static str {
        "fake-session"
    }

    fn address(&self) -> String {
        self.engine.get_or_init(session::start).clone()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            Ok(Arc::new(SessionBackend::new(address, clock, Keeper::global()?)) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        Some(fakes::through(address))
    }
}

/// Longer than anything takes that is answered at all.
const LIMIT: Duration = Duration::from_secs(20);

fn metrics(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(Metrics::new(inner, clock))
}

fn trace(inner: Arc<dyn Backend>, _: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(Trace::new(inner))
}

fn timeout(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(Timeout::new(inner, clock, LIMIT).expect("a limit that leaves time"))
}

fn namespace(inner: Arc<dyn Backend>, _: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(Namespace::new(inner, "team").expect("a name"))
}

fn blocked(inner: Arc<dyn Backend>, _: Arc<dyn Clock>) -> Arc<dyn Backend> {
    Arc::new(Blocked::new(inner, Keeper::global().expect("a test can start a thread")))
}

/// As the facade does, and a namespace within another.
fn all(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    let limited = timeout(inner, clock.clone());
    let watched = metrics(trace(limited, clock.clone()), clock.clone());
    namespace(namespace(watched, clock.clone()), clock)
}

fn main() {
    // Somebody must listen, or there is nothing to trace.
    let listener = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(std::io::sink);
    listener.init();
    let memory = || Arc::new(Memory::default()) as Arc<dyn Subject>;
    let session = || Arc::new(Session::default()) as Arc<dyn Subject>;
    conformance::main(vec![
        Wrapped::subject("memory+metrics", memory(), metrics),
        Wrapped::subject("memory+trace", memory(), trace),
        Wrapped::subject("memory+timeout", memory(), timeout),
        Wrapped::subject("memory+namespace", memory(), namespace),
        Wrapped::subject("memory+blocking", memory(), blocked),
        Wrapped::subject("fake-session+all", session(), all),
        Wrapped::subject("fake-session+blocking", session(), blocked),
    ])
}
