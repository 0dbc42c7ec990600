//! Many runs at once, in virtual time one per core, in real time one by one: one progress line for all, stopped by Ctrl-C.

use crate::on::{self, On};
use crate::{Stop, note};
use indicatif::{ProgressBar, ProgressStyle};
use narrows_core::Time;
use narrows_lab::file::Document;
use narrows_lab::host::{Seen, Watch};
use narrows_lab::{Outcome, Scenario};
use narrows_report::pcapng::Pcapng;
use rayon::prelude::*;
use std::io::{self, IsTerminal};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One run to be made.
pub struct Job {
    /// What to run.
    pub scenario: Scenario,
    /// With which seed.
    pub seed: u64,
    /// The sweep point, and what `--set` gave.
    pub given: Vec<(String, String)>,
    /// What to capture, and the file.
    pub capture: Option<Capture>,
    /// What makes it.
    pub on: On,
    /// How it is made on real packets.
    pub net: narrows_net::run::Options,
}

/// Where to capture packets of a run, and into which file.
#[derive(Clone)]
pub struct Capture {
    /// One interface of the file each.
    pub places: Vec<Place>,
    /// Where to.
    pub path: PathBuf,
}

/// A line's beginning, or a node, which sees packets when they leave it and when they reach it.
#[derive(Clone)]
pub struct Place {
    /// The interface's name.
    pub name: String,
    /// Lines whose packets are seen as they depart.
    pub departing: Vec<usize>,
    /// Lines whose packets are seen as they arrive.
    pub arriving: Vec<usize>,
}

/// The jobs of a document: every point of its sweep with every seed.
pub fn jobs(
    document: &Document,
    set: &[(String, String)],
    seeds: RangeInclusive<u64>,
) -> Result<Vec<Job>, Stop> {
    let document = set.iter().try_fold(document.clone(), |d, (key, value)| d.with(key, value))?;
    let mut jobs = Vec::new();
    for point in document.points()? {
        let scenario = point.scenario()?;
        for seed in seeds.clone() {
            let given = set.iter().cloned().chain(point.given.iter().cloned()).collect();
            let (scenario, net) = (scenario.clone(), narrows_net::run::Options::default());
            jobs.push(Job { scenario, seed, given, capture: None, on: On::Sim, net });
        }
    }
    Ok(jobs)
}

/// Set by Ctrl-C; runs look at it now and then.
pub fn interrupted() -> &'static AtomicBool {
    static FLAG: AtomicBool = AtomicBool::new(false);
    static HANDLER: std::sync::Once = std::sync::Once::new();
    HANDLER.call_once(|| {
        // A second Ctrl-C does not wait for runs to notice the first.
        let set = || {
            if FLAG.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
        };
        if let Err(e) = ctrlc::set_handler(set) {
            note(format_args!("Ctrl-C will end the program without tidying up: {e}"));
        }
    });
    &FLAG
}

/// How far all jobs are, in thousandths of a job.
struct Progress {
    bar: ProgressBar,
    began: Instant,
    shown: AtomicBool,
    thousandths: AtomicU64,
    jobs: usize,
    /// How long a job takes in the mean, if jobs take as long as they say.
    seconds: Option<f64>,
}

impl Progress {
    fn new(jobs: &[Job]) -> Progress {
        let total: f64 = jobs.iter().map(|j| j.scenario.duration.as_secs_f64()).sum();
        let seconds = jobs.iter().any(|j| j.on.is_real()).then_some(total / jobs.len() as f64);
        let jobs = jobs.len();
        let bar = ProgressBar::new(jobs as u64 * 1000);
        bar.set_style(
            ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {elapsed} gone, {eta} left")
                .expect("a constant template"),
        );
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        let (shown, thousandths) = (AtomicBool::new(false), AtomicU64::new(0));
        Progress { bar, began: Instant::now(), shown, thousandths, jobs, seconds }
    }

    fn advance(&self, by: u64) {
        let done = self.thousandths.fetch_add(by, Ordering::Relaxed) + by;
        // Anything under a second needs no progress line.
        if self.began.elapsed() > Duration::from_secs(1)
            && io::stderr().is_terminal()
            && !self.shown.swap(true, Ordering::Relaxed)
        {
            self.bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        let (jobs, runs) = (self.jobs, done as f64 / 1000.0);
        self.bar.set_position(done);
        self.bar.set_message(match self.seconds {
            Some(s) => format!(
                "{} of {jobs} runs, {:.0} of at most {:.0} s in real time",
                done / 1000,
                runs * s,
                jobs as f64 * s
            ),
            None => {
                let rate = runs / self.began.elapsed().as_secs_f64().max(1e-3);
                format!("{} of {jobs} runs, {rate:.1}/s", done / 1000)
            }
        });
    }
}

/// Watches one job.
struct Watching<'a> {
    progress: &'a Progress,
    told: u64,
    capture: Option<Capturing>,
    failed: Option<io::Error>,
}

impl Watching<'_> {
    fn tell(&mut self, thousandths: u64) {
        self.progress.advance(thousandths.saturating_sub(self.told));
        self.told = self.told.max(thousandths);
    }
}

impl Watching<'_> {
    /// Writes a packet to every interface that sees this side of the line.
    fn take(&mut self, line: usize, now: Time, packet: Seen<'_>, side: fn(&Capturing) -> &Vec<Vec<usize>>) {
        let Some(capture) = &mut self.capture else { return };
        for i in 0..side(capture)[line].len() {
            let interface = side(capture)[line][i];
            if self.failed.is_none() {
                self.failed = capture.file.packet(interface, now, packet).err();
            }
        }
    }
}

/// A capture being written: for each line the interfaces that see its packets depart, and arrive.
struct Capturing {
    departing: Vec<Vec<usize>>,
    arriving: Vec<Vec<usize>>,
    file: Pcapng,
}

impl Watch for Watching<'_> {
    fn progress(&mut self, now: Time, end: Time) -> bool {
        self.tell((now.as_nanos() as u128 * 1000 / end.as_nanos().max(1) as u128).min(1000) as u64);
        self.failed.is_none() && !interrupted().load(Ordering::Relaxed)
    }
    fn wants_packets(&self) -> bool {
        self.capture.is_some()
    }
    fn departs(&mut self, line: usize, now: Time, packet: Seen<'_>) {
        self.take(line, now, packet, |c| &c.departing);
    }
    fn arrives(&mut self, line: usize, now: Time, packet: Seen<'_>) {
        self.take(line, now, packet, |c| &c.arriving);
    }
}

/// Makes all runs, at most `at_once` of them together, and gives what `keep` makes of each, in the order of the jobs.
pub fn run_all<T: Send>(
    jobs: &[Job],
    at_once: Option<u16>,
    keep: impl Fn(&Job, Outcome) -> T + Sync,
) -> Result<Vec<T>, Stop> {
    interrupted().store(false, Ordering::Relaxed);
    let progress = Progress::new(jobs);
    let one = |job| run_one(job, &progress).map(|outcome| keep(job, outcome));
    // In real time, runs at once take each other's processor; the simulator's do not notice each other.
    let real = jobs.iter().any(|j| j.on.is_real());
    let threads = at_once.or(real.then_some(1)).map_or(0, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool =
        pool.map_err(|e| Stop::Refused(miette::miette!("threads for the runs cannot be made: {e}")))?;
    let done = pool.install(|| jobs.par_iter().map(one).collect());
    progress.bar.finish_and_clear();
    done
}

fn run_one(job: &Job, progress: &Progress) -> Result<Outcome, Stop> {
    let stopped = || interrupted().load(Ordering::Relaxed);
    let mut watching = Watching { progress, told: 0, capture: None, failed: None };
    if let Some(capture) = &job.capture {
        watching.capture = Some(open(job, capture).map_err(|e| unwritable(&capture.path, e))?);
    }
    if stopped() {
        return Err(Stop::Interrupted);
    }
    let mut outcome = on::run(job, &mut watching)?;
    if let (Some(e), Some(capture)) = (watching.failed.take(), &job.capture) {
        return Err(unwritable(&capture.path, e));
    }
    if stopped() {
        return Err(Stop::Interrupted);
    }
    if let (Some(capturing), Some(capture)) = (watching.capture.take(), &job.capture) {
        capturing.file.finish().map_err(|e| unwritable(&capture.path, e))?;
    }
    watching.tell(1000);
    outcome.given = job.given.iter().cloned().collect();
    outcome.scenario = job.scenario.to_toml();
    Ok(outcome)
}

/// The error for a file that cannot be written.
pub fn unwritable(path: &std::path::Path, e: io::Error) -> Stop {
    let (path, said) = (path.display(), e.to_string());
    // The report crate's writers name the path themselves.
    let why = said.strip_prefix(&format!("cannot write {path}: ")).unwrap_or(&said);
    let help = "give another place with -o, or make room there; what was there before is untouched";
    Stop::Refused(miette::miette!(help = help, "{path} cannot be written: {why}"))
}

fn open(job: &Job, capture: &Capture) -> io::Result<Capturing> {
    let names: Vec<String> = capture.places.iter().map(|p| p.name.clone()).collect();
    let mut departing = vec![Vec::new(); 2 * job.scenario.links.len()];
    let mut arriving = departing.clone();
    for (interface, place) in capture.places.iter().enumerate() {
        place.departing.iter().for_each(|line| departing[*line].push(interface));
        place.arriving.iter().for_each(|line| arriving[*line].push(interface));
    }
    Ok(Capturing { departing, arriving, file: Pcapng::create(&capture.path, &names)? })
}

/// `from>to` of every line, in the order of [`Watch::departs`].
pub fn line_names(scenario: &Scenario) -> Vec<String> {
    let name = |i: usize| &scenario.nodes[i].name;
    scenario
        .links
        .iter()
        .flat_map(|l| {
            [format!("{}>{}", name(l.from), name(l.to)), format!("{}>{}", name(l.to), name(l.from))]
        })
        .collect()
}
