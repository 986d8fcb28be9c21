//! Between the lock and the command: deadlines one way, news the other.

use std::time::{Duration, Instant};

use tollgate::{Error, ErrorKind, Guards, LockName, LossCause, Moment, Result};

use super::args::{OnLost, RunArgs};
use super::child::Guardian;
use crate::clock::now;
use crate::exit::Exit;
use crate::guardian::{News, Order, Terms, Why};
use crate::signals::Signals;
use crate::terminal::{Terminal, is_from_terminal};
use crate::{show, tell};

/// What became of the command.
pub(super) struct Ended {
    pub(super) how: How,
    /// The lock, or the time it may be held, was over before the command was.
    pub(super) too_late: bool,
    /// The command was in the terminal's foreground.
    pub(super) in_foreground: bool,
}

/// How it ended.
pub(super) enum How {
    NotStarted(Exit),
    Exited(u8),
    Killed(i32),
}

/// How long the guardian may be silent. It answers at once, unless somebody has stopped it.
const SILENCE: Duration = Duration::from_secs(5);

/// The guardian is told no more often than this.
const SHORTEST: Duration = Duration::from_millis(10);

/// Runs the command and returns when it and everything it started are gone.
pub(super) async fn supervise(args: &RunArgs, guards: &Guards, signals: &mut Signals) -> Result<Ended> {
    let mut guardian = Guardian::start(args, guards)?;
    let mut watch = Watch::new(args, guards);
    let home = rustix::process::getpgrp().as_raw_pid();
    let in_foreground = Terminal::if_in_foreground(home).is_some();
    // The start of the guardian took time, and we may have been stopped in between.
    guards.check()?;
    guardian.tell(&Order::Start { terms: watch.terms(), deadline: watch.deadline(), home }).await;
    let lost = guards.lost();
    tokio::pin!(lost);
    let mut is_lost = false;
    let mut how = None;
    loop {
        tokio::select! {
            // News first: after we were stopped ourselves, the guardian's answers are waiting there.
            biased;
            news = guardian.news() => match news {
                Some(News::Gone) => break,
                Some(news) => note(news, &mut how, &mut watch, &mut guardian).await,
                None => return abandon(guardian, "was killed").await,
            },
            signal = signals.next() => guardian.tell(&Order::Signal(signal)).await,
            (name, cause) = &mut lost, if !is_lost => {
                is_lost = true;
                watch.note_lost(&name, cause);
                guardian.tell(&Order::Lost).await;
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

/// Without a guardian nobody may go on.
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
        News::Stopped(signal) if is_from_terminal(signal) => suspend(watch, guardian).await,
        News::Stopped(_) => {}
    }
}

fn not_started(args: &RunArgs, errno: i32) -> Exit {
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let error = std::io::Error::from_raw_os_error(errno);
    tell::error(&format!("cannot run {program:?}: {error}"));
    // As a shell says it.
    Exit::of_command(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 })
}

/// The command was stopped at the terminal: so are we and the rest of our job, so that the shell notices.
/// When we are continued, so is the command. The lock is not renewed meanwhile.
async fn suspend(watch: &mut Watch<'_>, guardian: &mut Guardian) {
    let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP);
    watch.heard();
    guardian.tell(&Order::Resume).await;
}

/// Which deadline the guardian knows, and what people were told.
struct Watch<'a> {
    args: &'a RunArgs,
    guards: &'a Guards,
    hold_end: Option<Moment>,
    told: Option<Moment>,
    /// Since when the guardian owes an answer.
    waiting_since: Option<Instant>,
    /// The lock, or the time it may be held, is over.
    too_late: bool,
    /// The command is being killed because it did not heed a SIGTERM.
    unheeded: bool,
}

impl<'a> Watch<'a> {
    fn new(args: &'a RunArgs, guards: &'a Guards) -> Self {
        let hold_end = args.max_hold.map(|most| now() + most);
        let (told, waiting_since) = (None, None);
        Self { args, guards, hold_end, told, waiting_since, too_late: false, unheeded: false }
    }

    fn terms(&self) -> Terms {
        let time = self.args.max_hold.map_or(self.args.ttl, |most| most.min(self.args.ttl));
        let (ask_first, enforced) = (self.args.on_lost == OnLost::Term, self.args.on_lost != OnLost::Ignore);
        Terms::new(time, ask_first, enforced, self.args.kill_after)
    }

    /// Often enough that a renewal, which happens well before it is late, is known before a command would be asked to end, which
    /// it is when a quarter is left.
    fn pause(&self) -> Duration {
        let left = self.told.map_or(Duration::MAX, |deadline| deadline.since(now()));
        let pause = (self.args.ttl / 8).min(left / 10).min(Duration::from_secs(1)).max(SHORTEST);
        match self.hold_end.map(|end| end.since(now())) {
            Some(left) if !left.is_zero() => pause.min(left),
            _ => pause,
        }
    }

    /// By when the command must be gone; the guardian is to be told.
    fn deadline(&mut self) -> Option<Moment> {
        self.note_hold_end();
        self.waiting_since.get_or_insert_with(Instant::now);
        let leases = self.guards.iter().filter_map(|guard| guard.deadline());
        self.told = leases.chain(self.hold_end).min();
        self.told
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
    }

    fn note_ending(&mut self) {
        if std::mem::replace(&mut self.too_late, true) {
            return;
        }
        let consequence = self.consequence();
        match self.args.max_hold {
            Some(most) if self.hold_end == self.told => {
                tell::note(&format!(
                    "held for {}, which is all --max-hold allows{consequence}",
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
