//! Every request, as the rest of the crate asks it.
//!
//! What is asked while there is no connection waits for one, for a while; what was sent is never sent again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::Access;
use crate::error::Trouble;
use crate::fence::{Refused, Write};
use crate::wire::{
    Acl, Client, Code, Fault, Flags, Garbled, Link, Permission, Reader, Request, Stat, Status, Step, Watch,
    answer,
};

/// How long a connection is waited for.
const TO_CONNECT: Duration = Duration::from_secs(5);

pub(crate) type Answer<T> = Result<T, Trouble>;

/// A session's requests, in the order in which they are made.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    client: Client,
    /// Who may use what is created.
    acl: Arc<[Acl]>,
}

impl Calls {
    pub(crate) fn new(client: Client, access: Access) -> Self {
        let (creator, world) = (Acl::new(Permission::ALL, "auth", ""), "world");
        let acl = match access {
            Access::Open => vec![Acl::new(Permission::ALL, world, "anyone")],
            Access::Readable => vec![creator, Acl::new(Permission::READ, world, "anyone")],
            Access::Closed => vec![creator],
        };
        Self { client, acl: acl.into() }
    }

    /// The session's number.
    pub(crate) fn session(&self) -> i64 {
        self.client.session()
    }

    /// How the session is connected.
    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.client.status()
    }

    /// Ends the session, and everything that hangs on it.
    pub(crate) fn close(&self) {
        self.client.close();
    }

    /// Leaves the session to end by itself.
    pub(crate) fn hang_up(&self) {
        self.client.hang_up();
    }

    /// Waits until there is a connection, so that what is sent next is sent now.
    pub(crate) async fn connected(&self) -> Answer<()> {
        self.link().await.map(drop)
    }

    /// The connection that is there now.
    pub(crate) async fn link(&self) -> Answer<Arc<Link>> {
        match self.client.link() {
            Err(Fault::Unsent) => self.next_link(0).await,
            link => Ok(link?),
        }
    }

    /// A connection that is not the one with this number, which is lost.
    async fn next_link(&self, lost: u64) -> Answer<Arc<Link>> {
        match tokio::time::timeout(TO_CONNECT, self.client.next_link(lost)).await {
            Ok(link) => Ok(link?),
            Err(_) => Err(Fault::Unsent.into()),
        }
    }

    /// Asks, and reads the answer by `read`.
    async fn ask<T>(
        &self,
        request: Request,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Garbled>,
    ) -> Answer<T> {
        Ok(self.ask_and_watch(request, read).await?.0)
    }

    async fn ask_and_watch<T>(
        &self,
        mut request: Request,
        read: impl FnOnce(&mut Reader<'_>) -> Result<T, Garbled>,
    ) -> Answer<(T, Vec<Watch>)> {
        let mut link = self.link().await?;
        loop {
            match link.ask_and_watch(request) {
                Ok((answer, watches)) => return Ok((answer.read(read).await?, watches)),
                Err(unsent) => {
                    request = unsent;
                    link = self.next_link(link.number).await?;
                }
            }
        }
    }

    /// Creates the node of a claim; what ZooKeeper added to `start`, and its own account of the node.
    pub(crate) async fn claim(&self, start: &str, data: &[u8]) -> Answer<(String, Stat)> {
        let request = Request::create(start, data, &self.acl, Flags::EphemeralSequential);
        self.ask(request, |reader| claimed(start, reader)).await
    }

    /// Creates the node of a claim, and looks at its folder after that. Both go out at once, and are served in this order, so that
    /// whoever waits is woken once: by the second answer.
    pub(crate) async fn claim_and_look(
        &self,
        start: &str,
        data: &[u8],
        folder: &str,
    ) -> (Answer<(String, Stat)>, Answer<Vec<String>>) {
        let create = Request::create(start, data, &self.acl, Flags::EphemeralSequential);
        let mut both = (create, Request::get_children(folder, false));
        let mut link = self.link().await;
        loop {
            let up = match link {
                Ok(link) => link,
                Err(trouble) => return (Err(trouble), Err(Fault::Unsent.into())),
            };
            match up.ask_both(both.0, both.1) {
                Ok((created, seen)) => {
                    let seen = seen.read(answer::children).await;
                    let created = created.read(|reader| claimed(start, reader)).await;
                    return (created.map_err(Trouble::from), seen.map_err(Trouble::from));
                }
                Err(unsent) => {
                    both = unsent;
                    link = self.next_link(up.number).await;
                }
            }
        }
    }

    /// Creates a folder, and those it is in where they are missing. ZooKeeper removes the folders of locks when nothing has been
    /// in them for a while, also between two of these steps; `kept` is the last that stays.
    pub(crate) async fn folder(&self, path: &str, kept: &str) -> Answer<()> {
        let mut missing = vec![path];
        while let Some(folder) = missing.last() {
            let flags = if folder.len() > kept.len() { Flags::Container } else { Flags::Persistent };
            match self.ask(Request::create(folder, b"", &self.acl, flags), answer::created).await {
                Ok(_) | Err(Trouble::Exists) => {
                    missing.pop();
                }
                Err(Trouble::NoNode) => match folder.rsplit_once('/') {
                    Some((above, _)) if !above.is_empty() => missing.push(above),
                    _ => return Err(Trouble::NoNode),
                },
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Creates a node that stays.
    pub(crate) async fn create(&self, path: &str, data: &[u8]) -> Answer<()> {
        self.ask(Request::create(path, data, &self.acl, Flags::Persistent), answer::created).await.map(drop)
    }

    pub(crate) async fn children(&self, path: &str) -> Answer<Vec<String>> {
        self.ask(Request::get_children(path, false), answer::children).await
    }

    /// The children, and what tells when there are others.
    pub(crate) async fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, Watch)> {
        watched(self.ask_and_watch(Request::get_children(path, true), answer::children).await?)
    }

    pub(crate) async fn data(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        self.ask(Request::get_data(path, false), answer::data).await
    }

    /// The data, and what tells when they change or the node is gone.
    pub(crate) async fn data_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, Watch)> {
        let asked = self.ask_and_watch(Request::get_data(path, true), answer::data).await?;
        let ((data, stat), watch) = watched(asked)?;
        Ok((data, stat, watch))
    }

    /// What tells when each of these nodes is gone, or written again.
    pub(crate) async fn watch_all(&self, paths: &[String]) -> Answer<Vec<Watch>> {
        Ok(self.ask_and_watch(Request::watch_all(paths), answer::nothing).await?.1)
    }

    /// Whether a node is there, and what tells when that, or its data, change.
    pub(crate) async fn is_there_and_watch(&self, path: &str) -> Answer<(bool, Watch)> {
        let mut link = self.link().await?;
        let mut request = Request::exists(path, true);
        loop {
            match link.ask_and_watch(request) {
                Ok((answer, watch)) => {
                    // A node that is not there is watched, too.
                    let is_there = match answer.read(answer::stat).await {
                        Ok(_) => true,
                        Err(Fault::Refused(Code::NO_NODE)) => false,
                        Err(fault) => return Err(fault.into()),
                    };
                    return watched((is_there, watch));
                }
                Err(unsent) => {
                    request = unsent;
                    link = self.next_link(link.number).await?;
                }
            }
        }
    }

    /// Replaces the data if the node is still of `version`.
    pub(crate) async fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<Stat> {
        self.ask(Request::set_data(path, data, version), answer::stat).await
    }

    /// Deletes a node; whether it was there.
    pub(crate) async fn delete(&self, path: &str) -> Answer<bool> {
        match self.ask(Request::delete(path), answer::nothing).await {
            Ok(()) => Ok(true),
            Err(Trouble::NoNode) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// What the ensemble says of its servers.
    pub(crate) async fn ensemble(&self) -> Answer<String> {
        let (text, _) = self.data("/zookeeper/config").await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Who may use a node.
    pub(crate) async fn acl(&self, path: &str) -> Answer<Vec<Acl>> {
        self.ask(Request::get_acl(path), answer::acl).await
    }

    /// Whether the leader, whatever our server says, has a node.
    pub(crate) async fn leader_has(&self, path: &str) -> Answer<bool> {
        let steps = self.ask(Request::multi([Step::Check { path }]), answer::steps).await?;
        match steps.first() {
            Some(Err(Code::NO_NODE)) => Ok(false),
            Some(Err(code)) => Err(Fault::Refused(*code).into()),
            Some(Ok(())) => Ok(true),
            None => Err(Fault::Garbled.into()),
        }
    }

    /// Has the server catch up with its leader.
    pub(crate) async fn sync(&self, path: &str) -> Answer<()> {
        self.ask(Request::sync(path), answer::nothing).await
    }

    /// Applies `writes`, all or none, if there is a node at `lock`.
    pub(crate) async fn guarded(&self, lock: &str, writes: &[Write]) -> Result<(), Refused> {
        let check = std::iter::once(Step::Check { path: lock });
        let steps = check.chain(writes.iter().map(|write| match write {
            Write::Create { path, data } => Step::Create { path, data, acl: &self.acl },
            Write::Set { path, data, version } => Step::Set { path, data, version: *version },
            Write::Delete { path } => Step::Delete { path },
        }));
        let steps = self.ask(Request::multi(steps), answer::steps).await.map_err(Refused::Other)?;
        for (number, step) in steps.into_iter().enumerate() {
            match (number, step) {
                // Those before and after the one that failed are not to blame.
                (_, Ok(()) | Err(Code::INCONSISTENT)) => {}
                (0, Err(Code::NO_NODE)) => return Err(Refused::Unlocked),
                (0, Err(code)) => return Err(Refused::Other(Fault::Refused(code).into())),
                (_, Err(code)) => return Err(Refused::Write(number, Fault::Refused(code).into())),
            }
        }
        Ok(())
    }
}

/// Has the leader answer, over this connection alone.
pub(crate) async fn sync_over(link: &Link) -> Result<(), Fault> {
    let asked = link.ask(Request::sync("/")).map_err(|_| Fault::Unsent)?;
    asked.read(answer::nothing).await
}

/// Has a majority commit something, over this connection alone: that there is a root. What is wrong with it is committed, too.
pub(crate) async fn commit_over(link: &Link) -> Result<(), Fault> {
    let asked = link.ask(Request::multi([Step::Check { path: "/" }])).map_err(|_| Fault::Unsent)?;
    asked.read(answer::steps).await.map(drop)
}

/// What ZooKeeper added to `start`, and what it says of the node.
fn claimed(start: &str, reader: &mut Reader<'_>) -> Result<(String, Stat), Garbled> {
    let (path, stat) = answer::created(reader)?;
    Ok((path.strip_prefix(start).ok_or(Garbled)?.to_owned(), stat))
}

/// With the watch that was asked for.
fn watched<T>((answer, mut watches): (T, Vec<Watch>)) -> Answer<(T, Watch)> {
    watches.pop().map(|watch| (answer, watch)).ok_or_else(|| Fault::Garbled.into())
}
