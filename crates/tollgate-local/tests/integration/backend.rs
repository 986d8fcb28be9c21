//! What one process sees: tokens, modes, names, looking, and files that vanish.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;
use futures_util::StreamExt;
use tollgate_core::{
    Backend, Deadline, Details, ErrorKind, Extension, Happening, LossCause, Mode, Release, Token,
};

#[test]
fn two_backends_of_one_process_exclude_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    run(async {
        let held = take(&one, "a", Mode::Exclusive).await;
        assert_eq!(held.deadline, Deadline::Never);
        assert!(!is_free(&two, "a", Mode::Exclusive).await);
        assert!(!is_free(&one, "a", Mode::Shared).await, "not re-entrant either");
        assert_eq!(two.release(&held).await.unwrap(), Release::AlreadyLost, "it belongs to the other one");
        let lost = Extension::Lost { cause: LossCause::Gone };
        assert_eq!(two.extend(&held, held.ttl, None).await.unwrap(), lost);
        assert!(two.descriptor(&held).is_err());
        let waiting = claim("a", Mode::Exclusive);
        let (grant, released) = tokio::join!(two.acquire(&waiting), async {
            until("it waits", async || counts(&one, "a").await == (1, 1)).await;
            one.release(&held).await
        });
        assert_eq!(released.unwrap(), Release::Released);
        assert!(grant.unwrap().token > held.token);
    });
}

#[test]
fn a_claim_tried_again_answers_with_the_same_token() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let claim = claim("a", Mode::Exclusive);
        let first = backend.acquire(&claim).await.unwrap();
        assert_eq!(backend.acquire(&claim).await.unwrap(), first);
        assert_eq!(counts(&backend, "a").await, (1, 0));
    });
}

/// Whoever takes a lock again and again has tokens in stock; nobody else may be overtaken by one of them.
#[test]
fn tokens_rise_when_clients_take_turns_in_bursts() {
    for seed in 1..=40_u64 {
        let dir = tempfile::tempdir().unwrap();
        let backends = [open(dir.path()), open(dir.path()), open(dir.path())];
        let mut random = seed;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        run(async {
            let mut last: BTreeMap<&str, u64> = BTreeMap::new();
            for _turn in 0..25 {
                let backend = &backends[draw(3) as usize];
                // The second shares its counter with the first.
                let name = ["a", "b287", "b"][draw(3) as usize];
                let mode = if draw(4) == 0 { Mode::Shared } else { Mode::Exclusive };
                for _cycle in 0..=draw(70) {
                    let grant = take(backend, name, mode).await;
                    let before = last.insert(name, grant.token.get()).unwrap_or(0);
                    assert!(before < grant.token.get(), "seed {seed}: {} after {before}", grant.token);
                    backend.release(&grant).await.unwrap();
                }
                if draw(10) == 0 {
                    let floor = last.values().max().unwrap() + draw(100);
                    backend.raise_floor(Token::new(floor).unwrap()).await.unwrap();
                    last.extend([("a", floor), ("b287", floor), ("b", floor)]);
                }
            }
        });
    }
}

#[test]
fn an_acquire_that_is_withdrawn_at_whatever_moment_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    // So that its file is open and a token is left: the next ones need no other thread.
    for _ in 0..3 {
        run(async { backend.release(&take(&backend, "a", Mode::Exclusive).await).await.unwrap() });
    }
    for _ in 0..300 {
        let claim = claim("a", Mode::Exclusive);
        std::thread::scope(|scope| {
            scope.spawn(|| run(async { backend.withdraw(&claim).await.unwrap() }));
            run(async {
                let answered = tokio::time::timeout(LONG, backend.try_acquire(&claim)).await;
                // Granted and withdrawn, or withdrawn and not granted; but never silence.
                let _ = answered.expect("it is answered");
            });
        });
        run(async { backend.withdraw(&claim).await.unwrap() });
    }
    run(async { assert!(is_free(&backend, "a", Mode::Exclusive).await) });
}

#[test]
fn a_forked_child_cannot_use_the_locks_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        let grant = runtime.block_on(take(&backend, "a", Mode::Exclusive));
        runtime.block_on(backend.release(&grant)).unwrap();
    }
    let held = runtime.block_on(take(&backend, "held", Mode::Exclusive));
    let refused = sys::in_a_fork(|| {
        let acquired = runtime.block_on(backend.try_acquire(&claim("a", Mode::Exclusive)));
        let released = runtime.block_on(backend.release(&held));
        let kinds =
            (acquired.map_err(|error| error.kind()).err(), released.map_err(|error| error.kind()).err());
        kinds == (Some(ErrorKind::Unsupported), Some(ErrorKind::Unsupported))
    });
    assert!(refused, "the child got in, or let go of what is the parent's");
    runtime.block_on(async {
        assert!(!is_free(&backend, "held", Mode::Exclusive).await);
        assert!(is_free(&backend, "a", Mode::Exclusive).await);
    });
}

#[test]
fn tokens_rise_over_restarts_names_of_a_shard_and_cleaned_up_files() {
    let dir = tempfile::tempdir().unwrap();
    let mut last: BTreeMap<String, Token> = BTreeMap::new();
    for _restart in 0..4 {
        let backend = open(dir.path());
        run(async {
            for name in (0..600).step_by(3).map(|n| format!("name/{}", n % 30)) {
                let grant = take(&backend, &name, Mode::Exclusive).await;
                let before = last.insert(name, grant.token);
                assert!(before.is_none_or(|before| before < grant.token));
                backend.release(&grant).await.unwrap();
            }
            backend.close().await;
        });
        assert_eq!(std::fs::read_dir(dir.path().join("locks")).unwrap().count(), 0);
    }
}

#[test]
fn files_of_locks_nobody_uses_go_away_by_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let kept = take(&backend, "kept", Mode::Exclusive).await;
        for n in 0..20 {
            assert!(is_free(&backend, &format!("idle/{n}"), Mode::Exclusive).await);
        }
        let files = || std::fs::read_dir(dir.path().join("locks")).unwrap().count();
        until("idle files are gone", async || files() == 1).await;
        assert_eq!(backend.release(&kept).await.unwrap(), Release::Released);
        until("all files are gone", async || files() == 0).await;
    });
}

#[test]
fn odd_names_are_locks_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    let long = "x".repeat(512);
    let names =
        [" ", "a b", "../x", ".", "..", "a/b", "A", "a", "a%2Fb", "größe", "🔒", "-", "\\", long.as_str()];
    run(async {
        let mut held = Vec::new();
        for name in names {
            held.push(take(&backend, name, Mode::Exclusive).await);
        }
        let mut listed: Vec<_> =
            backend.list("").map(|state| state.unwrap().name.to_string()).collect().await;
        listed.sort();
        let mut expected = names.map(str::to_owned).to_vec();
        expected.sort();
        assert_eq!(listed, expected);
        assert_eq!(backend.list("a").count().await, 4, "a, a b, a/b, a%2Fb");
        for grant in held {
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
        }
        let stray = dir.path().join("locks/README");
        std::fs::write(&stray, "somebody's").unwrap();
        assert_eq!(backend.list("").count().await, 0);
        assert!(stray.exists(), "only what is a lock's is cleared away");
    });
}

#[test]
fn what_can_be_seen_is_who_lives_with_their_details() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let mut asked = claim("a", Mode::permit(2).unwrap());
        asked.details.meta.insert("job".to_owned(), "nightly\u{1}\"".to_owned());
        let held = backend.acquire(&asked).await.unwrap();
        let state = look(&backend, "a").await.unwrap();
        assert_eq!((state.holders[0].token, &state.holders[0].details), (Some(held.token), &asked.details));
        assert_eq!(state.holders[0].mode, asked.mode);

        // More than fits beside the first ones: the list moves, and nobody gets lost.
        let second = take(&backend, "a", asked.mode).await;
        let large = Details {
            meta: BTreeMap::from([("k".to_owned(), "\u{1}".repeat(4000))]),
            ..Details::of_this_process()
        };
        let extended = backend.extend(&second, second.ttl, Some(&large)).await.unwrap();
        assert_eq!(extended, Extension::Extended { deadline: Deadline::Never });
        let state = look(&backend, "a").await.unwrap();
        assert_eq!(state.holders.len(), 2);
        assert_eq!(state.holders[0].details, asked.details);
        assert_eq!(state.holders[1].details, large);
        assert_eq!(backend.release(&held).await.unwrap(), Release::Released);
        assert_eq!(backend.release(&second).await.unwrap(), Release::Released);
        assert_eq!(look(&backend, "a").await, None);
    });
}

#[test]
fn a_long_held_lock_with_many_visitors_does_not_grow_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let stays = take(&backend, "a", Mode::Shared).await;
        let size = || {
            let file = std::fs::read_dir(dir.path().join("locks")).unwrap().next().unwrap().unwrap();
            file.metadata().unwrap().len()
        };
        for _ in 0..40 {
            let visitor = take(&backend, "a", Mode::Shared).await;
            backend.release(&visitor).await.unwrap();
        }
        let early = size();
        for _ in 0..200 {
            let visitor = take(&backend, "a", Mode::Shared).await;
            backend.release(&visitor).await.unwrap();
        }
        assert!(size() <= early.max(64 * 1024), "{early} bytes became {}", size());
        assert_eq!(counts(&backend, "a").await, (1, 0));
        assert_eq!(backend.release(&stays).await.unwrap(), Release::Released);
    });
}

#[test]
fn many_waiters_move_the_list_and_keep_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let claims: Vec<_> = (0..150).map(|_| claim("a", Mode::Exclusive)).collect();
        let backend = &backend;
        let all = futures_util::future::join_all(claims.iter().map(|claim| async move {
            let grant = backend.acquire(claim).await.unwrap();
            assert_eq!(backend.release(&grant).await.unwrap(), Release::Released);
            grant.token
        }));
        let (mut tokens, ()) = tokio::join!(all, async {
            until("all wait", async || counts(backend, "a").await == (1, 150)).await;
            backend.release(&held).await.unwrap();
        });
        tokens.sort();
        tokens.dedup();
        assert_eq!(tokens.len(), 150);
    });
}

#[test]
fn a_lock_file_that_vanishes_is_a_loss() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let told = backend.lost(&held).expect("file: tells of a request to leave");
        let extend = async || backend.extend(&held, held.ttl, None).await.unwrap();
        assert_eq!(extend().await, Extension::Extended { deadline: Deadline::Never });
        let file = std::fs::read_dir(dir.path().join("locks")).unwrap().next().unwrap().unwrap().path();
        std::fs::remove_file(&file).unwrap();
        let lost = Extension::Lost { cause: LossCause::Gone };
        assert_eq!(extend().await, lost);
        assert_eq!(told.await, LossCause::Gone, "and it is told unasked");
        let next = take(&backend, "a", Mode::Exclusive).await;
        assert!(next.token > held.token);
        assert_eq!(extend().await, lost, "the file is there again, and is another one");
        assert_eq!(backend.release(&held).await.unwrap(), Release::AlreadyLost);
        assert_eq!(counts(&backend, "a").await, (1, 0), "the next holder is untouched");
    });
}

#[test]
fn who_waits_for_a_lock_file_that_vanishes_is_not_let_in() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (open(dir.path()), open(dir.path()));
    run(async {
        let held = take(&one, "a", Mode::Exclusive).await;
        let waiting = claim("a", Mode::Exclusive);
        let waits = two.acquire(&waiting);
        let rest = async {
            until("it waits", async || counts(&one, "a").await == (1, 1)).await;
            let file = std::fs::read_dir(dir.path().join("locks")).unwrap().next().unwrap().unwrap().path();
            std::fs::remove_file(&file).unwrap();
            let next = take(&one, "a", Mode::Exclusive).await;
            assert_eq!(one.release(&held).await.unwrap(), Release::AlreadyLost);
            next
        };
        let (waited, next) = tokio::join!(waits, rest);
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Lost);
        two.withdraw(&waiting).await.unwrap();
        assert_eq!(counts(&one, "a").await, (1, 0));
        assert_eq!(one.release(&next).await.unwrap(), Release::Released);
    });
}

#[test]
fn files_can_be_shared_by_those_who_share_the_folder() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let shared = dir.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o2770)).unwrap();
    let backend = open(&shared);
    run(async {
        let held = take(&backend, "a", Mode::Exclusive).await;
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let locks = shared.join("locks");
        let file = std::fs::read_dir(&locks).unwrap().next().unwrap().unwrap().path();
        assert_eq!(mode(&locks), 0o2770);
        for path in [file, shared.join("counters"), shared.join("version")] {
            assert_eq!(mode(&path), 0o660, "{path:?}");
        }
        backend.release(&held).await.unwrap();
    });
}

#[test]
fn a_raised_floor_lifts_the_next_token() {
    let dir = tempfile::tempdir().unwrap();
    let backend = open(dir.path());
    run(async {
        backend.raise_floor(Token::new(1 << 40).unwrap()).await.unwrap();
        assert_eq!(take(&backend, "a", Mode::Exclusive).await.token.get(), (1 << 40) + 1);
    });
}

#[test]
fn events_tell_of_grants_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (backend, watcher) = (open(dir.path()), open(dir.path()));
    run(async {
        let mut events = watcher.events("a");
        // The first look tells nothing: what was there before is no event.
        let _ = tokio::time::timeout(Duration::from_millis(150), events.next()).await;
        let held = take(&backend, "a", Mode::Exclusive).await;
        let granted = events.next().await.unwrap().unwrap();
        assert_eq!((granted.what, granted.token), (Happening::Granted, held.token));
        backend.release(&held).await.unwrap();
        let ended = events.next().await.unwrap().unwrap();
        assert_eq!((ended.what, ended.token), (Happening::Ended, held.token));
    });
}
