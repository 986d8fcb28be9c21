//! A file that is replaced as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tempfile::TempDir;
use tollgate_core::{BoxFuture, OwnerId, Result};
use tollgate_fence::FencedFile;
use tollgate_testkit::proof::{Entry, Proof, Register, Resource};

/// A folder for everything: nothing of a static is dropped by itself, so it is removed in the end.
static FOLDER: OnceLock<TempDir> = OnceLock::new();

pub(crate) fn folder() -> &'static Path {
    FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path()
}

/// Where locks are.
pub(crate) fn url() -> String {
    format!("file:{}", folder().join("locks").display())
}

pub(crate) struct Files;

struct File {
    fenced: FencedFile,
    plain: PathBuf,
}

impl Resource for Files {
    fn name(&self) -> &'static str {
        "file"
    }

    fn found(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            let path = folder().join(OwnerId::random().to_hex());
            for path in [&path, &path.with_extension("plain")] {
                fs::write(path, Entry::default().to_string()).unwrap();
            }
            path.to_str().unwrap().to_owned()
        })
    }

    fn open<'a>(&'a self, place: &'a str) -> BoxFuture<'a, Box<dyn Register>> {
        let plain = Path::new(place).with_extension("plain");
        Box::pin(async move { Box::new(File { fenced: FencedFile::at(place), plain }) as Box<dyn Register> })
    }

    fn finish(&self) {
        if let Some(folder) = FOLDER.get() {
            fs::remove_dir_all(folder.path()).unwrap();
        }
    }
}

impl Register for File {
    fn enter<'a>(&'a mut self, proof: &'a Proof) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async {
            let content = self.fenced.read(proof.fence).await?.unwrap();
            Ok(String::from_utf8(content).unwrap().parse().unwrap())
        })
    }

    fn write<'a>(&'a mut self, proof: &'a Proof, entry: Entry) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.fenced.replace(proof.fence, entry.to_string()).await })
    }

    fn peek(&mut self) -> BoxFuture<'_, Entry> {
        Box::pin(async { fs::read_to_string(&self.plain).unwrap().parse().unwrap() })
    }

    fn overwrite(&mut self, entry: Entry) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // Whole, too: what is shown is who overwrites whom.
            let new = self.plain.with_extension(entry.id.to_string());
            fs::write(&new, entry.to_string()).unwrap();
            fs::rename(&new, &self.plain).unwrap();
        })
    }
}
