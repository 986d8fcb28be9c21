//! The two fake engines under the suite every backend must pass.

#[path = "support/session.rs"]
mod session;

use std::sync::{Arc, OnceLock};

use session::Session;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_testkit::fakes::polling::PollingBackend;
use tollgate_testkit::{Chaos, Subject, conformance, fakes};

/// One engine for all cases, in the process that runs them.
#[derive(Default)]
struct Polling {
    engine: OnceLock<String>,
}

impl Subject for Polling {
    fn name(&self) -> &'static str {
        "fake-polling"
    }

    fn address(&self) -> String {
        self.engine.get_or_init(fakes::polling::start).clone()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move { Ok(Arc::new(PollingBackend::new(address, clock)) as Arc<dyn Backend>) })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        Some(fakes::through(address))
    }
}

fn main() {
    conformance::main(vec![Arc::new(Session::default()), Arc::new(Polling::default())])
}
