//! A leader that is stopped, cut off or both, with the holder connected to it: no two holders overlap.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{BootClock, Clock, Guard, Keeper, Moment};
use tollgate_testkit::engines::{self, Config, Engine, Hosts};
use tollgate_testkit::proxy::{Direction, Fate, Proxy};
use tollgate_testkit::scale::{is_soak, scale};

use crate::support::wire::http2;
use crate::support::{leader, locks, secs, until, url};

/// For how long the leader is stopped: the holder's deadline, as a deposed leader's answers would move it, passes later.
fn stopped(ttl: Duration) -> Duration {
    ttl * 7 / 10
}

/// What happens to the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Stopped, and cut off from the other members.
    StoppedAndCutOff,
    /// Cut off from the other members.
    CutOff,
    /// The other members do not hear it.
    Unheard,
    /// It does not hear the other members.
    Deaf,
}

/// Which members the holder's URL names, and which of them the holder reaches in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    TheLeader,
    All,
    /// All, of which the holder reaches only the leader once the trouble has begun.
    AllButReachesTheLeader,
}

/// Three members on hosts of their own.
struct Cluster {
    hosts: Arc<Hosts>,
    engine: Engine,
}

impl Cluster {
    fn start() -> Self {
        let hosts = Arc::new(Hosts::new(3).unwrap());
        // Elections as an etcd has them by default: faster ones hide how long a deposed leader believes in itself.
        let config =
            Config::etcd().nodes(3).argument("--heartbeat-interval=100").argument("--election-timeout=1000");
        Self { engine: engines::private_on(&hosts, &config).unwrap(), hosts }
    }

    /// Which node leads.
    async fn leader(&self) -> usize {
        until("the members have a leader", async || self.engine.answers() && leader(&self.engine).is_some())
            .await;
        let leader = leader(&self.engine).unwrap().address();
        self.engine.nodes().iter().position(|node| node.address() == leader).unwrap()
    }

    fn begin(&self, trouble: Trouble, leader: usize) {
        let others = (0..3).filter(|other| *other != leader);
        for other in others {
            if trouble != Trouble::Deaf {
                self.hosts.cut(leader, other);
            }
            if trouble != Trouble::Unheard {
                self.hosts.cut(other, leader);
            }
        }
        if trouble == Trouble::StoppedAndCutOff {
            self.engine.nodes()[leader].pause();
        }
    }
}

/// When `guard` was last held, as far as it said.
async fn last_held(guard: Guard, clock: Arc<BootClock>) -> Moment {
    loop {
        let now = clock.now();
        if guard.check().is_err() {
            // It was held at `now` for all that is known.
            return now;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// By how much two holders overlapped, in nanoseconds; `None` if the first holder kept its lock.
async fn overlap(
    cluster: &Cluster,
    trouble: Trouble,
    knows: Knows,
    ttl: Duration,
    name: &str,
) -> Option<i128> {
    let clock = Arc::new(BootClock::new(Keeper::global().unwrap()));
    let leader = cluster.leader().await;
    let nodes = cluster.engine.nodes();
    let others: Vec<_> =
        (0..3).filter(|other| *other != leader).map(|other| nodes[other].address().to_string()).collect();
    // The holder's ways to the other members.
    let ways: Vec<_> = (0..3)
        .filter(|other| *other != leader)
        .map(|other| Proxy::start(nodes[other].address(), http2()))
        .collect();
    let holders_url = match knows {
        Knows::TheLeader => format!("etcd://{}/", nodes[leader].address()),
        Knows::All => url(&cluster.engine),
        Knows::AllButReachesTheLeader => {
            let ways: Vec<_> = ways.iter().map(|way| way.address().to_string()).collect();
            format!("etcd://{},{}/", nodes[leader].address(), ways.join(","))
        }
    };
    let (holder, next) =
        (locks(&holders_url).await.unwrap(), locks(&format!("etcd://{}/", others.join(","))).await.unwrap());
    let guard = holder.lock(name).ttl(ttl).acquire().await.unwrap();
    let mut waiting = tokio::spawn({
        let (request, clock) = (next.lock(name).ttl(ttl), clock.clone());
        async move {
            let guard = request.acquire().await.unwrap();
            (clock.now(), guard)
        }
    });
    until("the next waits", async || {
        holder.inspect(name).await.unwrap().is_some_and(|state| state.waiters.len() == 1)
    })
    .await;
    // So that renewals are under way in every phase.
    tokio::time::sleep(ttl / 4).await;
    let token = guard.token();
    let held = tokio::spawn(last_held(guard, clock));
    cluster.begin(trouble, leader);
    for way in &ways {
        for direction in [Direction::Requests, Direction::Replies] {
            way.black_hole(direction, Fate::Lost);
        }
    }
    // A leader that goes on and is still cut off believes in itself until it misses the other members' answers.
    let resumed = async {
        if trouble == Trouble::StoppedAndCutOff {
            tokio::time::sleep(stopped(ttl)).await;
            nodes[leader].resume();
        }
    };
    let moved = tokio::time::timeout(ttl * 2 + secs(10), &mut waiting);
    let ((), moved) = tokio::join!(resumed, moved);
    cluster.hosts.heal();
    let Ok(moved) = moved else {
        assert!(!held.is_finished(), "the lock was lost, and nobody has it");
        held.abort();
        waiting.abort();
        return None;
    };
    let (granted, next) = moved.unwrap();
    assert!(next.token() > token);
    let held =
        tokio::time::timeout(ttl + secs(5), held).await.expect("the first holder hears of its loss").unwrap();
    next.release().await.unwrap();
    Some(i128::from(held.as_nanos()) - i128::from(granted.as_nanos()))
}

async fn no_overlap(trouble: Trouble, knows: Knows, ttl: Duration, rounds: usize) {
    let cluster = Cluster::start();
    let (mut lost, mut most) = (0, i128::MIN);
    for round in 0..rounds {
        let name = format!("orders/{round}");
        if let Some(overlap) = overlap(&cluster, trouble, knows, ttl, &name).await {
            lost += 1;
            most = most.max(overlap);
            let overlap = overlap / 1_000_000;
            assert!(
                overlap <= 0,
                "{trouble:?}, {knows:?}, ttl {ttl:?}, round {round}: two holders for {overlap} ms"
            );
        }
    }
    let most = if lost == 0 { "none".to_owned() } else { format!("{} ms", most / 1_000_000) };
    // A holder that reaches no majority cannot keep its lock: a round in which it did shows nothing.
    if trouble == Trouble::StoppedAndCutOff && knows == Knows::TheLeader {
        assert_eq!(lost, rounds, "ttl {ttl:?}: the holder kept its lock though it reached no majority");
    }
    println!(
        "{trouble:?}, {knows:?}, ttl {ttl:?}: {lost} of {rounds} lost their lock, overlap at most {most}"
    );
}

mod as_root {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_holder_at_a_leader_that_was_stuck_is_out_before_the_next_is_in() {
        let of = |ttl| no_overlap(Trouble::StoppedAndCutOff, Knows::TheLeader, secs(ttl), scale(1, 20));
        tokio::join!(of(10), of(5), of(2));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_holder_at_a_leader_that_was_cut_off_is_out_before_the_next_is_in() {
        let rounds = scale(1, 20);
        let troubles = [Trouble::CutOff, Trouble::Unheard, Trouble::Deaf];
        let ttls = if is_soak() { vec![10, 5, 2] } else { vec![5] };
        for trouble in troubles {
            let of = ttls.iter().map(|ttl| no_overlap(trouble, Knows::TheLeader, secs(*ttl), rounds));
            futures_util::future::join_all(of).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_holder_that_knows_all_members_is_out_before_the_next_is_in() {
        let knows = [Knows::All, Knows::AllButReachesTheLeader];
        let ttls = if is_soak() { vec![10, 5, 2] } else { vec![10] };
        for ttl in ttls {
            let of = |knows| no_overlap(Trouble::StoppedAndCutOff, knows, secs(ttl), scale(1, 20));
            futures_util::future::join_all(knows.map(of)).await;
        }
    }
}
