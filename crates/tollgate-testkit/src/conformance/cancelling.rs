//! Cancel-safety: dropped after poll n, for every n until completion, nothing is held and nothing queued.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::prelude::*;

pub(super) const CASES: &[Case] = &[
    case!(a_free_lock_can_be_given_up_at_every_poll),
    case!(a_wait_can_be_given_up_at_every_poll),
    case!(a_try_can_be_given_up_at_every_poll),
    case!(a_release_can_be_given_up_at_every_poll),
    case!(a_dropped_wait_does_not_take_the_lock_with_it),
];

/// No operation here needs anywhere near as many polls.
const MOST_POLLS: usize = 200;

/// Long enough that nothing in these cases can end by expiry.
const LONG: Duration = Duration::from_secs(300);

/// Polls a future so many times and then gives it up.
struct GiveUpAfter<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for GiveUpAfter<F> {
    type Output = Option<F::Output>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Gives `future` up after `polls` polls; tells whether it had completed.
async fn completes_within<F: Future>(polls: usize, future: F) -> bool {
    let completed = soon("it is polled again", GiveUpAfter { future: Box::pin(future), polls }).await;
    completed.is_some()
}

async fn a_free_lock_can_be_given_up_at_every_poll(world: World) {
    let locks = world.locks().await;
    let name = world.name("free");
    for polls in 0..MOST_POLLS {
        let completed = completes_within(polls, locks.lock(&name).ttl(LONG).acquire()).await;
        world.until_idle(&name).await;
        if completed {
            return;
        }
    }
    panic!("an acquire of a free lock took more than {MOST_POLLS} polls");
}

async fn a_try_can_be_given_up_at_every_poll(world: World) {
    let locks = world.locks().await;
    let name = world.name("tried");
    for polls in 0..MOST_POLLS {
        let completed = completes_within(polls, locks.lock(&name).ttl(LONG).try_acquire()).await;
        world.until_idle(&name).await;
        if completed {
            return;
        }
    }
    panic!("a try took more than {MOST_POLLS} polls");
}

async fn a_wait_can_be_given_up_at_every_poll(world: World) {
    let (locks, other) = (world.locks().await, world.locks().await);
    let name = world.name("awaited");
    for polls in 0..MOST_POLLS {
        let holder = other.lock(&name).ttl(LONG).acquire().await.unwrap();
        let leaving = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            holder.release().await
        });
        let completed = completes_within(polls, locks.lock(&name).ttl(LONG).acquire()).await;
        assert_eq!(leaving.await.unwrap().unwrap(), Release::Released);
        world.until_idle(&name).await;
        if completed {
            return;
        }
    }
    panic!("a wait took more than {MOST_POLLS} polls");
}

async fn a_release_can_be_given_up_at_every_poll(world: World) {
    let locks = world.locks().await;
    let name = world.name("released");
    for polls in 0..MOST_POLLS {
        let guard = locks.lock(&name).ttl(LONG).acquire().await.unwrap();
        let completed = completes_within(polls, guard.release()).await;
        world.until_idle(&name).await;
        if completed {
            return;
        }
    }
    panic!("a release took more than {MOST_POLLS} polls");
}

async fn a_dropped_wait_does_not_take_the_lock_with_it(world: World) {
    let (locks, other) = (world.locks().await, world.locks().await);
    let name = world.name("race");
    for round in 0..20 {
        let holder = other.lock(&name).ttl(LONG).acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock(&name).ttl(LONG).acquire());
        world.until(&name, 1, 1).await;
        // The grant and the drop race.
        let released = tokio::spawn(holder.release());
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        waiting.abort();
        drop(waiting.await);
        released.await.unwrap().unwrap();
        world.until_idle(&name).await;
    }
}
