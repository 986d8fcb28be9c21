//! What README.md says about depending on this crate is true.

use std::collections::BTreeSet;

const README: &str = include_str!("../../../../README.md");
const MANIFEST: &str = include_str!("../../Cargo.toml");

/// The names in back quotes between two texts of the README.
fn quoted_between(start: &str, end: &str) -> BTreeSet<String> {
    let (_, rest) = README.split_once(start).unwrap_or_else(|| panic!("{start:?} is not in README.md"));
    let (text, _) = rest.split_once(end).unwrap_or_else(|| panic!("{end:?} is not in README.md"));
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_feature_is_named_and_no_other() {
    let (_, features) = MANIFEST.split_once("default = [").unwrap();
    let (features, _) = features.split_once(']').unwrap();
    let features: BTreeSet<String> = features.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    let mut named = quoted_between("unless you say `default-features = false`:", "The crate");
    assert!(named.remove("redlock://"), "redis is said to include redlock://");
    assert_eq!(named, features);
}

/// The dependencies are those of a program that compiles: the workspace's own members depend on it in this way.
#[test]
fn the_dependencies_are_written_as_cargo_reads_them() {
    let (_, toml) = README.split_once("```toml\n").unwrap();
    let (toml, _) = toml.split_once("```").unwrap();
    let tollgate = toml.lines().find(|line| line.starts_with("tollgate = ")).unwrap();
    assert!(tollgate.contains("path = \"../tollgate/crates/tollgate\""), "{tollgate}");
    let (_, feature) = tollgate.split_once("features = [\"").unwrap();
    let (feature, _) = feature.split_once('"').unwrap();
    assert!(MANIFEST.contains(&format!("\n{feature} = [")), "{feature} is no feature");
}
