//! Java programs of these tests: compiled once, where `java FILE.java` would compile at every start.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Starts `tests/FILE` with Debian's `jars`.
pub(crate) fn java(file: &str, jars: &[&str]) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
    let main = source.file_stem().and_then(|name| name.to_str()).expect("a Java file has a name").to_owned();
    let classes = Path::new(env!("CARGO_TARGET_TMPDIR")).join("java").join(&main);
    let jars: Vec<_> = jars.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
    let path = format!("{}:{}", jars.join(":"), classes.display());
    compile(&source, &classes.join(format!("{main}.class")), &path);
    let mut command = Command::new("java");
    // They live for seconds: the optimising compiler would cost more than it saves.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", &path, &main]);
    command
}

/// Compiles `source`, unless `class` is newer.
fn compile(source: &Path, class: &Path, path: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let age = |file: &Path| file.metadata().and_then(|file| file.modified());
    if age(class).is_ok_and(|class| class > age(source).unwrap()) {
        return;
    }
    let folder = class.parent().expect("a class file lies in a folder");
    std::fs::create_dir_all(folder.parent().expect("it lies in another")).unwrap();
    // Elsewhere first: a compiler that is killed must not leave half of them, newer than their source.
    let made = tempfile::tempdir_in(folder.parent().expect("it lies in another")).unwrap();
    let output =
        Command::new("javac").args(["-cp", path, "-d"]).arg(made.path()).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let _ = std::fs::remove_dir_all(folder);
    // Another program may have been faster, with the same.
    let _ = std::fs::rename(made.path(), folder);
}
