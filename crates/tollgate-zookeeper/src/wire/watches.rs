//! Who wants to be told of which node, over one connection.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::jute::{Garbled, Reader};

/// So many are kept before those that nobody waits for are looked for.
const FEW: usize = 1024;

/// What is watched of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// That it is there, and its data.
    Node,
    /// What is in it.
    Children,
}

/// What a watch tells, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Deleted,
    Changed,
    ChildrenChanged,
    /// Nothing, and it will not: its connection is lost.
    Lost,
}

/// Tells of one event. As a future, it completes when something has happened, or the connection is lost.
#[derive(Debug)]
pub(crate) struct Watch(oneshot::Receiver<Event>);

impl Future for Watch {
    type Output = Event;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Event> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Event::Lost))
    }
}

/// All watches of a connection. They are noted when they are asked for, not when that is answered: an event may come first.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    waiting: HashMap<Kind, HashMap<Box<str>, Vec<oneshot::Sender<Event>>>>,
    count: usize,
    /// From how many on it is worth a look at all of them.
    many: usize,
}

impl Watches {
    pub(crate) fn add(&mut self, kind: Kind, path: Box<str>) -> Watch {
        if self.count >= self.many.max(FEW) {
            self.forget_unwanted();
        }
        let (tell, told) = oneshot::channel();
        self.waiting.entry(kind).or_default().entry(path).or_default().push(tell);
        self.count += 1;
        Watch(told)
    }

    fn forget_unwanted(&mut self) {
        self.count = 0;
        for paths in self.waiting.values_mut() {
            paths.retain(|_, tells| {
                tells.retain(|tell| !tell.is_closed());
                self.count += tells.len();
                !tells.is_empty()
            });
        }
        self.many = self.count * 2;
    }

    /// Tells whoever waits for it.
    pub(crate) fn tell(&mut self, (event, path): &(Event, String)) {
        let kinds: &[Kind] = match event {
            Event::Created | Event::Changed => &[Kind::Node],
            Event::ChildrenChanged => &[Kind::Children],
            Event::Deleted => &[Kind::Node, Kind::Children],
            Event::Lost => &[],
        };
        for kind in kinds {
            let tells = self.waiting.get_mut(kind).and_then(|paths| paths.remove(path.as_str()));
            for tell in tells.into_iter().flatten() {
                self.count -= 1;
                // Whoever does not listen any more need not hear it.
                let _ = tell.send(*event);
            }
        }
    }
}

/// What an event's frame says; nothing if it is about no node.
pub(crate) fn event(reader: &mut Reader<'_>) -> Result<Option<(Event, String)>, Garbled> {
    let (kind, _state, path) = (reader.int()?, reader.int()?, reader.text()?);
    let event = match kind {
        1 => Event::Created,
        2 => Event::Deleted,
        3 => Event::Changed,
        4 => Event::ChildrenChanged,
        _ => return Ok(None),
    };
    Ok(Some((event, path)))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn each_is_told_of_what_it_waits_for_and_of_a_lost_connection() {
        let mut watches = Watches::default();
        let [node, other] = ["/a", "/b"].map(|path| watches.add(Kind::Node, path.into()));
        let [children, lost] = ["/a", "/c"].map(|path| watches.add(Kind::Children, path.into()));
        watches.tell(&(Event::Changed, "/a".to_owned()));
        watches.tell(&(Event::Deleted, "/a".to_owned()));
        assert_eq!(node.now_or_never(), Some(Event::Changed));
        assert_eq!(children.now_or_never(), Some(Event::Deleted));
        assert_eq!(watches.count, 2);
        drop(watches);
        assert_eq!(other.now_or_never(), Some(Event::Lost));
        assert_eq!(lost.now_or_never(), Some(Event::Lost));
    }

    #[test]
    fn those_that_nobody_waits_for_are_forgotten() {
        let mut watches = Watches::default();
        let kept = watches.add(Kind::Node, "/kept".into());
        for number in 0..10 * FEW {
            drop(watches.add(Kind::Node, number.to_string().into()));
        }
        assert!(watches.count <= FEW + 1, "{}", watches.count);
        watches.tell(&(Event::Created, "/kept".to_owned()));
        assert_eq!(kept.now_or_never(), Some(Event::Created));
    }
}
