//! The `memory:` backend: the lock engine, run in this process.
//!
//! `heart.rs` feeds the engine commands and time and passes on what it decides; `backend.rs` speaks the
//! contract. Whatever is decided is decided in `tollgate-engine`.

mod backend;
mod heart;

pub use backend::MemoryBackend;
