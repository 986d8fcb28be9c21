//! The owner ids whose claims are over, so that a request that comes late does not bring one back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tollgate_core::OwnerId;

/// How long a request may be on its way.
const LATEST: Duration = Duration::from_secs(60);

/// Claims that ended lately. An owner id is used for one acquisition only, so what has ended stays ended:
/// an acquire that a withdraw or a release overtook finds its id here and is refused.
#[derive(Default)]
pub(super) struct Ended {
    since: HashMap<OwnerId, Instant>,
}

impl Ended {
    /// Remembers that `owner`'s claim is over, also if nobody has heard of it yet.
    pub(super) fn remember(&mut self, owner: OwnerId) {
        self.since.insert(owner, Instant::now());
    }

    /// Whether `owner`'s claim is over.
    pub(super) fn knows(&self, owner: OwnerId) -> bool {
        self.since.contains_key(&owner)
    }

    /// Forgets what no request on its way can ask for any more.
    pub(super) fn forget_the_old(&mut self) {
        self.since.retain(|_, since| since.elapsed() < LATEST);
    }
}
