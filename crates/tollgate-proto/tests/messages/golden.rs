//! Every message equals its golden file, byte for byte; TOLLGATE_BLESS=1 writes the files anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::samples::samples;

/// Public types that serde reads or writes and that have no file of their own, and why.
const WITHOUT_A_FILE: &[(&str, &str)] = &[
    ("Open", "it is the value in it, or any text"),
    ("Problem", "its members are ProblemMembers, and its files are called problem"),
];

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares `text` with a golden file, or writes it there.
pub(crate) fn compare(file: &str, text: &str) {
    let path = crate_folder().join("tests/golden").join(format!("{file}.json"));
    if std::env::var_os("TOLLGATE_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        golden == text,
        "{file}.json is\n{golden}\nand the message is\n{text}\nIf that is intended, run with TOLLGATE_BLESS=1"
    );
}

/// `AcquireAll` as `acquire_all`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// The public types of the crate that serde reads or writes, as its sources declare them.
fn public_messages() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&crate_folder().join("src"), &mut files);
    let mut found = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut is_message = false;
        for line in text.lines() {
            if line.starts_with("#[derive(") {
                is_message = line.contains("Serialize") || line.contains("Deserialize");
            }
            let declared = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
            if let (true, Some(declared)) = (is_message, declared) {
                let end = declared.find(|c: char| !c.is_alphanumeric()).unwrap_or(declared.len());
                found.insert(declared[..end].to_owned());
                is_message = false;
            }
        }
    }
    found
}

#[test]
fn every_message_is_written_as_its_golden_file_and_read_back() {
    for sample in samples() {
        compare(&sample.file, &sample.json);
        let again = (sample.reread)(sample.json.as_bytes());
        assert_eq!(again.as_ref(), Ok(&sample.json), "{} changes when it is read and written", sample.file);
    }
}

#[test]
fn every_public_message_type_has_a_golden_file() {
    let types: BTreeSet<String> = samples().into_iter().map(|sample| sample.of_type).collect();
    let public = public_messages();
    assert!(public.len() > 40 && public.contains("Acquire"), "the sources were read: {public:?}");
    for name in &public {
        let is_excused = WITHOUT_A_FILE.iter().any(|(excused, _)| excused == name);
        assert!(is_excused || types.contains(name), "{name} has no sample in samples.rs");
    }
}

#[test]
fn every_golden_file_belongs_to_a_sample() {
    let files: BTreeSet<String> = samples().into_iter().map(|sample| sample.file).collect();
    for entry in std::fs::read_dir(crate_folder().join("tests/golden")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(files.contains(&name) || name == "openapi_components", "{name}.json is of no use any more");
    }
    for sample in samples() {
        let of_type = snake(&sample.of_type).replace("problem_members", "problem");
        assert!(sample.file.starts_with(&of_type), "{} is a file of {}", sample.file, sample.of_type);
    }
}
