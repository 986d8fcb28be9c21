//! What happens to the locks under a prefix, told by a watch on all of their keys.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use futures_util::stream;
use tollgate_core::floor::Floor;
use tollgate_core::turn::how_many_are_in;
use tollgate_core::{BoxStream, Details, Event, Happening, LockName, Mode, Result, Token};

use crate::acquire::Value;
use crate::backend::EtcdBackend;
use crate::error::unexpected;
use crate::hub::{Signal, Watch, What};
use crate::keys::mode_of;
use crate::wire::event::EventType;
use crate::wire::{Event as Change, KeyValue, RangeRequest};

/// How many keys are read at once.
const PAGE: i64 = 1000;
/// Before everything is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// The queues as they were last seen, and what is to be told.
struct Scene {
    start: String,
    queues: HashMap<LockName, Queue>,
    watch: Option<Watch>,
    due: VecDeque<Event>,
}

#[derive(Default)]
struct Queue {
    /// Every claim by the revision that created it.
    claims: BTreeMap<i64, Claimed>,
    floor: Floor,
    /// The holders when last looked at.
    holders: Vec<(Token, Claimed)>,
}

/// What is known of a claim.
#[derive(Clone)]
struct Claimed {
    key: Vec<u8>,
    mode: Mode,
    details: Details,
    /// An operator asked its holder to leave.
    revoked: bool,
}

impl Claimed {
    fn new(found: &KeyValue, mode: Mode) -> Self {
        let value = Value::of(found);
        let revoked = value.as_ref().is_some_and(|value| value.revoked);
        let details = value.map(|value| value.details).unwrap_or_default();
        Self { key: found.key.to_vec(), mode, details, revoked }
    }
}

impl Queue {
    /// A claim was made, or written again. A holder's mark counts even if its key is gone by the time that it is looked at.
    fn note(&mut self, revision: i64, claim: Claimed) {
        if let Some((_, held)) = self.holders.iter_mut().find(|(_, held)| held.key == claim.key) {
            held.revoked = claim.revoked;
        }
        self.claims.insert(revision, claim);
    }

    fn remove(&mut self, key: &[u8]) {
        self.claims.retain(|_, known| known.key != key);
    }

    /// Who is in now, and what changed.
    fn settle(&mut self, name: &LockName, due: &mut VecDeque<Event>) {
        let modes: Vec<Mode> = self.claims.values().map(|claim| claim.mode).collect();
        let inside = how_many_are_in(&modes);
        let token =
            |(revision, claim): (&i64, &Claimed)| Some((self.floor.token(*revision).ok()?, claim.clone()));
        let holders: Vec<_> = self.claims.iter().take(inside).filter_map(token).collect();
        let is_among =
            |token: &Token, holders: &[(Token, Claimed)]| holders.iter().any(|(other, _)| other == token);
        let event = |token: &Token, what, claim: &Claimed| {
            Event::now(name.clone(), *token, what).of(claim.details.clone())
        };
        for (token, claim) in self.holders.iter().filter(|(token, _)| !is_among(token, &holders)) {
            // A deleted key does not tell a release from the end of its session.
            let what = if claim.revoked { Happening::Revoked } else { Happening::Ended };
            due.push_back(event(token, what, claim));
        }
        for (token, claim) in holders.iter().filter(|(token, _)| !is_among(token, &self.holders)) {
            due.push_back(event(token, Happening::Granted, claim));
        }
        self.holders = holders;
    }
}

impl EtcdBackend {
    pub(crate) fn told(&self, start: &str) -> BoxStream<'_, Result<Event>> {
        let scene =
            Scene { start: start.to_owned(), queues: HashMap::new(), watch: None, due: VecDeque::new() };
        Box::pin(stream::unfold((scene, true), move |(mut scene, mut first)| async move {
            loop {
                if let Some(event) = scene.due.pop_front() {
                    return Some((Ok(event), (scene, first)));
                }
                if scene.watch.is_none() {
                    if let Err(error) = self.survey(&mut scene).await {
                        tokio::time::sleep(PAUSE).await;
                        return Some((Err(error), (scene, first)));
                    }
                    if std::mem::take(&mut first) {
                        // What was so before we came is no news.
                        scene.due.clear();
                    }
                    continue;
                }
                let signal = match &mut scene.watch {
                    Some(watch) => watch.signal().await,
                    None => continue,
                };
                match signal {
                    Signal::Created(_) => {}
                    Signal::Events(changes) => {
                        if let Err(error) = self.follow(&mut scene, changes).await {
                            return Some((Err(error), (scene, first)));
                        }
                    }
                    Signal::Broken => {
                        scene.watch = None;
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }))
    }

    /// Looks at everything, and watches from there on.
    async fn survey(&self, scene: &mut Scene) -> Result<()> {
        let span = self.layout.starting_with(&scene.start);
        let (mut from, mut revision) = (span.key.clone(), 0);
        let mut seen: HashMap<LockName, BTreeMap<i64, Claimed>> = HashMap::new();
        loop {
            let request = RangeRequest {
                key: from.clone().into(),
                range_end: span.end.clone().into(),
                limit: PAGE,
                revision,
                ..RangeRequest::default()
            };
            let answer = self.links.range(request).await?;
            revision = answer
                .header
                .map_or(revision, |header| if revision == 0 { header.revision } else { revision });
            for found in &answer.kvs {
                if let Some((name, mode)) = self.claimed(&scene.start, &found.key) {
                    seen.entry(name).or_default().insert(found.create_revision, Claimed::new(found, mode));
                }
            }
            match answer.kvs.last() {
                Some(last) if answer.more => from = [&last.key[..], &[0]].concat(),
                _ => break,
            }
        }
        scene.queues.retain(|name, queue| {
            queue.claims = seen.remove(name).unwrap_or_default();
            queue.settle(name, &mut scene.due);
            !queue.claims.is_empty()
        });
        for (name, claims) in seen {
            let mut queue = Queue { claims, floor: self.floor(&name).await?, holders: Vec::new() };
            queue.settle(&name, &mut scene.due);
            scene.queues.insert(name, queue);
        }
        scene.watch = Some(self.hub.watch(What { span, deletions: false, from: revision + 1 }));
        Ok(())
    }

    /// Takes in what changed. Changes of one revision happened at once.
    async fn follow(&self, scene: &mut Scene, changes: Vec<Change>) -> Result<()> {
        let mut at = 0;
        let mut touched: Vec<LockName> = Vec::new();
        for change in changes {
            let is_deletion = change.r#type() == EventType::Delete;
            let found = change.kv.ok_or_else(|| unexpected("a change without a key"))?;
            if found.mod_revision != at {
                at = found.mod_revision;
                settle_all(scene, &mut touched);
            }
            let Some((name, mode)) = self.claimed(&scene.start, &found.key) else { continue };
            if !scene.queues.contains_key(&name) {
                let queue = Queue { floor: self.floor(&name).await?, ..Queue::default() };
                scene.queues.insert(name.clone(), queue);
            }
            if let Some(queue) = scene.queues.get_mut(&name) {
                if is_deletion {
                    queue.remove(&found.key);
                } else {
                    queue.note(found.create_revision, Claimed::new(&found, mode));
                }
                touched.push(name);
            }
        }
        settle_all(scene, &mut touched);
        Ok(())
    }

    fn claimed(&self, start: &str, key: &[u8]) -> Option<(LockName, Mode)> {
        let name = self.layout.name_of(key).filter(|name| name.as_str().starts_with(start))?;
        let mode = mode_of(self.layout.claims_on(&name).remainder(key)?);
        Some((name, mode))
    }
}

fn settle_all(scene: &mut Scene, touched: &mut Vec<LockName>) {
    for name in touched.drain(..) {
        if let Some(queue) = scene.queues.get_mut(&name) {
            queue.settle(&name, &mut scene.due);
            if queue.claims.is_empty() {
                scene.queues.remove(&name);
            }
        }
    }
}
