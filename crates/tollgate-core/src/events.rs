//! Events for engines that cannot tell: what changed between two looks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tollgate_types::{LockName, Token};

use crate::backend::{Backend, BoxStream};
use crate::clock::Clock;
use crate::error::Result;
use crate::state::{Event, Happening};

/// The holders' tokens of every lock that was seen.
type Seen = BTreeMap<LockName, BTreeSet<Token>>;

/// Looks at the locks under `prefix` every `interval` and tells what changed.
///
/// A grant that came and went between two looks is skipped. Events of one name come in the order of their
/// tokens, ends before grants.
pub fn poll<'a>(
    backend: &'a dyn Backend,
    clock: Arc<dyn Clock>,
    prefix: &str,
    interval: Duration,
) -> BoxStream<'a, Result<Event>> {
    struct State {
        seen: Option<Seen>,
        due: VecDeque<Event>,
    }
    let start = State { seen: None, due: VecDeque::new() };
    let prefix: Arc<str> = prefix.into();
    Box::pin(stream::unfold(start, move |mut state| {
        let (clock, prefix) = (clock.clone(), prefix.clone());
        async move {
            loop {
                if let Some(event) = state.due.pop_front() {
                    return Some((Ok(event), state));
                }
                if state.seen.is_some() {
                    clock.sleep_until(clock.now() + interval).await;
                }
                match look(backend, &prefix).await {
                    Ok(now) => {
                        if let Some(before) = state.seen.replace(now) {
                            state.due = changes(&before, state.seen.as_ref().unwrap_or(&before));
                        }
                    }
                    Err(error) => return Some((Err(error), state)),
                }
            }
        }
    }))
}

async fn look(backend: &dyn Backend, prefix: &str) -> Result<Seen> {
    let mut seen = Seen::new();
    let mut locks = backend.list(prefix);
    while let Some(lock) = locks.next().await {
        let lock = lock?;
        let tokens = lock.holders.iter().filter_map(|holder| holder.token).collect();
        seen.insert(lock.name, tokens);
    }
    Ok(seen)
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
}
