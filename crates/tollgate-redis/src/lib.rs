//! Locks on Redis: the `redis://` backend, and `redlock://` on a majority of several.
//!
//! A lock is one key that other clients respect, and a queue beside it.
//!
//! # Layout
//!
//! ```text
//! <prefix><name>             the lock itself: a string with a ttl, which other clients respect
//! {<prefix><name>}:fence     the last token: a sorted set with one member
//! {<prefix><name>}:queue     the owners of the waiters, by ticket
//! {<prefix><name>}:waiters   the waiters' records
//! {<prefix><name>}:holders   the records of shared and permit holders
//! {<prefix><name>}:ends      when the grant of each of them ends
//! {<prefix><name>}:revoked   owners whose locks an operator broke lately
//! ```
//!
//! `scripts/common.lua` has the layout of records and of keys. `scripts/crowd.lua` has the rule for
//! shared holders and permits. The hand-over from one exclusive holder to the next and the wait
//! behind one exclusive holder are answered before `crowd.lua` is even read (`release_next.lua`,
//! `acquire_behind.lua`), because Redis makes each function of a script anew in each run.
//!
//! # Files
//!
//! Read `site.rs`, `links.rs`, `link.rs` and `wire.rs` for connections, `acquire.rs` for how a lock
//! is taken, and `backend.rs` for what each call of the contract does. `redlock` is a backend of
//! its own. `fence` is for users' data in Redis, over their own connections, and knows nothing of
//! locks; its gate (`scripts/fence/gate.lua`) stands before the script that writes, in one step
//! with it. `doctor` asks servers over connections of its own (`doctor/seen.rs`); every other file
//! there judges one thing, without a connection.
//!
//! # How a lock is taken and released
//!
//! - A free lock that this client had lately is taken by plain commands in one packet (`take` in
//!   `acquire.rs`), which cost Redis half of what a script does. The client proposes the token, and
//!   `ZADD GT` says whether it was larger than all before. Everything else is one script: one round
//!   trip and one atomic step.
//! - One script for every operation with the counter as a string cost Redis 8.5 µs for an acquire
//!   and a release. This layout costs 4.4 µs, and a lock without tokens 2.8 µs.
//! - A withdrawal goes over the connection of the acquire that it withdraws. If that connection is
//!   dead, it goes over another one after `CLIENT KILL` has closed the first at the server too, so
//!   that it cannot overtake the acquire.
//! - A release whose reply is lost is repeated. If the lock is gone by then, the first release gave
//!   it back, and the outcome is `Released`, if two conditions hold: the grant's deadline, which
//!   the core passes as its renewals have left it, has not passed, and both requests went to one
//!   run of one server. Otherwise another client may have held the lock, and the outcome is
//!   `AlreadyLost`.
//! - `refusal.rs` has a table of the states in which Redis refuses what it does at other times:
//!   what a new claim is told, and that a waiter goes on. A replica is a mistake in the URL to a
//!   client that never wrote to it, and a fail-over to the others. Connections come and go, so
//!   `links.rs` remembers whether there was a primary.
//!
//! # How it waits
//!
//! A release hands the lock straight to the next waiter that is alive, and publishes that on the
//! channel of the waiter's client. The message is a hint: a waiter that asks again, as all do from
//! time to time, gets the same answer. The pauses are in `Queue::pause` of `acquire.rs`. A waiter
//! whose connection is lost closes it on both sides and refreshes its place. A waiter that finds its
//! place gone before its time has learned that Redis lost data, and `acquire.lua` then writes a
//! presumed holder ahead of it.
//!
//! # Connections
//!
//! - `site.rs` knows which server a lock is on: the only one, the sentinels' primary, or the
//!   cluster's server with its slot.
//! - `links.rs` has one connection for each runtime that asks: callers use their own, renewals the
//!   keeper's, because the driver on a blocked executor renews nothing. `link.rs` is one connection
//!   with what is known of its server. Below it, also for Redlock, `wire.rs` sends requests.
//! - With few requests under way each is sent by itself. With many, they go in packets of about
//!   sixteen (`batch.rs`), and answers are read a few at a time (`stream.rs`), so that the server
//!   works on one packet while the next is made. Otherwise all tasks ask at once and are answered
//!   at once, and client and server take turns: 60 000 locks a second on one connection instead of
//!   105 000.
//! - One watcher per connection replaces a timer on every request (`link.rs`).
//!
//! # Invariants
//!
//! `conformance::…` is a case of the suite, `file::…` a test in `tests/integration`,
//! `file::tests::…` a test beside the code, `redlock_model::…` a test of the crate
//! `tollgate-redlock-model`.
//!
//! - No script reads all holders or all waiters, except to show a lock or to break it.
//!   (test: trouble::many_readers_behind_a_writer_do_not_block_redis)
//! - A renewal begins with a command that Redis also executes when it is out of memory: held locks
//!   outlast that.
//!   (test: trouble::a_redis_without_memory_refuses_new_locks_and_renews_old_ones_and_lets_them_go)
//! - A script that makes a counter sets its expiry in the same step, and a client that uses it sets
//!   the expiry again, once an hour at least.
//!   (test: trouble::the_last_token_is_remembered_for_days_also_if_it_was_drawn_in_a_hand_over)
//!   (test: trouble::a_counter_that_was_lost_before_a_hand_over_is_forgotten_some_day_too)
//!   (test:
//!   redlock_protocol::counters_in_use_are_remembered_anew_and_one_that_was_lost_ends_some_day_too)
//! - A token is given only if `ZADD GT` raised the score to it, or a script did.
//!   (test: trouble::tokens_ahead_of_the_servers_clock_go_on_from_there)
//! - While a waiter is queued the lock's key exists, so that a plain `SET NX` cannot get ahead of
//!   the queue. (no test)
//! - A waiter whose queue position was lost with Redis' data, before its time was over, is granted
//!   the lock only when the lease of the holder that Redis forgot is over.
//!   (test: outage::a_waiter_that_redis_forgot_gets_in_only_when_the_lease_of_the_holder_is_over)
//! - No connection reconnects by itself: what was learned on it holds as long as it lives.
//!   (test:
//!   lost_replies::a_release_to_a_redis_that_forgot_the_lock_does_not_say_that_nobody_was_in)
//! - Requests go out over a connection in the order in which they were made, by themselves or in
//!   packets. (test: together::nothing_overtakes_what_waits_to_be_sent_with_others)
//! - A fence's mark has no ttl and never falls. The comparison and the write are one script.
//!   (test: fence::a_stale_token_is_refused_by_every_operation_and_an_equal_one_is_not)
//!   (test:
//!   late::of_two_racing_writers_no_stale_one_writes_after_a_newer_and_without_the_fence_some_do)
//! - An examination changes nothing: what it tries, to see what the user may do, has no key and no
//!   script to act on. (test: doctor::a_healthy_redis_is_called_so_and_nothing_of_it_is_changed)
//!
//! # Redlock
//!
//! `redlock`: a majority of independent Redis servers, exclusive locks only, no queue.
//! `redlock/mod.rs` has its layout.
//!
//! - A free lock is taken by plain commands (`redlock/take.rs`). The client proposes one token to
//!   all nodes, the time of the node in the middle. Each node says of a token only once that it was
//!   larger than all before. Without a majority for it, the attempt is released and scripts take
//!   over (`scripts/redlock`): each node draws its own token, and a grant is a majority that stands
//!   at one token.
//! - `quorum.rs` adds answers up and is pure. `round.rs` asks all nodes at once and returns as soon
//!   as no further answer can change the outcome. `lanes.rs` has a connection to every node for
//!   each runtime. `node.rs` knows which nodes are set aside.
//! - `recovery.rs` and `voter.rs` make voters of nodes that restarted. F is the last token of a
//!   name on a node, G the number that all tokens of the node exceed.
//! - `crates/tollgate-redlock-model` walks through the protocol with a checker. It found the first
//!   design wrong in three places. A recovery that starts from the other nodes' counters alone
//!   repeats tokens when all nodes are lost after it: now the nodes' clocks are part of it, with
//!   the margin on top of the clocks and not of the counters. A recovery must read after the wait,
//!   not before. And the release of an earlier attempt must reach a node before the next attempt of
//!   the same claim does, or two clients hold the lock at once.
//!
//! Invariants of `redlock://`:
//!
//! - A node votes only in the run for which it was admitted: its member key is named after the run
//!   id that was learned on this very connection, and no connection ever reconnects by itself.
//!   (test: redlock_faults::a_node_that_comes_back_empty_votes_only_when_what_it_forgot_has_ended)
//!   (test: redlock_model::variants::a_node_that_votes_again_with_old_data_gives_old_tokens)
//! - Busy is said only if no majority is left, whatever silent nodes would say.
//!   (test: redlock_faults::a_lock_is_not_busy_as_long_as_a_silent_node_could_make_a_majority)
//!   (test: redlock::quorum::tests::a_verdict_comes_when_no_grant_is_possible_and_not_before)
//! - Only answers to one attempt add up to a grant, and its deadline counts from that attempt's
//!   first send. What an earlier request left behind says from when it counts (`SENT` in the lock's
//!   value).
//!   (test: redlock_model::variants::votes_of_an_earlier_attempt_outlive_the_wait_of_a_recovery)
//!   (test: redlock::quorum::tests::a_grant_lives_from_the_earliest_of_its_votes)
//! - What was sent over a connection is executed, or that connection is closed on both sides,
//!   before its successor is used: a late release must not delete what the next attempt of the same
//!   claim took.
//!   (test: redlock_model::variants::a_release_that_comes_after_the_next_attempt_lets_two_in)
//!   (test: conformance::an_acquire_that_arrives_after_it_was_given_up_leaves_nothing_behind)
//! - A request that takes back an attempt says up to which time (`retract.lua`): a later attempt of
//!   the same claim stays, whatever arrives after it.
//!   (test: redlock_protocol::a_withdrawal_that_comes_late_leaves_what_the_same_claim_took_later)
//! - A recovery waits first, then reads, then raises the other nodes, then admits. F and G never
//!   fall. (test: redlock_model::variants::a_recovery_that_reads_before_its_wait_misses_a_grant)
//!   (test: storm::three_nodes_that_lose_their_data_never_give_a_token_twice)
//! - A node healed by a renewal counts from the next renewal on.
//!   (test: redlock_protocol::a_node_that_lost_a_lock_gets_it_back_by_a_renewal)
//! - Scripts do not take a lock that was taken by plain commands (`~` before its token) for a vote:
//!   only the client knows whether its token was large enough.
//!   (test:
//!   redlock_model::variants::scripts_that_trust_a_plain_lock_of_their_own_id_give_one_token_twice)

mod acquire;
mod backend;
mod batch;
mod capabilities;
mod cluster;
mod config;
mod doctor;
mod endpoint;
mod error;
mod existing;
mod fence;
mod keys;
mod link;
mod links;
mod pulse;
mod redlock;
mod refusal;
mod reply;
mod scan;
mod script;
mod sentinel;
mod server_clock;
mod site;
mod stream;
mod wire;

pub use backend::RedisBackend;
pub use config::{Login, RedisConfig, Servers};
pub use doctor::{examine, examine_redlock};
pub use existing::url_of;
pub use fence::{FencedCall, FencedScript, RedisFence, RedisGate};
#[doc(hidden)]
pub use redlock::redlock_hash_of;
pub use redlock::{Initialized, RedlockBackend, RedlockConfig, init as redlock_init};
#[doc(hidden)]
pub use script::hash_of;
