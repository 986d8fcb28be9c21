//! Locks on etcd: the `etcd://` backend.
//!
//! A claim is a key under the lock's name, attached to the etcd lease of its client's session. The
//! order of the claims is the order in which etcd created their keys. The create revision of the
//! key is the claim's token and decides its place in the queue. So `etcdctl lock`, Go's
//! `concurrency.Mutex` and the v3lock service wait in the same queue.
//!
//! # Layout
//!
//! ```text
//! <prefix><name>/<lease>-<slot>~<mode>  a claim: the lease in hexadecimal, a number that no other
//!                                       claim of that lease on this name has, and x, s or p<limit>
//! <prefix><name>/<anything else>        a claim of another kind of client, which is exclusive
//! <prefix>\x01withdrawn/<hash>-<lease>-<copy>  this copy of an acquire must do nothing any more
//! <prefix>\x01floor/<name>              what is added to the revisions of a lock that moved here
//! <prefix>\x01restored                  this etcd was restored from a backup
//! ```
//!
//! `keys.rs` has the layout. A remainder with a `/` belongs to a longer name, and no name has a
//! control character, so two names never share a key. A key does not tell its owner; the handle in
//! a grant does (`Handle` in `acquire.rs`).
//!
//! **Slots.** etcd keeps every key that ever was in its index until its history is compacted, and a
//! client that reads a queue walks over all of them. With a new key for each claim, a lock would
//! become slower with each time it is taken. So keys are reused: a session numbers its claims on a
//! name (`slots.rs`). A number is free again only when every request that deletes its key has been
//! answered. A number whose deletion was repeated, or whose acquire was abandoned, is never given
//! again. So a plain deletion is enough to release a lock that this client has in its table
//! (`sessions.rs`). A key that is not in the table is deleted by a transaction that compares its
//! create revision.
//!
//! # Files
//!
//! - `config.rs`: what a URL says. `wire.rs`: the stubs, which are tonic's gRPC. `link.rs`,
//!   `channel.rs`, `secure.rs`: one connection; under tonic is h2 itself, so that a request is one
//!   packet and needs no task. `links.rs`: the connections in use, `links/greet.rs`: opening one.
//!   `calls.rs`: every call. `patience.rs`: how long an answer may take. `error.rs`: the one place
//!   that decides whether a failed request may have been executed.
//! - `session.rs`: an etcd lease and the task that keeps it alive. `proof.rs`: what proves that it
//!   is alive. `sessions.rs`: which claim belongs to which session. `slots.rs`: the numbers of
//!   claims.
//! - `keys.rs`: the layout. `hub.rs`: all watches of a client. `parked.rs`: watches kept for the
//!   next wait.
//! - `acquire.rs`: taking a lock, with the requests of `ops.rs`. `ask.rs`: sending an acquire until
//!   it is answered. `copies.rs`: which copies of it may still be executed. `carried.rs`: a future
//!   that completes after its caller is gone.
//! - `wait.rs`: the wait. `line.rs`, `nearest.rs`: what this client knows of a queue. `backend.rs`:
//!   the contract. `look.rs`, `list.rs`, `events.rs`: what observers see.
//! - `floor.rs`: tokens after a move from another engine. `fence.rs`: writes that apply only while
//!   a lock is held.
//! - `doctor`: what is wrong with an etcd. `restored.rs`: that it was restored from a backup.
//!
//! The rule for who is next is `tollgate_core::turn`: whether a claim is granted, and if not, which
//! one key tells when that may have changed. It needs neither a connection nor a clock.
//!
//! # Connections and sessions
//!
//! - There is one connection for each runtime. Callers use their own, also for the watches of their
//!   waits. Sessions, watches over held locks and all background work use the keeper's, which no
//!   caller can block.
//! - A connection never reconnects (`link.rs`). A new one is opened to the leader if the leader is
//!   among the endpoints, else to the endpoint that failed longest ago (`links/greet.rs`), and
//!   always to the same cluster: two clusters in one URL would know nothing of each other's locks.
//!   Members that answer and have no leader yet are asked again, for up to 5 s.
//! - `session.rs` judges by answers alone. It reopens its stream when the stream breaks or falls
//!   silent. It then also closes this client's other connections to that member that are equally
//!   silent, so that watches learn of it, too.
//! - `hub.rs` has all watches of a runtime in one stream; when the stream breaks, every watch in it
//!   looks again. etcd authenticates a stream once, and a token may expire before the stream ends:
//!   the watches in it stay, and new ones go into another stream.
//!
//! # How an acquire is sent
//!
//! - An acquire puts its key and counts the queue in one transaction. Only if it is not alone does
//!   it read its predecessors, from one member and outside of the transaction: etcd reads and sorts
//!   a whole queue for that, and serves nothing else while it does so in a transaction.
//! - A client with several exclusive claims in one queue reads the queue once for all of them
//!   (`line.rs`). No claim is ever added ahead of an existing one, so what was read is at most too
//!   much. Which predecessors have left since is found by asking for single keys (`nearest.rs`). So
//!   ten thousand waiters of a few processes cost etcd no more for a hand-over than ten do.
//! - A client has at most 256 acquires under way: etcd refuses the requests of all clients once it
//!   is 5 000 behind.
//! - A leader that dies takes along the requests that were on their way to it, and no error tells.
//!   While a request has no answer the member is asked for the leader's raft term (`in_time` in
//!   `patience.rs`). Once the term is another, the request is given up. A request that may be
//!   repeated is sent again. Of an acquire a *copy* is sent (`ask.rs`). All copies put the same
//!   key, so they are one claim with one queue position. Each copy compares a key with its own
//!   number, and writes the keys of all copies before it in the transaction in which it acts: once
//!   one copy is answered, no earlier one can act later, not even after the lock was released and
//!   the key belongs to another claim (`copies.rs`).
//!
//! # How it waits
//!
//! - A waiter watches one key. The watch is created at revision 0, which etcd serves at once. The
//!   watched key is then read once more, because neither the first look nor the watch shows what
//!   happened between them. A watch at an older revision would wait for a loop that etcd runs every
//!   100 ms, as etcd's own lock does. A watch that is created while a key is written waits for that
//!   loop, too; so if a write happened meanwhile, a second watch is created.
//! - Clients that take a lock in turn wait for the same key each time. So a watch is kept for the
//!   next wait (`parked.rs`), if it was in place when the queue was read, until it has reported
//!   three events that no waiter needed. A hand-over then costs an acquire, an event, a look and a
//!   release.
//! - The look after an event is answered by one member from its own state, if that member is at the
//!   revision of the event or later. That is enough: no claim is ever added ahead of another, so a
//!   predecessor that was seen to be gone is gone, and the waiter's own key existed after that. It
//!   does not show that the waiter's key exists *now*, on a majority: a member that lags or is cut
//!   off does not know yet. A key ends with its lease, which etcd does not end before the session's
//!   own deadline; past that deadline the look is linearizable. Or an operator deletes it, which
//!   may happen in the next moment anyway, and the watch over the held lock reports it. A member
//!   without a leader answers nothing, because every request demands a leader. So exclusion rests
//!   on time there, as for every session, and a token granted on such a look is older than the next
//!   one's.
//! - A waiter whose key is gone, with its session or because it was deleted, queues up again; a
//!   waiter that reaches no member waits until it does. Such a waiter first deletes its old key: a
//!   session that ended by the client's clock may live on at etcd.
//! - A permit that was granted after a wait writes its key again. Otherwise the next permit in the
//!   queue, which watches that key, would not learn of it (`tell_those_behind` in `acquire.rs`).
//!
//! # Restored clusters
//!
//! A cluster restored from a backup has a log that is shorter than its data, but only until the log
//! has caught up. So the first client that connects writes a mark (`restored.rs`) for `doctor`,
//! which itself changes nothing.
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code.
//!
//! - No two copies of an acquire are the same: each does nothing once the key exists that withdraws
//!   its number. Those keys are attached to the lease that the claim's own key would be attached
//!   to, so that a late request can act at no moment.
//!   (test: again::a_copy_of_an_acquire_that_comes_after_the_release_takes_nothing)
//!   (test: again::no_copy_of_an_acquire_that_was_given_up_comes_later)
//!   (test: copies::tests::an_answer_silences_all_copies_before_it_and_a_refusal_none)
//! - An acquire of which a copy may come late stays in its session; in another session it would be
//!   another claim. (test: again::a_copy_of_an_acquire_that_comes_after_the_release_takes_nothing)
//! - After a wait a claim is granted only when a read at the event's revision or later has shown
//!   its own key at its own create revision, while the session's deadline is ahead; otherwise the
//!   read is linearizable.
//!   (test: faults::a_waiter_whose_lease_is_revoked_is_not_granted_by_that_and_queues_up_again)
//!   (test: again::a_waiter_is_not_misled_by_a_later_claim_with_the_key_it_waits_for)
//!   (test: together::what_was_known_of_an_etcd_that_lost_its_data_lets_nobody_in)
//! - A key that may belong to another claim is deleted only with a comparison.
//!   (test: again::a_second_release_of_a_grant_leaves_the_next_one_alone)
//! - A number is given to another claim only when no request that deletes its key can arrive any
//!   more. (test: again::a_release_that_was_not_answered_and_comes_late_leaves_the_next_one_alone)
//!   (test: slots::tests::a_number_that_never_comes_back_is_never_given_again)
//! - A deadline counts from the send time of the last keep-alive whose answer was followed by a
//!   linearizable read answered in the same raft term (`proof.rs` has the argument): a deposed
//!   leader answers keep-alives.
//!   (test: partitions::as_root::a_holder_at_a_leader_that_was_stuck_is_out_before_the_next_is_in)
//! - A guard takes the deadline of its session, and a watch reports the deletion of its key:
//!   keeping a lock costs no request of its own.
//!   (test: servers::ten_thousand_locks_cost_a_keep_alive_each_sixth_of_the_ttl_together)
//! - Two claims never share a key, not even two of one process.
//!   (test: again::claims_that_are_there_together_have_keys_of_their_own)

mod acquire;
mod ask;
mod backend;
mod calls;
mod capabilities;
mod carried;
mod channel;
mod config;
mod copies;
mod doctor;
mod error;
mod events;
mod fence;
mod floor;
mod hub;
mod keys;
mod line;
mod link;
mod links;
mod list;
mod look;
mod nearest;
mod ops;
mod parked;
mod patience;
mod proof;
mod restored;
mod secure;
mod session;
mod sessions;
mod slots;
mod wait;
mod wire;

pub use backend::EtcdBackend;
pub use config::{EtcdConfig, Login};
pub use doctor::examine;
pub use fence::{EtcdFence, GuardedTxn, LockKey};
