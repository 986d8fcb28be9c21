//! The tests of tollgate-cli as one program: what every test program links is linked once.

#![allow(clippy::unwrap_used)]

mod acquire;
mod at_least;
mod bench;
mod crowd;
mod doctor;
mod elect;
mod ending;
mod etcd;
mod fence_proxy;
mod fencing_page;
mod habits;
mod help;
mod hostile;
mod interop;
mod look;
mod manual;
mod misdirected;
mod mysql;
mod operators;
mod outage;
mod overload;
mod pages;
mod postgres;
mod redis;
mod redlock_init;
mod run;
mod serve;
mod serve_crashes;
mod serve_disk;
mod serve_store;
mod short_lives;
mod special_characters;
mod strange_keys;
mod supervision;
mod trouble;

#[path = "../support/mod.rs"]
mod support;
