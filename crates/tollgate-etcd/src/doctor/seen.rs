//! What an etcd says of itself, every member of it.

use futures_util::future::join_all;
use tollgate_core::url::Host;
use tollgate_core::{Error, ErrorKind, Keeper, Result};

use crate::config::EtcdConfig;
use crate::keys::Layout;
use crate::links::{Asks, Links, Repeat};
use crate::ops::put;
use crate::restored::{self, Mark};
use crate::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::{AlarmType, Compare, Member, StatusResponse, TxnRequest};

/// What was seen.
pub(super) struct Seen {
    pub(super) members: Vec<SeenMember>,
    /// What etcd itself raises an alarm about, and on which member; or why it does not say.
    pub(super) alarms: Result<Vec<(String, AlarmType)>>,
    /// Whether keys under our prefix can be written, or why not.
    pub(super) may_write: Result<()>,
    /// What whoever connected after it was restored from a backup has left.
    pub(super) mark: Option<Mark>,
    /// What the keys of locks start with.
    pub(super) prefix: String,
}

/// One member.
pub(super) struct SeenMember {
    pub(super) name: String,
    pub(super) is_learner: bool,
    /// What it says, or why it says nothing.
    pub(super) status: std::result::Result<SeenStatus, String>,
}

/// What a member says.
pub(super) struct SeenStatus {
    pub(super) now: StatusResponse,
    /// How far its log is behind its data.
    pub(super) behind: u64,
}

impl Seen {
    pub(super) async fn look(config: &EtcdConfig) -> Result<Self> {
        let anybody = Links::to(config, Keeper::global()?, Asks::Anybody)?;
        let listed = anybody.members().await?.members;
        anybody.close();
        let members = join_all(listed.iter().map(|member| one(member, config))).await;
        let mut seen = Self {
            members,
            alarms: Err(no_leader()),
            may_write: Err(no_leader()),
            mark: None,
            prefix: config.prefix.clone(),
        };
        if seen.answers().any(|(_, status)| status.now.leader != 0) {
            seen.ask_the_leader(config, &listed).await?;
        }
        Ok(seen)
    }

    /// Looks at what no member knows without the others.
    async fn ask_the_leader(&mut self, config: &EtcdConfig, listed: &[Member]) -> Result<()> {
        let links = Links::new(config, Keeper::global()?)?;
        let named =
            |id: u64| listed.iter().find(|member| member.id == id).map_or_else(|| format!("{id:x}"), name);
        self.alarms = match links.alarms().await {
            Ok(answer) => {
                Ok(answer.alarms.iter().map(|alarm| (named(alarm.member_id), alarm.alarm())).collect())
            }
            Err(failure) => Err(failure.into()),
        };
        let layout = Layout::new(config.prefix.clone());
        self.may_write = may_write(&links, &layout).await;
        // Who may not read it is told so by what is found about rights.
        self.mark = restored::look(&links, &layout).await.ok().and_then(|(mark, _)| mark);
        links.close();
        Ok(())
    }

    /// Members that answer.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&SeenMember, &SeenStatus)> {
        self.members.iter().filter_map(|member| Some((member, member.status.as_ref().ok()?)))
    }

    /// Members that have a vote.
    pub(super) fn voters(&self) -> usize {
        self.members.iter().filter(|member| !member.is_learner).count()
    }

    /// Those of them that answer.
    pub(super) fn answering(&self) -> usize {
        self.answers().filter(|(member, _)| !member.is_learner).count()
    }

    /// How many of them must answer for a lock to be taken.
    pub(super) fn majority(&self) -> usize {
        self.voters() / 2 + 1
    }

    /// Whether etcd says that the database of this member is full.
    pub(super) fn is_full(&self, member: &str) -> bool {
        let full = |(name, alarm): &(String, AlarmType)| name == member && *alarm == AlarmType::Nospace;
        self.alarms.as_ref().is_ok_and(|alarms| alarms.iter().any(full))
    }
}

async fn one(member: &Member, config: &EtcdConfig) -> SeenMember {
    let status = async {
        let host = member
            .client_ur_ls
            .first()
            .and_then(|url| host(url))
            .ok_or("the member has no client address")?;
        let alone = EtcdConfig { endpoints: vec![host], ..config.clone() };
        let said = |error: Error| error.message().to_owned();
        let keeper = Keeper::global().map_err(said)?;
        let links = Links::to(&alone, keeper, Asks::Anybody).map_err(said)?;
        let asked = async { Ok((links.status().await?, links.status().await?)) }.await;
        links.close();
        let (first, now) = asked.map_err(|failure: crate::error::Failure| said(failure.into()))?;
        Ok(SeenStatus { behind: restored::behind(&first, &now), now })
    };
    SeenMember { name: name(member), is_learner: member.is_learner, status: status.await }
}

fn name(member: &Member) -> String {
    // One that has not started yet has no name.
    if member.name.is_empty() { format!("{:x}", member.id) } else { member.name.clone() }
}

/// The host of a member's URL.
fn host(url: &str) -> Option<Host> {
    let (_, rest) = url.split_once("://")?;
    let config = EtcdConfig::from_url(&format!("etcd://{}", rest.trim_end_matches('/'))).ok()?;
    config.endpoints.into_iter().next()
}

/// Tries a write whose condition never holds: whether it is allowed is looked at before.
async fn may_write(links: &Links, layout: &Layout) -> Result<()> {
    let key = layout.probe();
    let never = Compare {
        result: CompareResult::Less.into(),
        target: CompareTarget::Version.into(),
        key: key.clone().into(),
        target_union: Some(TargetUnion::Version(0)),
        ..Compare::default()
    };
    let request =
        TxnRequest { compare: vec![never], success: vec![put(&key, Vec::new(), 0)], failure: Vec::new() };
    links.txn(request, Repeat::Yes).await?;
    Ok(())
}

fn no_leader() -> Error {
    Error::new(ErrorKind::Unavailable, "the cluster has no leader")
}
