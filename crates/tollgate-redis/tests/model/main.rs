//! A model of Redlock with tokens: every order of events is looked at, in worlds small enough for that.
//!
//! # The protocol
//!
//! Each of N nodes has a counter F and a lock L = (id, token) per name, and `member` = (run id, max_ttl, G). A node
//! votes only if `member` was written for the server's present run; else it answers RECOVERING. `node.rs` has the
//! scripts. A client sends `acquire` to all. It is granted t when a majority has said that it stands at t: by an
//! `acquire` that was answered t, or by a `commit(t)`, where t is the largest answer of a majority. That must happen
//! before the validity of the attempt, counted from its first send, is over.
//!
//! It may try a plain take first, without a script (`plain.rs`): it proposes one t to all, by three commands in one
//! packet. `SET L (id, ~t) NX`; `ZADD F GT CH t`, also if SET said nil; `GET member`. They are executed in this order,
//! on a node that does not vote as well, and anything may come between them. A node votes at t if SET said ok, ZADD
//! said that F rose, and G was below t. A majority of votes is a grant, and there is no commit. Else the client
//! releases, and goes on to the scripts with the same id. To those the ~ says that nobody asked whether the node may
//! stand at t: `acquire` answers BUSY to a lock like that of its own id, `commit` moves it only upwards. A client that
//! has used the name lately lets no node make an F that has none (`XX`): such a node has no vote then, as any may have
//! none.
//!
//! A node that lost its data is recovered: wait max_ttl since its start, read F and G of a majority of others that
//! vote, raise G on those to the largest + margin, write the same G with `member`. With too few voters the same is
//! done with all N.
//!
//! # What is promised
//!
//! Tokens are unique, and whoever starts after a grant gets a larger one. A grant may come late and carry a smaller
//! token than one that was given meanwhile: it is stale, and the fence refuses it. That only one holds at a time rests
//! on time, and locks expire here whenever they like; it is promised, and checked, where nothing expires.
//!
//! # What the model does
//!
//! - A request may arrive at any time or never; `acquire` and packets of plain takes arrive twice as often as
//!   `duplicates` says, the second even between the commands of the first, everything else any number of times.
//!   Answers are not on their way: a client may use what it was told as late as it likes.
//! - BUSY, NO, GONE and RECOVERING tell a client nothing that it may not do unasked: give up, or start over.
//! - A lock expires just before a request arrives, if ever: in between nobody can tell. Where locks expire nothing is
//!   released, for that is the same.
//! - What the wait buys: when it is over, no attempt that was first sent before the node was lost can be granted any
//!   more (`Phase::TooLate`). Where clocks cannot be trusted (`TIMELESS`) it buys nothing.
//! - Where there are `proposals`, each client takes plainly or by scripts as it likes, and proposes any of them, whatever
//!   it has seen.
//! - What is on its way to a node that is lost is never executed by its next run: its connection is gone.
//! - A node that is lost comes back empty, with the `member` of another run, as from a backup.
//! - Nodes and clients have no names (`normal.rs`), and N is three. F never expires. There is one lock: that G is larger
//!   than the F of every other name is taken for granted. One recovery is under way at a time.
//! - The checker tells worlds apart by hashes of 64 bits. "Exhaustive" is said of what it can tell apart.
//!
//! # What was unclear, and is settled
//!
//! - **Starting over after NO: the same id will do**, since a node stands at a token for one id for ever. But what the
//!   earlier attempt was told is void: its votes with the new attempt's validity outlive the wait of a recovery. And
//!   the earlier attempt's release must reach a node before the new acquire does, or it removes the lock that the
//!   vote stands for.
//! - **A recovery reads after its wait**, not before, or it misses what was granted meanwhile.
//! - **Two legs.** With clocks that can be trusted, tokens survive a recovery whatever the margin is, and the others
//!   need not be raised. Without, they survive if the margin is larger than the lost node's counter can have been ahead
//!   of the others', and then only if the others are raised: else the next recovery starts too low. The counters of idle
//!   names may be apart by days, as hints are times. So the second leg needs the nodes' times among what is read,
//!   for one lost node as for all.
//! - **With too few voters to recover from** nothing but the margin and the nodes' times covers what only the lost
//!   nodes knew. This rests on clocks, however long the wait: if all are lost after a recovery raised them, and the
//!   nodes' clocks stood still since, the same numbers come again.
//! - **A margin on F and G piles up** with every recovery, and may run ahead of the clocks. A margin on the nodes' times
//!   alone does not, and will do as well if their clocks go on by more than the counters do.
//! - **`member` is written for one run.** A late one must be refused by a server that has started again.
//! - **A majority at another token than the one committed** may be taken as well.
//! - **Commit must not lower F** when the lock stands at its token already: a plain take whose SET said nil has raised F
//!   above that, and may have been granted elsewhere.
//! - **A plain take on a node that is being recovered** counts if the node votes by the time of its GET: whoever knew of
//!   larger tokens was waited for, or G is above them.
//! - **Heals and renewals** do nothing to tokens, whenever they arrive. When a heal counts is a question of who holds.

mod check;
mod client;
mod node;
mod normal;
mod plain;
mod recovery;
mod rules;
mod sizes;
mod steps;
mod take;
mod variants;
mod world;

use check::check;
use rules::Rules;
use sizes::{APART, BARE, ENDLESS, FULL, LOSS, RESTART, ROUNDS, TAKES, TIMELESS, TWO_LOST};
use world::{Redlock, Renewals, Size};

/// Two clients of the protocol keep its promises in every world of this size.
fn holds(size: Size, rules: Rules) {
    let verdict = check(Redlock::<2> { size, rules }, None);
    println!("{}: {verdict}", std::thread::current().name().unwrap_or_default());
    assert!(!verdict.is_bad(), "{verdict}");
}

#[test]
fn tokens_are_unique_and_rise_through_expiry_duplicates_renewals_and_a_lost_node() {
    holds(FULL, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_whatever_the_hints_are_and_the_counters_were() {
    holds(APART, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_without_clocks_if_the_margin_is_large() {
    holds(TIMELESS, Rules::RIGHT);
}

#[test]
fn the_margin_may_be_added_to_times_alone_if_a_wait_is_longer_than_counters_run() {
    let rules = Rules { margin_is_for_times_alone: true, ..Rules::RIGHT };
    holds(Size { wait: 4, floors: APART.floors, ..TIMELESS }, rules);
}

#[test]
fn tokens_are_unique_and_rise_while_grants_are_renewed_and_healed() {
    holds(Size { duplicates: 1, ..ROUNDS }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_when_too_few_nodes_are_left_to_recover_from() {
    holds(TWO_LOST, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_start_over_with_the_same_id() {
    holds(RESTART, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_start_over_with_an_id_of_its_own() {
    holds(RESTART, Rules { attempts_have_own_ids: true, ..Rules::RIGHT });
}

#[test]
fn nothing_is_hidden_by_taking_worlds_that_are_alike_for_one() {
    holds(Size { normal: false, ..LOSS }, Rules::RIGHT);
    holds(Size { normal: false, duplicates: 1, ..BARE }, Rules::RIGHT);
    holds(Size { normal: false, ..ROUNDS }, Rules::RIGHT);
    holds(Size { normal: false, restarts: 0, ..TAKES }, Rules::RIGHT);
}

#[test]
fn one_at_a_time_holds_where_nothing_expires() {
    holds(ENDLESS, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_through_plain_takes_their_duplicates_and_a_lost_node() {
    holds(Size { restarts: 0, duplicates: 1, losses: 1, ..TAKES }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_whatever_plain_takes_propose_and_the_counters_were() {
    holds(Size { proposals: &[1, 2, 3], ..APART }, Rules::RIGHT);
}

#[test]
fn an_acquisition_may_go_on_to_the_scripts_with_the_id_of_its_plain_take() {
    holds(Size { renewals: Renewals::Unconditional, ..TAKES }, Rules::RIGHT);
}

#[test]
fn tokens_are_unique_and_rise_with_plain_takes_without_clocks_if_the_margin_is_large() {
    holds(Size { proposals: TAKES.proposals, ..TIMELESS }, Rules::RIGHT);
}

#[test]
fn one_at_a_time_holds_for_plain_takes_where_nothing_expires() {
    holds(Size { proposals: &[1], ..ENDLESS }, Rules::RIGHT);
}
