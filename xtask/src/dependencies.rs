//! The dependency rule: who may know of whom.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::bench::peers_folder;
use crate::cargo::metadata;

/// Which crates of ours each crate may depend on. A crate that is not here is an error, so that nobody adds
/// one without saying where it stands.
const MAY_USE: &[(&str, &[&str])] = &[
    ("tollgate-types", &[]),
    ("tollgate-engine", &["tollgate-types"]),
    ("tollgate-core", &["tollgate-types"]),
    // A backend knows the core and its engine, never another backend.
    ("tollgate-embedded", &["tollgate-core", "tollgate-engine"]),
    ("tollgate-etcd", &["tollgate-core"]),
    ("tollgate-local", &["tollgate-core"]),
    ("tollgate-mysql", &["tollgate-core", "tollgate-sql"]),
    ("tollgate-postgres", &["tollgate-core", "tollgate-sql"]),
    ("tollgate-redis", &["tollgate-core"]),
    ("tollgate-remote", &["tollgate-core", "tollgate-proto"]),
    // A model of its protocol, which knows none of its code.
    ("tollgate-redlock-model", &[]),
    // Handed its engine; knows no other backend's.
    ("tollgate-server", &["tollgate-core", "tollgate-embedded", "tollgate-engine", "tollgate-proto"]),
    ("tollgate-simulator", &["tollgate-core", "tollgate-embedded", "tollgate-server"]),
    // What all databases have in common, and no driver.
    ("tollgate-sql", &["tollgate-core"]),
    ("tollgate-zookeeper", &["tollgate-core"]),
    // The facade alone knows every backend.
    (
        "tollgate",
        &[
            "tollgate-core",
            "tollgate-embedded",
            "tollgate-etcd",
            "tollgate-local",
            "tollgate-mysql",
            "tollgate-postgres",
            "tollgate-redis",
            "tollgate-remote",
            "tollgate-zookeeper",
        ],
    ),
    // The lock server's messages, and nothing that sends or reads them.
    ("tollgate-proto", &["tollgate-types"]),
    // Stands before files and services, and takes whatever gate it is given. A fenced file has its mark in a file, too.
    ("tollgate-fence", &["tollgate-core", "tollgate-local"]),
    // Nothing depends on the command line or the test kit.
    ("tollgate-cli", &["tollgate", "tollgate-bench", "tollgate-fence", "tollgate-server"]),
    // Needs to know where `file:` has its folder, to put a plain lock beside it.
    ("tollgate-bench", &["tollgate", "tollgate-local"]),
    ("tollgate-testkit", &["tollgate-core", "tollgate-engine"]),
    ("xtask", &[]),
];

/// What waits, reads clocks or does I/O, and must not be anywhere below the engine.
const WAITS: &[&str] = &["tokio", "futures-core", "futures-util", "rustix", "libc", "mio", "async-trait"];

pub(crate) fn check() -> Result<(), String> {
    let metadata = metadata()?;
    if let Some(peer) = outsider(&metadata, &peers_folder()) {
        return Err(format!(
            "the workspace depends on {peer}; nobody who builds it should have to build peers"
        ));
    }
    if let Some(package) = with_a_build_script(&metadata) {
        return Err(format!(
            "{package} has a build script; what has to be generated is committed, with a test that compares it, so that \
             building takes only Rust and a C compiler"
        ));
    }
    let graph = graph(&metadata);
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    for (package, used) in ours(&metadata) {
        let may = allowed
            .get(package.as_str())
            .ok_or_else(|| format!("{package} has no place in the dependency rule"))?;
        if let Some(stranger) =
            used.iter().find(|other| allowed.contains_key(other.as_str()) && !may.contains(&other.as_str()))
        {
            return Err(format!("{package} depends on {stranger}, which it may not know"));
        }
    }
    let below = reachable(&graph, "tollgate-engine");
    // getrandom, which makes owner ids, calls the operating system through libc; the engine itself never does.
    match WAITS.iter().find(|name| **name != "libc" && below.contains(**name)) {
        Some(name) => Err(format!("the engine depends on {name}, which waits or reads the world")),
        None => Ok(()),
    }
}

/// A package from `folder` that the workspace needs.
fn outsider(metadata: &Value, folder: &Path) -> Option<String> {
    let mut packages = metadata["packages"].as_array()?.iter();
    packages
        .find(|package| {
            package["manifest_path"].as_str().is_some_and(|path| Path::new(path).starts_with(folder))
        })
        .map(name)
}

/// Each of our crates with what it depends on, tests left out.
/// A package of ours that runs a program while it is built.
fn with_a_build_script(metadata: &Value) -> Option<String> {
    let is_script = |target: &Value| target["kind"][0] == "custom-build";
    let packages = metadata["packages"].as_array()?.iter();
    packages
        .filter(|package| MAY_USE.iter().any(|(ours, _)| package["name"] == *ours))
        .find(|package| package["targets"].as_array().is_some_and(|targets| targets.iter().any(is_script)))
        .map(name)
}

fn ours(metadata: &Value) -> Vec<(String, BTreeSet<String>)> {
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id)))
        .map(|package| (name(package), normal(package)))
        .collect()
}

fn graph(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|package| (name(package), normal(package)))
        .collect()
}

fn name(package: &Value) -> String {
    package["name"].as_str().unwrap_or_default().to_owned()
}

/// What a package needs to be built, not to be tested.
fn normal(package: &Value) -> BTreeSet<String> {
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    let needed = dependencies.filter(|dependency| {
        dependency["kind"].is_null() && dependency["optional"] != true || is_ours(dependency)
    });
    needed.filter(|dependency| dependency["kind"].is_null()).map(name).collect()
}

fn is_ours(dependency: &Value) -> bool {
    dependency["path"].is_string()
}

fn reachable(graph: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(package) = open.pop() {
        for used in graph.get(&package).into_iter().flatten() {
            if found.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_holds_for_the_workspace_as_it_is() {
        check().unwrap();
    }

    #[test]
    fn a_build_script_is_found() {
        let package = |kind: &str| serde_json::json!({ "packages": [{ "name": "tollgate-etcd", "targets": [{ "kind": [kind] }] }] });
        assert_eq!(with_a_build_script(&package("custom-build")), Some("tollgate-etcd".to_owned()));
        assert_eq!(with_a_build_script(&package("lib")), None);
    }

    #[test]
    fn a_package_of_the_peers_is_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "tollgate", "manifest_path": "/house/crates/tollgate/Cargo.toml" },
            { "name": "protoc", "manifest_path": "/house/bench-peers/protoc/Cargo.toml" },
        ]});
        assert_eq!(outsider(&metadata, Path::new("/house/bench-peers")), Some("protoc".to_owned()));
        assert_eq!(outsider(&metadata, Path::new("/house/bench")), None);
    }

    #[test]
    fn what_is_far_below_is_found() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let graph = BTreeMap::from([("a".to_owned(), set(&["b"])), ("b".to_owned(), set(&["tokio"]))]);
        assert!(reachable(&graph, "a").contains("tokio"));
        assert!(!reachable(&graph, "tokio").contains("a"));
    }
}
