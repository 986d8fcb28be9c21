//! `file:` under the suite every backend must pass.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tollgate_core::{Backend, BoxFuture, Clock, Keeper, Result};
use tollgate_local::FileBackend;
use tollgate_testkit::{Subject, conformance};

/// One folder for all cases: their names differ.
#[derive(Default)]
struct File {
    folder: OnceLock<PathBuf>,
}

impl Subject for File {
    fn name(&self) -> &'static str {
        "file"
    }

    fn address(&self) -> String {
        let folder = self.folder.get_or_init(|| tempfile::tempdir().expect("a temporary folder").keep());
        folder.to_str().expect("temporary paths are text").to_owned()
    }

    fn finish(&self) {
        if let Some(folder) = self.folder.get() {
            std::fs::remove_dir_all(folder).expect("the test's folder can be removed");
        }
    }

    fn open<'a>(
        &'a self,
        address: &'a str,
        clock: Arc<dyn Clock>,
    ) -> BoxFuture<'a, Result<Arc<dyn Backend>>> {
        Box::pin(async move {
            let backend: Arc<dyn Backend> = Arc::new(FileBackend::open(address, clock, Keeper::global()?)?);
            Ok(backend)
        })
    }
}

fn main() {
    conformance::main(vec![Arc::new(File::default())])
}
