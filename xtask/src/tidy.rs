//! Rules of the house that a tool can see.

use std::path::{Path, PathBuf};

use crate::cargo::root;

/// How many of the longest files are shown.
const SHOWN: usize = 8;
/// From here on a file wants a reason.
const LONG: usize = 600;

/// How a file begins that no person wrote.
const GENERATED: &str = "// This file is @generated";

/// Every source file says what it is for, and `unsafe` lives in one `sys.rs` per crate.
pub(crate) fn check() -> Result<(), String> {
    for path in sources() {
        let text = read(&path)?;
        let shown = path.strip_prefix(root()).unwrap_or(&path).display();
        if text.starts_with(GENERATED) {
            continue;
        }
        if !text.starts_with("//! ") {
            return Err(format!("{shown} does not say in its first line what it is for"));
        }
        let lifts_the_ban = text
            .lines()
            .any(|line| line.trim_start().starts_with("#") && line.contains("allow(unsafe_code)"));
        if lifts_the_ban && path.file_name().is_none_or(|name| name != "sys.rs") {
            return Err(format!("{shown} allows unsafe code; that belongs into its crate's sys.rs"));
        }
        let lines = text.lines().count();
        if lines > LONG {
            return Err(format!("{shown} has {lines} lines; split it"));
        }
    }
    Ok(())
}

/// A table of the longest files.
pub(crate) fn print_longest() {
    let mut lengths: Vec<(usize, PathBuf)> = sources()
        .into_iter()
        .filter_map(|path| Some((read(&path).ok()?, path)))
        .filter(|(text, _)| !text.starts_with(GENERATED))
        .map(|(text, path)| (text.lines().count(), path))
        .collect();
    lengths.sort_by(|a, b| b.cmp(a));
    println!("the longest files:");
    for (lines, path) in lengths.into_iter().take(SHOWN) {
        println!("{lines:6}  {}", path.strip_prefix(root()).unwrap_or(&path).display());
    }
}

pub(crate) fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

pub(crate) fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["crates", "xtask", "bench-peers"] {
        collect(&root().join(folder), &mut found);
    }
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_none_or(|name| name != "target") {
                collect(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}
