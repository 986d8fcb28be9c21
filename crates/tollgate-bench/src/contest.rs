//! A run: contenders take turns at every workload, round by round.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::contender::{Contender, Failure};
use crate::machine::Machine;
use crate::report::{Line, Measured, Report};
use crate::workload::Workload;

/// Who is measured, at what, and for how long.
pub struct Contest {
    contenders: Vec<Arc<dyn Contender>>,
    workloads: Vec<Workload>,
    rounds: usize,
    time: Duration,
    machine: Machine,
}

impl Contest {
    /// All workloads, five rounds of a second. Ratios are to the first contender.
    pub fn new(contenders: Vec<Arc<dyn Contender>>, machine: Machine) -> Self {
        let workloads = Workload::ALL.to_vec();
        Self { contenders, workloads, rounds: 5, time: Duration::from_secs(1), machine }
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
    pub fn run(self) -> Result<Report, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.machine.cores.len().max(1))
            .enable_all()
            .build()?;
        let rounds: usize = self.workloads.iter().map(|workload| workload.rounds(self.rounds)).sum();
        let bar = progress(rounds * self.contenders.len());
        let mut lines = Vec::new();
        for workload in &self.workloads {
            let measured = runtime.block_on(self.measure(*workload, &bar))?;
            lines.extend(self.lines(*workload, measured));
        }
        bar.finish_and_clear();
        Ok(Report { machine: self.machine, round_seconds: self.time.as_secs_f64(), lines })
    }

    /// The rounds of each contender, in turns.
    async fn measure(&self, workload: Workload, bar: &ProgressBar) -> Result<Vec<Vec<Measured>>, Failure> {
        let mut measured = vec![Vec::new(); self.contenders.len()];
        for round in 0..workload.rounds(self.rounds) {
            for (contender, rounds) in self.contenders.iter().zip(&mut measured) {
                bar.set_message(format!("{workload}: {} ({}/{})", contender.name(), round + 1, self.rounds));
                if workload.suits(&**contender) {
                    // Names of their own: nothing is left over from the round before.
                    let prefix = format!("bench/{}/{round}", std::process::id());
                    rounds.push(workload.run(contender, &prefix, self.time).await?);
                }
                bar.inc(1);
            }
        }
        Ok(measured)
    }

    fn lines(&self, workload: Workload, measured: Vec<Vec<Measured>>) -> Vec<Line> {
        let medians: Vec<Measured> = measured.iter().map(|rounds| Measured::median(rounds)).collect();
        let first = medians.first().and_then(|median| median.per_second);
        let each = self.contenders.iter().zip(medians).zip(&measured);
        each.filter(|(_, rounds)| !rounds.is_empty())
            .map(|((contender, measured), rounds)| Line {
                workload: workload.to_string(),
                contender: contender.name().to_owned(),
                measured,
                ratio: measured.per_second.zip(first).map(|(own, first)| own / first),
                rounds: rounds.len(),
            })
            .collect()
    }
}

/// On stderr, and only if that is a terminal.
fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
