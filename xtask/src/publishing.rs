//! What crates.io asks of the crates that are published, and under which conditions their dependencies may be used.

use serde_json::Value;

use crate::cargo::{cargo, metadata, must};

/// Licences that a dependency may be used under.
const LICENSES: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that nothing may depend on, and why.
const BANNED: &[(&str, &str)] = &[
    ("sled", "it has been unmaintained since 2021"),
    ("backoff", "it is unmaintained, RUSTSEC-2025-0012"),
    ("ring", "there is one TLS provider only, aws-lc-rs"),
];

/// Every dependency may be used, and every crate that is published can be packaged, in the order of their dependencies.
pub(crate) fn check() -> Result<(), String> {
    let metadata = metadata()?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = text(package, "name");
        let is_ours = package["source"].is_null();
        if is_ours && is_published(package) {
            is_presentable(package)?;
        }
        if !is_ours && !text(package, "source").starts_with("registry+") {
            return Err(format!("{name} does not come from a registry: {}", text(package, "source")));
        }
    }
    for (name, license) in built()? {
        if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            return Err(format!("{name} is among the dependencies: {reason}"));
        }
        if !is_allowed(&license) {
            return Err(format!("{name} is licensed under {license:?}, which is not allowed"));
        }
    }
    package(&metadata, &["--no-verify"])
}

/// Every package that is built for some target, tests included, with its licence. Cargo's metadata has more: also what only
/// features need that nothing enables.
fn built() -> Result<Vec<(String, String)>, String> {
    let shape = ["--prefix", "none", "--format", "{p}|{l}", "--target", "all", "--edges", "all"];
    let output = cargo(&["tree", "--quiet", "--locked", "--workspace"]).args(shape).output();
    let output = output.map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let packages = text.lines().filter_map(|line| {
        let (package, license) = line.split_once('|')?;
        // What was printed before ends with a star.
        Some((package.split(' ').next()?.to_owned(), license.trim_end_matches(" (*)").to_owned()))
    });
    Ok(packages.collect())
}

/// Packages what is published and builds each crate from its package.
pub(crate) fn verify() -> Result<(), String> {
    package(&metadata()?, &[])
}

fn package(metadata: &Value, options: &[&str]) -> Result<(), String> {
    let mut command = cargo(&["package", "--quiet", "--offline", "--allow-dirty", "--workspace"]);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    for package in packages.filter(|package| package["source"].is_null() && !is_published(package)) {
        command.args(["--exclude", text(package, "name")]);
    }
    must(command.args(options))
}

/// `publish = false` is an empty list of registries.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

/// Has what a page on crates.io shows.
fn is_presentable(package: &Value) -> Result<(), String> {
    let name = text(package, "name");
    for key in ["description", "license"] {
        if text(package, key).is_empty() {
            return Err(format!("{name} is published, and its Cargo.toml has no {key}"));
        }
    }
    for key in ["keywords", "categories"] {
        if package[key].as_array().is_none_or(Vec::is_empty) {
            return Err(format!("{name} is published, and its Cargo.toml has no {key}"));
        }
    }
    Ok(())
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// Whether one of the licences that an SPDX expression offers is allowed: any of those joined by OR, all of those joined
/// by AND, which binds more tightly. Parentheses are resolved from the inside out.
fn is_allowed(expression: &str) -> bool {
    const RESOLVED: &str = "MIT";
    let mut expression = expression.replace('/', " OR ");
    while let Some(end) = expression.find(')') {
        let Some(start) = expression[..end].rfind('(') else { return false };
        let inner = if is_allowed(&expression[start + 1..end]) { RESOLVED } else { "refused" };
        expression.replace_range(start..=end, inner);
    }
    expression.split(" OR ").any(|all| all.split(" AND ").all(|license| LICENSES.contains(&license.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_built_may_be_used_and_every_crate_can_be_packaged() {
        check().unwrap();
    }

    #[test]
    fn an_expression_is_allowed_if_one_of_its_choices_is() {
        for allowed in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0 OR Apache-2.0 WITH LLVM-exception",
            "MIT/Apache-2.0",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR LGPL-3.0", "MIT)"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }
}
