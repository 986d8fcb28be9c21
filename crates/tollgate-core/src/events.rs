//! Events for engines that cannot tell: what changed between two looks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tollgate_types::{LockName, Token};

use crate::backend::{Backend, BoxStream};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::state::{Event, Happening};

/// The holders' tokens of every lock that was seen.
type Seen = BTreeMap<LockName, BTreeSet<Token>>;

/// Looks at the locks under `prefix` every `interval` and tells what changed.
///
/// A grant that came and went between two looks is skipped. Events of one name come in the order of their
/// tokens, ends before grants. A lock that cannot be read is an error, told once until it can be read again, and hides
/// no other.
pub fn poll<'a>(
    backend: &'a dyn Backend,
    clock: Arc<dyn Clock>,
    prefix: &str,
    interval: Duration,
) -> BoxStream<'a, Result<Event>> {
    struct State {
        seen: Option<Look>,
        due: VecDeque<Result<Event>>,
    }
    let start = State { seen: None, due: VecDeque::new() };
    let prefix: Arc<str> = prefix.into();
    Box::pin(stream::unfold(start, move |mut state| {
        let (clock, prefix) = (clock.clone(), prefix.clone());
        async move {
            loop {
                if let Some(event) = state.due.pop_front() {
                    return Some((event, state));
                }
                if state.seen.is_some() {
                    clock.sleep_until(clock.now() + interval).await;
                }
                match look(backend, &prefix).await {
                    Ok((now, errors)) => {
                        let before = state.seen.take();
                        let now = now.after(before.as_ref());
                        state.due.extend(errors.into_iter().filter_map(|(name, error)| {
                            let told =
                                before.as_ref().is_some_and(|before| before.unreadable.contains(&name));
                            (!told).then_some(Err(error))
                        }));
                        if let Some(before) = &before {
                            state.due.extend(changes(&before.seen, &now.seen).into_iter().map(Ok));
                        }
                        state.seen = Some(now);
                    }
                    Err(error) => return Some((Err(error), state)),
                }
            }
        }
    }))
}

/// What one look saw.
#[derive(Default)]
struct Look {
    seen: Seen,
    unreadable: BTreeSet<LockName>,
}

impl Look {
    /// Of those that cannot be read now, what was seen of them `before` is all that is known.
    fn after(mut self, before: Option<&Self>) -> Self {
        for name in &self.unreadable {
            if let Some(tokens) = before.and_then(|before| before.seen.get(name)) {
                self.seen.insert(name.clone(), tokens.clone());
            }
        }
        self
    }
}

/// Looks once. Errors about one lock come with its name; any other ends the look.
async fn look(backend: &dyn Backend, prefix: &str) -> Result<(Look, Vec<(LockName, Error)>)> {
    let (mut look, mut errors) = (Look::default(), Vec::new());
    let mut locks = backend.list(prefix);
    while let Some(lock) = locks.next().await {
        match lock {
            Ok(lock) => {
                let tokens = lock.holders.iter().filter_map(|holder| holder.token).collect();
                look.seen.insert(lock.name, tokens);
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

fn changes(before: &Seen, now: &Seen) -> VecDeque<Event> {
    let nobody = BTreeSet::new();
    let names: BTreeSet<&LockName> = before.keys().chain(now.keys()).collect();
    let mut events = VecDeque::new();
    for name in names {
        let (old, new) = (before.get(name).unwrap_or(&nobody), now.get(name).unwrap_or(&nobody));
        let event = |what| move |token: &Token| Event { name: name.clone(), token: *token, what };
        events.extend(old.difference(new).map(event(Happening::Ended)));
        events.extend(new.difference(old).map(event(Happening::Granted)));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_comes_before_the_next_grant() {
        let name = LockName::new("a").unwrap();
        let token = |n| Token::new(n).unwrap();
        let seen = |tokens: &[u64]| Seen::from([(name.clone(), tokens.iter().map(|n| token(*n)).collect())]);
        let told: Vec<_> =
            changes(&seen(&[1, 2]), &seen(&[2, 3])).into_iter().map(|e| (e.what, e.token.get())).collect();
        assert_eq!(told, [(Happening::Ended, 1), (Happening::Granted, 3)]);
        assert_eq!(changes(&seen(&[1]), &Seen::new()).len(), 1);
    }

    #[test]
    fn a_lock_that_cannot_be_read_has_not_ended() {
        let name = LockName::new("a").unwrap();
        let before =
            Look { seen: Seen::from([(name.clone(), BTreeSet::from([Token::MIN]))]), ..Look::default() };
        let now = Look { unreadable: BTreeSet::from([name]), ..Look::default() }.after(Some(&before));
        assert!(changes(&before.seen, &now.seen).is_empty());
        assert_eq!(changes(&before.seen, &Look::default().after(Some(&before)).seen).len(), 1);
    }
}
