//! Exclusion, order and death over real processes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::*;
use tollgate_core::{Backend, LockName, Mode, Revocation, RevokeMode, Token};

fn token(said: &str) -> u64 {
    said.strip_prefix("locked ").unwrap_or_else(|| panic!("{said:?}")).parse().unwrap()
}

/// Starts a helper that waits for the lock, behind everybody who waits already.
async fn line_up(
    dir: &std::path::Path,
    backend: &tollgate_local::FileBackend,
    name: &str,
    how: &str,
) -> Helper {
    let (_, before) = counts(backend, name).await;
    let mut helper = Helper::start(dir);
    helper.tell(&format!("lock {name} {how}"));
    until("it waits", async || counts(backend, name).await.1 == before + 1).await;
    helper
}

#[test]
fn twenty_processes_never_overlap_and_lose_no_update() {
    let dir = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let mut helpers: Vec<_> = (0..20).map(|_| Helper::start(dir.path())).collect();
    for helper in &mut helpers {
        helper.tell(&format!("count 1 20 {}", files.path().display()));
    }
    for mut helper in helpers {
        assert!(helper.hear().starts_with("counted"));
        helper.finish();
    }
    assert_eq!(count(&files.path().join("0")), 400);
    let left = std::fs::read_dir(dir.path().join("locks")).unwrap().count();
    assert_eq!(left, 0, "the last one clears away the file");
}

#[test]
fn files_that_come_and_go_lose_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let files = tempfile::tempdir().unwrap();
    let mut helpers: Vec<_> = (0..8).map(|_| Helper::start(dir.path())).collect();
    for helper in &mut helpers {
        helper.tell(&format!("count 3 40 {}", files.path().display()));
    }
    // Removes files whenever nobody uses them, all the time.
    let backend = open(dir.path());
    run(async {
        use futures_util::StreamExt;
        let mut done = 0;
        while done < helpers.len() {
            let _ = backend.list("nothing/").next().await;
            done +=
                helpers.iter_mut().filter_map(|h| (!h.hears_nothing(Duration::ZERO)).then_some(())).count();
        }
    });
    for helper in helpers {
        helper.finish();
    }
    for name in 0..3 {
        assert_eq!(count(&files.path().join(name.to_string())), 320);
    }
}

#[test]
fn waiters_are_served_in_their_order_and_the_killed_are_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let mut line = Vec::new();
        for _ in 0..5 {
            line.push(line_up(dir.path(), &backend, "a", "x").await);
        }
        line.remove(2).kill();
        until("the dead one is gone", async || counts(&backend, "a").await == (1, 4)).await;
        let mut last = held.token.get();
        backend.release(&held).await.unwrap();
        for (at, mut helper) in line.into_iter().enumerate() {
            let next = token(&helper.hear());
            assert!(next > last);
            last = next;
            assert_eq!(counts(&backend, "a").await, (1, 3 - at), "nobody came before");
            assert_eq!(helper.ask("unlock"), "Released");
        }
        assert_eq!(look(&backend, "a").await, None);
    });
}

#[test]
fn the_lock_of_a_killed_holder_is_free_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let mut holder = Helper::start(dir.path());
        let first = token(&holder.ask("lock a x"));
        assert!(!is_free(&backend, "a", Mode::Exclusive).await);
        let mut waiter = line_up(dir.path(), &backend, "a", "x").await;
        holder.kill();
        assert!(token(&waiter.hear()) > first);
        waiter.kill();
        assert_eq!(look(&backend, "a").await, None, "the dead are not shown");
        assert!(is_free(&backend, "a", Mode::Exclusive).await);
    });
}

#[test]
fn a_stopped_waiter_keeps_its_place_and_holds_up_nobody_before_its_turn() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let mut first = line_up(dir.path(), &backend, "a", "x").await;
        let mut stopped = line_up(dir.path(), &backend, "a", "x").await;
        let mut last = line_up(dir.path(), &backend, "a", "x").await;
        stopped.signal("-STOP");
        backend.release(&held).await.unwrap();
        token(&first.hear());
        assert_eq!(first.ask("unlock"), "Released");
        assert!(last.hears_nothing(Duration::from_millis(200)), "nobody overtakes");
        assert!(is_free(&backend, "b", Mode::Exclusive).await, "other locks go on");
        stopped.signal("-CONT");
        token(&stopped.hear());
        stopped.signal("-STOP");
        stopped.kill();
        token(&last.hear());
    });
}

#[test]
fn readers_come_in_together_and_do_not_starve_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let mut readers = [Helper::start(dir.path()), Helper::start(dir.path())];
        for reader in &mut readers {
            token(&reader.ask("lock a s"));
        }
        let mut writer = line_up(dir.path(), &backend, "a", "x").await;
        let mut late =
            [line_up(dir.path(), &backend, "a", "s").await, line_up(dir.path(), &backend, "a", "s").await];
        assert_eq!(Helper::start(dir.path()).ask("try a s"), "busy", "a writer waits");
        assert_eq!(readers[0].ask("unlock"), "Released");
        assert!(writer.hears_nothing(Duration::from_millis(50)));
        assert_eq!(readers[1].ask("unlock"), "Released");
        let written = token(&writer.hear());
        writer.kill();
        for reader in &mut late {
            assert!(token(&reader.hear()) > written);
        }
        assert_eq!(counts(&backend, "a").await, (2, 0));
    });
}

#[test]
fn a_writer_who_gives_up_lets_the_readers_behind_in() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let _reading = take(&backend, "a", Mode::Shared).await;
        let mut writer = line_up(dir.path(), &backend, "a", "x").await;
        let mut reader = line_up(dir.path(), &backend, "a", "s").await;
        writer.kill();
        token(&reader.hear());
    });
}

#[test]
fn permits_are_given_in_order_up_to_the_limit_whoever_leaves_first() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let mut first = Helper::start(dir.path());
        let mut second = Helper::start(dir.path());
        let mut tokens = BTreeSet::from([token(&first.ask("lock a 2")), token(&second.ask("lock a 2"))]);
        let mut line = Vec::new();
        for _ in 0..4 {
            line.push(line_up(dir.path(), &backend, "a", "2").await);
        }
        assert_eq!(Helper::start(dir.path()).ask("try a 3"), "busy", "another limit");
        assert_eq!(second.ask("unlock"), "Released");
        tokens.insert(token(&line[0].hear()));
        assert!(line[1].hears_nothing(Duration::from_millis(50)));
        line[1].kill();
        first.kill();
        tokens.insert(token(&line[2].hear()));
        assert!(line[3].hears_nothing(Duration::from_millis(50)));
        assert_eq!(line[0].ask("unlock"), "Released");
        tokens.insert(token(&line[3].hear()));
        assert_eq!(tokens.len(), 5);
        assert_eq!(counts(&backend, "a").await, (2, 0));
    });
}

#[test]
fn fifty_processes_that_start_at_once_share_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/folder");
    let mut helpers: Vec<_> = (0..50).map(|_| Helper::start(&dir)).collect();
    for helper in &mut helpers {
        helper.tell("lock a x");
    }
    // In whatever order they came in: every token once.
    let mut tokens = BTreeSet::new();
    let mut waiting: Vec<_> = (0..50).collect();
    while !waiting.is_empty() {
        waiting.retain(|at| {
            if helpers[*at].hears_nothing(Duration::from_millis(1)) {
                return true;
            }
            helpers[*at].tell("unlock");
            assert_eq!(helpers[*at].hear(), "Released");
            tokens.insert(*at);
            false
        });
    }
    assert_eq!(tokens.len(), 50);
    let backend = open(&dir);
    let next = run(take(&backend, "a", Mode::Exclusive)).token;
    assert_eq!(next.get(), 51, "fifty tokens were drawn, none twice");
}

#[test]
fn an_operator_asks_and_the_holder_hears() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let name = LockName::new("a").unwrap();
        let mut holder = Helper::start(dir.path());
        let held = Token::new(token(&holder.ask("lock a x"))).unwrap();
        assert_eq!(
            backend.revoke(&name, held.next().unwrap(), RevokeMode::Ask).await.unwrap(),
            Revocation::NotHeld
        );
        holder.tell("lost");
        assert_eq!(backend.revoke(&name, held, RevokeMode::Ask).await.unwrap(), Revocation::Pending);
        assert_eq!(holder.hear(), "Revoked");
        assert_eq!(counts(&backend, "a").await, (1, 0), "it stays locked until it is released");
        assert_eq!(holder.ask("unlock"), "Released");
        assert_eq!(backend.revoke(&name, held, RevokeMode::Ask).await.unwrap(), Revocation::NotHeld);
    });
}

#[test]
fn a_child_keeps_the_lock_of_its_dead_parent_but_not_a_released_one() {
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let inherited = backend.descriptor(&held).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(inherited).spawn().unwrap();
        backend.release(&held).await.unwrap();
        assert!(is_free(&backend, "a", Mode::Exclusive).await, "released is released");
        child.kill().unwrap();
        child.wait().unwrap();

        let other = open(dir.path());
        let held = take(&other, "a", Mode::Exclusive).await;
        let inherited = other.descriptor(&held).unwrap();
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(inherited).spawn().unwrap();
        drop(other);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!is_free(&backend, "a", Mode::Exclusive).await, "the child lives");
        child.kill().unwrap();
        child.wait().unwrap();
        until("it is free", async || is_free(&backend, "a", Mode::Exclusive).await).await;
    });
}
