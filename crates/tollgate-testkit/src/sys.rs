//! The one thing here that needs `unsafe`: what happens between fork and exec.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Starts `command` in a process group of its own so that it is killed when the *thread* that calls this
/// ends. A change of user that the command asks for comes before, so that it does not undo that.
pub(crate) fn spawn_bound(command: &mut Command) -> io::Result<Child> {
    let parent = getpid();
    // SAFETY: only prctl and getppid run between fork and exec, both async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if getppid() != Some(parent) {
                // It died before the kernel could be asked to tell.
                return Err(rustix::io::Errno::SRCH.into());
            }
            Ok(())
        });
    }
    command.process_group(0).spawn()
}
