//! Events for engines that do not report them: what changed between two listings.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tollgate_types::{LockName, Moment, Token};

use crate::backend::{Backend, BoxStream};
use crate::claim::Details;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::state::{Event, Happening, Holder, LockState};

/// The holders of every lock that was seen, by their tokens.
type Seen = BTreeMap<LockName, BTreeMap<Token, Known>>;

/// What was seen of a grant.
#[derive(Debug, Clone)]
struct Known {
    details: Details,
    /// When it ends unless it is renewed; the end of time where nothing expires.
    expires: Moment,
}

/// How often a busy engine is listed: holders that stay for longer are not skipped.
const BUSY_INTERVAL: Duration = Duration::from_millis(20);
/// For how long after a change an engine counts as busy.
const BUSY_FOR: Duration = Duration::from_secs(2);
/// A listing is followed by a pause of at least this many times the time that it took, so that watching a large engine
/// costs it little.
const PAUSE_PER_LISTING: u32 = 5;

/// Lists the locks under `prefix` again and again and yields what changed: every `interval` while nothing changes, every
/// 20 ms in the two seconds after a change, less often where a listing takes long.
///
/// A grant that begins and ends between two listings is skipped. A grant that is gone after the end that the last listing
/// saw has expired; of any other end a listing does not show whether it was a release. Events of one name come in the order
/// of their tokens, ends before grants. A lock that cannot be read is an error, yielded once until it can be read again,
/// and hides no other.
pub fn poll<'a>(
    backend: &'a dyn Backend,
    clock: Arc<dyn Clock>,
    prefix: &str,
    interval: Duration,
) -> BoxStream<'a, Result<Event>> {
    let prefix = prefix.to_owned();
    poll_with(move || backend.list(&prefix), clock, interval)
}

/// [`poll`] with listings that `list` begins, for a backend whose own `list` waits for what is written down late.
pub fn poll_with<'a>(
    list: impl Fn() -> BoxStream<'a, Result<LockState>> + Send + Sync + 'a,
    clock: Arc<dyn Clock>,
    interval: Duration,
) -> BoxStream<'a, Result<Event>> {
    let start = Poller {
        list: Box::new(list),
        clock,
        interval,
        last: None,
        next_at: Moment::ZERO,
        busy_until: Moment::ZERO,
        due: VecDeque::new(),
    };
    Box::pin(stream::unfold(start, |mut poller| async move {
        let event = poller.next().await;
        Some((event, poller))
    }))
}

/// Compares listings.
struct Poller<'a> {
    list: Box<dyn Fn() -> BoxStream<'a, Result<LockState>> + Send + Sync + 'a>,
    clock: Arc<dyn Clock>,
    interval: Duration,
    last: Option<Look>,
    /// When the next listing begins.
    next_at: Moment,
    /// Until when the next change is expected soon.
    busy_until: Moment,
    due: VecDeque<Result<Event>>,
}

impl Poller<'_> {
    async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.due.pop_front() {
                return event;
            }
            if self.clock.now() < self.next_at {
                self.clock.sleep_until(self.next_at).await;
            }
            let began = self.clock.now();
            let looked = look((self.list)(), &*self.clock).await;
            let now = self.clock.now();
            let result = looked.map(|(look, errors)| self.compare(look, errors, now));
            let interval = if now < self.busy_until { BUSY_INTERVAL } else { self.interval };
            self.next_at = now + interval.max(now.since(began) * PAUSE_PER_LISTING);
            result?;
        }
    }

    /// Puts what changed since the last listing into `due`.
    fn compare(&mut self, look: Look, errors: Vec<(LockName, Error)>, now: Moment) {
        let before = self.last.take();
        let look = look.after(before.as_ref());
        self.due.extend(errors.into_iter().filter_map(|(name, error)| {
            let told = before.as_ref().is_some_and(|before| before.unreadable.contains(&name));
            (!told).then_some(Err(error))
        }));
        if let Some(before) = &before {
            // After a long pause it is not known whether a lease that the last listing saw expired or was renewed.
            let is_recent = now.since(before.at) < self.interval * 4 + SLACK;
            let at = if is_recent { now } else { Moment::ZERO };
            let changes = changes(&before.seen, &look.seen, at);
            if !changes.is_empty() {
                self.busy_until = now + BUSY_FOR;
            }
            self.due.extend(changes.into_iter().map(Ok));
        }
        self.last = Some(look);
    }
}

/// How much longer than its interval a listing may take and still show when a grant ended.
const SLACK: Duration = Duration::from_millis(500);

/// What one listing showed.
struct Look {
    /// When it began.
    at: Moment,
    seen: Seen,
    unreadable: BTreeSet<LockName>,
}

impl Look {
    /// Keeps what `before` showed of locks that cannot be read now.
    fn after(mut self, before: Option<&Self>) -> Self {
        for name in &self.unreadable {
            if let Some(tokens) = before.and_then(|before| before.seen.get(name)) {
                self.seen.insert(name.clone(), tokens.clone());
            }
        }
        self
    }
}

/// Lists once. An error about one lock comes with its name; any other ends the listing.
async fn look(
    mut locks: BoxStream<'_, Result<LockState>>,
    clock: &dyn Clock,
) -> Result<(Look, Vec<(LockName, Error)>)> {
    let mut look = Look { at: clock.now(), seen: Seen::new(), unreadable: BTreeSet::new() };
    let mut errors = Vec::new();
    while let Some(lock) = locks.next().await {
        match lock {
            Ok(lock) => {
                let now = clock.now();
                let known = |holder: Holder| {
                    let expires = holder.expires_in.map_or(Moment::MAX, |left| now + left);
                    Some((holder.token?, Known { details: holder.details, expires }))
                };
                look.seen.insert(lock.name, lock.holders.into_iter().filter_map(known).collect());
            }
            Err(error) => match error.lock().cloned() {
                // What passes by itself says nothing of the lock.
                Some(name) if !error.is_retryable() => {
                    look.unreadable.insert(name.clone());
                    errors.push((name, error));
                }
                _ => return Err(error),
            },
        }
    }
    Ok((look, errors))
}

fn changes(before: &Seen, now: &Seen, at: Moment) -> VecDeque<Event> {
    let free = BTreeMap::new();
    let names: BTreeSet<&LockName> = before.keys().chain(now.keys()).collect();
    let mut events = VecDeque::new();
    for name in names {
        let (old, new) = (before.get(name).unwrap_or(&free), now.get(name).unwrap_or(&free));
        for (token, known) in old.iter().filter(|(token, _)| !new.contains_key(token)) {
            let what = if at >= known.expires { Happening::Expired } else { Happening::Ended };
            events.push_back(Event::now(name.clone(), *token, what).of(known.details.clone()));
        }
        for (token, known) in new.iter().filter(|(token, _)| !old.contains_key(token)) {
            events.push_back(Event::now(name.clone(), *token, Happening::Granted).of(known.details.clone()));
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(tokens: &[u64], expires: Moment) -> Seen {
        let known = |n: &u64| {
            let details = Details { pid: 17, ..Details::default() };
            (Token::new(*n).unwrap(), Known { details, expires })
        };
        Seen::from([(LockName::new("a").unwrap(), tokens.iter().map(known).collect())])
    }

    #[test]
    fn an_end_comes_before_the_next_grant_and_both_name_the_holder() {
        let (now, later) = (Moment::from_nanos(5), Moment::from_nanos(9));
        let told: Vec<_> = changes(&seen(&[1, 2], later), &seen(&[2, 3], later), now)
            .into_iter()
            .map(|event| (event.what, event.token.get(), event.holder.unwrap().pid))
            .collect();
        assert_eq!(told, [(Happening::Ended, 1, 17), (Happening::Granted, 3, 17)]);
        assert_eq!(changes(&seen(&[1], later), &Seen::new(), now).len(), 1);
    }

    #[test]
    fn a_grant_that_is_gone_after_its_end_has_expired() {
        let end = Moment::from_nanos(5);
        assert_eq!(changes(&seen(&[1], end), &Seen::new(), end)[0].what, Happening::Expired);
    }

    #[test]
    fn a_lock_that_cannot_be_read_has_not_ended() {
        let name = LockName::new("a").unwrap();
        let look = |seen, unreadable| Look { at: Moment::ZERO, seen, unreadable };
        let before = look(seen(&[1], Moment::MAX), BTreeSet::new());
        let now = look(Seen::new(), BTreeSet::from([name])).after(Some(&before));
        assert!(changes(&before.seen, &now.seen, Moment::ZERO).is_empty());
        assert_eq!(
            changes(
                &before.seen,
                &look(Seen::new(), BTreeSet::new()).after(Some(&before)).seen,
                Moment::ZERO
            )
            .len(),
            1
        );
    }

    /// A clock that jumps to whatever is waited for.
    #[derive(Debug, Default)]
    struct Jumping(std::sync::Mutex<Moment>);

    impl Clock for Jumping {
        fn now(&self) -> Moment {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, when: Moment) -> crate::clock::BoxFuture<'static, ()> {
            *self.0.lock().unwrap() = when;
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn a_busy_engine_is_listed_more_often_than_one_where_nothing_happens() {
        const CHANGED: usize = 10;
        let clock = Arc::new(Jumping::default());
        let listed = Arc::new(std::sync::Mutex::new(Vec::new()));
        let list = {
            let (clock, listed) = (clock.clone(), listed.clone());
            move || -> BoxStream<'static, Result<LockState>> {
                let mut listed = listed.lock().unwrap();
                listed.push(clock.now());
                // The first holder comes with the tenth listing, and another with each of the next 150.
                let number = listed.len() as u64;
                let holder = |token| Holder {
                    mode: tollgate_types::Mode::Exclusive,
                    token: Token::new(token).ok(),
                    expires_in: None,
                    details: Details::default(),
                };
                let token = (number >= CHANGED as u64).then_some(number.min(CHANGED as u64 + 150));
                let holders = token.into_iter().map(holder).collect();
                let name = LockName::new("a").unwrap();
                Box::pin(stream::iter([Ok(LockState { name, holders, waiters: Vec::new() })]))
            }
        };
        let interval = Duration::from_millis(250);
        let mut events = poll_with(list, clock, interval);
        // The first grant, then an end and a grant with each change.
        for _ in 0..301 {
            let event = futures_util::FutureExt::now_or_never(events.next());
            event.expect("the clock waits for nothing").unwrap().unwrap();
        }
        let listed = listed.lock().unwrap();
        let pauses: Vec<Duration> = listed.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        assert!(pauses[..CHANGED - 1].iter().all(|pause| *pause == interval), "{pauses:?}");
        assert!(pauses[CHANGED..].iter().all(|pause| *pause == BUSY_INTERVAL), "{pauses:?}");
    }
}
