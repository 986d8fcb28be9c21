//! Finding a server: several addresses, one that is no lock server, and one that is away.

use std::io::{Read, Write};
use std::net::TcpListener;

use tollgate_core::{Error, ErrorKind, Severity, Token};
use tollgate_embedded::durable::Durability;
use tollgate_remote::{RemoteBackend, RemoteConfig, examine};

use crate::support::Server;
use crate::{SECOND, backend, clock, locks, until};

async fn refusal(address: &str) -> Error {
    let config = RemoteConfig::from_url(&format!("tollgate://{address}")).unwrap();
    RemoteBackend::connect(config, clock()).await.map(drop).unwrap_err()
}

#[tokio::test]
async fn of_several_addresses_one_that_answers_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Grace, 0);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let locks = locks(format!("{closed},{}", server.address())).await;
    locks.lock("a").acquire().await.unwrap().release().await.unwrap();
    server.stop();
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(refusal(&closed.to_string()).await.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn what_is_no_lock_server_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = refusal(&address.to_string()).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    other.join().unwrap();
}

#[tokio::test]
async fn tokens_go_on_above_a_floor() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), Durability::Sync, 0);
    let (backend, locks) = (backend(server.address()).await, locks(server.address()).await);
    let floor = Token::new(1_000_000).unwrap();
    backend.raise_floor(floor).await.unwrap();
    let guard = locks.lock("moved").acquire().await.unwrap();
    assert!(guard.token() > floor);
    guard.release().await.unwrap();
    assert!(backend.raise_floor(Token::MAX).await.is_err());
    server.stop();
}

#[tokio::test]
async fn a_holder_renews_over_another_connection_where_the_server_has_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with_room(folder.path(), Durability::Grace, 0, 1);
    let locks = locks(server.address()).await;
    let guard = locks.lock("held").ttl(SECOND).acquire().await.unwrap();
    let error = refusal(&server.address().to_string()).await;
    assert!(error.is_overload() && error.to_string().contains("limit of connections"), "{error}");
    let deadline = guard.deadline();
    until("the grant is renewed", async || guard.deadline() > deadline).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
    server.stop();
}

#[tokio::test]
async fn the_doctor_says_what_a_crash_costs_and_which_address_is_away() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let examined = async |url: &str| examine(RemoteConfig::from_url(url).unwrap()).await;
    for (durability, severity) in [(Durability::Sync, Severity::Fine), (Durability::Grace, Severity::Note)] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(folder.path(), durability, 0);
        let checkup = examined(&format!("tollgate://{}", server.address())).await.unwrap();
        assert_eq!(checkup.findings[0].severity, severity, "{:?}", checkup.findings);
        assert!(!checkup.has_problems());
        let checkup = examined(&format!("tollgate://{closed},{}", server.address())).await.unwrap();
        assert!(checkup.has_problems() && checkup.findings[0].what.contains(&closed.to_string()));
        server.stop();
    }
    assert_eq!(examined(&format!("tollgate://{closed}")).await.unwrap_err().kind(), ErrorKind::Unavailable);
}
