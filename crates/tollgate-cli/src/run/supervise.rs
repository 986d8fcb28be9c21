//! Supervision of the command: sends the lock's deadlines to the guardian, and handles the
//! guardian's messages.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tollgate::{Error, ErrorKind, Guard, Guards, LockName, Locks, LossCause, Moment, Result};

use super::args::{OnLost, RunArgs};
use super::child::Guardian;
use crate::clock::now;
use crate::exit::Exit;
use crate::guardian::{News, Order, Terms, Why};
use crate::signals::Signals;
use crate::terminal::{Terminal, is_from_terminal};
use crate::{show, tell};

/// The result of the command.
pub(super) struct Ended {
    pub(super) how: How,
    /// The lock was lost, or --max-hold was over, before the command ended.
    pub(super) too_late: bool,
    /// The command was in the terminal's foreground.
    pub(super) in_foreground: bool,
}

/// How the command ended.
pub(super) enum How {
    NotStarted(Exit),
    Exited(u8),
    Killed(i32),
}

/// How long the guardian may be silent. It answers at once, unless it is stopped.
const SILENCE: Duration = Duration::from_secs(5);

/// Poll interval for whether the engine still keeps a revoked lock for its holder.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The shortest interval between two deadlines that are sent to the guardian.
const SHORTEST: Duration = Duration::from_millis(10);

/// Runs the command, and returns when it and every process that it started are gone.
pub(super) async fn supervise(
    (args, url): (&RunArgs, &str),
    locks: &Locks,
    guards: &Guards,
    signals: &mut Signals,
) -> Result<Ended> {
    let mut guardian = Guardian::start(args, url, guards)?;
    let mut watch = Watch::new(args, guards);
    let home = rustix::process::getpgrp().as_raw_pid();
    let in_foreground = Terminal::if_in_foreground(home).is_some();
    // The start of the guardian took time, and this process may have been stopped meanwhile.
    guards.check()?;
    guardian.tell(&Order::Start { terms: watch.terms(), deadline: watch.deadline(), home }).await;
    let mut losses = losses(guards);
    // Inspections in progress go on whatever else happens: a slow engine can answer, and a fast one
    // is not flooded.
    let mut taken_away = FuturesUnordered::new();
    let mut how = None;
    loop {
        tokio::select! {
            // News first: if this process was stopped, the guardian's answers are queued there.
            biased;
            news = guardian.news() => match news {
                Some(News::Gone) => break,
                Some(news) => note(news, &mut how, &mut watch, &mut guardian).await,
                None => return abandon(guardian, "was killed").await,
            },
            signal = signals.next() => guardian.tell(&Order::Signal(signal)).await,
            Some((guard, cause)) = losses.next() => {
                watch.note_lost(guard.name(), cause);
                // A revoked lock is kept until its holder has left. Any other lost lock may already
                // have another holder.
                let still_kept = cause == LossCause::Revoked;
                guardian.tell(&Order::Lost { still_kept }).await;
                if still_kept {
                    taken_away.push(until_taken_away(locks, guard));
                }
            }
            Some(()) = taken_away.next() => {
                watch.set_grant(Grant::Gone);
                guardian.tell(&Order::Lost { still_kept: false }).await;
            }
            () = tokio::time::sleep(watch.pause()) => {
                if watch.guardian_is_silent() {
                    return abandon(guardian, "does not answer").await;
                }
                let deadline = watch.deadline();
                guardian.tell(&Order::Deadline(deadline)).await;
            }
        }
    }
    guardian.leave();
    let how = how.unwrap_or(How::NotStarted(Exit::UNEXPECTED));
    Ok(Ended { how, too_late: watch.is_too_late(), in_foreground })
}

/// The loss of each lock.
fn losses<'a>(guards: &'a Guards) -> FuturesUnordered<impl Future<Output = (&'a Guard, LossCause)>> {
    guards.iter().map(|guard: &'a Guard| async move { (guard, guard.lost().await) }).collect()
}

/// Completes when a revoked lock is no longer kept for its holder, because its ttl has ended or it
/// was taken away by force.
async fn until_taken_away(locks: &Locks, guard: &Guard) {
    loop {
        // Without an answer of the engine the deadline stays as it is.
        if let Ok(state) = locks.inspect(guard.name()).await
            && !state.is_some_and(|state| state.holders.iter().any(|held| held.token == Some(guard.token())))
        {
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Ends the command, because it must not run without a guardian.
async fn abandon(guardian: Guardian, what: &str) -> Result<Ended> {
    guardian.bury().await;
    Err(Error::new(ErrorKind::Unexpected, format!("the guardian {what}, so the command was ended")))
}

async fn note(news: News, how: &mut Option<How>, watch: &mut Watch<'_>, guardian: &mut Guardian) {
    watch.heard();
    match news {
        News::Started | News::Heard | News::Gone => {}
        News::NotStarted(errno) => *how = Some(How::NotStarted(not_started(watch.args, errno))),
        News::Exited(code) => *how = Some(How::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
        News::Killed(signal) => *how = Some(How::Killed(signal)),
        News::Ending(Why::Lock) => watch.note_ending(),
        News::Ending(Why::Term) => watch.note_unheeded(),
        News::OutOfReach(pid) => watch.note_out_of_reach(pid),
        News::Stopped(signal) if is_from_terminal(signal) => suspend(watch, guardian).await,
        News::Stopped(_) => {}
    }
}

fn not_started(args: &RunArgs, errno: i32) -> Exit {
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let error = std::io::Error::from_raw_os_error(errno);
    tell::error(&format!("cannot run {program:?}: {error}"));
    // The exit codes of a shell.
    Exit::of_command(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// The command was stopped by the terminal: stops this process and the rest of its job too, so that
/// the shell notices. When this process is continued, the command is continued. The lock is not
/// renewed meanwhile.
async fn suspend(watch: &mut Watch<'_>, guardian: &mut Guardian) {
    let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
    watch.heard();
    guardian.tell(&Order::Resume).await;
}

/// What the engine does with the lock while a process of the command lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Grant {
    /// It is renewed, also when --max-hold is over.
    Renewed,
    /// An operator broke it. It is kept for this holder, and no longer renewed.
    Revoked,
    /// The next holder may have it.
    Gone,
}

impl Grant {
    /// What it means for the lock that process `pid` cannot be ended.
    fn while_process_lives(self, pid: i32) -> String {
        match self {
            Self::Renewed => {
                "The lock is held as long as that process lives and the lock can be renewed; use".to_owned()
            }
            Self::Revoked => format!(
                "The lock is kept until that process ends, or until the ttl does on an engine where it ends a lock: end it with `sudo kill {pid}`, and use"
            ),
            Self::Gone => format!(
                "It keeps running beside the next holder until it ends by itself: end it with `sudo kill {pid}`, and use"
            ),
        }
    }
}

/// The deadline that the guardian knows, and the events that were reported to the user.
struct Watch<'a> {
    args: &'a RunArgs,
    guards: &'a Guards,
    hold_end: Option<Moment>,
    /// The deadline that the guardian was sent last.
    sent: Option<Moment>,
    /// Since when an answer of the guardian is outstanding.
    waiting_since: Option<Instant>,
    /// The lock is lost, or --max-hold is over.
    too_late: bool,
    /// The worst of the command's locks.
    grant: Grant,
    /// A process of the command that belongs to another user, and so cannot be ended.
    out_of_reach: Option<i32>,
    /// The command is being killed because it did not end after SIGTERM.
    unheeded: bool,
}

impl<'a> Watch<'a> {
    fn new(args: &'a RunArgs, guards: &'a Guards) -> Self {
        let hold_end = args.max_hold.map(|most| now() + most);
        let (sent, waiting_since) = (None, None);
        let (too_late, unheeded, out_of_reach) = (false, false, None);
        let grant = Grant::Renewed;
        Self { args, guards, hold_end, sent, waiting_since, too_late, grant, unheeded, out_of_reach }
    }

    fn terms(&self) -> Terms {
        let time = self.args.max_hold.map_or(self.args.ttl, |most| most.min(self.args.ttl));
        let (ask_first, enforced) = (self.args.on_lost == OnLost::Term, self.args.on_lost != OnLost::Ignore);
        Terms::new(time, ask_first, enforced, self.args.kill_after)
    }

    /// The interval between two deadlines for the guardian. It is short enough for a renewal to be
    /// known before the command would be asked to end, when a quarter of the ttl is left.
    fn pause(&self) -> Duration {
        let left = self.sent.map_or(Duration::MAX, |deadline| deadline.since(now()));
        let pause = (self.args.ttl / 8).min(left / 10).min(Duration::from_secs(1)).max(SHORTEST);
        match self.hold_end.map(|end| end.since(now())) {
            Some(left) if !left.is_zero() => pause.min(left),
            _ => pause,
        }
    }

    /// The time by which the command must be gone, to be sent to the guardian.
    fn deadline(&mut self) -> Option<Moment> {
        self.note_hold_end();
        self.waiting_since.get_or_insert_with(Instant::now);
        let leases = self.guards.iter().filter_map(|guard| guard.deadline());
        self.sent = leases.chain(self.hold_end).min();
        self.sent
    }

    fn heard(&mut self) {
        self.waiting_since = None;
    }

    fn guardian_is_silent(&self) -> bool {
        self.waiting_since.is_some_and(|since| since.elapsed() > SILENCE)
    }

    /// Whether the command outlived its lock.
    fn is_too_late(&mut self) -> bool {
        self.note_hold_end();
        self.too_late
    }

    fn note_hold_end(&mut self) {
        if self.hold_end.is_some_and(|end| now() >= end) {
            self.note_ending();
        }
    }

    fn consequence(&self) -> &'static str {
        if self.args.on_lost == OnLost::Ignore { "" } else { "; ending the command" }
    }

    fn note_lost(&mut self, name: &LockName, cause: LossCause) {
        if !std::mem::replace(&mut self.too_late, true) {
            tell::note(&format!("the lock {name:?} is lost: {cause}{}", self.consequence()));
        }
        self.set_grant(if cause == LossCause::Revoked { Grant::Revoked } else { Grant::Gone });
    }

    /// A process that cannot be ended is reported again when that means more.
    fn set_grant(&mut self, grant: Grant) {
        if grant > self.grant {
            self.grant = grant;
            self.say_out_of_reach();
        }
    }

    fn note_out_of_reach(&mut self, pid: i32) {
        self.out_of_reach = Some(pid);
        self.say_out_of_reach();
    }

    /// Reports a process that cannot be ended, and what that means for the lock.
    fn say_out_of_reach(&self) {
        let Some(pid) = self.out_of_reach else { return };
        let process = show::out_of_reach(pid);
        let meaning = self.grant.while_process_lives(pid);
        tell::note(&format!("{process}. {meaning} `sudo tollgate run` instead of `tollgate run -- sudo`"));
    }

    fn note_ending(&mut self) {
        if std::mem::replace(&mut self.too_late, true) {
            return;
        }
        let consequence = self.consequence();
        match self.args.max_hold {
            Some(most) if self.hold_end == self.sent => {
                tell::note(&format!(
                    "the lock was held for {}, as long as --max-hold allows{consequence}",
                    show::short(most)
                ));
            }
            _ => {
                let why = self.guards.iter().find_map(|guard| guard.trouble());
                let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
                tell::note(&format!("the lock could not be renewed in time{why}{consequence}"));
            }
        }
    }

    fn note_unheeded(&mut self) {
        if !std::mem::replace(&mut self.unheeded, true) {
            let time = show::short(self.args.kill_after);
            tell::note(&format!("the command did not end within {time} of SIGTERM; killing it"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_runs_beside_the_next_holder_only_when_the_lock_is_gone() {
        let beside = |grant: Grant| grant.while_process_lives(7).contains("beside the next holder");
        assert_eq!([Grant::Renewed, Grant::Revoked, Grant::Gone].map(beside), [false, false, true]);
        assert!(Grant::Renewed < Grant::Revoked && Grant::Revoked < Grant::Gone);
    }
}
