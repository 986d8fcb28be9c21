//! Where it was measured, and on which cores.

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use crate::contender::Failure;

/// The machine as this process sees it.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The cores it may run on.
    pub cores: Vec<usize>,
    /// Whether somebody chose them.
    pub pinned: bool,
}

impl Machine {
    /// As it is.
    pub fn here() -> Result<Self, Failure> {
        Ok(Self { cores: cores()?, pinned: false })
    }

    /// Keeps this process, and every thread it starts from now on, on `cores`.
    pub fn pinned_to(cores: &[usize]) -> Result<Self, Failure> {
        let allowed = self::cores()?;
        let mut set = CpuSet::new();
        for core in cores {
            if !allowed.contains(core) {
                return Err(format!("core {core} is not there; this process may use {allowed:?}").into());
            }
            set.set(*core);
        }
        sched_setaffinity(None, &set)?;
        Ok(Self { cores: cores.to_vec(), pinned: true })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.pinned { "pinned to cores" } else { "not pinned, cores" };
        write!(f, "{how} {:?}", self.cores)
    }
}

fn cores() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// The processor time this process has used, in seconds: its own and the kernel's for it.
pub(crate) fn cpu_seconds() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// How many files this process may have open, after asking for as many as it can get.
pub(crate) fn room_for_files() -> Result<usize, Failure> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)?;
    Ok(limit.current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX)))
}

/// The memory this process has, in bytes.
pub(crate) fn resident_bytes() -> Result<u64, Failure> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split(' ').nth(1).ok_or("/proc/self/statm has no second number")?;
    Ok(resident.parse::<u64>()? * rustix::param::page_size() as u64)
}
