//! What goes wrong: starts and ends of the server, power losses, lost files, and an operator.

use tollgate_core::Token;
use tollgate_embedded::durable::Durability;
use tollgate_server::table::Request;

use super::{By, CLIENTS, Event, LOCKS, MILLI, World};
use crate::client::{SECOND, name};
use crate::disk::Disk;
use crate::judge::Violation;
use crate::server::Process;

impl World {
    pub(super) fn start(&mut self) -> Result<(), Violation> {
        if self.server.is_some() {
            return Ok(());
        }
        if self.random.one_in(8) {
            self.durability = match self.durability {
                Durability::Sync => Durability::Grace,
                Durability::Grace => Durability::Sync,
            };
        }
        let (durability, rate, floor) = (self.durability, self.rate, self.floor);
        let started = Process::start(&mut self.disk, durability, floor, rate, self.now, self.mutant);
        let server = started.map_err(|error| Violation(format!("the store is refused: {error}")))?;
        self.generation += 1;
        self.leases.clear();
        self.report.starts += 1;
        self.paused_until = 0;
        let waits = server.grants_from.map(|from| from - self.now);
        self.tell(|| format!("server starts with {durability:?}, waits {waits:?}"));
        self.server = Some(server);
        self.at(self.now, Event::Turn(self.generation));
        if self.is_faulty() && self.random.one_in(3) {
            let pause = self.random.below(1_500) * MILLI;
            self.after(pause, Event::PowerLoss(self.generation));
        }
        Ok(())
    }

    /// Ends the process. What is being written reaches the page cache or not; without power only what was synced stays.
    pub(super) fn end_process(&mut self, loses_power: bool) {
        let Some(server) = self.server.take() else { return };
        if let Some((_, writes)) = &server.writing {
            self.disk.cut_off(writes, self.random.one_in(2));
        }
        if loses_power {
            self.disk.lose_power();
        }
        if server.durability == Durability::Grace || server.grants_from.is_some() {
            self.forgot_at = self.now;
        }
        self.inbox.clear();
        let pause = match self.random.below(3) {
            0 => 0,
            1 => self.random.below(300) * MILLI,
            _ => self.random.below(5) * SECOND,
        };
        self.tell(|| format!("server ends, loses power: {loses_power}"));
        self.after(pause, Event::Start);
    }

    pub(super) fn fault(&mut self) -> Result<(), Violation> {
        if !self.is_faulty() {
            return Ok(());
        }
        match self.random.below(13) {
            0..=2 => {
                let pause = if self.random.one_in(3) {
                    self.random.between(5, 25) * SECOND
                } else {
                    self.random.between(50, 3_000) * MILLI
                };
                self.tell(|| format!("server stops for {pause}"));
                self.paused_until = self.paused_until.max(self.now + pause);
            }
            3 | 4 => self.end_process(false),
            5 | 6 => self.end_process(true),
            7 => self.stop_cleanly()?,
            8 if self.random.one_in(6) => self.restore(),
            9 => {
                let pause = self.random.between(4, 15) * SECOND;
                self.slow_until = self.now + pause;
                let pause = self.random.below(5 * SECOND);
                self.after(pause, Event::Crash(self.generation));
            }
            _ => {
                let (client, pause) =
                    (self.random.below(CLIENTS as u64) as usize, self.random.between(1, 25) * SECOND);
                self.clients[client].paused_until = self.now + pause;
                self.tell(|| format!("client {client} stops for {pause}"));
            }
        }
        let pause = self.random.between(1, 12) * SECOND;
        self.after(pause, Event::Fault);
        Ok(())
    }

    pub(super) fn stop_cleanly(&mut self) -> Result<(), Violation> {
        if self.now < self.paused_until {
            return Ok(());
        }
        let Some(server) = &mut self.server else { return Ok(()) };
        server.stop(self.now);
        while server.writing.is_some() || server.turn(self.now).is_some() {
            server.committed(&mut self.disk, self.now);
        }
        self.give_answers()?;
        let waits = self.server.take().is_some_and(|server| server.grants_from.is_some());
        if waits {
            self.forgot_at = self.now;
        }
        self.tell(|| "server stops cleanly".to_owned());
        self.inbox.clear();
        let pause = self.random.below(3) * SECOND;
        self.after(pause, Event::Start);
        Ok(())
    }

    /// The file is lost, and there is no backup: what was granted is forgotten, and only the floor is known.
    pub(super) fn restore(&mut self) {
        self.end_process(true);
        self.disk = Disk::new(self.mutant);
        self.floor = Some(self.highest);
        self.forgot_at = self.now;
        // Marks that were kept here count as at least the floor.
        let highest = self.highest;
        self.tell(|| format!("the store is lost; the floor is {highest}"));
    }

    pub(super) fn operate(&mut self) {
        let lock = self.random.below(LOCKS);
        let token = self.server.as_ref().and_then(|server| {
            let view = server.table.inspect(&name(lock))?;
            Some(view.holders.first()?.token)
        });
        if let Some(token) = token
            && self.is_faulty()
        {
            let by_force = self.random.one_in(2);
            self.send(By::Break { lock, token }, Request::Break { name: name(lock), token, by_force });
        }
        // A holder that was lost long ago writes.
        if let Some(mark) = self.judge.mark(lock)
            && let Ok(token) = Token::new(mark.get().saturating_sub(1 + self.random.below(3)))
        {
            let request = Request::Admit { resource: format!("resource {lock}"), token, raises: true };
            self.send(By::Mark { lock, token, mark: Some(mark) }, request);
        }
        let pause = self.random.between(1, 12) * SECOND;
        self.after(pause, Event::Operator);
    }
}
