//! The messages as they travel: golden files, strict requests, tolerant answers, schemas.

#![allow(clippy::unwrap_used)]

mod golden;
mod openapi;
mod samples;
mod strict;
mod tolerant;
