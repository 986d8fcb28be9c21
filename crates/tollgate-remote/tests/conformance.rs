//! `tollgate://` under the suite every backend must pass: with both durabilities.

mod support;

use std::sync::{Arc, Mutex, PoisonError};

use support::Server;
use tollgate_core::{Backend, BoxFuture, Clock, Result};
use tollgate_embedded::durable::Durability;
use tollgate_proto::frame::kind;
use tollgate_remote::{RemoteBackend, RemoteConfig};
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Deed, Native, Proxy};
use tollgate_testkit::{Chaos, Subject, conformance};

/// One server for all cases: their names differ.
struct Remote {
    name: &'static str,
    durability: Durability,
    server: Mutex<Option<(Server, tempfile::TempDir)>>,
}

impl Remote {
    fn subject(name: &'static str, durability: Durability) -> Arc<dyn Subject> {
        Arc::new(Self { name, durability, server: Mutex::default() })
    }
}

impl Subject for Remote {
    fn name(&self) -> &'static str {
        self.name
    }

    fn address(&self) -> String {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let (server, _) = server.get_or_insert_with(|| {
            let folder = tempfile::tempdir().expect("a folder can be made");
            (Server::start(folder.path(), self.durability, 0), folder)
        });
        server.address().to_string()
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let config = RemoteConfig::from_url(&format!("tollgate://{address}"))?;
            Ok(Arc::new(RemoteBackend::connect(config, clock).await?) as Arc<dyn Backend>)
        })
    }

    fn through(&self, address: &str) -> Option<Chaos> {
        let proxy = Proxy::start(address.parse().expect("an address"), Native);
        let address = proxy.address().to_string();
        Some(Chaos { proxy, address, is: asks_for, repeat: Deed::RepeatElsewhere })
    }

    fn finish(&self) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((server, _folder)) = server {
            server.stop();
        }
    }
}

fn asks_for(operation: Operation, frame: &[u8]) -> bool {
    let kind = match operation {
        Operation::TryAcquire => kind::TRY_ACQUIRE,
        Operation::Acquire => kind::ACQUIRE,
        Operation::Withdraw => kind::WITHDRAW,
        Operation::Extend => kind::EXTEND,
        Operation::Release => kind::RELEASE,
    };
    Native::kind(frame) == Some(kind)
}

fn main() {
    conformance::main(vec![
        Remote::subject("server", Durability::Sync),
        Remote::subject("server-grace", Durability::Grace),
    ])
}
