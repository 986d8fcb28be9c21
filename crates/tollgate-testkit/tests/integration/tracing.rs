//! What a subscriber sees: a span for every operation, and the losses.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate_core::layer::Trace;
use tollgate_core::{BootClock, Keeper, Locks};
use tollgate_embedded::MemoryBackend;
use tollgate_testkit::subject::eventually;
use tracing_subscriber::fmt::format::FmtSpan;

/// Lines as they are written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics here").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Waits for a line with all these words.
    async fn until(&self, words: &[&str]) {
        let find = || async {
            let bytes = self.0.lock().expect("nobody panics here").clone();
            let text = String::from_utf8(bytes).expect("lines are text");
            text.lines().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
        };
        eventually(&format!("a line says {words:?}"), find).await;
    }
}

#[tokio::test]
async fn every_operation_has_a_span_with_its_outcome() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let keeper = Keeper::global().unwrap();
    let memory = Arc::new(MemoryBackend::new(Arc::new(BootClock::new(keeper.clone())), &keeper));
    let locks = Locks::new(Arc::new(Trace::new(memory))).unwrap();

    let guard = locks.lock("orders/42").ttl(Duration::from_millis(300)).acquire().await.unwrap();
    let token = format!("token={}", guard.token());
    lines.until(&["acquire{", "backend=\"memory\"", "lock=orders/42", "outcome=\"granted\"", &token]).await;
    locks.lock("orders/42").try_acquire().await.unwrap();
    lines.until(&["try_acquire{", "outcome=\"busy\""]).await;
    let wait = Duration::from_millis(10);
    locks.lock("orders/42").wait(wait).try_acquire().await.unwrap();
    lines.until(&["withdraw{", "outcome=\"withdrawn\""]).await;
    lines.until(&["extend{", "outcome=\"extended\"", &token]).await;
    locks.inspect("orders/42").await.unwrap();
    lines.until(&["inspect{", "outcome=\"in use\""]).await;
    drop(locks.list("orders/"));
    lines.until(&["list{", "prefix=\"orders/\""]).await;
    drop(locks.events("orders/"));
    lines.until(&["events{", "prefix=\"orders/\""]).await;
    guard.descriptor().unwrap_err();
    lines.until(&["descriptor{", "lock=orders/42"]).await;
    locks.revoke_by_force("orders/42", guard.token()).await.unwrap();
    lines.until(&["revoke{", "outcome=\"revoked\""]).await;
    guard.lost().await;
    lines.until(&["WARN", "a lock is lost", "lock=orders/42", "cause="]).await;
    drop(guard);
    locks.lock("next").acquire().await.unwrap().release().await.unwrap();
    lines.until(&["release{", "lock=next", "outcome=\"released\""]).await;
    locks.close().await;
    lines.until(&["close{"]).await;
}
