//! Every lock under a prefix, page by page.

use std::collections::{HashMap, VecDeque};

use futures_util::stream;
use tollgate_core::floor::Floor;
use tollgate_core::{BoxStream, LockName, LockState, Result};

use crate::backend::EtcdBackend;
use crate::error::{Failure, Why};
use crate::keys::Span;
use crate::look::Left;
use crate::wire::{KeyValue, RangeRequest};

/// How many keys are read at once.
const PAGE: i64 = 500;

/// A list under way.
struct Listing {
    /// What is still to be read; none if all is.
    rest: Option<Span>,
    /// As of when.
    revision: i64,
    start: String,
    /// Locks of which more keys may come, each within the one before: those of longer names come between.
    open: Vec<(LockName, Vec<KeyValue>)>,
    whole: VecDeque<(LockName, Vec<KeyValue>)>,
    /// Of those that are whole.
    floors: HashMap<LockName, Floor>,
    left: Left,
}

impl EtcdBackend {
    pub(crate) fn listed(&self, start: &str) -> BoxStream<'_, Result<LockState>> {
        let listing = Listing {
            rest: Some(self.layout.starting_with(start)),
            revision: 0,
            start: start.to_owned(),
            open: Vec::new(),
            whole: VecDeque::new(),
            floors: HashMap::new(),
            left: Left::new(),
        };
        Box::pin(stream::unfold(Some(listing), move |listing| async move {
            let mut listing = listing?;
            loop {
                if let Some((name, mut claims)) = listing.whole.pop_front() {
                    claims.sort_by_key(|claim| claim.create_revision);
                    let floor = listing.floors.remove(&name).unwrap_or_default();
                    match self.state(&name, claims, &floor, &mut listing.left).await {
                        Ok(None) => continue,
                        Ok(Some(state)) => return Some((Ok(state), Some(listing))),
                        Err(error) => return Some((Err(error.on(&name)), Some(listing))),
                    }
                }
                let span = listing.rest.take()?;
                if let Err(error) = self.page(&mut listing, span).await {
                    return Some((Err(error), None));
                }
            }
        }))
    }

    async fn page(&self, listing: &mut Listing, span: Span) -> Result<()> {
        let request = RangeRequest {
            key: span.key.clone().into(),
            range_end: span.end.clone().into(),
            limit: PAGE,
            revision: listing.revision,
            ..RangeRequest::default()
        };
        let answer = match self.links.range(request.clone()).await {
            // What we began with is gone: go on with what there is.
            Err(Failure { why: Why::Compacted, .. }) => {
                self.links.range(RangeRequest { revision: 0, ..request }).await?
            }
            answer => answer?,
        };
        if listing.revision == 0 {
            listing.revision = answer.header.map_or(0, |header| header.revision);
        }
        let last = answer.kvs.last().map(|found| found.key.to_vec());
        for found in answer.kvs {
            if let Some(name) = self.layout.name_of(&found.key) {
                listing.add(name, found);
            }
        }
        match last {
            Some(mut key) if answer.more => {
                key.push(0);
                listing.rest = Some(Span { key, end: span.end });
            }
            _ => listing.close_until(None),
        }
        let names: Vec<_> = listing.whole.iter().map(|(name, _)| name).collect();
        listing.floors = self.floors(&names).await?;
        Ok(())
    }
}

impl Listing {
    fn add(&mut self, name: LockName, found: KeyValue) {
        self.close_until(Some(&name));
        match self.open.last_mut() {
            Some((open, claims)) if *open == name => claims.push(found),
            _ => self.open.push((name, vec![found])),
        }
    }

    /// Ends the locks of which no more keys can come after one of `next`.
    fn close_until(&mut self, next: Option<&LockName>) {
        let goes_on = |open: &LockName| {
            next.is_some_and(|next| {
                next.as_str()
                    .strip_prefix(open.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        while self.open.last().is_some_and(|(open, _)| !goes_on(open)) {
            if let Some((name, claims)) = self.open.pop()
                && name.as_str().starts_with(&self.start)
            {
                self.whole.push_back((name, claims));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Mode;

    use super::*;
    use crate::keys::Layout;

    #[test]
    fn the_keys_of_a_lock_are_found_together_though_others_are_between() {
        let layout = Layout::new("/locks/".to_owned());
        let mut keys = Vec::new();
        for name in ["a", "a/5", "a/5/6", "a//", "a.b", "b"] {
            let name = LockName::new(name).unwrap();
            for lease in [0x1234, 0x5000, 0x7777] {
                keys.push(layout.claim(&name, lease, 0, Mode::Exclusive));
            }
        }
        keys.sort();
        let mut listing = Listing {
            rest: None,
            revision: 0,
            start: "a".to_owned(),
            open: Vec::new(),
            whole: VecDeque::new(),
            floors: HashMap::new(),
            left: Left::new(),
        };
        for key in keys {
            let name = layout.name_of(&key).unwrap();
            listing.add(name, KeyValue { key: key.into(), ..KeyValue::default() });
        }
        listing.close_until(None);
        let mut found: Vec<_> =
            listing.whole.iter().map(|(name, claims)| (name.to_string(), claims.len())).collect();
        found.sort();
        let expected = ["a", "a.b", "a/5", "a/5/6", "a//"].map(|name| (name.to_owned(), 3));
        let mut expected = expected.to_vec();
        expected.sort();
        assert_eq!(found, expected);
    }
}
