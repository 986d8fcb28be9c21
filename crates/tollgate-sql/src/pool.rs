//! Connections of one client: some for each runtime that uses it, each lent to one statement at a time.
//!
//! A connection's readiness is told by the runtime that opened it, so that a blocked runtime would block all others that
//! used its connections. Callers use their own; renewals and everything in the background use the keeper's.
//!
//! - **Invariant:** a renewal stands behind renewals alone. Whatever else waits for a row that somebody sits on keeps its connection
//!   as long, and there may be a thousand of those; a lock must not be lost behind them.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tollgate_core::{Error, ErrorKind, Result};

/// How many connections more there may be for those who go first.
const RESERVED: usize = 1;

/// The connections of one client.
#[derive(Debug)]
pub struct Pool<C> {
    /// How many there may be for each runtime.
    most: usize,
    seats: Mutex<HashMap<Id, Arc<Seat<C>>>>,
}

/// Those of one runtime.
#[derive(Debug)]
struct Seat<C> {
    idle: Mutex<Vec<C>>,
    places: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
}

impl<C> Pool<C> {
    /// A pool of at most `most` connections for each runtime, and one more for those who go first.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), seats: Mutex::default() }
    }

    /// A connection of this runtime: one that `is_usable`, or a new one from `open`. Whoever comes first is served first.
    pub async fn lend(
        &self,
        is_usable: impl Fn(&mut C) -> bool,
        open: impl AsyncFnOnce() -> Result<C>,
    ) -> Result<Lent<C>> {
        let seat = self.seat(Handle::current().id(), &is_usable);
        let permit = seat.places.clone().acquire_owned().await.map_err(|_| closed())?;
        seat.lend(permit, is_usable, open).await
    }

    /// The same for a renewal: if all are lent, it waits for nobody but other renewals.
    pub async fn lend_first(
        &self,
        is_usable: impl Fn(&mut C) -> bool,
        open: impl AsyncFnOnce() -> Result<C>,
    ) -> Result<Lent<C>> {
        let seat = self.seat(Handle::current().id(), &is_usable);
        let permit = match seat.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => seat.reserved.clone().acquire_owned().await.map_err(|_| closed())?,
        };
        seat.lend(permit, is_usable, open).await
    }

    /// Closes those that nobody uses, and lends no more.
    pub fn close(&self) {
        for seat in self.seats().values() {
            seat.places.close();
            seat.reserved.close();
            seat.idle().clear();
        }
    }

    fn seat(&self, runtime: Id, is_usable: &impl Fn(&mut C) -> bool) -> Arc<Seat<C>> {
        let mut seats = self.seats();
        if let Some(seat) = seats.get(&runtime) {
            return seat.clone();
        }
        // Runtimes that are gone left connections that nobody can use any more.
        seats.retain(|_, seat| {
            let mut idle = seat.idle();
            idle.retain_mut(is_usable);
            !idle.is_empty() || seat.is_lent(self.most)
        });
        let (places, reserved) = (Semaphore::new(self.most), Semaphore::new(RESERVED));
        let seat =
            Arc::new(Seat { idle: Mutex::default(), places: Arc::new(places), reserved: Arc::new(reserved) });
        seats.insert(runtime, seat.clone());
        seat
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<Id, Arc<Seat<C>>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Seat<C> {
    async fn lend(
        self: Arc<Self>,
        permit: OwnedSemaphorePermit,
        is_usable: impl Fn(&mut C) -> bool,
        open: impl AsyncFnOnce() -> Result<C>,
    ) -> Result<Lent<C>> {
        loop {
            let Some(mut connection) = self.idle().pop() else { break };
            if is_usable(&mut connection) {
                return Ok(Place { seat: self, _permit: permit }.put(connection));
            }
        }
        let connection = open().await?;
        Ok(Place { seat: self, _permit: permit }.put(connection))
    }

    /// Whether somebody uses one of them.
    fn is_lent(&self, most: usize) -> bool {
        self.places.available_permits() < most || self.reserved.available_permits() < RESERVED
    }

    fn idle(&self) -> MutexGuard<'_, Vec<C>> {
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
        if !self.place.seat.places.is_closed() {
            self.place.seat.idle().push(self.connection);
        }
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
    _permit: OwnedSemaphorePermit,
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
}
