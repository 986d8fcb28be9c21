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
//!
//! # How to run it
//!
//! The tests look at the smaller worlds. This program looks at larger ones, as far as the time goes: `cargo xtask model`.

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
#[cfg(test)]
mod tests;
#[cfg(test)]
mod variants;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use check::{Budget, Verdict, check};
use rules::Rules;
use sizes::{APART, BARE, ENDLESS, FULL, LOSS, RESTART, ROUNDS, TAKES, TIMELESS, TWO_LOST};
use world::{Redlock, Size};

/// What all of them may take together, and each of them, unless told otherwise.
const DEFAULT: Limits = Limits { minutes: 10.0, gigabytes: 8.0 };
/// Measured, with some to spare: a step in three leads to a world that is new and must be remembered.
const STEPS_PER_GIGABYTE: f64 = 7_500_000.0;

/// What was asked for.
struct Limits {
    minutes: f64,
    gigabytes: f64,
}

enum Clients {
    Two,
    Three,
}

/// All nodes may be without their data, perhaps after a recovery that only they knew of: nothing but the nodes'
/// clocks, which must have gone on since, can tell.
const ALL_LOST: Size = Size { losses: 3, lost_at_once: 3, wait: 4, ..TWO_LOST };

/// Plain takes below, at and above counters that were apart already.
const TAKES_APART: Size = Size { floors: APART.floors, proposals: &[1, 2, 3], ..FULL };

/// What is checked, the smaller first: what they do not need of their share is left to the larger.
const WORLDS: &[(Clients, &str, Size)] = &[
    (Clients::Three, "nothing but expiry", BARE),
    (Clients::Three, "renewed in rounds", ROUNDS),
    (Clients::Two, "a duplicate each, no expiry, one starts over", Size { duplicates: 1, ..ENDLESS }),
    (
        Clients::Two,
        "two nodes lost at once, no clocks",
        Size { clocks_can_be_trusted: false, margin: 6, ..TWO_LOST },
    ),
    (Clients::Two, "plain takes, two nodes lost at once", Size { proposals: TAKES.proposals, ..TWO_LOST }),
    (
        Clients::Two,
        "plain takes, a lost node, none taken for one",
        Size { normal: false, proposals: &[1], ..LOSS },
    ),
    (Clients::Two, "plain takes, both start over", Size { restarts: 2, ..TAKES }),
    (Clients::Two, "plain takes, a duplicate each, one starts over", Size { duplicates: 1, ..TAKES }),
    (Clients::Two, "plain takes, a lost node, one starts over", Size { losses: 1, ..TAKES }),
    (Clients::Two, "a lost node, one starts over", Size { losses: 1, ..RESTART }),
    (Clients::Two, "a duplicate each, one starts over", Size { duplicates: 1, ..RESTART }),
    (Clients::Two, "two losses, no clocks", Size { losses: 2, ..TIMELESS }),
    (Clients::Two, "three nodes lost at once", ALL_LOST),
    (Clients::Three, "plain takes", Size { restarts: 0, ..TAKES }),
    (Clients::Two, "plain takes, everything, counters apart", TAKES_APART),
    (Clients::Three, "one lost node", LOSS),
    (
        Clients::Two,
        "a duplicate each, renewed in rounds, one lost node",
        Size { duplicates: 1, losses: 1, ..ROUNDS },
    ),
    (
        Clients::Two,
        "everything, hints, counters apart",
        Size { floors: APART.floors, hints: APART.hints, ..FULL },
    ),
    (Clients::Three, "no expiry, one starts over", ENDLESS),
    (Clients::Three, "a duplicate each", Size { duplicates: 1, ..BARE }),
    (Clients::Three, "everything", FULL),
];

fn main() -> ExitCode {
    match Limits::read(std::env::args().skip(1)).and_then(|limits| explore_all(&limits)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("model: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing bad was found.
fn explore_all(limits: &Limits) -> Result<bool, String> {
    let until = Instant::now() + limits.time()?;
    let steps = (limits.gigabytes * STEPS_PER_GIGABYTE) as usize;
    let mut good = true;
    for (number, (clients, name, size)) in WORLDS.iter().enumerate() {
        let left = u32::try_from(WORLDS.len() - number).expect("there are few worlds");
        let time = until.saturating_duration_since(Instant::now()) / left;
        let (who, verdict) = explore(clients, *size, Budget { time, steps });
        println!("{who} clients, {name}: {verdict}");
        good &= !verdict.is_bad();
    }
    Ok(good)
}

fn explore(clients: &Clients, size: Size, budget: Budget) -> (&'static str, Verdict) {
    let rules = Rules::RIGHT;
    match clients {
        Clients::Two => ("two", check(Redlock::<2> { size, rules }, Some(budget))),
        Clients::Three => ("three", check(Redlock::<3> { size, rules }, Some(budget))),
    }
}

impl Limits {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut limits = DEFAULT;
        while let Some(option) = arguments.next() {
            let limit = match option.as_str() {
                "--minutes" => &mut limits.minutes,
                "--gigabytes" => &mut limits.gigabytes,
                _ => {
                    return Err(format!(
                        "there is no {option}; the options are --minutes N and --gigabytes N"
                    ));
                }
            };
            let number = arguments.next().and_then(|value| value.parse::<f64>().ok());
            *limit =
                number.filter(|number| *number > 0.0).ok_or(format!("{option} takes a number above zero"))?;
        }
        Ok(limits)
    }

    fn time(&self) -> Result<Duration, String> {
        let longest = Duration::from_secs(365 * 24 * 3600);
        let time = Duration::try_from_secs_f64(self.minutes * 60.0).ok().filter(|time| *time < longest);
        time.ok_or_else(|| format!("{} minutes are too many", self.minutes))
    }
}
