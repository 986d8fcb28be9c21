//! A disk that records what is written and synced, so that every state a crash may leave can be made again.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

/// What was done to the disk.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Write { offset: u64, data: Vec<u8> },
    SetLength(u64),
    Sync,
}

/// The content of a disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image(pub(crate) Vec<u8>);

impl Image {
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Write { offset, data } => {
                let end = *offset as usize + data.len();
                if self.0.len() < end {
                    self.0.resize(end, 0);
                }
                self.0[*offset as usize..end].copy_from_slice(data);
            }
            Step::SetLength(length) => self.0.resize(*length as usize, 0),
            Step::Sync => {}
        }
    }
}

#[derive(Debug, Default)]
struct State {
    image: Image,
    steps: Vec<Step>,
    /// After so many more writes, set-lengths and syncs every call fails.
    fails_after: Option<usize>,
}

/// A disk in memory. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    pub(crate) fn with(image: Image) -> Self {
        Self(Arc::new(Mutex::new(State { image, ..State::default() })))
    }

    /// How much was done so far.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.0.lock().unwrap().steps.clone()
    }

    pub(crate) fn image(&self) -> Image {
        self.0.lock().unwrap().image.clone()
    }

    /// Has every change fail after `steps` more.
    pub(crate) fn fail_after(&self, steps: usize) {
        self.0.lock().unwrap().fails_after = Some(steps);
    }

    fn change(&self, step: Step) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if let Some(left) = &mut state.fails_after {
            if *left == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            *left -= 1;
        }
        state.image.apply(&step);
        state.steps.push(step);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().image.0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        let from = offset as usize;
        let found = state.image.0.get(from..from + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Step::SetLength(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Step::Write { offset, data: data.to_vec() })
    }
}
