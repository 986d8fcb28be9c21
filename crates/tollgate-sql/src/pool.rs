//! Connections of one client: some for each runtime that uses it, each lent to one statement at a time.
//!
//! A connection's readiness is told by the runtime that opened it, so that a blocked runtime would block all others that
//! used its connections. Callers use their own; renewals and everything in the background use the keeper's.
//!
//! All runtimes together have about as many as were allowed: before another one is opened, one that is idle elsewhere is closed.
//! A runtime that has none opens one in any case, because others may be blocked and never give theirs back.
//! A renewal for which the server has no connection left borrows an idle one of another runtime, rather than lose its lock.
//!
//! - **Invariant:** a renewal stands behind renewals alone. Whatever else waits for a row that somebody sits on keeps its connection
//!   as long, and there may be a thousand of those; a lock must not be lost behind them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tollgate_core::{Error, ErrorKind, Result};

/// How many connections more there may be for those who go first.
const RESERVED: usize = 1;
/// A runtime that renewed so lately keeps a connection, though it is idle: the server may have none left for the next renewal.
const RENEWS_AGAIN: Duration = Duration::from_secs(600);

/// The connections of one client.
#[derive(Debug)]
pub struct Pool<C> {
    /// How many there may be.
    most: usize,
    /// How many there are, over all runtimes.
    open: Arc<AtomicUsize>,
    seats: Mutex<HashMap<Id, Arc<Seat<C>>>>,
}

/// Those of one runtime.
#[derive(Debug)]
struct Seat<C> {
    idle: Mutex<Vec<Idle<C>>>,
    /// How many there are, lent or idle.
    open: Arc<AtomicUsize>,
    /// One was given back or closed.
    changed: Arc<Notify>,
    /// When a renewal asked for one.
    renewed: Mutex<Option<Instant>>,
    places: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

/// An idle connection.
#[derive(Debug)]
struct Idle<C> {
    connection: C,
    slot: Slot,
    since: Instant,
}

/// A connection is counted as long as this lives.
#[derive(Debug)]
struct Slot {
    /// The counts of all runtimes and of its own.
    counts: [Arc<AtomicUsize>; 2],
    changed: Arc<Notify>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(1, Ordering::AcqRel);
        }
        self.changed.notify_one();
    }
}

impl<C> Pool<C> {
    /// A pool of at most `most` connections, one more for those who go first, and one for each runtime that would have none.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), open: Arc::default(), seats: Mutex::default() }
    }

    /// A connection of this runtime: one that `is_usable`, or a new one from `open`. The first that comes is served first.
    pub async fn lend(
        &self,
        is_usable: impl Fn(&mut C) -> bool,
        open: impl AsyncFnOnce() -> Result<C>,
    ) -> Result<Lent<C>> {
        let seat = self.seat(Handle::current().id(), &is_usable);
        let permit = seat.places.clone().acquire_owned().await.map_err(|_| closed())?;
        let slot = loop {
            if seat.places.is_closed() {
                return Err(closed());
            }
            match seat.usable(&is_usable) {
                Some((connection, slot)) => return Ok(seat.place(slot, permit).put(connection)),
                None => match self.slot(&seat) {
                    Some(slot) => break slot,
                    // Those of this runtime are lent, and there are no more: one of them comes back.
                    None => seat.changed.notified().await,
                },
            }
        };
        Ok(seat.place(slot, permit).put(open().await?))
    }

    /// The same for a renewal: if all are lent, it waits for nobody but other renewals. If none can be opened, as at a server
    /// that is full, it uses an idle one of another runtime.
    pub async fn lend_first(
        &self,
        is_usable: impl Fn(&mut C) -> bool,
        open: impl AsyncFnOnce() -> Result<C>,
    ) -> Result<Lent<C>> {
        let seat = self.seat(Handle::current().id(), &is_usable);
        *seat.renewed() = Some(Instant::now());
        if let Ok(permit) = seat.places.clone().try_acquire_owned() {
            if let Some((connection, slot)) = seat.usable(&is_usable) {
                return Ok(seat.place(slot, permit).put(connection));
            }
            if let Some(slot) = self.slot(&seat) {
                return match open().await {
                    Ok(connection) => Ok(seat.place(slot, permit).put(connection)),
                    Err(error) => self.idle_elsewhere(&seat, &is_usable, permit).ok_or(error),
                };
            }
        }
        let permit = seat.reserved.clone().acquire_owned().await.map_err(|_| closed())?;
        if let Some((connection, slot)) = seat.usable(&is_usable) {
            return Ok(seat.place(slot, permit).put(connection));
        }
        let slot = self.count(&seat);
        match open().await {
            Ok(connection) => Ok(seat.place(slot, permit).put(connection)),
            Err(error) => self.idle_elsewhere(&seat, &is_usable, permit).ok_or(error),
        }
    }

    /// An idle connection of another runtime than that of `seat`. If that runtime is blocked, it does not answer.
    fn idle_elsewhere(
        &self,
        seat: &Arc<Seat<C>>,
        is_usable: &impl Fn(&mut C) -> bool,
        permit: OwnedSemaphorePermit,
    ) -> Option<Lent<C>> {
        let seats: Vec<_> = self.seats().values().cloned().collect();
        let mut others = seats.iter().filter(|other| !Arc::ptr_eq(other, seat));
        let (other, (connection, slot)) = others.find_map(|other| Some((other, other.usable(is_usable)?)))?;
        Some(other.place(slot, permit).put(connection))
    }

    /// Closes connections that were idle for longer than `age`. A runtime that renews keeps one.
    pub fn close_idle(&self, age: Duration) {
        let seats: Vec<_> = self.seats().values().cloned().collect();
        for seat in seats {
            let mut idle = seat.idle();
            let renews = seat.renewed().is_some_and(|last| last.elapsed() < RENEWS_AGAIN);
            let last = renews.then(|| idle.pop()).flatten();
            let (old, kept): (Vec<_>, Vec<_>) =
                std::mem::take(&mut *idle).into_iter().partition(|idle| idle.since.elapsed() > age);
            *idle = kept;
            idle.extend(last);
            drop(idle);
            drop(old);
        }
    }

    /// Closes those that nobody uses, and lends no more.
    pub fn close(&self) {
        let seats: Vec<_> = self.seats().values().cloned().collect();
        for seat in seats {
            seat.places.close();
            seat.reserved.close();
            let idle = std::mem::take(&mut *seat.idle());
            drop(idle);
        }
    }

    /// Room for another connection of `seat`, at the cost of one that is idle elsewhere if there are enough.
    fn slot(&self, seat: &Seat<C>) -> Option<Slot> {
        // Held, so that each sees what the others counted.
        let seats = self.seats();
        let is_first = seat.open.load(Ordering::Acquire) == 0;
        let evicted = (!is_first && self.open.load(Ordering::Acquire) >= self.most).then(|| {
            let mut others = seats.values().filter(|other| !std::ptr::eq(&***other, seat));
            others.find_map(|other| {
                let mut idle = other.idle();
                // Its last is what it renews over, perhaps.
                let can_spare = !idle.is_empty() && other.open.load(Ordering::Acquire) > 1;
                can_spare.then(|| idle.remove(0))
            })
        });
        match evicted {
            Some(None) => None,
            Some(Some(_)) | None => Some(self.count(seat)),
        }
    }

    fn count(&self, seat: &Seat<C>) -> Slot {
        let counts = [self.open.clone(), seat.open.clone()];
        for count in &counts {
            count.fetch_add(1, Ordering::AcqRel);
        }
        Slot { counts, changed: seat.changed.clone() }
    }

    fn seat(&self, runtime: Id, is_usable: &impl Fn(&mut C) -> bool) -> Arc<Seat<C>> {
        let mut seats = self.seats();
        if let Some(seat) = seats.get(&runtime) {
            return seat.clone();
        }
        // Runtimes that are gone left connections that nobody can use any more.
        seats.retain(|_, seat| {
            let mut idle = seat.idle();
            idle.retain_mut(|idle| is_usable(&mut idle.connection));
            !idle.is_empty() || seat.is_lent(self.most)
        });
        let seat = Arc::new(Seat {
            idle: Mutex::default(),
            open: Arc::default(),
            changed: Arc::default(),
            renewed: Mutex::default(),
            places: Arc::new(Semaphore::new(self.most)),
            reserved: Arc::new(Semaphore::new(RESERVED)),
        });
        seats.insert(runtime, seat.clone());
        seat
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Id, Arc<Seat<C>>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Seat<C> {
    /// One that nobody uses and that can be used.
    fn usable(&self, is_usable: &impl Fn(&mut C) -> bool) -> Option<(C, Slot)> {
        loop {
            let Idle { mut connection, slot, .. } = self.idle().pop()?;
            if is_usable(&mut connection) {
                return Some((connection, slot));
            }
        }
    }

    fn place(self: &Arc<Self>, slot: Slot, permit: OwnedSemaphorePermit) -> Place<C> {
        Place { seat: self.clone(), slot, permit }
    }

    /// Whether somebody uses one of them.
    fn is_lent(&self, most: usize) -> bool {
        self.places.available_permits() < most || self.reserved.available_permits() < RESERVED
    }

    fn renewed(&self) -> MutexGuard<'_, Option<Instant>> {
        self.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle<C>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "this client was closed; connect again")
}

/// A connection that is lent. It is closed when this is dropped, unless it was given back.
#[derive(Debug)]
pub struct Lent<C> {
    connection: C,
    place: Place<C>,
}

impl<C> Lent<C> {
    /// It can be lent again: nothing is on its way.
    pub fn give_back(self) {
        let Self { connection, place: Place { seat, slot, permit } } = self;
        if !seat.places.is_closed() {
            seat.idle().push(Idle { connection, slot, since: Instant::now() });
            seat.changed.notify_one();
        }
        drop(permit);
    }

    /// Takes it out of the pool, which may open another one.
    pub fn take(self) -> C {
        self.connection
    }

    /// Takes it out for a while. The pool opens no other one as long as its place is kept.
    pub fn lift(self) -> (Place<C>, C) {
        (self.place, self.connection)
    }
}

impl<C> Deref for Lent<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.connection
    }
}

impl<C> DerefMut for Lent<C> {
    fn deref_mut(&mut self) -> &mut C {
        &mut self.connection
    }
}

/// The place of a connection that was lifted out of the pool. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place<C> {
    seat: Arc<Seat<C>>,
    slot: Slot,
    permit: OwnedSemaphorePermit,
}

impl<C> Place<C> {
    /// Puts the connection there.
    pub fn put(self, connection: C) -> Lent<C> {
        Lent { connection, place: self }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_lent_to_one_at_a_time() {
        let pool = Pool::new(1);
        let first = pool.lend(|_| true, async || Ok(1)).await.expect("it can be opened");
        let second = pool.lend(|_| true, async || Ok(2));
        tokio::pin!(second);
        tokio::select! {
            biased;
            _ = &mut second => panic!("there is one place"),
            () = tokio::task::yield_now() => {}
        }
        first.give_back();
        assert_eq!(*second.await.expect("it came back"), 1);
    }

    #[tokio::test]
    async fn a_renewal_waits_for_renewals_alone() {
        let pool = Pool::new(1);
        let _errand = pool.lend(|_| true, async || Ok(1)).await.expect("it can be opened");
        let mut more: Vec<_> = (0..3).map(|_| Box::pin(pool.lend(|_| true, async || Ok(2)))).collect();
        assert!(more.iter_mut().all(|errand| errand.now_or_never().is_none()), "there is one place");
        let renewal = pool.lend_first(|_| true, async || Ok(3)).await.expect("it goes first");
        let mut next = Box::pin(pool.lend_first(|_| true, async || Ok(4)));
        assert!((&mut next).now_or_never().is_none(), "there is one more place for all of them");
        renewal.give_back();
        assert_eq!(*next.await.expect("it came back"), 3);
    }

    #[tokio::test]
    async fn a_place_is_kept_with_a_connection_or_without_and_free_afterwards() {
        let pool = Pool::new(1);
        let (place, one) = pool.lend(|_| true, async || Ok(1)).await.expect("it can be opened").lift();
        let is_lent = || Box::pin(pool.lend(|_| true, async || Ok(2))).now_or_never().is_some();
        assert!(!is_lent(), "there is one place");
        let lent = place.put(one);
        assert!(!is_lent(), "there is one place");
        let (place, _one) = lent.lift();
        drop(place);
        assert!(is_lent(), "the connection is somebody's, and its place is free");
    }

    #[tokio::test]
    async fn what_was_not_given_back_is_not_lent_again() {
        let pool = Pool::new(1);
        drop(pool.lend(|_| true, async || Ok(1)).await.expect("it can be opened"));
        let second = pool.lend(|_| true, async || Ok(2)).await.expect("the place is free");
        assert_eq!(*second, 2);
        second.give_back();
        let third = pool.lend(|number| *number != 2, async || Ok(3)).await.expect("it can be opened");
        assert_eq!(*third, 3, "one that cannot be used is left");
        pool.close();
        third.give_back();
        assert!(pool.lend(|_| true, async || Ok(4)).await.is_err(), "it is closed");
    }

    #[test]
    fn runtimes_share_what_is_allowed_and_each_has_one() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (one, other) = (runtime(), runtime());
        let pool = Pool::new(2);
        let lend = async |number| pool.lend(|_| true, async || Ok(number)).await.expect("it can be opened");
        let (first, second) = one.block_on(async { (lend(1).await, lend(2).await) });
        let own = other.block_on(lend(3));
        assert_eq!(*own, 3, "a runtime that has none opens one, though there are enough");
        let more = || other.block_on(async { Box::pin(lend(4)).now_or_never() });
        assert!(more().is_none(), "there are enough, and it has one");
        drop((first, second));
        let fourth = more().expect("there is room again");
        fourth.give_back();
        own.give_back();
        let fifth = one.block_on(lend(5));
        assert_eq!((*fifth, pool.open.load(Ordering::Relaxed)), (5, 3), "it had none");
        let sixth = one.block_on(lend(6));
        assert_eq!(
            (*sixth, pool.open.load(Ordering::Relaxed)),
            (6, 3),
            "one that was idle elsewhere was closed"
        );
        let more = one.block_on(async { Box::pin(lend(7)).now_or_never() });
        assert!(more.is_none(), "the last one of another runtime is left to it");
    }

    #[test]
    fn a_renewal_that_can_open_no_connection_uses_an_idle_one_of_another_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (callers, keepers) = (runtime(), runtime());
        let pool = Pool::new(2);
        let full = async || Err(Error::new(ErrorKind::Unavailable, "the server is full"));
        assert!(keepers.block_on(pool.lend_first(|_| true, full)).is_err(), "there is none yet");
        callers.block_on(pool.lend(|_| true, async || Ok(1))).expect("it can be opened").give_back();
        let renewal = keepers.block_on(pool.lend_first(|_| true, full)).expect("one is idle");
        assert_eq!(*renewal, 1);
        renewal.give_back();
        let again = callers.block_on(pool.lend(|_| true, async || Ok(2))).expect("it is idle again");
        assert_eq!((*again, pool.open.load(Ordering::Relaxed)), (1, 1));
    }

    #[tokio::test]
    async fn a_runtime_that_renews_keeps_a_connection() {
        let pool = Pool::new(2);
        let first = pool.lend_first(|_| true, async || Ok(1)).await.expect("it can be opened");
        pool.lend(|_| true, async || Ok(2)).await.expect("it can be opened").give_back();
        first.give_back();
        pool.close_idle(Duration::ZERO);
        assert_eq!(pool.open.load(Ordering::Relaxed), 1, "the next renewal needs it");
    }

    #[tokio::test]
    async fn what_is_idle_is_closed_and_opened_again() {
        let pool = Pool::new(2);
        let lend = async |number| pool.lend(|_| true, async || Ok(number)).await.expect("it can be opened");
        let lent = lend(1).await;
        lend(2).await.give_back();
        pool.close_idle(Duration::from_secs(60));
        assert_eq!(pool.open.load(Ordering::Relaxed), 2, "it was used lately");
        pool.close_idle(Duration::ZERO);
        assert_eq!(pool.open.load(Ordering::Relaxed), 1, "what is lent stays");
        assert_eq!(*lend(3).await, 3);
        drop(lent);
    }
}
