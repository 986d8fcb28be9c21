//! The system calls that std does not have: open-file-description locks, directed signals, statfs, statx.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Lock bytes lie beyond 2^40, so offsets must have 64 bits.
const _: () = assert!(size_of::<libc::off_t>() == 8);

/// Bytes of a file that are locked together. They need not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// Zero reaches to the end of everything.
    pub(crate) len: u64,
}

impl Range {
    pub(crate) const ALL: Self = Self { start: 0, len: 0 };

    pub(crate) const fn byte(start: u64) -> Self {
        Self { start, len: 1 }
    }
}

/// How a byte is locked: holders write-lock, those who wait for them read-lock and let go at once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Read,
    Write,
}

fn flock(kind: libc::c_int, range: Range) -> io::Result<libc::flock> {
    let offset = |number: u64| {
        libc::off_t::try_from(number).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
    };
    // SAFETY: `flock` is plain integers, for which zero is a value; open-file-description locks demand
    // that `l_pid` is zero.
    let mut lock: libc::flock = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = offset(range.start)?;
    lock.l_len = offset(range.len)?;
    Ok(lock)
}

fn fcntl(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the kernel reads and writes
    // one `flock` behind a pointer that is valid for both.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, ptr::from_mut(lock)) })
}

fn check(answer: libc::c_int) -> io::Result<()> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn lock_type(kind: Kind) -> libc::c_int {
    match kind {
        Kind::Read => libc::F_RDLCK,
        Kind::Write => libc::F_WRLCK,
    }
}

/// Locks `range` if nobody is in the way; says whether it did.
pub(crate) fn try_lock(file: &File, kind: Kind, range: Range) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, &mut flock(lock_type(kind), range)?) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits for `range` and locks it. [`io::ErrorKind::Interrupted`] when a signal came first.
pub(crate) fn lock_wait(file: &File, kind: Kind, range: Range) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLKW, &mut flock(lock_type(kind), range)?)
}

/// Unlocks `range`, whoever else has the same open description.
pub(crate) fn unlock(file: &File, range: Range) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, &mut flock(libc::F_UNLCK, range)?)
}

/// Whether another open description write-locks some byte of `range`.
///
/// Asking for a read lock overlooks those who only wait: they read-lock for an instant.
pub(crate) fn is_locked(file: &File, range: Range) -> io::Result<bool> {
    let mut lock = flock(libc::F_RDLCK, range)?;
    fcntl(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
}

/// Write-locks `range`, waiting at most `limit`; says whether it did.
pub(crate) fn lock_within(file: &File, range: Range, limit: Duration) -> io::Result<bool> {
    if try_lock(file, Kind::Write, range)? {
        return Ok(true);
    }
    let deadline = Instant::now() + limit;
    // Without a timer (a limit on pending signals is reached) there is still asking again and again.
    let alarm = Alarm::start(limit).ok();
    loop {
        if alarm.is_none() {
            std::thread::sleep(Duration::from_millis(1));
            if try_lock(file, Kind::Write, range)? {
                return Ok(true);
            }
        } else {
            match lock_wait(file, Kind::Write, range) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if Instant::now() >= deadline {
            return try_lock(file, Kind::Write, range);
        }
    }
}

/// Signals the thread that made it when time is up, and again until dropped: the first signal may come
/// just before the system call that it is to interrupt.
struct Alarm(libc::timer_t);

impl Alarm {
    fn start(after: Duration) -> io::Result<Self> {
        const AGAIN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let signal = wake_signal()?;
        mask(libc::SIG_UNBLOCK, &[signal])?;
        // SAFETY: `sigevent` is integers and a union of a pointer and an integer; zero is a value of all.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // SAFETY: gettid has no arguments and cannot fail.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = MaybeUninit::uninit();
        // SAFETY: both pointers are valid for the call; `timer` is written when it succeeds.
        check(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, timer.as_mut_ptr()) })?;
        // SAFETY: timer_create succeeded, so it wrote the timer's id.
        let alarm = Self(unsafe { timer.assume_init() });
        let first = libc::timespec {
            tv_sec: after.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: after.subsec_nanos().max(1).into(),
        };
        let when = libc::itimerspec { it_interval: AGAIN, it_value: first };
        // SAFETY: the timer was just made, `when` is valid for the call, and no old value is asked for.
        check(unsafe { libc::timer_settime(alarm.0, 0, &when, ptr::null_mut()) })?;
        Ok(alarm)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer is ours and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

extern "C" fn do_nothing(_: libc::c_int) {}

/// The signal that interrupts a thread waiting for a lock, with a handler that does nothing.
///
/// A real-time signal nobody had taken when the first lock was waited for. The handler is installed
/// without `SA_RESTART`, or the interrupted call would simply go on.
fn wake_signal() -> io::Result<libc::c_int> {
    static SIGNAL: OnceLock<Option<libc::c_int>> = OnceLock::new();
    SIGNAL
        .get_or_init(|| (libc::SIGRTMIN()..=libc::SIGRTMAX()).rev().find(|signal| install(*signal)))
        .ok_or_else(|| io::Error::other("all real-time signals are in use by this program"))
}

fn install(signal: libc::c_int) -> bool {
    // SAFETY: `sigaction` is integers, a pointer-sized handler and a set of bits; zero is a value of all
    // and means the default action.
    let mut old: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: asking only; `old` is valid for writing.
    if unsafe { libc::sigaction(signal, ptr::null(), &mut old) } == -1 || old.sa_sigaction != libc::SIG_DFL {
        return false;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    new.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler touches nothing, so it may run at any point of any thread.
    unsafe { libc::sigaction(signal, &new, ptr::null_mut()) != -1 }
}

fn mask(how: libc::c_int, signals: &[libc::c_int]) -> io::Result<()> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset and pthread_sigmask then read.
    let answer = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), ptr::null_mut())
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

/// A thread that [`wake`](Self::wake) can interrupt. Only to be used while that thread lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interruptible(libc::pthread_t);

impl Interruptible {
    /// Makes the calling thread interruptible, and leaves the program's other signals to its other threads.
    pub(crate) fn this_thread() -> io::Result<Self> {
        let ours = wake_signal()?;
        let others: Vec<_> = (1..=libc::SIGRTMAX()).filter(|signal| *signal != ours).collect();
        mask(libc::SIG_SETMASK, &others)?;
        // SAFETY: pthread_self has no arguments and cannot fail.
        Ok(Self(unsafe { libc::pthread_self() }))
    }

    /// Interrupts the system call the thread is in. To be repeated until the thread has noticed: the
    /// signal may come just before the call.
    pub(crate) fn wake(self) {
        if let Ok(signal) = wake_signal() {
            // SAFETY: the caller holds the lock under which the thread says that it is about to end, so
            // it has not ended; the signal's handler does nothing.
            unsafe { libc::pthread_kill(self.0, signal) };
        }
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// The magic number of the file system `path` is on.
pub(crate) fn file_system(path: &Path) -> io::Result<u32> {
    let path = c_path(path)?;
    let mut answer = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the path ends with a zero byte and `answer` is valid for writing.
    check(unsafe { libc::statfs(path.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: zeroed, and filled in by the call; plain integers.
    let kind = unsafe { answer.assume_init() }.f_type;
    // The numbers have 32 bits; the field is wider, and signed on some machines.
    Ok((kind as u64 & 0xffff_ffff) as u32)
}

/// What there is room for on a file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) read_only: bool,
    pub(crate) bytes: u64,
    /// What is free for those who are not root.
    pub(crate) free_bytes: u64,
    /// How many files it can have; zero if it does not count them.
    pub(crate) files: u64,
    pub(crate) free_files: u64,
}

/// The room on the file system `path` is on.
pub(crate) fn room(path: &Path) -> io::Result<Room> {
    let path = c_path(path)?;
    let mut answer = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: the path ends with a zero byte and `answer` is valid for writing.
    check(unsafe { libc::statvfs(path.as_ptr(), answer.as_mut_ptr()) })?;
    // SAFETY: zeroed, and filled in by the call; plain integers.
    let answer = unsafe { answer.assume_init() };
    Ok(Room {
        read_only: answer.f_flag & libc::ST_RDONLY != 0,
        bytes: answer.f_blocks.saturating_mul(answer.f_frsize),
        free_bytes: answer.f_bavail.saturating_mul(answer.f_frsize),
        files: answer.f_files,
        free_files: answer.f_ffree,
    })
}

/// Whether this process may make and remove files in the folder `path`.
pub(crate) fn check_writable(path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path ends with a zero byte.
    check(unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) })
}

/// Which file it is: two names or descriptors with equal identities are the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: (u32, u32),
    inode: u64,
}

/// What is open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Status {
    pub(crate) identity: Identity,
    pub(crate) size: u64,
    pub(crate) owner: u32,
    /// Permissions, without the type.
    pub(crate) mode: u32,
    pub(crate) is_file: bool,
    /// How many names it has.
    pub(crate) names: u32,
}

/// What `file` is.
pub(crate) fn identify(file: impl AsFd) -> io::Result<Status> {
    statx(file.as_fd().as_raw_fd(), c"", libc::AT_EMPTY_PATH)
}

/// The identity of what is at `path` now, without following a link there.
pub(crate) fn identity_at(path: &Path) -> io::Result<Option<Identity>> {
    look_up(path, libc::AT_SYMLINK_NOFOLLOW)
}

/// The identity of what `path` leads to now, through a link, too.
pub(crate) fn identity_of_target(path: &Path) -> io::Result<Option<Identity>> {
    look_up(path, 0)
}

fn look_up(path: &Path, flags: libc::c_int) -> io::Result<Option<Identity>> {
    match statx(libc::AT_FDCWD, &c_path(path)?, flags) {
        Ok(status) => Ok(Some(status.identity)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Not `stat`: asking for a file's times makes the kernel update them at the next write, which costs
/// more than the write.
fn statx(folder: RawFd, path: &std::ffi::CStr, flags: libc::c_int) -> io::Result<Status> {
    let mut answer = MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_INO
        | libc::STATX_SIZE
        | libc::STATX_TYPE
        | libc::STATX_MODE
        | libc::STATX_NLINK
        | libc::STATX_UID;
    // SAFETY: the path ends with a zero byte and `answer` is valid for writing.
    check(unsafe { libc::statx(folder, path.as_ptr(), flags, wanted, answer.as_mut_ptr()) })?;
    // SAFETY: zeroed, and filled in by the call; plain integers.
    let answer = unsafe { answer.assume_init() };
    let device = (answer.stx_dev_major, answer.stx_dev_minor);
    let mode = u32::from(answer.stx_mode);
    Ok(Status {
        identity: Identity { device, inode: answer.stx_ino },
        size: answer.stx_size,
        owner: answer.stx_uid,
        mode: mode & 0o7777,
        is_file: mode & libc::S_IFMT == libc::S_IFREG,
        names: answer.stx_nlink,
    })
}
