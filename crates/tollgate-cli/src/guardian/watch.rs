//! The guardian's life: start the command, watch orders, children and the clock, and leave nobody behind.

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
use crate::sys;
use crate::terminal::{Terminal, is_from_terminal};

/// How soon killing is repeated while somebody is left.
const AGAIN: Duration = Duration::from_millis(2);

/// Runs as the guardian, if `run` started this process as one.
pub(crate) fn run_if_asked() -> Option<Exit> {
    // The variable alone may be inherited from anywhere.
    let arg0 = std::env::args_os().next()?;
    let descriptor = std::env::var(ENV).ok().filter(|_| arg0 == ARG0)?.parse().ok()?;
    let socket = sys::adopt_socket(descriptor).ok()?;
    Some(match serve(&socket) {
        Ok(()) => Exit::OK,
        Err(error) => {
            crate::tell::error(&format!("the guardian cannot work: {error}"));
            Exit::UNEXPECTED
        }
    })
}

fn serve(socket: &UnixStream) -> std::io::Result<()> {
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me))?;
    let signals = sys::Signals::take()?;
    let mut orders = Orders::new(socket);
    // Nothing was started yet, so nothing is left behind if `run` is gone already.
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
        let told = !ready[0].revents().is_empty();
        signals.drain();
        guardian.look_at_children();
        if told && !guardian.orphaned {
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
    /// The process group of `run`, to which the terminal goes back.
    home: i32,
    command: Option<Pid>,
    sentence: Sentence,
    terminal: Option<Terminal>,
    /// What `run` knows already.
    told: Option<Why>,
    /// Everything is being killed.
    killing: bool,
    /// `run` is gone: nothing may live on.
    orphaned: bool,
    /// Nobody is left.
    alone: bool,
}

impl<'a> Guardian<'a> {
    fn new(socket: &'a UnixStream, me: Pid, home: i32, sentence: Sentence) -> Self {
        let terminal = Terminal::if_in_foreground(home);
        let (command, told) = (None, None);
        Self {
            socket,
            me,
            home,
            command,
            sentence,
            terminal,
            told,
            killing: false,
            orphaned: false,
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

    /// How long there is nothing to do unless something happens.
    fn until_next(&self) -> Option<Timespec> {
        let wait = if self.killing || self.orphaned {
            // Killing is repeated until nobody is left: who was being born when we looked was missed.
            AGAIN
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
            Some(Order::Lost) => self.sentence.lock_lost(now()),
            Some(Order::Signal(number)) => self.pass_on(number),
            Some(Order::Resume) => self.resume(),
            Some(Order::Start { .. }) => {}
        }
    }

    /// Passes a signal on to the command's group, or to whatever the command has left behind.
    fn pass_on(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if signal == Signal::TERM {
            self.sentence.term_passed_on(now());
        }
        self.signal(signal);
        if signal == Signal::TERM {
            // One that is stopped must go on to hear of it.
            self.signal(Signal::CONT);
        }
    }

    fn signal(&self, signal: Signal) {
        match self.command {
            // The group may be gone by now.
            Some(command) => drop(kill_process_group(command, signal)),
            None => descendants::signal_all(self.me, signal),
        }
    }

    /// Lets the command go on, in the foreground if its job is there now.
    fn resume(&mut self) {
        self.terminal = Terminal::if_in_foreground(self.home);
        if let (Some(terminal), Some(command)) = (&self.terminal, self.command) {
            terminal.give_to(command);
        }
        self.signal(Signal::CONT);
    }

    /// Does what is due.
    fn carry_out(&mut self) {
        if self.orphaned {
            return descendants::kill_all(self.me);
        }
        match self.sentence.due(now()) {
            Due::Nothing => {}
            Due::Ask(why) => {
                self.say_ending(why);
                descendants::signal_all(self.me, Signal::TERM);
                descendants::signal_all(self.me, Signal::CONT);
            }
            Due::Kill(why) => {
                self.killing = true;
                self.say_ending(why);
                descendants::kill_all(self.me);
            }
        }
    }

    /// Once for each reason: `run` may be stopped, and a socket that is full would stop us too.
    fn say_ending(&mut self, why: Why) {
        if self.told.replace(why) != Some(why) {
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

    /// The command itself ended or stopped.
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
