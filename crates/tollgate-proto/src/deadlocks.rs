//! `GET /v1/deadlocks`: the wait-for graph, and the circles in it.

use serde::{Deserialize, Serialize};
use tollgate_types::{LockName, PartyId};

/// The wait-for graph as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Deadlocks {
    /// The parties that hold or wait, and the claims without a party.
    pub nodes: Vec<WaitForNode>,
    /// What waits for what.
    pub edges: Vec<WaitForEdge>,
    /// The circles: none of their nodes goes on by itself.
    pub circles: Vec<Circle>,
}

/// A party, or a claim that belongs to none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitForNode {
    /// Its number in this answer; another answer numbers anew.
    pub id: u64,
    /// The party; left out for a claim without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::PartyId>))]
    pub party: Option<PartyId>,
    /// The access rule that let it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Its host, as it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Its process, as it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// One node waits for another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WaitForEdge {
    /// The node that waits.
    pub from: u64,
    /// The node that it waits for: a holder, or a claim ahead in the queue.
    pub to: u64,
    /// The lock that it waits for.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
}

/// Nodes each of which waits for the next one, and the last for the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Circle {
    /// The numbers of the nodes.
    pub nodes: Vec<u64>,
}

/// A step of the circle that a problem of the kind `deadlock` names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waits {
    /// The party that waits; left out for a claim without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::openapi::words::PartyId>))]
    pub party: Option<PartyId>,
    /// The lock that it waits for.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::openapi::words::LockName))]
    pub name: LockName,
}

impl From<tollgate_types::Waits> for Waits {
    fn from(waits: tollgate_types::Waits) -> Self {
        Self { party: waits.party, name: waits.name }
    }
}
