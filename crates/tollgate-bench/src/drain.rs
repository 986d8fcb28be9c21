//! The end of a round: those who still wait get their turn, or give up.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::contender::Failure;

/// How long it may take until everybody has had its last turn. Who polls may never get one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for the last turn of each task, and drops those that have none. Their names are never used again.
pub(crate) async fn drain(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Failure> {
    let all = async {
        while let Some(passed) = tasks.join_next().await {
            passed??;
        }
        Ok(())
    };
    let drained = tokio::time::timeout(PATIENCE, all).await;
    tasks.shutdown().await;
    drained.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_ever_is_dropped_and_who_fails_is_heard() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async { Ok(()) });
        tasks.spawn(std::future::pending());
        drain(tasks).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { Err("the engine is gone".into()) });
        assert_eq!(drain(tasks).await.unwrap_err().to_string(), "the engine is gone");
    }
}
