//! How much memory a held lock takes. Alone in its binary: it counts every allocation of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tollgate_engine::{Claim, Command, Engine, Stats};
use tollgate_types::{LockName, Mode, Moment, OnDeadlock, OwnerId};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_held_lock_takes_at_most_300_bytes() {
    // Just past a power of two, where containers that double have just done so, and in between.
    for held in [132_000, 200_000, 262_144, 300_000] {
        let region = Region::new(ALLOCATOR);
        let mut engine: Engine<Option<Arc<str>>> = Engine::new();
        for n in 0..held {
            let claim = Claim {
                name: LockName::new(format!("{n:032}")).unwrap(),
                mode: Mode::Exclusive,
                owner: OwnerId::from_bits(n as u128),
                ttl: Duration::from_secs(30),
                wait_lease: None,
                lock_delay: Duration::ZERO,
                party: None,
                on_deadlock: OnDeadlock::Timeout,
                details: None,
            };
            engine.apply(Command::Acquire { claim, wait: false }, Moment::from_nanos(n as u64));
        }
        let change = region.change();
        let bytes = (change.bytes_allocated - change.bytes_deallocated) / held;
        assert_eq!(engine.stats(), Stats { locks: held, holders: held, alarms: held, ..Stats::default() });
        println!("{held} held: {bytes} bytes per lock");
        assert!(bytes <= 300, "{bytes} bytes per held lock, with {held} of them");
    }
}
