//! What those see who watch a program: the names that are in it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tracing_subscriber::fmt::format::FmtSpan;

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

#[tokio::test]
async fn names_in_traces_and_errors_are_those_of_the_program() {
    let lines = Lines::default();
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let locks = tollgate::connect("memory:watching?namespace=hidden-team").await.unwrap();
    let guard = locks.lock("orders/42").acquire().await.unwrap();
    locks.revoke("orders/42", guard.token()).await.unwrap();
    guard.release().await.unwrap();
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for span in ["acquire{", "revoke{", "release{"] {
        // Other tests of this program have spans of their own.
        let ours = |line: &str| line.contains(span) && line.contains("lock=orders/42 ");
        assert!(text.lines().any(ours), "no {span} in {text}");
    }
    assert!(!text.contains("hidden-team"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let url = format!("file:{}/locks?namespace=hidden-team", folder.path().display());
    let locks = tollgate::connect(&url).await.unwrap();
    std::fs::write(folder.path().join("locks"), "in the way").unwrap();
    let error = locks.lock("orders/42").acquire().await.unwrap_err();
    assert_eq!(error.lock().map(|lock| lock.as_str()), Some("orders/42"), "{error}");
    assert!(!error.to_string().contains("hidden-team"), "{error}");
}
