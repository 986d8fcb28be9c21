//! What every URL takes.

use std::time::Duration;

use tollgate::{ErrorKind, connect};

#[tokio::test]
async fn a_namespace_keeps_teams_apart() {
    let red = connect("memory:teams?namespace=red").await.unwrap();
    let blue = connect("memory:teams?namespace=blue").await.unwrap();
    let all = connect("memory:teams").await.unwrap();
    let guard = red.lock("deploy").acquire().await.unwrap();
    assert_eq!(guard.name().as_str(), "deploy");
    assert!(blue.lock("deploy").try_acquire().await.unwrap().is_some());
    assert!(red.lock("deploy").try_acquire().await.unwrap().is_none());
    let state = all.inspect("red/deploy").await.unwrap().unwrap();
    assert_eq!(state.holders[0].token, Some(guard.token()));
}

#[tokio::test]
async fn a_parameter_that_makes_no_sense_says_what_to_write() {
    for (url, hint) in [
        ("memory:?timeout=5", "5s"),
        ("memory:?timeout=0s", "1ms"),
        ("memory:?namespace=", "namespace"),
        ("memory:?namespace=a%0Ab\n", "namespace"),
        ("memory:?namspace=a", "namespace, timeout"),
    ] {
        let error = connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{url}");
        assert!(error.to_string().contains(hint), "{url}: {error}");
    }
    let locks = connect("memory:?timeout=5s").await.unwrap();
    locks.lock("a").wait(Duration::from_secs(1)).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_name_too_long_for_its_namespace_is_refused() {
    let locks = connect("memory:long?namespace=team").await.unwrap();
    let longest = "x".repeat(507);
    locks.lock(&longest).acquire().await.unwrap().release().await.unwrap();
    let error = locks.lock(format!("{longest}x")).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("507"), "{error}");
}
