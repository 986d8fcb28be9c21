//! The guardian's main loop: it starts the command, handles orders, children and deadlines, and
//! leaves no process behind.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group};
use tollgate::Moment;

use super::channel::{ARG0, ENV, News, Order, Orders, tell};
use super::descendants;
use super::sentence::{Due, Sentence, Why};
use crate::clock::now;
use crate::exit::Exit;
use crate::terminal::{Terminal, is_from_terminal};
use crate::{show, sys};

/// How soon killing is repeated while a descendant is left, and while those that are left cannot be
/// killed.
const AGAIN: Duration = Duration::from_millis(2);
const AGAIN_OUT_OF_REACH: Duration = Duration::from_millis(100);

/// Runs as the guardian, if `run` started this process as one.
pub(crate) fn run_if_asked() -> Option<Exit> {
    // The variable alone proves nothing: it may be inherited.
    let arg0 = std::env::args_os().next()?;
    let descriptor = std::env::var(ENV).ok().filter(|_| arg0 == ARG0)?.parse().ok()?;
    let socket = sys::adopt_socket(descriptor).ok()?;
    Some(match serve(&socket) {
        Ok(()) => Exit::OK,
        Err(error) => {
            crate::tell::error(&format!("the guardian process failed: {error}"));
            Exit::UNEXPECTED
        }
    })
}

fn serve(socket: &UnixStream) -> std::io::Result<()> {
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me))?;
    let signals = sys::Signals::take()?;
    let mut orders = Orders::new(socket);
    // The command was not started yet, so nothing is left behind if `run` is already gone.
    let Some(Order::Start { terms, deadline, home }) = orders.next() else { return Ok(()) };
    let mut guardian = Guardian::new(socket, me, home, Sentence::new(terms, deadline, now()));
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    guardian.start(&command, &signals);
    while !guardian.alone {
        let timeout = guardian.until_next();
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(&signals.descriptor, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_orders = !ready[0].revents().is_empty();
        signals.drain();
        guardian.look_at_children();
        if has_orders && !guardian.orphaned {
            loop {
                guardian.obey(orders.next());
                if !orders.has_more() {
                    break;
                }
            }
        }
        guardian.carry_out();
    }
    tell(socket, &News::Gone);
    Ok(())
}

struct Guardian<'a> {
    socket: &'a UnixStream,
    me: Pid,
    /// The process group of `run`, which gets the terminal back.
    home: i32,
    command: Option<Pid>,
    sentence: Sentence,
    terminal: Option<Terminal>,
    /// The reason for the end of the command that was reported to `run` last.
    reported: Option<Why>,
    /// Everything is being killed.
    killing: bool,
    /// `run` is gone: no process of the command may live on.
    orphaned: bool,
    /// Processes that belong to another user, and so cannot be ended.
    out_of_reach: HashSet<i32>,
    /// No descendant is left.
    alone: bool,
}

impl<'a> Guardian<'a> {
    fn new(socket: &'a UnixStream, me: Pid, home: i32, sentence: Sentence) -> Self {
        let terminal = Terminal::if_in_foreground(home);
        let (command, reported) = (None, None);
        Self {
            socket,
            me,
            home,
            command,
            sentence,
            terminal,
            reported,
            killing: false,
            orphaned: false,
            out_of_reach: HashSet::new(),
            alone: false,
        }
    }

    fn start(&mut self, command: &[OsString], signals: &sys::Signals) {
        let Some((program, arguments)) = command.split_first() else {
            self.alone = true;
            return;
        };
        let mut prepared = Command::new(program);
        prepared.args(arguments).env_remove(ENV);
        match sys::spawn_in_own_group(&mut prepared, signals, self.terminal.as_ref()) {
            Ok(child) => {
                self.command = Some(Pid::from_child(&child));
                tell(self.socket, &News::Started);
            }
            Err(error) => {
                tell(self.socket, &News::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)));
                self.alone = true;
            }
        }
    }

    /// How long to wait for an order or a child before something is due.
    fn until_next(&self) -> Option<Timespec> {
        let wait = if self.killing || self.orphaned {
            // Killing is repeated until no descendant is left: one that was being forked during the
            // look was missed.
            if self.out_of_reach.is_empty() { AGAIN } else { AGAIN_OUT_OF_REACH }
        } else {
            match self.sentence.next() {
                Moment::MAX => return None,
                next => next.since(now()),
            }
        };
        wait.try_into().ok()
    }

    fn obey(&mut self, order: Option<Order>) {
        match order {
            None => self.orphaned = true,
            Some(Order::Deadline(deadline)) => {
                self.sentence.set_deadline(deadline, now());
                tell(self.socket, &News::Heard);
            }
            Some(Order::Lost { still_kept }) => self.sentence.lock_lost(still_kept, now()),
            Some(Order::Signal(number)) => self.pass_on(number),
            Some(Order::Resume) => self.resume(),
            Some(Order::Start { .. }) => {}
        }
    }

    /// Passes a signal on to the command's group, or to the processes that the command has left
    /// behind.
    fn pass_on(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if signal == Signal::TERM {
            self.sentence.term_passed_on(now());
        }
        self.signal(signal);
        if signal == Signal::TERM {
            // A stopped process must be continued to receive the signal.
            self.signal(Signal::CONT);
        }
    }

    fn signal(&mut self, signal: Signal) {
        match self.command {
            Some(command) => {
                // Any other error means that the group is gone by now.
                if kill_process_group(command, signal) == Err(rustix::io::Errno::PERM) {
                    self.note_out_of_reach(Some(command.as_raw_pid()));
                }
            }
            None => {
                let refused = descendants::signal_all(self.me, signal);
                self.note_out_of_reach(refused);
            }
        }
    }

    /// Reports each process that belongs to another user once: to `run`, or on stderr if `run` is
    /// gone.
    fn note_out_of_reach(&mut self, refused: Option<i32>) {
        let Some(pid) = refused.filter(|pid| self.out_of_reach.insert(*pid)) else { return };
        if self.orphaned {
            // A full pipe must not keep the guardian from killing.
            let stderr = std::io::stderr();
            let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            if poll(&mut ready, Some(&at_once)).is_err() || !ready[0].revents().contains(PollFlags::OUT) {
                return;
            }
            crate::tell::note(&format!(
                "tollgate run is gone, and {}. It keeps running, without a lock once the ttl has ended: end it with `sudo kill {pid}`",
                show::out_of_reach(pid)
            ));
        } else {
            tell(self.socket, &News::OutOfReach(pid));
        }
    }

    /// Continues the command, in the foreground if its job is there now.
    fn resume(&mut self) {
        self.terminal = Terminal::if_in_foreground(self.home);
        if let (Some(terminal), Some(command)) = (&self.terminal, self.command) {
            terminal.give_to(command);
        }
        self.signal(Signal::CONT);
    }

    /// Performs the action that is due.
    fn carry_out(&mut self) {
        if self.orphaned {
            let refused = descendants::kill_all(self.me);
            return self.note_out_of_reach(refused);
        }
        match self.sentence.due(now()) {
            Due::Nothing => {}
            Due::Ask(why) => {
                self.say_ending(why);
                let refused = descendants::signal_all(self.me, Signal::TERM);
                descendants::signal_all(self.me, Signal::CONT);
                self.note_out_of_reach(refused);
            }
            Due::Kill(why) => {
                self.killing = true;
                self.say_ending(why);
                let refused = descendants::kill_all(self.me);
                self.note_out_of_reach(refused);
            }
        }
    }

    /// Reports the end of the command once for each reason: `run` may be stopped, and a full socket
    /// would block the guardian.
    fn say_ending(&mut self, why: Why) {
        if self.reported.replace(why) != Some(why) {
            tell(self.socket, &News::Ending(why));
        }
    }

    fn look_at_children(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if Some(pid) == self.command => self.note(status),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    self.alone = true;
                    return;
                }
            }
        }
    }

    /// Handles the end or the stop of the command itself.
    fn note(&mut self, status: WaitStatus) {
        let news = if let Some(signal) = status.stopping_signal() {
            News::Stopped(signal)
        } else if let Some(code) = status.exit_status() {
            News::Exited(code)
        } else if let Some(signal) = status.terminating_signal() {
            News::Killed(signal)
        } else {
            return;
        };
        let keeps_terminal = matches!(news, News::Stopped(signal) if !is_from_terminal(signal));
        if let Some(terminal) = self.terminal.as_ref().filter(|_| !keeps_terminal) {
            terminal.give_back();
        }
        tell(self.socket, &news);
        if !matches!(news, News::Stopped(_)) {
            self.command = None;
        }
    }
}
