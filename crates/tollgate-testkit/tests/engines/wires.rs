//! The chaos proxy in front of a real Redis.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use libtest_mimic::Trial;
use tollgate_testkit::engines::{self, Config};
use tollgate_testkit::proxy::{Deed, Discard, Proxy, Resp, Which};
use tollgate_testkit::subject::PATIENCE;

use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("a_command_whose_reply_is_lost_was_executed", a_command_whose_reply_is_lost_was_executed),
        trial("the_next_of_a_kind_of_command_can_be_repeated", the_next_of_a_kind_of_command_can_be_repeated),
        trial("resp2_pushes_are_discarded_and_replies_are_not", || pushes_are_discarded(None)),
        trial("resp3_pushes_are_discarded_and_replies_are_not", || pushes_are_discarded(Some("HELLO 3"))),
    ]
}

/// RESP by hand.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(socket))
    }

    fn say(&mut self, command: &str) {
        let words: Vec<_> = command.split(' ').collect();
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(frame.as_bytes()).unwrap();
    }

    /// The next value, arrays and maps in brackets.
    fn hears(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("Redis answers");
        let line = line.trim_end();
        let count = |times: usize| line[1..].parse::<usize>().expect("a count") * times;
        match line.as_bytes()[0] {
            b'$' => {
                let mut bytes = vec![0; count(1) + 2];
                self.0.read_exact(&mut bytes).unwrap();
                String::from_utf8(bytes).unwrap().trim_end().to_owned()
            }
            b'*' | b'>' => self.values(count(1)),
            b'%' => self.values(count(2)),
            _ => line[1..].to_owned(),
        }
    }

    fn values(&mut self, count: usize) -> String {
        let values: Vec<_> = (0..count).map(|_| self.hears()).collect();
        format!("[{}]", values.join(" "))
    }

    fn asks(&mut self, command: &str) -> String {
        self.say(command);
        self.hears()
    }

    fn hears_nothing(&mut self) {
        self.0.get_ref().set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let silence = self.0.fill_buf().map(<[u8]>::to_vec).unwrap_err();
        assert_eq!(silence.kind(), ErrorKind::WouldBlock);
        self.0.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

fn redis_and_proxy() -> (SocketAddr, Proxy) {
    let address = engines::shared(&Config::redis()).address();
    (address, Proxy::start(address, Resp))
}

/// A key that no other test uses.
fn key() -> String {
    tollgate_core::OwnerId::random().to_hex()
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn a_command_whose_reply_is_lost_was_executed() {
    let (address, proxy) = redis_and_proxy();
    let (mut client, key) = (Redis::connect(proxy.address()), key());
    let lost = proxy.on(Which::nth(3), Deed::LoseReply);
    assert_eq!(client.asks(&format!("INCR {key}")), "1");
    assert_eq!(client.asks(&format!("INCR {key}")), "2");
    client.say(&format!("INCR {key}"));
    assert!(block_on(lost.over()), "Redis answered it");
    client.hears_nothing();
    assert_eq!(Redis::connect(address).asks(&format!("GET {key}")), "3");
    assert_eq!(client.asks(&format!("INCR {key}")), "4", "the connection goes on");
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.requests, counts.replies, counts.pushes), (1, 4, 4, 0));
}

fn the_next_of_a_kind_of_command_can_be_repeated() {
    let (_, proxy) = redis_and_proxy();
    let (mut client, key) = (Redis::connect(proxy.address()), key());
    let increment = |frame: &[u8]| frame.windows(4).any(|word| word == b"INCR");
    let repeated = proxy.on(Which::matching(increment), Deed::Repeat);
    assert_eq!(client.asks(&format!("SET {key} 10")), "OK");
    assert_eq!(client.asks(&format!("INCR {key}")), "11");
    assert!(block_on(repeated.over()));
    assert_eq!(client.asks(&format!("GET {key}")), "12");
}

fn pushes_are_discarded(hello: Option<&str>) {
    let (address, proxy) = redis_and_proxy();
    let (mut listener, mut speaker) = (Redis::connect(proxy.address()), Redis::connect(address));
    if let Some(hello) = hello {
        assert!(listener.asks(hello).contains("proto 3"));
    }
    let channel = key();
    assert_eq!(listener.asks(&format!("SUBSCRIBE {channel}")), format!("[subscribe {channel} 1]"));
    let mut say = |word: &str| assert_eq!(speaker.asks(&format!("PUBLISH {channel} {word}")), "1");
    let message = |word: &str| format!("[message {channel} {word}]");
    say("heard");
    assert_eq!(listener.hears(), message("heard"));
    proxy.discard_pushes(Discard::Next(2));
    for word in ["lost", "lost", "heard"] {
        say(word);
    }
    assert_eq!(listener.hears(), message("heard"));
    proxy.discard_pushes(Discard::All);
    say("lost");
    let pong = if hello.is_some() { "PONG" } else { "[pong ]" };
    assert_eq!(listener.asks("PING"), pong, "replies are no pushes");
    proxy.discard_pushes(Discard::None);
    say("again");
    assert_eq!(listener.hears(), message("again"));
    assert_eq!(proxy.counts().pushes, 6);
    proxy.discard_pushes(Discard::All);
    let other = key();
    assert_eq!(
        listener.asks(&format!("SUBSCRIBE {other}")),
        format!("[subscribe {other} 2]"),
        "that is no push"
    );
}
