//! What shows that an etcd was restored from a backup, and keeps it from being forgotten.
//!
//! Every revision takes an entry of the log, so that the log is never behind. One that is began after its data: with a backup.
//! But what writes nothing takes an entry, too, and so it catches up. Whoever connects meanwhile leaves a mark, which stays until
//! an operator has seen to it.

use serde::{Deserialize, Serialize};

use crate::backend::EtcdBackend;
use crate::error::Failure;
use crate::keys::Layout;
use crate::links::{Links, Repeat};
use crate::ops;
use crate::wire::{KeyValue, RangeRequest, StatusResponse, TxnRequest};

/// That an etcd was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// How far the log was behind. It only falls as long as nothing is restored: whoever finds it larger than here has found
    /// another time.
    pub(crate) behind: u64,
    /// Whether an operator has seen to it.
    #[serde(default)]
    pub(crate) seen: bool,
}

impl Mark {
    /// The mark as etcd has it; what cannot be read is none.
    pub(crate) fn read(found: Option<&KeyValue>) -> Option<Self> {
        serde_json::from_slice(&found?.value).ok()
    }

    /// What is to be written where `known` is and the log is so far behind; none if that is known.
    fn news(known: Option<Self>, behind: u64) -> Option<Self> {
        let known = known.map_or(0, |mark| mark.behind);
        (behind > known).then_some(Self { behind, seen: false })
    }
}

/// How far the log of a member is behind its data; zero if it is not, as it should be.
///
/// A member does not read both at once: what it says `then` about its log is about no earlier moment than what it said first
/// about its data.
pub(crate) fn behind(first: &StatusResponse, then: &StatusResponse) -> u64 {
    let (Some(one), Some(other)) = (first.header, then.header) else { return 0 };
    if one.member_id != other.member_id {
        return 0;
    }
    // An etcd on which nothing was written is at revision one.
    (one.revision.unsigned_abs().saturating_sub(1)).saturating_sub(then.raft_index)
}

/// The mark that is there, and when it was written.
pub(crate) async fn look(links: &Links, layout: &Layout) -> Result<(Option<Mark>, i64), Failure> {
    let read = RangeRequest { key: layout.restored().into(), ..RangeRequest::default() };
    let found = links.range(read).await?.kvs.into_iter().next();
    Ok((Mark::read(found.as_ref()), found.map_or(0, |found| found.mod_revision)))
}

impl EtcdBackend {
    /// Reads the mark, and writes it if there is reason to. Who may not write leaves it to others.
    pub(crate) async fn note_restore(links: &Links, layout: &Layout) -> Result<(), Failure> {
        let (known, written) = look(links, layout).await?;
        if links.behind() == 0 {
            return Ok(());
        }
        // More than was said in greeting: that read both at once.
        let (first, then) = (links.status().await?, links.status().await?);
        if let Some(mark) = Mark::news(known, behind(&first, &then))
            && let Ok(value) = serde_json::to_vec(&mark)
        {
            let key = layout.restored();
            let request = TxnRequest {
                compare: vec![ops::unchanged(&key, written)],
                success: vec![ops::put(&key, value, 0)],
                failure: Vec::new(),
            };
            let _ = links.txn(request, Repeat::Yes).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ResponseHeader;

    #[test]
    fn a_log_that_is_shorter_than_its_data_began_with_a_backup() {
        let status = |member_id, revision, raft_index| {
            let header = Some(ResponseHeader { revision, member_id, ..ResponseHeader::default() });
            StatusResponse { header, raft_index, ..StatusResponse::default() }
        };
        let of = |revision, raft_index| behind(&status(1, revision, 0), &status(1, 0, raft_index));
        assert_eq!((of(1, 4), of(10, 13), of(10, 9)), (0, 0, 0));
        assert_eq!(of(1000, 9), 990);
        assert_eq!(behind(&status(1, 1000, 9), &status(2, 1000, 9)), 0, "they are two members'");
    }

    #[test]
    fn what_an_operator_has_seen_to_is_told_again_only_after_another_backup() {
        let mark = Mark { behind: 100, seen: true };
        assert_eq!(Mark::news(None, 0), None);
        assert_eq!(Mark::news(None, 100), Some(Mark { behind: 100, seen: false }));
        assert_eq!(Mark::news(Some(mark), 60), None);
        assert_eq!(Mark::news(Some(mark), 101), Some(Mark { behind: 101, seen: false }));
    }
}
