//! Every public item of the facade shows how it is used.

use std::collections::BTreeSet;

use crate::cargo::root;
use crate::tidy::{read, sources};

/// Where the facade says what it offers.
const FACADE: &str = "crates/tollgate/src/lib.rs";
/// What it offers whole: every public item in these is the facade's, too.
const WHOLE: &[&str] = &[
    "crates/tollgate-core/src/capabilities.rs",
    "crates/tollgate-core/src/guarantees.rs",
    "crates/tollgate-etcd/src/fence.rs",
    "crates/tollgate-zookeeper/src/fence.rs",
    "crates/tollgate-redis/src/fence/",
    "crates/tollgate/src/",
];

pub(crate) fn check() -> Result<(), String> {
    let offered = offered(&read(&root().join(FACADE))?);
    let mut seen = BTreeSet::new();
    for path in sources() {
        let place = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let whole = WHOLE.iter().any(|start| place.starts_with(start));
        let below = ["crates/tollgate-types/src/", "crates/tollgate-core/src/"];
        if !whole && !below.iter().any(|start| place.starts_with(start)) {
            continue;
        }
        for (name, has_example) in items(&read(&path)?) {
            if !whole && !offered.contains(&name) {
                continue;
            }
            if !has_example {
                return Err(format!("{name} in {place} has no example in its documentation"));
            }
            seen.insert(name);
        }
    }
    match offered.iter().find(|name| !seen.contains(*name)) {
        Some(name) => Err(format!("{name}, which the facade offers, was not found")),
        None => Ok(()),
    }
}

/// The names between the braces of `pub use tollgate_core::{…}`.
fn offered(facade: &str) -> BTreeSet<String> {
    let list = facade.split("pub use tollgate_core::{").nth(1).and_then(|rest| rest.split('}').next());
    let names = list.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Every public item at the top of a file, and whether its documentation has an example.
fn items(source: &str) -> Vec<(String, bool)> {
    let mut items = Vec::new();
    let mut has_example = false;
    for line in source.lines() {
        if line.starts_with("///") {
            has_example |= line.contains("```");
        } else if let Some(name) = public_name(line) {
            items.push((name, std::mem::take(&mut has_example)));
        } else if !line.starts_with("#[") {
            has_example = false;
        }
    }
    items
}

fn public_name(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub ")?;
    let mut words = rest.split([' ', '(', '<', ':', ';']).filter(|word| *word != "async");
    let kind = words.next()?;
    ["struct", "enum", "fn", "const", "type", "trait"]
        .contains(&kind)
        .then(|| words.next().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_found_with_and_without_examples() {
        let source = "/// A.\n///\n/// ```\n/// a();\n/// ```\n#[derive(Debug)]\npub struct A<T>;\n\n/// B.\npub async fn b() {}\nimpl A {\n    pub fn c() {}\n}\n";
        assert_eq!(items(source), [("A".to_owned(), true), ("b".to_owned(), false)]);
        let facade = "pub use tollgate_core::{\n    A, b,\n    C,\n};\n";
        assert_eq!(offered(facade), ["A", "b", "C"].map(str::to_owned).into());
    }
}
