//! The wait for a claim's turn: a watch on one node, and a look at the queue when it tells of something.

use std::time::Duration;

use tollgate_core::turn::{Turn, Verdict, judge};
use tollgate_core::wait::Outage;
use tollgate_core::{Claim, ErrorKind, Grant, Result};

use crate::acquire::{Placed, Value, tells_those_behind};
use crate::backend::ZooKeeperBackend;
use crate::error::{Trouble, over};

/// How often a waiter looks again though it was told of nothing.
const AT_LEAST_EVERY: Duration = Duration::from_secs(15);
/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(50);

impl ZooKeeperBackend {
    /// Waits until the lock is ours. Whose place went with its session, or was deleted, queues up again; and so does who finds
    /// nobody to ask meanwhile. What nobody knows is not asked again.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant> {
        let (mut waited, mut outage) = (false, Outage::default());
        loop {
            let error = match self.wait_in_turn(claim, &mut waited, &mut outage).await {
                Err(error) if waited && !claim.standalone => error,
                answer => return answer,
            };
            match error.kind() {
                ErrorKind::Lost if error.is_retryable() => {
                    self.sessions.forget(claim.owner);
                    tokio::time::sleep(PAUSE).await;
                }
                ErrorKind::Unavailable => tokio::time::sleep(outage.pause(error)?).await,
                _ => return Err(error),
            }
        }
    }

    async fn wait_in_turn(&self, claim: &Claim, waited: &mut bool, outage: &mut Outage) -> Result<Grant> {
        let placed = self.place(claim).await?;
        outage.is_over();
        let ended = placed.session.ended();
        tokio::select! {
            biased;
            grant = self.until_in(claim, &placed, waited) => grant,
            () = ended => Err(over()),
        }
    }

    async fn until_in(&self, claim: &Claim, placed: &Placed, waited: &mut bool) -> Result<Grant> {
        loop {
            // A claim that is in its place keeps it while nobody answers.
            let ahead = match self.ahead(claim.owner, placed).await {
                Err(error) if *waited && passes(error.kind()) => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                ahead => ahead?,
            };
            match judge(claim.mode, &ahead, true) {
                Verdict::After(turn) => {
                    *waited = true;
                    let moved = tokio::time::timeout(AT_LEAST_EVERY, self.until_moved(placed, turn)).await;
                    if let Ok(Err(trouble)) = moved {
                        match trouble {
                            Trouble::Failed(error) if !passes(error.kind()) => return Err(error),
                            Trouble::Failed(_) => tokio::time::sleep(PAUSE).await,
                            Trouble::Ended => return Err(over()),
                            Trouble::NoNode | Trouble::Exists | Trouble::Changed => {}
                        }
                    }
                }
                Verdict::In | Verdict::More => break,
            }
        }
        if *waited && tells_those_behind(claim.mode) {
            self.tell_those_behind(claim, placed).await?;
        }
        let grant = self.granted(claim, placed)?;
        Ok(if *waited { grant.after_waiting() } else { grant })
    }

    /// Waits until the queue may have moved.
    async fn until_moved(&self, placed: &Placed, turn: Turn<String>) -> Result<(), Trouble> {
        let calls = &placed.open.calls;
        let watch = match turn {
            // What is not there any more has moved.
            Turn::Left(node) | Turn::Moved(node) => {
                calls.data_and_watch(&format!("{}/{node}", placed.folder)).await?.2
            }
            Turn::AnyLeft => {
                let (children, watch) = calls.children_and_watch(&placed.folder).await?;
                let ahead = self.before(placed, &children).map_err(Trouble::Failed)?;
                if judge(placed.node.mode, &ahead, true) != Verdict::After(Turn::AnyLeft) {
                    return Ok(());
                }
                watch
            }
        };
        watch.changed().await;
        Ok(())
    }

    /// A permit that got in writes its node again: the next one waits for that.
    async fn tell_those_behind(&self, claim: &Claim, placed: &Placed) -> Result<()> {
        let data = Value::new(claim.ttl, &claim.details).to_json()?;
        match placed.open.calls.set(&placed.path(), &data, None).await {
            Ok(_) => Ok(()),
            Err(Trouble::NoNode) => Err(over()),
            Err(trouble) => Err(trouble.into()),
        }
    }
}

/// Whether a look may have better luck. Looking changes nothing, so that it does not matter whether it was done.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Indeterminate)
}
