//! The two fake engines under the suite every backend must pass.

use std::sync::{Arc, OnceLock};

use tollgate_core::{Backend, BoxFuture, Clock, Keeper, Result};
use tollgate_testkit::fakes::{polling::PollingBackend, session::SessionBackend};
use tollgate_testkit::{Chaos, Subject, conformance, fakes};

/// One engine for all cases, in the process that runs them: a helper that is killed or stopped takes
/// nothing along.
#[derive(Default)]
struct Session {
    engine: OnceLock<String>,
}

impl Subject for Session {
    fn name(&self) -> &'static str {
        "fake-session"
    }

    fn address(&self) -> String {
        self.engine.get_or_init(fakes::session::start).clone()
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

/// As above.
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
