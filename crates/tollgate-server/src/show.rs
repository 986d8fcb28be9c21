//! How locks, modes and times are shown, whatever serves them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::Mode;
use tollgate_core::capabilities::{Capabilities, Queue};
use tollgate_core::guarantees::{Basis, Guarantees};
use tollgate_proto as proto;
use tollgate_proto::{Lock, ModeKind, Problem};

pub(crate) fn kind(mode: Mode) -> ModeKind {
    match mode {
        Mode::Exclusive => ModeKind::Exclusive,
        Mode::Shared => ModeKind::Shared,
        Mode::Permit { .. } => ModeKind::Permit,
    }
}

pub(crate) fn limit(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { limit } => Some(limit.into()),
        _ => None,
    }
}

/// A text that is known.
pub(crate) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// A process id that is known.
pub(crate) fn number(number: u32) -> Option<u32> {
    (number != 0).then_some(number)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The wall clock, for display.
pub(crate) fn unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Adds the lock's holders and the number of its waiters to a problem.
pub(crate) fn describe(problem: &mut Problem, lock: Lock) {
    problem.name = Some(lock.name);
    problem.waiting = Some(lock.waiters.len() as u64);
    problem.holders = Some(lock.holders);
}

pub(crate) fn guarantees(guarantees: &Guarantees) -> Vec<proto::Guarantee> {
    let basis = |basis| match basis {
        Basis::Kept => proto::Basis::Kept,
        Basis::Time => proto::Basis::Time,
        Basis::Broken => proto::Basis::Broken,
        Basis::Absent => proto::Basis::Absent,
    };
    let row = |row: &tollgate_core::guarantees::Row| proto::Guarantee {
        fault: row.fault.word().to_owned(),
        exclusion: basis(row.exclusion).into(),
        tokens: basis(row.tokens).into(),
    };
    guarantees.rows().iter().map(row).collect()
}

/// What an engine can do through a server.
pub(crate) fn capabilities(of: &Capabilities) -> proto::Capabilities {
    let modes = [
        (ModeKind::Exclusive, true),
        (ModeKind::Shared, of.modes.shared),
        (ModeKind::Permit, of.modes.permit),
    ];
    let queue = if of.queue == Queue::Fifo { proto::Queue::Fifo } else { proto::Queue::Polling };
    proto::Capabilities {
        modes: modes.into_iter().filter(|(_, has)| *has).map(|(mode, _)| mode.into()).collect(),
        queue: queue.into(),
        queue_survives_restart: false,
        queue_moves: false,
        ttl_min_ms: millis(of.ttl.min),
        ttl_max_ms: millis(of.ttl.max),
        ttl_step_ms: millis(of.ttl.step).max(1),
        lock_delay: of.lock_delay,
        detect: false,
        force: of.revoke == tollgate_core::capabilities::Revoke::AskOrForce,
        name_bytes: of.longest_name as u64,
    }
}
