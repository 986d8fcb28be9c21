//! Every legal name is a lock of its own.

use super::prelude::*;

pub(super) const CASES: &[Case] =
    &[case!(names_never_meet), case!(what_cannot_be_a_name_is_refused), case!(a_longer_name_is_another_lock)];

async fn names_never_meet(world: World) {
    let prefix = world.prefix();
    let odd = [
        "a",
        "A",
        "a/b",
        "a//b",
        "a/b/",
        "a/./b",
        ".",
        "..",
        "../x",
        "/",
        "//",
        " ",
        "a b",
        "a%2Fb",
        "a%2fb",
        "%",
        "{a}",
        "{a",
        "a:fence",
        "a:queue",
        "lock-0000000001",
        "größe",
        "GRÖSSE",
        "é",
        "e\u{301}",
        "🔒",
        "\u{e000}",
        "\u{fffd}",
        "a\u{200b}",
        "a'b",
        "a\"b",
        "a;b",
        "a\\b",
        "a*",
        "a?",
        "-rf",
        "~",
    ];
    let names: Vec<String> = odd.iter().map(|odd| format!("{prefix}/{odd}")).collect();
    let longest = format!("{prefix}{}", "x".repeat(world.capabilities().longest_name - prefix.len()));
    let almost = longest[..longest.len() - 1].to_owned();
    let locks = world.locks().await;
    let mut guards = Vec::new();
    for name in names.iter().chain([&longest, &almost]) {
        let guard = locks.lock(name).try_acquire().await.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        guards.push(guard.unwrap_or_else(|| panic!("{name:?} collides with another name")));
    }
    for guard in &guards {
        let state = world.look(guard.name()).await.expect("a held lock is seen");
        assert_eq!(state.name, *guard.name());
        assert_eq!(state.holders.len(), 1);
    }
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

async fn a_longer_name_is_another_lock(world: World) {
    let locks = world.locks().await;
    let parent = locks.lock(world.name("a")).acquire().await.unwrap();
    let child =
        locks.lock(world.name("a/b")).try_acquire().await.unwrap().expect("a child is not its parent");
    parent.release().await.unwrap();
    assert!(
        locks.lock(world.name("a/b")).try_acquire().await.unwrap().is_none(),
        "the parent's release freed the child"
    );
    child.release().await.unwrap();
}

async fn what_cannot_be_a_name_is_refused(world: World) {
    let locks = world.locks().await;
    for name in ["", "a\nb", "a\0", "\u{7f}", &"x".repeat(LockName::MAX_BYTES + 1)] {
        expect_kind(locks.lock(name).try_acquire().await, ErrorKind::InvalidArgument);
    }
}
