//! Proof of life: an answered keep-alive counts only once a linearizable read that was sent after its
//! answer has been answered in the same term.
//!
//! etcd's leader answers keep-alives from memory. A leader that was deposed while it was stopped or
//! cut off does so, too, until it notices, and its successor ends the lease meanwhile. A linearizable
//! read is answered only after a majority has confirmed the leader, so it shows which leader that was:
//!
//! - A member fills in the keep-alive's term before it forwards the keep-alive. The term is that of the
//!   last entry it has applied, so its leader at that time is the leader of this term or a later one.
//! - The read's term is filled in after the read. A read that was confirmed by the leader of a later
//!   term waits for an entry of that term, and so carries a later term.
//! - With equal terms, both leaders are therefore the leader of that term, and a majority still followed
//!   it after it had renewed the lease. A successor adds the whole ttl after that moment.

use futures_util::TryFutureExt;

use crate::error::Failure;
use crate::link::Link;
use crate::links::Links;
use crate::wire::kv_client::KvClient;
use crate::wire::{LeaseKeepAliveResponse, RangeRequest, ResponseHeader};

/// The leader's term when a member applied the last entry before it handled the keep-alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewedIn(u64);

impl RenewedIn {
    /// The term of an answered keep-alive; `None` if the lease is gone.
    pub(crate) fn of(answer: &LeaseKeepAliveResponse) -> Option<Self> {
        (answer.ttl > 0).then(|| Self(answer.header.map_or(0, |header| header.raft_term)))
    }

    /// Whether a linearizable read, sent after the keep-alive was answered, proves the renewal.
    pub(crate) fn is_proven_by(self, read: Option<&ResponseHeader>) -> bool {
        read.is_some_and(|header| header.raft_term == self.0)
    }
}

/// A linearizable read over `link`, of a key that every user of these locks may read.
pub(crate) async fn confirm(links: &Links, link: &Link) -> Result<Option<ResponseHeader>, Failure> {
    let request = links.request(any_key(links.prefix()));
    let mut client = KvClient::with_origin(link.channel(), link.origin());
    let answer = client.range(request).map_err(Failure::from).await?;
    Ok(answer.into_inner().header)
}

/// Reads one key under `prefix`, which need not be there.
pub(crate) fn any_key(prefix: &str) -> RangeRequest {
    RangeRequest {
        key: prefix.as_bytes().to_vec().into(),
        limit: 1,
        keys_only: true,
        ..RangeRequest::default()
    }
}
