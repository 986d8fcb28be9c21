//! Hears of hand-overs: a connection on the keeper that listens, and proves that it does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::Keeper;
use tollgate_core::inbox::Inbox;

use crate::link::Link;
use crate::links::Links;
use crate::statement::Statement;

/// How long after a loss a new connection is opened.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How often it is found out whether messages still arrive, while somebody waits for one.
const PROVE_EVERY: Duration = Duration::from_secs(10);
/// How long a message of our own may take.
const TO_HEAR: Duration = Duration::from_secs(3);

/// The task that listens. It ends with the client.
#[derive(Debug)]
pub(crate) struct Listener {
    task: JoinHandle<()>,
}

impl Listener {
    pub(crate) fn start(keeper: &Keeper, links: &Arc<Links>, channel: String, inbox: Arc<Inbox>) -> Self {
        let links = Arc::downgrade(links);
        let task = keeper.spawn(async move {
            loop {
                listen(&links, &channel, &inbox).await;
                // What was said meanwhile was said to nobody.
                inbox.missed();
                inbox.lose();
                if links.strong_count() == 0 {
                    return;
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        });
        Self { task }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens until the connection ends, or does not bring what it should.
async fn listen(links: &Weak<Links>, channel: &str, inbox: &Inbox) {
    let Some(mut link) = opened(links, channel).await else { return };
    loop {
        if prove(links, channel).await.is_none() {
            return;
        }
        if !hears(&mut link, inbox, TO_HEAR, true).await || !hears(&mut link, inbox, PROVE_EVERY, false).await
        {
            return;
        }
        while !inbox.is_waited_for() {
            if !hears(&mut link, inbox, PROVE_EVERY, false).await {
                return;
            }
        }
    }
}

async fn opened(links: &Weak<Links>, channel: &str) -> Option<Link> {
    let mut link = links.upgrade()?.open_to_listen().await.ok()?;
    let listening = tokio::time::timeout(TO_HEAR, link.simple(&format!("listen \"{channel}\""))).await;
    listening.ok()?.ok().map(|_| link)
}

/// Sends a message to ourselves, the way others send theirs.
async fn prove(links: &Weak<Links>, channel: &str) -> Option<()> {
    links.upgrade()?.run(Statement::Probe, &[&channel]).await.ok().map(drop)
}

/// Takes messages for as long as `time`, or until one has come if that is what is wanted. Answers whether all is well.
async fn hears(link: &mut Link, inbox: &Inbox, time: Duration, until_one: bool) -> bool {
    let end = tokio::time::Instant::now() + time;
    loop {
        match tokio::time::timeout_at(end, link.notification()).await {
            Ok(Some(message)) => {
                inbox.receive(message.payload().as_bytes());
                if until_one {
                    return true;
                }
            }
            Ok(None) => return false,
            Err(_) => return !until_one,
        }
    }
}
