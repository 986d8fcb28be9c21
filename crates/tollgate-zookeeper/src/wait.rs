//! The wait for a lock, whatever becomes of sessions and connections meanwhile.

use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate_core::turn::{Verdict, judge};
use tollgate_core::wait::Outage;
use tollgate_core::{Claim, Error, ErrorKind, Grant, Mode, Result};

use crate::acquire::{Placed, Value, left_by};
use crate::backend::{ZooKeeperBackend, say};
use crate::error::{Trouble, over};
use crate::sessions::Leftover;

/// Before a lost place is taken again.
const PAUSE: Duration = Duration::from_millis(50);

impl ZooKeeperBackend {
    /// Waits until the lock is ours. Whose place went with its session, or was deleted, queues up again. Whoever finds nobody to
    /// ask meanwhile, or whose session nobody has heard of for long, keeps its place until that is over. Whoever does not know
    /// whether it has one finds out before it asks for another.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant> {
        let (mut waited, mut outage) = (false, Outage::default());
        loop {
            let error = match self.wait_in_turn(claim, &mut waited, &mut outage).await {
                Ok(Some(grant)) => return Ok(grant),
                Ok(None) => continue,
                Err(error) if (waited || self.sessions.has_asked(claim.owner)) && !claim.standalone => error,
                Err(error) => return Err(error),
            };
            match error.kind() {
                // The session is over, or the node is gone.
                ErrorKind::Lost if error.is_retryable() => {
                    self.sessions.forget(claim.owner);
                    tokio::time::sleep(PAUSE).await;
                }
                ErrorKind::Unavailable | ErrorKind::Indeterminate => {
                    tokio::time::sleep(outage.pause(error)?).await;
                    while let Err(error) = self.find_place(claim).await {
                        tokio::time::sleep(outage.pause(error)?).await;
                    }
                }
                _ => return Err(error),
            }
        }
    }

    /// Finds out what became of a node that was asked for and not answered.
    async fn find_place(&self, claim: &Claim) -> Result<()> {
        let Leftover::Unknown(session) = self.sessions.leftover(claim.owner) else { return Ok(()) };
        let folder = self.layout.folder(&claim.name);
        let found = match session.opened().await {
            Ok(open) => left_by(&open.calls, &folder, claim.owner).await,
            Err(_) => Err(Trouble::Ended),
        };
        match found {
            Ok(found) => match found.first() {
                Some(node) => self.sessions.placed(claim.owner, node),
                None => self.sessions.refused(claim.owner),
            },
            // With the session went what it had.
            Err(Trouble::Ended) => self.sessions.forget(claim.owner),
            Err(trouble) => return Err(trouble.into()),
        }
        Ok(())
    }

    /// The grant when it is in; none if its session had to be proven alive first, so that it has to look again.
    async fn wait_in_turn(
        &self,
        claim: &Claim,
        waited: &mut bool,
        outage: &mut Outage,
    ) -> Result<Option<Grant>> {
        let placed = self.place(claim).await?;
        outage.is_over();
        if judge(claim.mode, &placed.ahead, true) != Verdict::In {
            *waited = true;
            claim.wait_status.set_queued();
            // Where the session is: nobody else has to be woken for a look.
            let until_in = Errand(self.keeper.spawn(placed.standing.clone().until_in(placed.ahead.clone())));
            tokio::select! {
                biased;
                is_in = until_in.done() => is_in?,
                () = placed.session.ended() => return Err(over()),
            }
        }
        if *waited && matches!(claim.mode, Mode::Permit { .. }) {
            self.tell_those_behind(claim, &placed).await?;
        }
        if *waited {
            // Its time counts from the last proof of life: whoever was stopped for long has little left of it.
            placed.session.refresh_fully(placed.ttl).await?;
        }
        let Some(grant) = self.granted(claim, &placed) else {
            placed.session.refresh(placed.ttl).await?;
            return Ok(None);
        };
        Ok(Some(if *waited { grant.after_waiting() } else { grant }))
    }

    /// A permit that got in writes its node again: the next one waits for that, and looks by itself if it hears nothing, only
    /// later. So what becomes of it keeps nobody from being in.
    async fn tell_those_behind(&self, claim: &Claim, placed: &Placed) -> Result<()> {
        let value = Value::new(claim.ttl, &claim.details);
        // An operator's mark stays: its own write has told the next one already.
        match say(&placed.standing.calls, &placed.standing.path(), &value).await {
            Err(Trouble::NoNode | Trouble::Ended) => Err(over()),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// Something that is done on the keeper, until nobody waits for it any more.
struct Errand(JoinHandle<Result<()>>);

impl Errand {
    async fn done(mut self) -> Result<()> {
        (&mut self.0).await.unwrap_or_else(|panic| {
            Err(Error::new(ErrorKind::Unexpected, "the task that waits did not finish").caused_by(panic))
        })
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.abort();
    }
}
