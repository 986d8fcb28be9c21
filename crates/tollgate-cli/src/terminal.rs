//! The terminal, and the process group in its foreground.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{FileType, fstat};
use rustix::process::Pid;

use crate::sys::to_foreground;

/// The controlling terminal, while the job of `home` is in its foreground.
#[derive(Debug)]
pub(crate) struct Terminal {
    descriptor: OwnedFd,
    home: i32,
}

impl Terminal {
    /// The terminal, if there is one and `home` is its foreground group: a job in the background
    /// stays there.
    ///
    /// `None` in a pipeline as well: the process at the other end of the pipe belongs to the same
    /// job, and would be stopped if it read from a terminal whose foreground had been taken away.
    pub(crate) fn if_in_foreground(home: i32) -> Option<Self> {
        if is_pipe(&std::io::stdin()) || is_pipe(&std::io::stdout()) {
            return None;
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let terminal = Self { descriptor: OwnedFd::from(file), home };
        terminal.is_at_home().then_some(terminal)
    }

    /// Puts `group` in the foreground, if the job it belongs to is in the foreground: after `bg` it
    /// is not.
    pub(crate) fn give_to(&self, group: Pid) {
        if self.is_at_home() {
            to_foreground(self.descriptor.as_raw_fd(), group.as_raw_pid());
        }
    }

    /// Puts the job of `home` back in the foreground.
    pub(crate) fn give_back(&self) {
        to_foreground(self.descriptor.as_raw_fd(), self.home);
    }

    /// The descriptor, for a child that takes the foreground itself.
    pub(crate) fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    fn is_at_home(&self) -> bool {
        let foreground = rustix::termios::tcgetpgrp(&self.descriptor);
        foreground.is_ok_and(|foreground| foreground.as_raw_pid() == self.home)
    }
}

/// Whether a signal that stops a process comes from the terminal, unlike SIGSTOP.
pub(crate) fn is_from_terminal(signal: i32) -> bool {
    [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal)
}

fn is_pipe(stream: &impl std::os::fd::AsFd) -> bool {
    let kind = fstat(stream).map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}
