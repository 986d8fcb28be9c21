//! How much of it: small numbers in CI, large ones in a soak.

/// Set, with any value, by `cargo xtask soak`.
const SOAK: &str = "TOLLGATE_SOAK";

/// Whether this is a soak.
pub fn is_soak() -> bool {
    std::env::var_os(SOAK).is_some()
}

/// `ci` or `soak`, whichever this is.
pub fn scale(ci: usize, soak: usize) -> usize {
    if is_soak() { soak } else { ci }
}

/// Lets this process open as many files as it may: thousands of waiters on `file:` have one each.
pub fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer the backend says so, and the case fails with that.
    let _ = setrlimit(Resource::Nofile, limit);
}
