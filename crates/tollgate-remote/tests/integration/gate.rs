//! The gate of a server, under the cases every gate must pass.

use std::sync::Arc;

use tollgate_core::{ErrorKind, Fence, Gate, Token};
use tollgate_embedded::durable::Durability;
use tollgate_remote::{RemoteConfig, RemoteGate};
use tollgate_testkit::gates;

use crate::locks;
use crate::support::Server;

async fn gate(server: &Server, takes_foreign: bool) -> Arc<dyn Gate> {
    let config = RemoteConfig::from_url(&format!("tollgate://{}", server.address())).unwrap();
    Arc::new(RemoteGate::connect(config, takes_foreign).await.unwrap())
}

#[tokio::test]
async fn it_passes_what_every_gate_must_pass() {
    for durability in [Durability::Sync, Durability::Grace] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), durability, 0);
        gates::gate_cases(&gate(&server, true).await).await;
        server.stop();
    }
}

#[tokio::test]
async fn a_token_that_the_server_never_gave_shuts_out_no_holder() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Sync, 0);
    let (locks, gate) = (locks(server.address()).await, gate(&server, false).await);
    let guard = locks.lock("report").acquire().await.unwrap();
    let invented = Fence::shown(Token::new(guard.token().get() + 1).unwrap(), true);
    let error = gate.admit("report", invented).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    gate.admit("report", guard.fence().unwrap()).await.unwrap();
    guard.release().await.unwrap();
    server.stop();
}

#[tokio::test]
async fn a_mark_outlives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let port = server.address().port();
    let shown = |token| Fence::shown(Token::new(token).unwrap(), true);
    gate(&server, true).await.admit("report", shown(9)).await.unwrap();
    server.kill();
    let server = Server::start(folder.path(), Durability::Grace, port);
    let gate = gate(&server, true).await;
    assert_eq!(gate.highest("report").await.unwrap(), Token::new(9).ok());
    assert_eq!(gate.admit("report", shown(8)).await.unwrap_err().kind(), ErrorKind::Lost);
    server.stop();
}
