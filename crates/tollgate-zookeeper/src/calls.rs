//! Every request, each with a limit of its own: the driver keeps requests that nobody waits for any more, and sends them when
//! it has a connection again.

use std::time::Duration;

use zookeeper_client::{
    Acl, Acls, CheckWriteError, Client, CreateMode, Error as Fault, OneshotWatcher, SessionState, Stat,
    StateWatcher,
};

use crate::config::Access;
use crate::error::Trouble;
use crate::fence::{Refused, Write};

/// How long an answer may take.
const TO_ANSWER: Duration = Duration::from_secs(5);

type Answer<T> = Result<T, Trouble>;

/// A session's requests, in the order in which they are made.
#[derive(Debug, Clone)]
pub(crate) struct Calls {
    client: Client,
    access: Access,
}

impl Calls {
    pub(crate) fn new(client: Client, access: Access) -> Self {
        Self { client, access }
    }

    /// The session's number.
    pub(crate) fn session(&self) -> i64 {
        self.client.session_id().0
    }

    pub(crate) fn states(&self) -> StateWatcher {
        self.client.state_watcher()
    }

    /// Waits until there is a connection, so that what is sent next is sent now.
    pub(crate) async fn connected(&self) -> Answer<()> {
        let mut states = self.states();
        let connected = async {
            loop {
                match states.peek_state() {
                    SessionState::Disconnected => states.changed().await,
                    state if state.is_terminated() => return Err(Trouble::Ended),
                    _ => return Ok(()),
                };
            }
        };
        tokio::time::timeout(TO_ANSWER, connected).await.unwrap_or_else(|_| Err(away()))
    }

    /// Creates the node of a claim; what ZooKeeper added to `start`, and its own account of the node.
    pub(crate) async fn claim(&self, start: &str, data: &[u8]) -> Answer<(String, Stat)> {
        let acls = self.acls();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
        let (stat, sequence) = answered(self.client.create(start, data, &options)).await?;
        Ok((sequence.to_string(), stat))
    }

    /// Creates the node of a claim, and looks at its folder after that. Both go out at once, and are served in this order, so that
    /// whoever waits is woken once: by the second answer.
    pub(crate) async fn claim_and_look(
        &self,
        start: &str,
        data: &[u8],
        folder: &str,
    ) -> (Answer<(String, Stat)>, Answer<Vec<String>>) {
        let acls = self.acls();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&acls));
        // The driver sends a request when it is made, not when it is waited for.
        let (created, seen) = (self.client.create(start, data, &options), self.client.list_children(folder));
        let seen = answered(seen).await;
        let created = answered(created).await;
        (created.map(|(stat, sequence)| (sequence.to_string(), stat)), seen)
    }

    /// Creates a folder, and those it is in where they are missing. ZooKeeper removes the folders of locks when nothing has been
    /// in them for a while, also between two of these steps; `kept` is the last that stays.
    pub(crate) async fn folder(&self, path: &str, kept: &str) -> Answer<()> {
        let acls = self.acls();
        let mut missing = vec![path];
        while let Some(folder) = missing.last() {
            let mode = if folder.len() > kept.len() { CreateMode::Container } else { CreateMode::Persistent };
            match answered(self.client.create(folder, b"", &mode.with_acls(Acls::new(&acls)))).await {
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
        let acls = self.acls();
        let options = CreateMode::Persistent.with_acls(Acls::new(&acls));
        answered(self.client.create(path, data, &options)).await.map(drop)
    }

    pub(crate) async fn children(&self, path: &str) -> Answer<Vec<String>> {
        answered(self.client.list_children(path)).await
    }

    /// The children, and what tells when there are others.
    pub(crate) async fn children_and_watch(&self, path: &str) -> Answer<(Vec<String>, OneshotWatcher)> {
        answered(self.client.list_and_watch_children(path)).await
    }

    pub(crate) async fn data(&self, path: &str) -> Answer<(Vec<u8>, Stat)> {
        answered(self.client.get_data(path)).await
    }

    /// The data, and what tells when they change or the node is gone.
    pub(crate) async fn data_and_watch(&self, path: &str) -> Answer<(Vec<u8>, Stat, OneshotWatcher)> {
        answered(self.client.get_and_watch_data(path)).await
    }

    /// Whether a node is there, and what tells when that, or its data, change.
    pub(crate) async fn is_there_and_watch(&self, path: &str) -> Answer<(bool, OneshotWatcher)> {
        let (stat, watcher) = answered(self.client.check_and_watch_stat(path)).await?;
        Ok((stat.is_some(), watcher))
    }

    /// Replaces the data if the node is still of `version`.
    pub(crate) async fn set(&self, path: &str, data: &[u8], version: Option<i32>) -> Answer<Stat> {
        answered(self.client.set_data(path, data, version)).await
    }

    /// Deletes a node; whether it was there.
    pub(crate) async fn delete(&self, path: &str) -> Answer<bool> {
        match answered(self.client.delete(path, None)).await {
            Ok(()) => Ok(true),
            Err(Trouble::NoNode) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// What the ensemble says of its servers.
    pub(crate) async fn ensemble(&self) -> Answer<String> {
        let (text, _) = answered(self.client.get_config()).await?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Who may use a node.
    pub(crate) async fn acl(&self, path: &str) -> Answer<Vec<Acl>> {
        Ok(answered(self.client.get_acl(path)).await?.0)
    }

    /// Has the server catch up with its leader.
    pub(crate) async fn sync(&self, path: &str) -> Answer<()> {
        answered(self.client.sync(path)).await
    }

    /// Applies `writes`, all or none, if there is a node at `lock`.
    pub(crate) async fn guarded(&self, lock: &str, writes: &[Write]) -> Result<(), Refused> {
        let of_write = |number: usize| move |fault: Fault| Refused::Write(number, fault.into());
        let other = |fault: Fault| Refused::Other(fault.into());
        let mut multi = self.client.new_check_writer(lock, None).map_err(other)?;
        let acls = self.acls();
        for (at, write) in writes.iter().enumerate() {
            let added = match write {
                Write::Create { path, data } => {
                    multi.add_create(path, data, &CreateMode::Persistent.with_acls(Acls::new(&acls)))
                }
                Write::Set { path, data, version } => multi.add_set_data(path, data, *version),
                Write::Delete { path } => multi.add_delete(path, None),
            };
            added.map_err(of_write(at + 1))?;
        }
        match tokio::time::timeout(TO_ANSWER, multi.commit()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(CheckWriteError::CheckFailed { source: Fault::NoNode })) => Err(Refused::Unlocked),
            Ok(Err(CheckWriteError::OperationFailed { index, source })) => Err(of_write(index + 1)(source)),
            Ok(Err(CheckWriteError::CheckFailed { source } | CheckWriteError::RequestFailed { source })) => {
                Err(other(source))
            }
            Err(_) => Err(Refused::Other(Trouble::silence())),
        }
    }

    fn acls(&self) -> Vec<Acl> {
        let parts = match self.access {
            Access::Open => vec![Acls::anyone_all()],
            Access::Readable => vec![Acls::creator_all(), Acls::anyone_read()],
            Access::Closed => vec![Acls::creator_all()],
        };
        parts.iter().flat_map(|acls| acls.iter().cloned()).collect()
    }
}

/// Nobody can be asked.
fn away() -> Trouble {
    use tollgate_core::{Error, ErrorKind};
    Trouble::Failed(Error::new(
        ErrorKind::Unavailable,
        "there is no connection to ZooKeeper now, and nothing was asked; is it up?",
    ))
}

async fn answered<T>(request: impl Future<Output = Result<T, Fault>>) -> Answer<T> {
    match tokio::time::timeout(TO_ANSWER, request).await {
        Ok(answer) => answer.map_err(Trouble::from),
        Err(_) => Err(Trouble::silence()),
    }
}
