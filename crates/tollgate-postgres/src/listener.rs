//! Hears of hand-overs, and keeps the places of claims that wait: a task on the keeper with a connection of its own.
//!
//! While a process only waits, that is its only connection: it listens there, and refreshes its places in queues. It proves once
//! that notifications arrive; every message to ourselves would wake the server's processes of all clients that listen.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate_core::inbox::Inbox;
use tollgate_core::{Keeper, Result};

use crate::link::Link;
use crate::links::{Links, what};
use crate::places::{Due, Place, Values, tell};
use crate::statement::Statement;

/// How long after a loss a new connection is opened, at first and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(2);
/// How often the connection is looked at, while a claim waits here.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often it is proved at least that notifications arrive, where none do.
const PROVE_AT_LEAST: Duration = Duration::from_secs(320);
/// How long an answer may take.
const TO_ANSWER: Duration = Duration::from_secs(3);
/// Connections that were idle for so long are closed while claims wait. Opening one again costs a release some milliseconds.
const IDLE: Duration = Duration::from_secs(3);

/// The tasks that listen and keep places. They end with the client.
#[derive(Debug)]
pub(crate) struct Listener {
    tasks: Vec<JoinHandle<()>>,
}

impl Listener {
    pub(crate) fn start(
        keeper: &Keeper,
        links: &Arc<Links>,
        channel: String,
        inbox: Arc<Inbox>,
        mut due: Due,
    ) -> Self {
        let links = Arc::downgrade(links);
        let keeps_places = links.upgrade().is_some_and(|links| links.keeps_places_where_it_listens());
        let mut tasks = Vec::new();
        let mut places = None;
        if keeps_places {
            places = Some(due);
        } else {
            let links = links.clone();
            tasks.push(keeper.spawn(async move {
                loop {
                    let mut places = due.next().await;
                    due.gather(&mut places).await;
                    let Some(links) = links.upgrade() else { return };
                    keep_over_any(&links, places).await;
                }
            }));
        }
        tasks.push(keeper.spawn(async move {
            let mut pause = AGAIN_AFTER;
            loop {
                match opened(&links, &channel).await {
                    Some(Ok(link)) => {
                        pause = AGAIN_AFTER;
                        let mut listening =
                            Listening { links: &links, channel: &channel, inbox: &inbox, link };
                        listening.listen(places.as_mut()).await;
                    }
                    Some(Err(error)) => {
                        if let Some(places) = &mut places {
                            places.refuse(&error);
                        }
                    }
                    None => return,
                }
                // What was said meanwhile was said to nobody.
                inbox.missed();
                inbox.lose();
                if links.strong_count() == 0 {
                    return;
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(AGAIN_AT_MOST);
            }
        }));
        Self { tasks }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Keeps places over any of the client's connections: notifications come from elsewhere.
async fn keep_over_any(links: &Links, places: Vec<Place>) {
    let answer = links.run(Statement::Keep, &Values::of(&places, links.clock.now()).all()).await;
    tell(places, answer.map(|(_, rows)| rows));
    links.close_idle(IDLE);
}

/// A connection that listens; nothing if the client is gone.
async fn opened(links: &Weak<Links>, channel: &str) -> Option<Result<Link>> {
    let links = links.upgrade()?;
    let mut link = match links.open_to_listen().await {
        Ok(link) => link,
        Err(error) => return Some(Err(error)),
    };
    let sql = format!("listen \"{channel}\"; listen tollgate_revoked");
    let told = links.answered(TO_ANSWER, link.simple(&sql)).await;
    Some(told.map(|_| link).map_err(|trouble| trouble.not_done().into_error("the connection setup")))
}

/// One connection, as long as it lasts.
struct Listening<'a> {
    links: &'a Weak<Links>,
    channel: &'a str,
    inbox: &'a Inbox,
    link: Link,
}

impl Listening<'_> {
    /// Listens, and keeps places, until the connection ends or does not bring what it should.
    async fn listen(&mut self, mut places: Option<&mut Due>) {
        let alone = places.is_some();
        if !self.prove(alone).await {
            return;
        }
        let mut proof = LOOK_EVERY;
        let mut proved = Instant::now();
        let mut spoke = proved;
        loop {
            tokio::select! {
                biased;
                message = self.link.notification() => match message {
                    Some(message) => self.inbox.receive(message.payload().as_bytes()),
                    None => return,
                },
                mut asked = due(&mut places) => {
                    if let Some(places) = &mut places {
                        places.gather(&mut asked).await;
                    }
                    if !self.keep(asked).await {
                        return;
                    }
                    spoke = Instant::now();
                }
                () = tokio::time::sleep_until(spoke + LOOK_EVERY) => {
                    spoke = Instant::now();
                    if !self.inbox.is_waited_for() {
                        continue;
                    }
                    if !self.is_alive().await {
                        return;
                    }
                    if !self.inbox.hears() && proved.elapsed() >= proof {
                        if !self.prove(alone).await {
                            return;
                        }
                        proof = (proof * 2).min(PROVE_AT_LEAST);
                        proved = Instant::now();
                    }
                }
            }
        }
    }

    /// Sends a message to ourselves: only if it comes back, notifications are relied on. Answers whether it was sent.
    async fn prove(&mut self, alone: bool) -> bool {
        let Some(links) = self.links.upgrade() else { return false };
        if alone {
            links.run_on(&mut self.link, Statement::Probe, &[&self.channel]).await.1.is_ok()
        } else {
            links.run(Statement::Probe, &[&self.channel]).await.is_ok()
        }
    }

    /// Keeps places over this connection. Answers whether it is still good.
    async fn keep(&mut self, places: Vec<Place>) -> bool {
        let Some(links) = self.links.upgrade() else { return false };
        let values = Values::of(&places, links.clock.now());
        let (_, rows) = links.run_on(&mut self.link, Statement::Keep, &values.all()).await;
        let is_good = match &rows {
            Ok(_) => true,
            // Another server takes writes by now.
            Err(trouble) => trouble.is_answer() && !trouble.is_of_a_reader(),
        };
        drop(values);
        tell(places, rows.map_err(|trouble| trouble.into_error(what(Statement::Keep))));
        links.close_idle(IDLE);
        is_good
    }

    /// Whether the server answers.
    async fn is_alive(&mut self) -> bool {
        let Some(links) = self.links.upgrade() else { return false };
        links.answered(TO_ANSWER, self.link.simple("select 1")).await.is_ok()
    }
}

/// The places that are due here, if they are kept here.
async fn due(places: &mut Option<&mut Due>) -> Vec<Place> {
    match places {
        Some(places) => places.next().await,
        None => std::future::pending().await,
    }
}
