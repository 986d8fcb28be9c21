//! A run: contenders take turns at every workload, round by round.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::contender::Failure;
use crate::entry::Entry;
use crate::machine::{Machine, room_for_files};
use crate::meter::Wire;
use crate::report::{Line, Measured, Report};
use crate::workload::{Round, Workload};

/// Who is measured, at what, and for how long.
pub struct Contest {
    entries: Vec<Entry>,
    workloads: Vec<Workload>,
    rounds: usize,
    time: Duration,
    machine: Machine,
    notes: Vec<String>,
}

impl Contest {
    /// All workloads, five rounds of a second. Ratios are to the first contender.
    pub fn new(contenders: impl IntoIterator<Item = impl Into<Entry>>, machine: Machine) -> Self {
        let entries = contenders.into_iter().map(Into::into).collect();
        let workloads = Workload::ALL.to_vec();
        Self { entries, workloads, rounds: 5, time: Duration::from_secs(1), machine, notes: Vec::new() }
    }

    /// Something that a reader of the report has to know.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Only these workloads.
    pub fn workloads(mut self, workloads: Vec<Workload>) -> Self {
        self.workloads = workloads;
        self
    }

    /// So many rounds.
    pub fn rounds(mut self, rounds: usize) -> Self {
        self.rounds = rounds.max(1);
        self
    }

    /// How long each round of a workload takes.
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Runs everything, with a progress bar on a terminal. Names start with a fresh `bench/…`.
    pub fn run(mut self) -> Result<Report, Failure> {
        self.leave_out_what_has_no_room(room_for_files()?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.machine.cores.len().max(1))
            .enable_all()
            .build()?;
        let steps: usize = self.workloads.iter().map(|workload| self.steps(*workload)).sum();
        let bar = progress(steps);
        let mut lines = Vec::new();
        for workload in &self.workloads {
            let (measured, counted) = runtime.block_on(async {
                let measured = self.measure(*workload, &bar).await?;
                Ok::<_, Failure>((measured, self.count(*workload, &bar).await?))
            })?;
            lines.extend(self.lines(*workload, measured, counted));
        }
        bar.finish_and_clear();
        let (machine, notes) = (self.machine, self.notes);
        Ok(Report { machine, round_seconds: self.time.as_secs_f64(), lines, notes })
    }

    /// A claim may need an open file, and a limit on those is no engine's fault.
    fn leave_out_what_has_no_room(&mut self, files: usize) {
        let (fit, rest) = self.workloads.iter().partition(|workload| workload.files() <= files);
        self.workloads = fit;
        let rest: Vec<Workload> = rest;
        self.notes.extend(rest.iter().map(|workload| {
            format!(
                "left out: {workload}; this process may have {files} files open, raise that with ulimit -n"
            )
        }));
    }

    /// How many rounds of everybody a workload has.
    fn steps(&self, workload: Workload) -> usize {
        let counting = self.entries.iter().filter(|entry| entry.counted.is_some()).count();
        workload.rounds(self.rounds) * self.entries.len() + counting
    }

    /// The rounds of each contender, in turns. Who was last begins the next: an engine that gets faster by and by favours nobody.
    async fn measure(&self, workload: Workload, bar: &ProgressBar) -> Result<Vec<Vec<Measured>>, Failure> {
        let mut measured = vec![Vec::new(); self.entries.len()];
        for number in 0..workload.rounds(self.rounds) {
            for turn in 0..self.entries.len() {
                let place = if number % 2 == 0 { turn } else { self.entries.len() - 1 - turn };
                let (Entry { contender, .. }, rounds) = (&self.entries[place], &mut measured[place]);
                let prefix = prefix(workload, place, &number.to_string());
                let round = Round { prefix: &prefix, time: self.time, meter: None };
                bar.set_message(format!("{workload}: {} ({}/{})", contender.name(), number + 1, self.rounds));
                // What the first gave back to the heap the next would use again, and seem to need less.
                let counts = place == 0 || workload.counts();
                if counts && workload.suits(&**contender) {
                    rounds.push(workload.run(contender, round).await?);
                    contender.clear_away().await?;
                }
                bar.inc(1);
            }
        }
        Ok(measured)
    }

    /// What each contender's locks cost on the wire, where somebody counts.
    async fn count(&self, workload: Workload, bar: &ProgressBar) -> Result<Vec<Option<Wire>>, Failure> {
        let mut counted = vec![None; self.entries.len()];
        for (place, (entry, wire)) in self.entries.iter().zip(&mut counted).enumerate() {
            let prefix = prefix(workload, place, "counted");
            let Some((twin, meter)) = &entry.counted else { continue };
            bar.set_message(format!("{workload}: {} (counting)", twin.name()));
            if workload.suits(&**twin) && workload.counts() {
                let round = Round { prefix: &prefix, time: self.time, meter: Some(&**meter) };
                *wire = workload.run(twin, round).await?.wire;
                twin.clear_away().await?;
            }
            bar.inc(1);
        }
        Ok(counted)
    }

    fn lines(
        &self,
        workload: Workload,
        measured: Vec<Vec<Measured>>,
        counted: Vec<Option<Wire>>,
    ) -> Vec<Line> {
        let medians: Vec<Measured> = measured.iter().map(|rounds| Measured::median(rounds)).collect();
        let first = medians.first().and_then(|median| median.per_second).filter(|first| *first > 0.0);
        let each = self.entries.iter().zip(medians).zip(measured.iter().zip(counted));
        each.filter(|(_, (rounds, _))| !rounds.is_empty())
            .map(|((entry, median), (rounds, wire))| Line {
                workload: workload.to_string(),
                contender: entry.contender.name().to_owned(),
                measured: Measured { wire, ..median },
                ratio: median.per_second.zip(first).map(|(own, first)| own / first),
                rounds: rounds.len(),
            })
            .collect()
    }
}

/// Names that nobody else uses: nothing is left over from the round before.
fn prefix(workload: Workload, place: usize, round: &str) -> String {
    format!("bench/{}/{}/{place}-{round}", std::process::id(), workload.tag())
}

/// On stderr, and only if that is a terminal.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
