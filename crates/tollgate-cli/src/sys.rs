//! Everything here that needs `unsafe`: signals, descriptors, the environment and what happens between fork and exec.
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

/// Has a variable of the environment that says nothing be as one that is not set. Only for a process that has one
/// thread as yet.
pub(crate) fn forget_if_empty(variable: &str) {
    if std::env::var_os(variable).is_some_and(|value| value.is_empty()) {
        // SAFETY: there is no other thread that could read the environment meanwhile.
        unsafe { std::env::remove_var(variable) };
    }
}

/// Names this process for those who list processes; at most 15 bytes are kept. To be called from its first thread.
pub(crate) fn call_process(name: &CStr) {
    // SAFETY: the name ends with a zero byte and is only read; a failure changes nothing.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

static NO_STDOUT: AtomicBool = AtomicBool::new(false);

/// The C runtime calls this before Rust's, which opens /dev/null in the place of a stdout that is closed.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_STDOUT: extern "C" fn() = look_at_stdout;

extern "C" fn look_at_stdout() {
    // SAFETY: reading the flags of any number is harmless, and needs no runtime.
    let closed = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } < 0;
    NO_STDOUT.store(closed, Ordering::Relaxed);
}

/// Whether stdout was closed when this process started, so that what is written to it goes nowhere.
pub(crate) fn started_without_stdout() -> bool {
    NO_STDOUT.load(Ordering::Relaxed)
}

/// Takes over the socket that the parent left open at `descriptor`, and closes it for children.
pub(crate) fn adopt_socket(descriptor: RawFd) -> io::Result<UnixStream> {
    adopt(descriptor).map(UnixStream::from)
}

/// Takes over what the parent left open at `descriptor` for this process alone, and closes it for children.
pub(crate) fn adopt(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: reading the flags of any number is harmless; an unused one is an error.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the parent opened it for us alone, and nothing else in this process knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// All signals, blocked, with a descriptor that is readable when one came.
pub(crate) struct Signals {
    pub(crate) descriptor: OwnedFd,
    /// What was blocked before.
    before: libc::sigset_t,
    /// Whether SIGCHLD was ignored before.
    ignored_children: bool,
}

impl Signals {
    /// Takes all signals. Dispositions stay as they were, so that a command started later finds them as
    /// `tollgate run` did; but an ignored SIGCHLD would never come, so that one is restored for the command.
    pub(crate) fn take() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: both are valid places for a set; `all` is filled before it is read, and `before` is filled
        // by the call that succeeded.
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

    /// Reads whatever signals came.
    pub(crate) fn drain(&self) {
        let mut buffer = [0; 16 * size_of::<libc::signalfd_siginfo>()];
        while rustix::io::read(&self.descriptor, &mut buffer).is_ok_and(|read| read > 0) {}
    }
}

/// Starts `command` so that it inherits `kept` although they are closed for everybody else's children.
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

/// Starts `command` in a session of its own, with nothing open but `kept`: no terminal, pipe or lock of this
/// process stays in use because of it.
pub(crate) fn spawn_apart(command: &mut Command, kept: &[RawFd]) -> io::Result<Child> {
    let kept = kept.to_vec();
    // SAFETY: only setsid, close_range, getrlimit and fcntl are called between fork and exec, which change
    // nothing but this process and take no locks.
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

/// Marks everything but stdin, stdout and stderr to be closed by exec.
fn close_all_on_exec() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: three integers go in, and nothing is closed before exec; an old kernel answers with an error.
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

/// Starts `command` in a process group of its own, in the terminal's foreground if there is one, so that it
/// dies with this process. It gets the signals that this process has taken.
pub(crate) fn spawn_in_own_group(
    command: &mut Command,
    signals: &Signals,
    terminal: Option<&Terminal>,
) -> io::Result<Child> {
    let (parent, before) = (rustix::process::getpid(), signals.before);
    let ignores_children = signals.ignored_children;
    let terminal = terminal.map(Terminal::as_raw_fd);
    // SAFETY: only prctl, getppid, getpid, tcsetpgrp, signal and sigprocmask run between fork and exec, all
    // async-signal-safe; this process has one thread.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                // The parent died before it could be noticed.
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            if let Some(terminal) = terminal {
                to_foreground(terminal, libc::getpid());
            }
            // The mask is inherited; without this the command would never hear a signal.
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            if ignores_children {
                libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            }
            Ok(())
        });
    }
    command.process_group(0).spawn()
}

/// Makes `group` the terminal's foreground. A process in the background may do that only while SIGTTOU is
/// blocked.
pub(crate) fn to_foreground(terminal: RawFd, group: libc::pid_t) {
    // SAFETY: the sets are valid places, filled before use; tcsetpgrp of any descriptor is at worst an error.
    unsafe {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTTOU);
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr());
        libc::tcsetpgrp(terminal, group);
        libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
}

/// Ends this process and the rest of its job as Ctrl-C would have done, had the job been in the foreground.
pub(crate) fn interrupt_job() {
    // SAFETY: the default action of a signal touches nothing of ours.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let _ = rustix::process::kill_current_process_group(Signal::INT);
}
