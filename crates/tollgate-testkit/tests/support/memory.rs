//! `memory:` as a subject.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tollgate_core::{Backend, BoxFuture, Clock, Keeper, OwnerId, Result};
use tollgate_embedded::MemoryBackend;
use tollgate_testkit::Subject;

/// An engine for every address; the first client's clock is the engine's.
#[derive(Default)]
pub(crate) struct Memory {
    engines: Mutex<HashMap<String, MemoryBackend>>,
}

impl Subject for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn address(&self) -> String {
        OwnerId::random().to_hex()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let keeper = Keeper::global()?;
            let mut engines = self.engines.lock().expect("no case panics while it opens a client");
            let engine =
                engines.entry(address.to_owned()).or_insert_with(|| MemoryBackend::new(clock, &keeper));
            Ok(Arc::new(engine.clone()) as Arc<dyn Backend>)
        })
    }
}
