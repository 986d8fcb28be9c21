//! The proxy between plain sockets.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;
use crate::subject::PATIENCE;

/// Answers every line `x` with `echo x`, on any number of connections, and tells of each as it arrives.
struct Echo {
    address: SocketAddr,
    heard: std::sync::mpsc::Receiver<String>,
}

impl Echo {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, heard) = std::sync::mpsc::channel();
        // It ends with the tests.
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let tell = tell.clone();
                std::thread::spawn(move || {
                    let mut writer = connection.try_clone().unwrap();
                    for line in BufReader::new(connection).lines().map_while(Result::ok) {
                        // The test may be over.
                        let _ = tell.send(line.clone());
                        if writer.write_all(format!("echo {line}\n").as_bytes()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heard }
    }

    fn hears(&self) -> String {
        self.heard.recv_timeout(PATIENCE).expect("the engine hears of it")
    }

    fn hears_nothing(&self) {
        assert_eq!(self.heard.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    }
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn to(proxy: &Proxy) -> Self {
        let socket = TcpStream::connect(proxy.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(socket))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a reply comes");
        line.trim_end().to_owned()
    }

    fn asks(&mut self, line: &str) -> String {
        self.say(line);
        self.hears()
    }

    /// What the next read comes to, if not bytes.
    fn finds(&mut self) -> Option<ErrorKind> {
        match self.0.read(&mut [0; 64]) {
            Ok(0) => None,
            Ok(read) => panic!("{read} bytes came"),
            Err(error) => Some(error.kind()),
        }
    }
}

fn echo_and_proxy() -> (Echo, Proxy) {
    let echo = Echo::start();
    let proxy = Proxy::start(echo.address, Lines);
    (echo, proxy)
}

#[test]
fn without_trouble_everything_passes_and_is_counted() {
    let (_echo, proxy) = echo_and_proxy();
    let mut clients = [Client::to(&proxy), Client::to(&proxy)];
    for client in &mut clients {
        assert_eq!(client.asks("one"), "echo one");
        client.say("two\nthree");
        assert_eq!(client.hears(), "echo two");
        assert_eq!(client.hears(), "echo three");
    }
    let expected =
        Counts { connections: 2, requests: 6, replies: 6, pushes: 0, bytes_out: 28, bytes_back: 58 };
    assert_eq!(proxy.take_counts(), expected);
    assert_eq!(proxy.counts(), Counts::default());
}

#[test]
fn what_is_large_comes_through_whole() {
    let (_echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    let large = "x".repeat(3_000_000);
    assert_eq!(client.asks(&large), format!("echo {large}"));
}

#[test]
fn a_cut_is_felt_as_it_was_meant() {
    let (_echo, proxy) = echo_and_proxy();
    for (close, found) in [(Close::Gently, None), (Close::Abruptly, Some(ErrorKind::ConnectionReset))] {
        let mut clients: Vec<_> = (0..20).map(|_| Client::to(&proxy)).collect();
        assert_eq!(clients[0].asks("a"), "echo a");
        proxy.cut(close);
        assert_eq!(proxy.connections(), []);
        for client in &mut clients {
            assert_eq!(client.finds(), found);
        }
        assert_eq!(Client::to(&proxy).asks("b"), "echo b", "new connections work");
    }
}

#[test]
fn one_connection_can_be_cut_alone() {
    let (_echo, proxy) = echo_and_proxy();
    let mut first = Client::to(&proxy);
    assert_eq!(first.asks("a"), "echo a");
    let mut second = Client::to(&proxy);
    assert_eq!(second.asks("a"), "echo a");
    let id = proxy.connections()[0];
    proxy.cut_one(id, Close::Abruptly);
    proxy.cut_one(id, Close::Abruptly);
    assert_eq!(first.finds(), Some(ErrorKind::ConnectionReset));
    assert_eq!(second.asks("b"), "echo b");
}

#[test]
fn refused_connections_are_refused_and_old_ones_go_on() {
    let (_echo, proxy) = echo_and_proxy();
    let mut old = Client::to(&proxy);
    assert_eq!(old.asks("a"), "echo a");
    for _ in 0..20 {
        proxy.refuse(true);
        let refused = TcpStream::connect(proxy.address()).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(old.asks("b"), "echo b");
        proxy.refuse(false);
        assert_eq!(Client::to(&proxy).asks("c"), "echo c");
    }
}

#[test]
fn a_delay_is_kept_and_ends() {
    const DELAY: Duration = Duration::from_millis(150);
    let (_echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.delay(direction, DELAY);
        let asked = Instant::now();
        client.say("a\nb");
        assert_eq!((client.hears(), client.hears()), ("echo a".into(), "echo b".into()));
        assert!(asked.elapsed() >= DELAY);
        proxy.delay(direction, Duration::ZERO);
    }
    assert_eq!(client.asks("c"), "echo c");
}

#[tokio::test]
async fn a_black_hole_delivers_late_what_its_sender_gave_up() {
    let (echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    assert_eq!(client.asks("a"), "echo a");
    echo.hears();
    proxy.black_hole(Direction::Requests, Fate::Late);
    client.say("late");
    until(|| proxy.counts().requests == 2).await;
    drop(client);
    echo.hears_nothing();
    proxy.heal();
    assert_eq!(echo.hears(), "late");

    let mut client = Client::to(&proxy);
    proxy.black_hole(Direction::Replies, Fate::Late);
    client.say("b\nc");
    until(|| proxy.counts().replies == 4).await;
    proxy.heal();
    assert_eq!((client.hears(), client.hears()), ("echo b".into(), "echo c".into()));
}

#[tokio::test]
async fn a_connection_that_lost_bytes_is_cut_by_the_heal() {
    let (echo, proxy) = echo_and_proxy();
    let (mut hurt, mut idle) = (Client::to(&proxy), Client::to(&proxy));
    assert_eq!((hurt.asks("a"), idle.asks("a")), ("echo a".into(), "echo a".into()));
    proxy.black_hole(Direction::Replies, Fate::Lost);
    hurt.say("b");
    until(|| proxy.counts().bytes_back == 21).await;
    proxy.heal();
    assert_eq!(hurt.finds(), Some(ErrorKind::ConnectionReset));
    assert_eq!(idle.asks("c"), "echo c", "one that lost nothing goes on");
    assert_eq!([echo.hears(), echo.hears(), echo.hears()], ["a", "a", "b"], "it was executed");
}

#[tokio::test]
async fn the_reply_to_the_nth_request_is_lost_and_no_other() {
    let (echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    let caught = proxy.on(Which::nth(3), Deed::LoseReply);
    client.say("1\n2\n3\n4\n5");
    let heard: Vec<_> = (0..4).map(|_| client.hears()).collect();
    assert_eq!(heard, ["echo 1", "echo 2", "echo 4", "echo 5"]);
    assert!(caught.over().await, "it was executed");
    let arrived: Vec<_> = (0..5).map(|_| echo.hears()).collect();
    assert_eq!(arrived, ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_request_can_be_named_by_what_it_says() {
    let (echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    let lost = proxy.on(Which::matching(|frame| frame.starts_with(b"b")).nth_of_them(2), Deed::Lose);
    for line in ["a", "b1", "c"] {
        assert_eq!(client.asks(line), format!("echo {line}"));
    }
    client.say("b2");
    lost.caught().await;
    assert!(!lost.over().await, "it was never executed");
    assert_eq!(client.asks("b3"), "echo b3");
    let arrived: Vec<_> = (0..4).map(|_| echo.hears()).collect();
    assert_eq!(arrived, ["a", "b1", "c", "b3"]);
}

#[tokio::test]
async fn a_connection_can_be_cut_before_a_request_or_instead_of_its_reply() {
    let (echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    let caught = proxy.on(Which::nth(2), Deed::LoseAndCut(Close::Abruptly));
    assert_eq!(client.asks("a"), "echo a");
    client.say("never");
    assert_eq!(client.finds(), Some(ErrorKind::ConnectionReset));
    assert!(!caught.over().await);
    let mut client = Client::to(&proxy);
    let caught = proxy.on(Which::nth(1), Deed::CutInsteadOfReply(Close::Gently));
    client.say("done");
    assert_eq!(client.finds(), None);
    assert!(caught.over().await);
    assert_eq!([echo.hears(), echo.hears()], ["a", "done"]);
}

#[tokio::test]
async fn a_held_request_arrives_after_later_ones_though_its_sender_is_gone() {
    let (echo, proxy) = echo_and_proxy();
    let (mut first, mut second) = (Client::to(&proxy), Client::to(&proxy));
    let held = proxy.on(Which::matching(|frame| frame == b"held\n"), Deed::Hold);
    first.say("held");
    held.caught().await;
    drop(first);
    assert_eq!(second.asks("later"), "echo later");
    held.let_go();
    assert!(held.over().await);
    assert_eq!([echo.hears(), echo.hears()], ["later", "held"]);

    let late = proxy.on(Which::nth(1), Deed::Delay(Duration::from_millis(100)));
    let mut first = Client::to(&proxy);
    first.say("slow");
    late.caught().await;
    assert_eq!(second.asks("quick"), "echo quick");
    assert_eq!(first.hears(), "echo slow");
    assert_eq!([echo.hears(), echo.hears()], ["quick", "slow"]);
}

#[tokio::test]
async fn a_repeated_request_arrives_twice_and_is_answered_once() {
    let (echo, proxy) = echo_and_proxy();
    let mut client = Client::to(&proxy);
    let here = proxy.on(Which::nth(1), Deed::Repeat);
    assert_eq!(client.asks("twice"), "echo twice");
    assert!(here.over().await);
    assert_eq!(client.asks("once"), "echo once");
    let elsewhere = proxy.on(Which::nth(1), Deed::RepeatElsewhere);
    assert_eq!(client.asks("again"), "echo again");
    assert_eq!(client.asks("between"), "echo between");
    elsewhere.let_go();
    assert!(elsewhere.over().await);
    let arrived: Vec<_> = (0..6).map(|_| echo.hears()).collect();
    assert_eq!(arrived, ["twice", "twice", "once", "again", "between", "again"]);
}

#[test]
fn a_dropped_proxy_is_gone() {
    let (_echo, proxy) = echo_and_proxy();
    let address = proxy.address();
    let mut client = Client::to(&proxy);
    assert_eq!(client.asks("a"), "echo a");
    drop(proxy);
    assert_eq!(client.finds(), None);
    let refused = TcpStream::connect(address).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_engine_that_is_not_there_is_felt() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut client = Client::to(&Proxy::start(nobody, Raw));
    assert!(matches!(client.finds(), Some(ErrorKind::ConnectionReset) | None));
}

async fn until(condition: impl Fn() -> bool) {
    crate::subject::eventually("it comes through", || async { condition().then_some(()) }).await;
}
