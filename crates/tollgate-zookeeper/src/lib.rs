//! Locks on ZooKeeper: the `zookeeper://` backend.
//!
//! A claim is an ephemeral sequential node in the lock's own folder. The order of the claims is the
//! order of their sequence numbers. The transaction that created the node is the claim's token. The
//! nodes are named as Curator's `InterProcessMutex`, Curator's read-write lock or kazoo name
//! theirs, so that existing programs wait in the same queue.
//!
//! # Layout
//!
//! ```text
//! <root>/<name>/<tag>-<mode>-<end><N>  a claim: the tag tells claims apart; x, s or p<limit>; what
//!                                      other clients look for; ZooKeeper's sequence number
//! <root>/<name>/<anything><end><N>     a claim of another kind of client
//! <root>/%floor                        what is added to tokens; no name has such a path
//! ```
//!
//! `paths.rs` has the three layouts (`?layout=curator`, `curator-rw`, `kazoo`), which differ in
//! `<end>`. `names.rs` maps names to paths, injectively. `queue.rs` decides which claims precede
//! another. `order.rs` has the order, also when a folder's sequence numbers have come to their end
//! at 2 147 483 647: claims with such a number come last, ordered by the transactions that created
//! them.
//!
//! # Files
//!
//! - `config.rs`: what a URL says. `open.rs`: how a session begins; a server does not say why it
//!   gives no session, so this asks it. `calls.rs`: every request that locks need; it waits for a
//!   connection before it asks. `error.rs`: what a failed request may have done.
//! - `wire`: ZooKeeper's protocol. `wire/link.rs` is one connection: its callers write to the
//!   socket themselves, and one task reads and wakes them. `wire/client.rs` is a session, which
//!   goes on over one connection after the other.
//! - `session.rs`: a session and the task that proves it alive. `trail.rs`: until when it is
//!   proven. `sessions.rs`: which claim belongs to which session.
//! - `acquire.rs`: taking a lock. `queue.rs`, `order.rs`: the predecessors of a claim. `wait.rs`:
//!   the wait. `backend.rs`: the contract. `look.rs`: what observers see.
//! - `floor.rs`: tokens after a move from another engine. `fence.rs`: writes that apply only while
//!   a lock is held.
//! - `doctor`: what is wrong with a ZooKeeper.
//!
//! # Proof of life
//!
//! `session.rs` proves its session alive again and again, by a `sync` and a write, and `trail.rs`
//! knows what the two answers prove. The proofs also keep the session alive; there are no other
//! pings. A server that continues a session over another connection asks its leader, which touches
//! the session there (`checkIfValidGlobalSession` in ZooKeeper's own code). Only a write over that
//! connection shows that the leader was not deposed.
//!
//! A grant with `no_renew` has a session of its own, which is closed when its time is over, because
//! what proves a session alive also keeps it alive.
//!
//! # How it waits
//!
//! - Sessions live on the keeper, and so do waits (`wait.rs`): no other thread has to be woken for
//!   a look.
//! - A claim reads its folder once after its node was created. It then watches its own node and the
//!   nearest claim in its way. An exclusive claim also watches the claim before that one. So it
//!   looks when the last but one of its predecessors leaves, and not on the path of a hand-over.
//!   Shared claims do not: all of them would look at once.
//! - A server may show a claim that its leader does not have (ZOOKEEPER-4785). A waiter that is
//!   next in the queue and has waited for 15 s asks the leader, by a check that changes nothing,
//!   and leaves such a server
//!   (test: queue::a_server_that_shows_a_claim_that_its_leader_has_not_is_left).
//! - A permit that was granted after a wait writes its node again, because the next permit watches
//!   it (`wait.rs`).
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code.
//!
//! - A deadline counts from what a leader with a majority has provably heard, less a tick: a
//!   request that was answered over the same connection a tick before an answered round of proof
//!   began, a reconnection over which something was committed, or the creation of the session.
//!   (test: leader::who_holds_a_lock_on_a_leader_that_was_deposed_does_not_believe_it)
//!   (test: trail::tests::a_round_proves_the_one_before)
//!   (test: trail::tests::a_deadline_is_a_tick_and_the_margin_earlier)
//! - A session that lives shorter than the deadlines that were given out ends at once: they cannot
//!   be taken back.
//!   (test: leader::a_session_that_lives_for_less_after_a_reconnection_is_lost_at_once)
//! - A claim that has seen its own node in the folder has seen all its predecessors, present and
//!   future. So it is granted when the watches report that those in its way are gone.
//!   (test: servers::a_hand_over_takes_as_many_packets_however_many_wait)
//! - A claim learns of the deletion of its own node over the same connection, in the order of
//!   events: a claim whose node was deleted first is not granted (`queue.rs`).
//!   (test: queue::a_place_that_is_deleted_just_before_the_last_one_leaves_lets_nobody_in)
//! - A request that was sent over a connection is answered over it or fails with it. No request and
//!   no watch is sent again: a watch completes when its connection is lost, and the waiter then
//!   looks again, at one node.
//!   (test: wire::tests::whatever_a_server_says_what_was_asked_fails_and_nobody_waits)
//! - A node is asked for again only when it is certain that the last request for it created none: a
//!   waiter without an answer first looks for its node, and goes on with it if it is there.
//!   (test: late::a_claim_that_is_not_answered_is_found_again)
//! - A search for what an unanswered request left begins with a `sync`: a server that lags would
//!   not show it. (no test)
//! - A node is deleted by its whole path, which no other claim ever has.
//!   (test: conformance::a_release_that_arrives_twice_touches_nobody_elses_lock)
//! - A session that is in use is never closed: that would give its locks away while their holders
//!   rely on them. (no test)

mod acquire;
mod backend;
mod calls;
mod capabilities;
mod config;
mod doctor;
mod error;
mod fence;
mod floor;
mod look;
mod names;
mod open;
mod order;
mod paths;
mod queue;
mod session;
mod sessions;
mod trail;
mod wait;
mod wire;

pub use backend::ZooKeeperBackend;
pub use config::{Access, Login, Style, ZooKeeperConfig};
pub use doctor::examine;
pub use fence::{GuardedMulti, ZooKeeperFence};
