//! What every gate must do, wherever it keeps its marks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{ErrorKind, Fence, Gate, OwnerId, Result, Stale, Token};

/// What a holder shows.
pub fn shown(token: u64, exclusive: bool) -> Fence {
    Fence::shown(Token::new(token).expect("tests show what can be a token"), exclusive)
}

/// A resource that no other test knows.
pub fn own(what: &str) -> String {
    format!("{what}/{}", OwnerId::random().to_hex())
}

/// Every case that needs nothing but the gate.
pub async fn gate_cases(gate: &Arc<dyn Gate>) {
    the_rule(&**gate).await;
    readers_raise_nothing(&**gate).await;
    resources_know_nothing_of_each_other(&**gate).await;
    bad_names_are_refused_and_not_remembered(&**gate).await;
    the_largest_token_is_kept_exactly(&**gate).await;
    nobody_below_whoever_was_admitted(gate).await;
}

fn assert_refused(answer: Result<()>, token: u64, highest: u64) {
    let error = answer.expect_err("the token is stale");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let stale =
        Stale::of(&error).unwrap_or_else(|| panic!("the error does not carry both numbers: {error:?}"));
    assert_eq!((stale.token.get(), stale.highest.map(Token::get)), (token, Some(highest)));
    let words = format!(
        "the token {token} is stale, the larger token {highest} was admitted before; take the lock again"
    );
    assert_eq!(error.message(), words, "the same words everywhere");
}

async fn highest(gate: &dyn Gate, resource: &str) -> Option<u64> {
    gate.highest(resource).await.expect("the mark can be read").map(Token::get)
}

async fn the_rule(gate: &dyn Gate) {
    let name = own("rule");
    assert_eq!(highest(gate, &name).await, None);
    for token in [7, 7, 9, 9] {
        gate.admit(&name, shown(token, true)).await.expect("equal and larger ones pass");
    }
    assert_refused(gate.admit(&name, shown(8, true)).await, 8, 9);
    assert_refused(gate.admit(&name, shown(1, true)).await, 1, 9);
    assert_refused(gate.admit(&name, shown(8, false)).await, 8, 9);
    assert_eq!(highest(gate, &name).await, Some(9), "a refused token changes nothing");
    gate.admit(&name, shown(9, true)).await.expect("the last holder is still admitted");
}

async fn readers_raise_nothing(gate: &dyn Gate) {
    let name = own("readers");
    gate.admit(&name, shown(50, false)).await.expect("no token was admitted before");
    assert_eq!(highest(gate, &name).await, None, "a reader leaves no mark");
    gate.admit(&name, shown(10, true)).await.expect("a reader raised nothing");
    gate.admit(&name, shown(10, false)).await.expect("equal passes");
    gate.admit(&name, shown(99, false)).await.expect("above the mark");
    assert_eq!(highest(gate, &name).await, Some(10));
    assert_refused(gate.admit(&name, shown(9, false)).await, 9, 10);
}

async fn resources_know_nothing_of_each_other(gate: &dyn Gate) {
    let name = own("apart");
    let upper = name.to_uppercase();
    let names = [
        name.clone(),
        upper,
        format!("{name} "),
        format!("{name}/"),
        format!("{{{name}}}"),
        format!("%7B{name}%7D"),
        format!("{name}'\"\\;--"),
        format!("{name}ü\u{1f6a7}"),
        format!("{name}:mark"),
        format!("{name}{}", "x".repeat(512 - name.len())),
    ];
    for (token, name) in (100..).zip(&names) {
        gate.admit(name, shown(token, true)).await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
    }
    for (token, name) in (100..).zip(&names) {
        assert_eq!(highest(gate, name).await, Some(token), "{name:?}");
    }
}

async fn bad_names_are_refused_and_not_remembered(gate: &dyn Gate) {
    for name in ["", "a\0b", "\0", "a\nb", &"x".repeat(513), &"x".repeat(10_000)] {
        let error = gate.admit(name, shown(5, true)).await.expect_err("it cannot be a name");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}: {error}");
        let error = gate.highest(name).await.expect_err("it cannot be a name");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name:?}: {error}");
    }
    assert_eq!(highest(gate, "a").await, None, "nothing was cut off and kept");
}

async fn the_largest_token_is_kept_exactly(gate: &dyn Gate) {
    let (name, most) = (own("largest"), Token::MAX.get());
    gate.admit(&name, shown(most - 1, true)).await.expect("it is a token");
    gate.admit(&name, shown(most, true)).await.expect("it is a token");
    assert_eq!(highest(gate, &name).await, Some(most));
    assert_refused(gate.admit(&name, shown(most - 1, true)).await, most - 1, most);
}

/// Eight tasks show rising tokens. Whoever asks after `n` was let in and shows less is refused.
async fn nobody_below_whoever_was_admitted(gate: &Arc<dyn Gate>) {
    let (name, next, admitted) = (own("crowd"), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (gate, name, next, admitted) = (gate.clone(), name.clone(), next.clone(), admitted.clone());
            tokio::spawn(async move {
                let (mut let_in, mut refused) = (0, 0);
                for round in 0..40_u32 {
                    let token = next.fetch_add(1, Ordering::SeqCst) + 1;
                    if round % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    let before = admitted.load(Ordering::SeqCst);
                    match gate.admit(&name, shown(token, true)).await {
                        Ok(()) => {
                            assert!(token >= before, "{token} was admitted after {before}");
                            admitted.fetch_max(token, Ordering::SeqCst);
                            let_in += 1;
                        }
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
                            refused += 1;
                        }
                    }
                }
                (let_in, refused)
            })
        })
        .collect();
    let mut let_in = 0;
    for task in tasks {
        let (passed, refused) = task.await.expect("no task panics");
        assert_eq!(passed + refused, 40);
        let_in += passed;
    }
    assert!(let_in > 0);
    assert_eq!(highest(&**gate, &name).await, Some(admitted.load(Ordering::SeqCst)));
}

/// A mark that was told outlives a crash of its store, and the gate finds its way back. `away` ends the store, `back` starts
/// it again.
pub async fn survives_a_crash(gate: &Arc<dyn Gate>, away: impl FnOnce(), back: impl FnOnce()) {
    let name = own("crash");
    gate.admit(&name, shown(5, true)).await.expect("the store is there");
    gate.admit(&name, shown(8, true)).await.expect("the store is there");
    away();
    let error = gate.admit(&name, shown(9, true)).await.expect_err("the store is unreachable");
    let expected = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
    assert!(expected.contains(&error.kind()), "{error:?}");
    assert!(gate.admit(&name, shown(8, true)).await.is_err(), "an unreachable store confirms no token");
    back();
    returned(&**gate, &name).await;
    assert_refused(gate.admit(&name, shown(7, true)).await, 7, 8);
    gate.admit(&name, shown(8, true)).await.expect("the last holder is still admitted");
    gate.admit(&name, shown(9, true)).await.expect("the next holder may be admitted");
}

/// Waits until the store answers. A connection that is opened anew may take several tries.
async fn returned(gate: &dyn Gate, name: &str) {
    for _ in 0..600 {
        if gate.highest(name).await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the gate did not recover");
}
