//! What tests need of the system that is not safe.
#![allow(unsafe_code)]

/// Runs `work` in a child that was forked, and gives what it came to there.
pub fn in_a_fork(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `work`, which must not need another thread, and ends without unwinding or running
    // anybody's destructors.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            // SAFETY: always sound.
            unsafe { libc::_exit(i32::from(!verdict)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` is ours, and `child` is our child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}
