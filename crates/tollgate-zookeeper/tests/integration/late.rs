//! Claims that are on their way for long or are not answered, and what happens meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{backend, claim, hosts, locks, one, secs, soon, three, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tollgate_core::{Attempt, Backend, Release};
use tollgate_testkit::engines::Node;
use tollgate_testkit::fault::Operation;
use tollgate_testkit::proxy::{Close, Deed, LengthPrefixed, Proxy, Which};
use tollgate_testkit::scale::scale;

/// A way on which requests can be held up, and that delivers them also when whoever sent them has hung up, as a system does.
struct SlowWay {
    address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    /// How many of the first connections are held up.
    held: watch::Sender<usize>,
    /// How many requests that were held up have been passed on since, or refused by a server that had hung up.
    late: Arc<AtomicUsize>,
}

impl SlowWay {
    /// To each of `servers` in turn.
    async fn to(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, accepted) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let (held, late) = (watch::Sender::new(0), Arc::<AtomicUsize>::default());
        let way = Self { address, accepted: accepted.clone(), held: held.clone(), late: late.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let (mut requests, mut replies) = client.into_split();
                let server = TcpStream::connect(servers[number % servers.len()]).await.unwrap();
                let (mut answers, mut sends) = server.into_split();
                let (mut held, late) = (held.subscribe(), late.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while let Ok(many @ 1..) = requests.read(&mut bytes).await {
                        let is_late = *held.borrow() > number;
                        let _ = held.wait_for(|held| *held <= number).await;
                        let _ = sends.write_all(&bytes[..many]).await;
                        late.fetch_add(usize::from(is_late), Ordering::SeqCst);
                    }
                    // The end is not heard of before everything is read.
                    tokio::time::sleep(secs(1)).await;
                });
                tokio::spawn(async move { tokio::io::copy(&mut answers, &mut replies).await });
            }
        });
        way
    }

    /// Holds up what is sent over all connections that are there.
    fn hold(&self) {
        self.held.send_replace(self.accepted.load(Ordering::SeqCst));
    }

    fn let_go(&self) {
        self.held.send_replace(0);
    }
}

#[tokio::test]
async fn a_claim_that_comes_later_than_its_withdrawal_takes_nothing() {
    for engine in [one(), three()] {
        // The second connection goes to another server, where there is one.
        let servers = engine.nodes().iter().map(Node::address).collect();
        let way = SlowWay::to(servers).await;
        let theirs = locks(&hosts(&engine)).await.unwrap();
        for round in 0..scale(1, 20) {
            let (name, wanted) = (format!("late/{round}"), claim(&format!("late/{round}")));
            // The folder is there.
            theirs.lock(&name).acquire().await.unwrap().release().await.unwrap();
            let mine = backend(&way.address.to_string()).await.unwrap();
            // So is the session.
            let first = claim("first");
            assert!(matches!(mine.try_acquire(&first).await.unwrap(), Attempt::Granted(_)));
            way.hold();
            let given_up = tokio::time::timeout(Duration::from_millis(100), mine.acquire(&wanted)).await;
            assert!(given_up.is_err(), "it was held back");
            let late = way.late.load(Ordering::SeqCst);
            // Over another connection, which is taken after a while.
            soon("it is withdrawn", async { while mine.withdraw(&wanted).await.is_err() {} }).await;
            assert_eq!(theirs.inspect(&name).await.unwrap(), None);
            way.let_go();
            until("the claim is on its way", async || way.late.load(Ordering::SeqCst) > late).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert_eq!(theirs.inspect(&name).await.unwrap(), None, "the late claim left a node behind");
            mine.withdraw(&first).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_folder_that_is_removed_while_a_claim_is_on_its_way_is_made_again() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let locks = locks(&proxy.address().to_string()).await.unwrap();
    let plain = zookeeper_client::Client::connect(&hosts(&engine)).await.unwrap();
    locks.lock("a/b").ttl(secs(30)).acquire().await.unwrap().release().await.unwrap();
    for path in ["/locks/a/b", "/locks/a"] {
        let is_claim = |frame: &[u8]| crate::support::wire::asks_for(Operation::Acquire, frame);
        let held = proxy.on(Which::matching(is_claim), Deed::Hold);
        let acquiring = tokio::spawn(locks.lock("a/b").ttl(secs(30)).acquire());
        soon("the claim is caught", held.caught()).await;
        // As ZooKeeper itself does with folders that are empty.
        if path == "/locks/a" {
            plain.delete("/locks/a/b", None).await.unwrap();
        }
        plain.delete(path, None).await.unwrap();
        held.let_go();
        let guard = soon("it is in", acquiring).await.unwrap().unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

#[tokio::test]
async fn a_claim_that_is_not_answered_is_found_again() {
    let engine = one();
    let proxy = Proxy::start(engine.address(), LengthPrefixed::zookeeper());
    let theirs = locks(&hosts(&engine)).await.unwrap();
    // Whether it arrived or not, and also if only the look at what is before it was lost.
    let is_claim = |frame: &[u8]| crate::support::wire::asks_for(Operation::Acquire, frame);
    let is_floor = |frame: &[u8]| frame.windows(6).any(|part| part == b"%floor");
    for (round, (which, deed)) in [
        (Which::matching(is_claim), Deed::CutInsteadOfReply(Close::Abruptly)),
        (Which::matching(is_claim), Deed::LoseAndCut(Close::Abruptly)),
        (Which::matching(is_floor), Deed::LoseAndCut(Close::Abruptly)),
    ]
    .into_iter()
    .enumerate()
    {
        let mine = locks(&proxy.address().to_string()).await.unwrap();
        let name = format!("found/{round}");
        theirs.lock(&name).acquire().await.unwrap().release().await.unwrap();
        let lost = proxy.on(which, deed);
        let guard = soon("it is in", mine.lock(&name).ttl(secs(30)).acquire()).await.unwrap();
        lost.over().await;
        let state = theirs.inspect(&name).await.unwrap().unwrap();
        assert_eq!((state.holders.len(), state.waiters.len()), (1, 0), "{state:?}");
        assert_eq!(state.holders[0].token, Some(guard.token()));
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(theirs.inspect(&name).await.unwrap(), None);
    }
}
