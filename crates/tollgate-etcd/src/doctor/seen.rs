//! What an etcd says of itself, every member of it.

use futures_util::future::join_all;
use tollgate_core::url::Host;
use tollgate_core::{Keeper, Result};

use crate::config::EtcdConfig;
use crate::keys::Layout;
use crate::links::{Links, Repeat};
use crate::ops::put;
use crate::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::wire::{AlarmType, Compare, Member, StatusResponse, TxnRequest};

/// What was seen.
pub(super) struct Seen {
    pub(super) members: Vec<SeenMember>,
    /// What etcd itself raises an alarm about, and on which member; or why it does not say.
    pub(super) alarms: std::result::Result<Vec<(String, AlarmType)>, String>,
    /// Whether keys under our prefix can be written, or why not.
    pub(super) may_write: std::result::Result<(), String>,
}

/// One member.
pub(super) struct SeenMember {
    pub(super) name: String,
    pub(super) is_learner: bool,
    /// What it says, or why it says nothing.
    pub(super) status: std::result::Result<StatusResponse, String>,
}

impl Seen {
    pub(super) async fn look(config: &EtcdConfig) -> Result<Self> {
        let links = Links::new(config, Keeper::global()?)?;
        let listed = links.members().await?.members;
        let members = join_all(listed.iter().map(|member| one(member, config))).await;
        let alarms = links.alarms().await.map(|answer| answer.alarms);
        let named =
            |id: u64| listed.iter().find(|member| member.id == id).map_or_else(|| format!("{id:x}"), name);
        let alarms = alarms
            .map(|alarms| alarms.iter().map(|alarm| (named(alarm.member_id), alarm.alarm())).collect())
            .map_err(|failure| failure.error.message().to_owned());
        let may_write = may_write(&links, &config.prefix).await;
        links.close();
        Ok(Self { members, alarms, may_write })
    }

    /// Members that answer.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&SeenMember, &StatusResponse)> {
        self.members.iter().filter_map(|member| Some((member, member.status.as_ref().ok()?)))
    }

    /// Members that have a vote.
    pub(super) fn voters(&self) -> usize {
        self.members.iter().filter(|member| !member.is_learner).count()
    }
}

async fn one(member: &Member, config: &EtcdConfig) -> SeenMember {
    let status = async {
        let host =
            member.client_ur_ls.first().and_then(|url| host(url)).ok_or("it names no address for clients")?;
        let alone = EtcdConfig { endpoints: vec![host], ..config.clone() };
        let said = |error: tollgate_core::Error| error.message().to_owned();
        let links = Keeper::global().and_then(|keeper| Links::new(&alone, keeper)).map_err(said)?;
        let status = links.status().await.map_err(|failure| said(failure.into()));
        links.close();
        status
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
async fn may_write(links: &Links, prefix: &str) -> std::result::Result<(), String> {
    let key = Layout::new(prefix.to_owned()).probe();
    let never = Compare {
        result: CompareResult::Less.into(),
        target: CompareTarget::Version.into(),
        key: key.clone().into(),
        target_union: Some(TargetUnion::Version(0)),
        ..Compare::default()
    };
    let request =
        TxnRequest { compare: vec![never], success: vec![put(&key, Vec::new(), 0)], failure: Vec::new() };
    match links.txn(request, Repeat::Yes).await {
        Ok(_) => Ok(()),
        Err(failure) => Err(failure.error.message().to_owned()),
    }
}
