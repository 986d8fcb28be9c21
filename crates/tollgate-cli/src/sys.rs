//! The part of the command that needs `unsafe`: signals, descriptors, and what runs between fork
//! and exec.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

use crate::terminal::Terminal;

/// Sets the name of this process that tools like `ps` show; at most 15 bytes are kept. To be called
/// from the first thread.
pub(crate) fn call_process(name: &CStr) {
    // SAFETY: the name ends with a zero byte and is only read; a failure changes nothing.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

static NO_STDOUT: AtomicBool = AtomicBool::new(false);

/// The C runtime calls this before Rust's, which opens /dev/null in place of a closed stdout.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

extern "C" fn look_at_stdout() {
    // SAFETY: reading the flags of any number is harmless, and needs no runtime.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    NO_STDOUT.store(closed, Ordering::Relaxed);
}

/// Whether stdout was closed when this process started, so that everything written to it is lost.
pub(crate) fn started_without_stdout() -> bool {
    NO_STDOUT.load(Ordering::Relaxed)
}

/// Takes over the socket that the parent left open at `descriptor`, and closes it for children.
pub(crate) fn adopt_socket(descriptor: RawFd) -> io::Result<UnixStream> {
    adopt(descriptor).map(UnixStream::from)
}

/// Takes over what the parent left open at `descriptor` for this process alone, and closes it for
/// children.
pub(crate) fn adopt(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: reading the flags of any number is harmless; an unused one is an error.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the parent opened it for this process alone, and nothing else in this process uses
    // it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// All signals, blocked, with a descriptor that is readable when a signal came.
pub(crate) struct Signals {
    pub(crate) descriptor: OwnedFd,
    /// The signals that were blocked before.
    before: libc::sigset_t,
    /// Whether SIGCHLD was ignored before.
    ignored_children: bool,
}

impl Signals {
    /// Blocks all signals. Dispositions stay as they were, so that a command that is started later
    /// finds them as `tollgate run` did. Only SIGCHLD, which would never arrive while it is
    /// ignored, is set to its default here and restored for the command.
    pub(crate) fn take() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both are valid places for a set; `all` is filled before it is read, and `before`
        // is filled by the call that succeeded.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            if libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            let ignored_children = libc::signal(libc::SIGCHLD, libc::SIG_DFL) == libc::SIG_IGN;
            let descriptor = libc::signalfd(-1, all.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let descriptor = OwnedFd::from_raw_fd(descriptor);
            Ok(Self { descriptor, before: before.assume_init(), ignored_children })
        }
    }

    /// Discards the signals that came.
    pub(crate) fn drain(&self) {
        let mut buffer = [0; 16 * size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.descriptor, &mut buffer).is_ok_and(|read| read > 0) {}
    }
}

/// Starts `command` so that it inherits `kept`, which other children do not.
pub(crate) fn spawn_with(command: &mut Command, kept: &[RawFd]) -> io::Result<Child> {
    let kept = kept.to_vec();
    // SAFETY: only fcntl is called between fork and exec, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for descriptor in &kept {
                if libc::fcntl(*descriptor, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.process_group(0).spawn()
}

/// Starts `command` in a session of its own, with nothing open but `kept`: it keeps no terminal,
/// pipe or lock of this process in use.
pub(crate) fn spawn_apart(command: &mut Command, kept: &[RawFd]) -> io::Result<Child> {
    let kept = kept.to_vec();
    // SAFETY: only setsid, close_range, getrlimit and fcntl are called between fork and exec, which
    // change nothing but this process and take no locks.
    unsafe {
        command.pre_exec(move || {
            if libc::setsid() < 0 {
                return Err(io::Error::last_os_error());
            }
            close_all_on_exec();
            for descriptor in &kept {
                if libc::fcntl(*descriptor, libc::F_SETFD, 0) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Marks all descriptors but stdin, stdout and stderr to be closed by exec.
fn close_all_on_exec() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: three integers go in, and nothing is closed before exec; an old kernel answers with
    // an error.
    let marked =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if marked == 0 {
        return;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is valid; marking a number that is not open is at worst an error.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for descriptor in FIRST as RawFd..RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX) {
            libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Starts `command` in a process group of its own, in the terminal's foreground if there is one. It
/// is killed when this process dies, and it gets the signals that this process has blocked.
pub(crate) fn spawn_in_own_group(
    command: &mut Command,
    signals: &Signals,
    terminal: Option<&Terminal>,
) -> io::Result<Child> {
    let (parent, before) = (rustix::process::getpid(), signals.before);
    let ignores_children = signals.ignored_children;
    let terminal = terminal.map(Terminal::as_raw_fd);
    // SAFETY: only prctl, getppid, getpid, tcsetpgrp, signal and sigprocmask run between fork and
    // exec, all async-signal-safe; this process has one thread.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                // The parent died before its death signal was set.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(terminal) = terminal {
                to_foreground(terminal, libc::getpid());
            }
            // The mask is inherited; without this the command would never receive a signal.
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            if ignores_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            Ok(())
        });
    }
    command.process_group(0).spawn()
}

/// Makes `group` the terminal's foreground. A process in the background may do that only while
/// SIGTTOU is blocked.
pub(crate) fn to_foreground(terminal: RawFd, group: libc::pid_t) {
    // SAFETY: the sets are valid places, filled before use; tcsetpgrp of any descriptor is at worst
    // an error.
    unsafe {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        libc::tcsetpgrp(terminal, group);
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends this process and the rest of its job as Ctrl-C would have done, had the job been in the
/// foreground.
pub(crate) fn interrupt_job() {
    // SAFETY: setting the default action of a signal accesses no memory of this process.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let _ = rustix::process::kill_current_process_group(Signal::INT);
}
