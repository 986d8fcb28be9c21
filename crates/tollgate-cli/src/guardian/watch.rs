//! The guardian's life: start the command, watch orders, children and the clock, and leave nobody behind.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group};
use tollgate::Moment;

use super::channel::{ENV, News, Order, Orders, tell};
use super::descendants;
use super::sentence::{Due, Sentence};
use crate::clock::now;
use crate::exit::Exit;
use crate::sys;

/// Runs as the guardian, if `run` started this process as one.
pub(crate) fn run_if_asked() -> Option<Exit> {
    let descriptor = std::env::var(ENV).ok()?.parse().ok()?;
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
    let terminal = sys::Terminal::if_in_foreground(home);
    let command: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut guardian = Guardian::new(socket, me, Sentence::new(terms, deadline), terminal);
    guardian.start(&command, &signals);
    while !guardian.is_done() {
        let timeout = guardian.until_next();
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(&signals.descriptor, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (told, signalled) = (!ready[0].revents().is_empty(), !ready[1].revents().is_empty());
        if signalled {
            signals.drain();
        }
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
    guardian.finish();
    Ok(())
}

struct Guardian<'a> {
    socket: &'a UnixStream,
    me: Pid,
    command: Option<Pid>,
    sentence: Sentence,
    terminal: Option<sys::Terminal>,
    /// `run` is gone: nothing may live on.
    orphaned: bool,
    /// Nobody is left.
    alone: bool,
}

impl<'a> Guardian<'a> {
    fn new(socket: &'a UnixStream, me: Pid, sentence: Sentence, terminal: Option<sys::Terminal>) -> Self {
        Self { socket, me, command: None, sentence, terminal, orphaned: false, alone: false }
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

    fn is_done(&self) -> bool {
        self.alone
    }

    /// How long there is nothing to do unless something happens.
    fn until_next(&self) -> Option<rustix::event::Timespec> {
        let wait = if self.orphaned {
            // Killing is repeated until nobody is left: who was being born when we looked was missed.
            Duration::from_millis(5)
        } else {
            match self.sentence.next() {
                Moment::MAX => return None,
                next => next.since(now()).max(Duration::from_millis(5)),
            }
        };
        wait.try_into().ok()
    }

    fn obey(&mut self, order: Option<Order>) {
        match order {
            None => self.orphaned = true,
            Some(Order::Deadline(deadline)) => self.sentence.set_deadline(deadline),
            Some(Order::Lost) => self.sentence.lock_lost(now()),
            Some(Order::Signal(number)) => {
                if number == libc::SIGTERM {
                    self.sentence.term_passed_on(now());
                }
                self.pass_on(number);
            }
            Some(Order::Resume) => {
                if let (Some(terminal), Some(command)) = (&self.terminal, self.command) {
                    terminal.give_to(command);
                }
                self.pass_on(libc::SIGCONT);
            }
            Some(Order::Start { .. }) => {}
        }
    }

    fn pass_on(&self, number: i32) {
        if let (Some(command), Some(signal)) = (self.command, Signal::from_named_raw(number)) {
            // The group may be gone by now.
            let _ = kill_process_group(command, signal);
        }
    }

    /// Does what is due.
    fn carry_out(&mut self) {
        if self.orphaned {
            return descendants::signal_all(self.me, Signal::KILL);
        }
        match self.sentence.due(now()) {
            Due::Nothing => {}
            Due::Ask(why) => {
                tell(self.socket, &News::Ending(why));
                descendants::signal_all(self.me, Signal::TERM);
                // One that is stopped must go on to hear of it.
                descendants::signal_all(self.me, Signal::CONT);
            }
            Due::Kill(why) => {
                tell(self.socket, &News::Ending(why));
                descendants::signal_all(self.me, Signal::KILL);
            }
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
        if let Some(terminal) = &self.terminal {
            terminal.give_back();
        }
        tell(self.socket, &news);
        if !matches!(news, News::Stopped(_)) {
            self.command = None;
        }
    }

    fn finish(&self) {
        tell(self.socket, &News::Gone);
    }
}
