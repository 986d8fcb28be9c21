//! Every layer, and what drives the blocking API, under the suite every backend must pass.

#[path = "support/memory.rs"]
mod memory;
#[path = "support/session.rs"]
mod session;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::layer::{Metrics, Namespace, OnTokio, Timeout, Trace};
use tollgate_core::{Backend, Clock, Keeper};
use tollgate_testkit::blocked::Blocked;
use tollgate_testkit::subject::Wrapped;
use tollgate_testkit::{Subject, conformance};

use memory::Memory;
use session::Session;

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

/// As the facade does, with a namespace within another.
fn all(inner: Arc<dyn Backend>, clock: Arc<dyn Clock>) -> Arc<dyn Backend> {
    let limited = timeout(Arc::new(OnTokio::new(inner)), clock.clone());
    let named = namespace(namespace(limited, clock.clone()), clock.clone());
    metrics(trace(named, clock.clone()), clock)
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
