//! The server process: the real table and engine, with a clock of its own rate.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Details, Moment, Token};
use tollgate_embedded::durable::{Batch, Commit, Durability, Options, Started, Write, start};
use tollgate_server::EngineClock;
use tollgate_server::table::{Answer, Request, Source, Table};

use crate::disk::Disk;
use crate::mutant::Mutant;

/// The longest time to live with its lock-delay.
pub(crate) const LONGEST: Duration = Duration::from_secs(60);

/// A process that runs.
pub(crate) struct Process {
    pub(crate) table: Table,
    clock: EngineClock,
    /// The commit that the disk is at.
    pub(crate) writing: Option<(Commit, Vec<Write>)>,
    /// When nothing needs to be waited for any more, by the clock that a suspend does not stop.
    pub(crate) grants_from: Option<u64>,
    pub(crate) durability: Durability,
    rate: Rate,
    mutant: Option<Mutant>,
}

/// How fast a clock runs, in millionths of real time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate(pub(crate) u64);

impl Rate {
    /// What this clock shows after so much real time.
    pub(crate) fn shown(self, real: u64) -> u64 {
        (u128::from(real) * u128::from(self.0) / 1_000_000) as u64
    }

    /// How much real time it takes this clock to show so much.
    pub(crate) fn real(self, shown: u64) -> u64 {
        (u128::from(shown) * 1_000_000 / u128::from(self.0)) as u64
    }
}

impl Process {
    /// Starts on what the disk has.
    pub(crate) fn start(
        disk: &mut Disk,
        durability: Durability,
        floor: Option<Token>,
        rate: Rate,
        now: u64,
        mutant: Option<Mutant>,
    ) -> Result<Self, String> {
        disk.begin_start();
        let options = Options { durability, token_floor: floor, longest: LONGEST };
        let Started { engine, wait } =
            start::<Arc<Details>>(disk, &options).map_err(|error| error.to_string())?;
        let clock = EngineClock::new(engine.now(), Moment::from_nanos(rate.shown(now)));
        let grants_from = wait.map(|wait| now + rate.real(wait.as_nanos() as u64));
        Ok(Self { table: Table::new(engine), clock, writing: None, grants_from, durability, rate, mutant })
    }

    /// The engine's time.
    fn now(&mut self, now: u64) -> Moment {
        let shown = Moment::from_nanos(self.rate.shown(now));
        if self.mutant == Some(Mutant::ExpiresDuringItsOwnPause) {
            return self.clock.without_pauses(shown);
        }
        self.clock.at(shown)
    }

    pub(crate) fn request(&mut self, source: Source, request: Request, now: u64) {
        let now = self.now(now);
        self.table.request(source, request, now);
    }

    pub(crate) fn close(&mut self, connection: u64, now: u64) {
        let now = self.now(now);
        self.table.close(connection, now);
    }

    /// A turn of the loop: what is due, and the changes that are to be written now.
    pub(crate) fn turn(&mut self, now: u64) -> Option<Arc<Batch<Arc<Details>>>> {
        let moment = self.now(now);
        if self.grants_from.is_some_and(|from| now >= from) {
            self.grants_from = None;
            self.table.end_wait(moment);
        }
        self.table.tick(moment);
        let batch = self.table.take_batch()?;
        self.writing = Some((batch.commit(), batch.writes()));
        if self.mutant == Some(Mutant::AnswersBeforeTheCommit) {
            self.table.committed(batch.commit(), moment);
        }
        Some(batch)
    }

    /// The disk has what it was writing.
    pub(crate) fn committed(&mut self, disk: &mut Disk, now: u64) {
        let Some((commit, writes)) = self.writing.take() else { return };
        disk.finish(&writes);
        if self.mutant != Some(Mutant::AnswersBeforeTheCommit) {
            let moment = self.now(now);
            self.table.committed(commit, moment);
        }
    }

    pub(crate) fn stop(&mut self, now: u64) {
        let moment = self.now(now);
        self.table.stop(moment);
    }

    pub(crate) fn take_answers(&mut self) -> Vec<(Source, Answer)> {
        let mut answers = self.table.take_answers();
        if self.mutant == Some(Mutant::TakesNoMargin) {
            for (_, answer) in &mut answers {
                if let Answer::Granted(granted) = answer {
                    granted.valid = (granted.valid + Duration::from_millis(5)) * 50 / 49;
                }
            }
        }
        answers
    }
}
