//! Between the lock and the command: deadlines one way, news the other.

use std::time::Duration;

use tollgate::{Error, ErrorKind, Guards, LockName, LossCause, Moment, Result};

use super::child::Guardian;
use super::signals::Signals;
use crate::args::{OnLost, RunArgs};
use crate::exit::Exit;
use crate::guardian::{News, Order, Terms, Why};
use crate::{show, tell};

/// What became of the command.
pub(super) struct Ended {
    pub(super) how: How,
    /// It was asked to end, or killed, because the lock was about to be lost.
    pub(super) by_us: bool,
}

/// How it ended.
pub(super) enum How {
    NotStarted(Exit),
    Exited(u8),
    Killed(i32),
}

/// Runs the command and returns when it and everything it started are gone.
pub(super) async fn supervise(args: &RunArgs, guards: &Guards, signals: &mut Signals) -> Result<Ended> {
    let mut guardian = Guardian::start(args, guards)?;
    let mut watch = Watch::new(args, guards);
    let (ask_first, enforced) = (args.on_lost == OnLost::Term, args.on_lost != OnLost::Ignore);
    let terms = Terms::new(args.ttl, ask_first, enforced, args.kill_after);
    let home = rustix::process::getpgrp().as_raw_pid();
    // The start of the guardian took time, and we may have been stopped in between.
    guards.check()?;
    guardian.tell(&Order::Start { terms, deadline: watch.deadline(), home }).await;
    let lost = guards.lost();
    tokio::pin!(lost);
    let mut is_lost = false;
    let mut how = None;
    loop {
        tokio::select! {
            news = guardian.news() => match news {
                Some(News::Gone) => break,
                None => {
                    guardian.bury().await;
                    return Err(Error::new(ErrorKind::Unexpected, "the guardian was killed, so the command was ended"));
                }
                Some(news) => note(news, &mut how, &mut watch, &mut guardian).await,
            },
            signal = signals.next() => guardian.tell(&Order::Signal(signal)).await,
            (name, cause) = &mut lost, if !is_lost => {
                is_lost = true;
                watch.note_lost(&name, cause);
                guardian.tell(&Order::Lost).await;
            }
            () = tokio::time::sleep(watch.pause()) => {
                if let Some(deadline) = watch.news() {
                    guardian.tell(&Order::Deadline(deadline)).await;
                }
            }
        }
    }
    guardian.leave();
    let how = how.unwrap_or(How::NotStarted(Exit::UNEXPECTED));
    Ok(Ended { how, by_us: watch.ending })
}

async fn note(news: News, how: &mut Option<How>, watch: &mut Watch<'_>, guardian: &mut Guardian) {
    match news {
        News::Started | News::Gone => {}
        News::NotStarted(errno) => *how = Some(How::NotStarted(not_started(watch.args, errno))),
        News::Exited(code) => *how = Some(How::Exited(u8::try_from(code).unwrap_or(u8::MAX))),
        News::Killed(signal) => *how = Some(How::Killed(signal)),
        News::Ending(Why::Lock) => watch.note_ending(),
        News::Ending(Why::Term) => watch.note_unheeded(),
        News::Stopped(signal) => suspend(signal, guardian).await,
    }
}

fn not_started(args: &RunArgs, errno: i32) -> Exit {
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let error = std::io::Error::from_raw_os_error(errno);
    tell::error(&format!("cannot run {program:?}: {error}"));
    // As a shell says it.
    Exit::of_command(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// The command was stopped. If that was done at the terminal, we stop too, so that the shell notices; when
/// we are continued, so is the command. The lock is not renewed meanwhile.
async fn suspend(signal: i32, guardian: &mut Guardian) {
    if ![libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
        return;
    }
    let me = rustix::process::getpid();
    if rustix::process::kill_process(me, rustix::process::Signal::STOP).is_ok() {
        guardian.tell(&Order::Resume).await;
    }
}

/// Which deadline the guardian knows, and when it must hear of another.
struct Watch<'a> {
    args: &'a RunArgs,
    guards: &'a Guards,
    hold_end: Option<Moment>,
    told: Option<Moment>,
    /// The command is being ended because of the lock.
    ending: bool,
    /// The command is being killed because it did not heed a SIGTERM.
    unheeded: bool,
}

impl<'a> Watch<'a> {
    fn new(args: &'a RunArgs, guards: &'a Guards) -> Self {
        let hold_end = args.max_hold.map(|most| crate::clock::now() + most);
        Self { args, guards, hold_end, told: None, ending: false, unheeded: false }
    }

    /// Often enough that a renewal, which happens after a third of the ttl, is known well before a command
    /// would be asked to end, a quarter before the deadline.
    fn pause(&self) -> Duration {
        (self.args.ttl / 8).min(Duration::from_secs(1))
    }

    /// By when the command must be gone.
    fn deadline(&mut self) -> Option<Moment> {
        let leases = self.guards.iter().filter_map(|guard| guard.deadline());
        self.told = leases.chain(self.hold_end).min();
        self.told
    }

    /// The deadline, if it has changed.
    fn news(&mut self) -> Option<Option<Moment>> {
        let before = self.told;
        let now = self.deadline();
        (now != before).then_some(now)
    }

    fn note_lost(&mut self, name: &LockName, cause: LossCause) {
        let ignored = self.args.on_lost == OnLost::Ignore;
        let consequence = if ignored { "" } else { "; ending the command" };
        if !self.ending {
            tell::note(&format!("the lock {name:?} is lost: {cause}{consequence}"));
        }
        self.ending |= !ignored;
    }

    fn note_ending(&mut self) {
        if std::mem::replace(&mut self.ending, true) {
            return;
        }
        match self.args.max_hold {
            Some(most) if self.hold_end == self.told => {
                tell::note(&format!(
                    "held for {}, which is all --max-hold allows; ending the command",
                    show::short(most)
                ));
            }
            _ => tell::note("the lock could not be renewed; ending the command before its deadline"),
        }
    }

    fn note_unheeded(&mut self) {
        if !std::mem::replace(&mut self.unheeded, true) {
            let time = show::short(self.args.kill_after);
            tell::note(&format!("the command did not end within {time} of SIGTERM; killing it"));
        }
    }
}
