//! What `docs/fencing.md` tells a stranger to paste, pasted into a fresh database.

mod support;

use support::{Sandbox, text};
use tollgate_testkit::engines::{self, Config};

const PAGE: &str = include_str!("../../../docs/fencing.md");

/// The blocks for a shell under a heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading)).expect("it is there");
    section.split("\n```sh\n").skip(1).map(|block| block.split("\n```").next().unwrap()).collect()
}

#[test]
fn a_stranger_fences_a_postgresql_table() {
    let engine = engines::private(&Config::postgres()).unwrap();
    let url = format!("postgres://postgres@{}/postgres", engine.address());
    let sandbox = Sandbox::new();
    let blocks = blocks("PostgreSQL in five minutes");
    assert_eq!(blocks.len(), 4, "the steps of the page");
    let script = blocks.join("\necho == >&2; echo ==\n");
    let output = sandbox.bash(&script).env("DATABASE_URL", &url).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let (said, complained): (Vec<&str>, Vec<&str>) =
        (stdout.split("==\n").collect(), stderr.split("==\n").collect());
    assert_eq!(complained[0], "", "it is installed without a word");
    assert!(
        complained[1].contains("ERROR") && complained[1].contains("token"),
        "who forgot is refused: {stderr}"
    );
    assert!(said[2].contains("paid with "), "who has a token writes: {stdout}\n{stderr}");
    assert_eq!(complained[2], "", "and nobody complains");
    assert!(complained[3].contains("the token 1 is stale"), "who is late is refused: {stderr}");
    assert_eq!(said[3].lines().last(), said[2].lines().last(), "and nothing is overwritten: {stdout}");
}
