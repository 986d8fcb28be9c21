//! Connections to a server that does what the test says.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollgate_core::url::Host;
use tollgate_core::{BootClock, Keeper};

use super::carrier::{Carrier, Plain};
use super::dial::{Dialer, Refusal};
use super::ops::{Hello, answer};
use super::{Event, Fault, Link, Request};

const LONG: Duration = Duration::from_secs(60);

/// A connection, and the other side of it.
async fn connected(silence: Duration) -> (Arc<Link>, TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let carrier = Carrier::Plain(Plain::new(client));
    let link = Arc::new(Link::new(1, &carrier, Arc::new(AtomicI64::new(0))));
    let running = tokio::spawn({
        let link = link.clone();
        async move { link.run(carrier, silence).await }
    });
    (link, server, running)
}

/// An answer with nothing in it.
fn reply(xid: i32) -> Vec<u8> {
    let mut frame = 16_i32.to_be_bytes().to_vec();
    frame.extend(xid.to_be_bytes());
    frame.extend([0; 12]);
    frame
}

async fn number_of_next(server: &mut TcpStream) -> i32 {
    let length = server.read_i32().await.unwrap();
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    server.read_exact(&mut frame).await.unwrap();
    i32::from_be_bytes(*frame.first_chunk().unwrap())
}

#[tokio::test]
async fn whatever_a_server_says_what_was_asked_fails_and_nobody_waits() {
    let wrong_number = reply(7);
    let mut event = 20_i32.to_be_bytes().to_vec();
    event.extend((-1_i32).to_be_bytes());
    event.extend([0; 12]);
    event.extend([255; 4]);
    let hostile: [&[u8]; 7] = [
        &[255; 64],
        &[127; 64],
        &[0, 0, 0, 0],
        &[0, 0, 0, 3, 1, 2, 3],
        &wrong_number,
        &event,
        b"HTTP/1.1 400",
    ];
    for bytes in hostile {
        let (link, mut server, running) = connected(LONG).await;
        let asked = link.ask(Request::sync("/")).unwrap();
        let (watching, mut watches) = link.ask_and_watch(Request::exists("/a", true)).unwrap();
        server.write_all(bytes).await.unwrap();
        assert_eq!(asked.read(answer::nothing).await, Err(Fault::Lost), "{bytes:?}");
        assert_eq!(watching.read(answer::stat).await, Err(Fault::Lost));
        assert_eq!(watches.pop().unwrap().await, Event::Lost);
        running.await.unwrap();
        assert!(link.ask(Request::sync("/")).is_err(), "nothing more can be asked");
    }
}

#[tokio::test]
async fn a_frame_that_never_ends_is_lost_with_its_connection() {
    let (link, mut server, running) = connected(LONG).await;
    let asked = link.ask(Request::sync("/")).unwrap();
    let frame = reply(1);
    server.write_all(&frame[..frame.len() - 1]).await.unwrap();
    drop(server);
    assert_eq!(asked.read(answer::nothing).await, Err(Fault::Lost));
    running.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_too_short_is_not_understood() {
    let (link, mut server, _running) = connected(LONG).await;
    let asked = link.ask(Request::get_data("/a", false)).unwrap();
    server.write_all(&reply(1)).await.unwrap();
    assert_eq!(asked.read(answer::data).await, Err(Fault::Garbled));
}

#[tokio::test]
async fn requests_go_out_in_order_however_slowly_they_are_taken() {
    let (link, mut server, _running) = connected(LONG).await;
    // More than the system takes at once.
    let (large, count) = (vec![1; 300_000], 100);
    let asked: Vec<_> =
        (0..count).map(|_| link.ask(Request::set_data("/a", &large, None)).unwrap()).collect();
    for number in 1..=count {
        assert_eq!(number_of_next(&mut server).await, number);
        server.write_all(&reply(number)).await.unwrap();
    }
    for asked in asked {
        assert_eq!(asked.read(answer::nothing).await, Ok(()));
    }
}

#[tokio::test]
async fn what_was_not_sent_is_told_from_what_may_have_been() {
    let (link, server, running) = connected(LONG).await;
    let large = vec![1; 30 << 20];
    let half = link.ask(Request::set_data("/a", &large, None)).unwrap();
    // The task is writing the one before, and nobody reads.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (one, other) = link.ask_both(Request::sync("/"), Request::sync("/")).unwrap();
    drop(server);
    running.await.unwrap();
    assert_eq!(half.read(answer::nothing).await, Err(Fault::Lost));
    for unsent in [one, other] {
        assert_eq!(unsent.read(answer::nothing).await, Err(Fault::Unsent));
    }
}

#[tokio::test]
async fn a_connection_is_given_up_only_while_somebody_waits_for_an_answer() {
    let silence = Duration::from_millis(200);
    let (link, mut server, running) = connected(silence).await;
    tokio::time::sleep(silence * 3).await;
    let asked = link.ask(Request::sync("/")).unwrap();
    server.write_all(&reply(1)).await.unwrap();
    assert_eq!(asked.read(answer::nothing).await, Ok(()));
    let began = Instant::now();
    let asked = link.ask(Request::sync("/")).unwrap();
    assert_eq!(asked.read(answer::nothing).await, Err(Fault::Lost));
    assert!(began.elapsed() >= silence, "{:?}", began.elapsed());
    running.await.unwrap();
}

fn host(listener: &TcpListener) -> Host {
    Host { name: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() }
}

fn dialer(hosts: &[Host], most: Duration) -> Dialer {
    Dialer::new(hosts, None, None, Arc::new(BootClock::new(Keeper::global().unwrap())), most)
}

fn hello() -> Hello {
    Hello { seen: 0, timeout_ms: 1000, session: 0, password: vec![0; 16] }
}

/// Answers every handshake with these bytes.
async fn answering(bytes: &'static [u8]) -> Host {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = host(&listener);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(bytes).await;
            let mut rest = Vec::new();
            let _ = client.read_to_end(&mut rest).await;
        }
    });
    host
}

#[tokio::test]
async fn a_handshake_with_something_else_fails() {
    for bytes in [b"HTTP/1.1 400 Bad Request".as_slice(), &[0, 0, 0, 1, 1], &[255; 40], &[0, 0, 16, 1]] {
        let other = answering(bytes).await;
        let refused = dialer(&[other], Duration::from_secs(5)).dial(&hello()).await;
        assert!(matches!(refused, Err(Refusal::Nobody(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_session_that_is_no_more_is_told_at_once() {
    static EXPIRED: [u8; 24] = {
        let mut bytes = [0; 24];
        bytes[3] = 20;
        bytes
    };
    let server = answering(&EXPIRED).await;
    let refused = dialer(&[server], Duration::from_secs(5)).dial(&hello()).await;
    assert!(matches!(refused, Err(Refusal::Expired)), "{refused:?}");
}

#[tokio::test]
async fn slow_servers_are_given_more_time_when_all_were_too_slow() {
    let silent =
        [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
    let mut dialer = dialer(&silent.each_ref().map(host), Duration::from_secs(5));
    let mut took = Vec::new();
    for _ in 0..2 {
        let began = Instant::now();
        assert!(dialer.dial(&hello()).await.is_err());
        took.push(began.elapsed());
    }
    assert!(took[0] < Duration::from_secs(3), "{took:?}");
    assert!(took[1] >= Duration::from_millis(3900), "{took:?}");
}
