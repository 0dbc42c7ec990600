//! A scenario on real packets, in real time. The gateway is the network between the scenario's hosts; a host is a network
//! namespace with the kernel's transports in it, or ends of our own, or both. What is seen becomes the same [`Outcome`] as the
//! simulator's: the same summaries, series and events, so that curves of all hosts lie on one figure.
//!
//! ```text
//!   namespace ── TUN ─┐                                   ┌─ TUN ── namespace
//!   (kernel's TCP)    ├── host's port ── lines ── port ───┤
//!          our Tcp ───┘        (the gateway, one thread)  └── our Tcp
//! ```
//! Namespaces, devices and sockets have no names outside this process and end with it, however it ends.

use crate::build::{self, Built, ByFlow};
use crate::clock::{Awake, Clock, Scheduling, hurried};
use crate::flow::Flow;
use crate::frame::Frame;
use crate::gateway::{Control, Gateway, Inside};
use crate::linux;
use crate::socket::Failure;
use crate::stage::{self, Stage};
use narrows_core::Time;
use narrows_core::packet::Direction;
use narrows_core::qdisc::DropReason;
use narrows_lab::host::{Seen, Watch};
use narrows_lab::line::{Queue, Written};
use narrows_lab::outcome::{EventKind, Outcome};
use narrows_lab::record::QueueRecorder;
use narrows_lab::scenario::{Refused, Scenario, Transport};
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// What moves the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
    /// Our own ends on real packets, against the kernel's TCP or against ourselves.
    Wire,
    /// The kernel's TCP at both ends.
    Linux,
}

impl Host {
    /// As outcomes name it.
    pub fn name(self) -> &'static str {
        match self {
            Host::Wire => "wire",
            Host::Linux => "linux",
        }
    }
}

/// On [`Host::Wire`], which end of every TCP flow is the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KernelEnd {
    /// Who receives the data.
    #[default]
    Receiver,
    /// Who sends it.
    Sender,
    /// Neither.
    None,
}

/// What a scenario does not say about a run on real packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Which end is the kernel's, on the wire.
    pub kernel_end: KernelEnd,
    /// What the kernel calls a flow's controller, by the flow's name: programs that were loaded for this run.
    pub kernel_names: BTreeMap<String, String>,
}

/// Why a scenario cannot run here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot run anywhere, or not on this host.
    #[error("{}: {}", .0.path, .0.message)]
    Refused(#[from] Refused),
    /// This machine, or who we are on it, does not allow it.
    #[error("{message}")]
    Unable {
        /// What is missing.
        message: String,
        /// What to do about it.
        help: String,
    },
}

impl Error {
    /// What to do about it, where the message does not say so.
    pub fn help(&self) -> Option<&str> {
        match self {
            Error::Refused(_) => None,
            Error::Unable { help, .. } => Some(help),
        }
    }

    pub(crate) fn unable(message: impl ToString, help: impl ToString) -> Error {
        Error::Unable { message: message.to_string(), help: help.to_string() }
    }
}

impl From<Failure> for Error {
    fn from(e: Failure) -> Error {
        match e {
            Failure::Call { what, error } => io::Error::new(error.kind(), format!("{what}: {error}")).into(),
            other => Error::unable(other, "run it without real packets: --on sim"),
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        let help = match e.kind() {
            io::ErrorKind::PermissionDenied => "run it as root (sudo), or without real packets: --on sim",
            _ => "run it without real packets: --on sim",
        };
        Error::unable(e, help)
    }
}

/// A scenario has at most so many hosts here: each is a namespace, a device and some threads.
pub const MOST_HOSTS: usize = 200;

/// Runs a scenario in real time. The calling thread moves the packets, in class SCHED_FIFO and with all processors kept awake
/// while it does, if that is allowed.
/// The `outcome`'s `given` and `scenario` are left to the caller, who knows where it came from.
///
/// # Errors
/// The scenario asks for what this host cannot do; the machine does not allow namespaces or TUN devices, or lacks a
/// congestion control. Nothing is left behind.
pub fn run(
    scenario: &Scenario,
    host: Host,
    seed: u64,
    watch: &mut dyn Watch,
    options: &Options,
) -> Result<Outcome, Error> {
    let scenario = &*scenario.drawn(seed);
    let hosts = scenario.nodes.iter().filter(|n| !n.router).count();
    if hosts > MOST_HOSTS {
        let message = format!(
            "{hosts} hosts are too many for real packets: write at most {MOST_HOSTS}, or run it in the simulator"
        );
        return Err(Refused { path: "host".into(), message }.into());
    }
    if host == Host::Wire && options.kernel_end != KernelEnd::Sender {
        scenario.needs_no_kernel(host.name())?;
    }
    let controllers = linux::controllers(scenario, host, options)?;
    let built = build::build(scenario, seed)?;
    let mut stage = Stage::set(scenario, &built, host, options)?;
    let clock = Clock::start_in(LEAD * scenario.flows.len().max(1) as u32);
    // Unrecorded runs want the kernel's last word only.
    let interval = if scenario.record.flows { scenario.record.rate_interval } else { scenario.duration };
    let cast = linux::Cast { scenario, built: &built, seed, clock, interval, controllers };
    let flow = |i| cast.flow(&stage, i, stage::kernel_ends(&scenario.flows[i], host, options));
    let flows = (0..scenario.flows.len()).map(flow).collect::<Result<Vec<_>, Error>>()?;
    let Built { network, directions, line_names, .. } = built;
    let mut running = Running::new(scenario, watch, directions.clone(), flows, &line_names);
    let ports = std::mem::take(&mut stage.ports);
    let mut gateway = Gateway::new(ports, network, Box::new(directions), clock);
    let (hurried, awake) = (hurried(), Awake::ask());
    std::thread::sleep(clock.until(Time::ZERO));
    let ran = gateway.run(&mut running);
    let scheduling = hurried.scheduling();
    drop((hurried, awake));
    ran?;
    let mut outcome = running.outcome(&mut gateway.inside, scheduling);
    outcome.notes.extend(stage.kernel_drops().map(|n| {
        format!("{n} packets were dropped by the kernel before they came to the network: the machine was too slow for them")
    }));
    outcome.notes.extend(stage.strangers());
    outcome.notes.extend(linux::foreign_stacks(scenario, host, options));
    outcome.notes.extend(linux::shared_ecn(scenario, host, options));
    (outcome.host, outcome.seed) = (host.name().into(), seed);
    Ok(outcome)
}

/// What a flow's sockets and threads take to be made, before the clock starts.
const LEAD: Duration = Duration::from_millis(3);
/// How often the flows are asked whether they are over, and the watch whether to go on.
const ROUND: Duration = Duration::from_millis(20);

/// A run in progress.
struct Running<'a> {
    scenario: &'a Scenario,
    watch: &'a mut dyn Watch,
    taps: bool,
    directions: ByFlow,
    flows: Vec<Flow>,
    line_names: &'a [String],
    /// One per line, if queues are recorded.
    queue_recorders: Option<Vec<QueueRecorder>>,
    end: Time,
    next_round: Time,
    /// Flows with a size or a stop that are not over; the run ends when the last one is.
    unfinished: usize,
    /// Whether a flow without either keeps the run going until its end.
    endless: bool,
    delivered: u64,
    ended: Time,
}

impl<'a> Running<'a> {
    fn new(
        scenario: &'a Scenario,
        watch: &'a mut dyn Watch,
        directions: ByFlow,
        flows: Vec<Flow>,
        line_names: &'a [String],
    ) -> Running<'a> {
        let unfinished = flows.iter().filter(|f| f.is_bounded()).count();
        let tcp = scenario.flows.iter().filter(|f| matches!(f.transport, Transport::Tcp(_))).count();
        Running {
            scenario,
            taps: watch.wants_packets(),
            watch,
            directions,
            flows,
            line_names,
            queue_recorders: scenario.record.queues.then(|| QueueRecorder::of_lines(line_names)),
            end: Time::ZERO + scenario.duration,
            next_round: Time::ZERO,
            unfinished,
            endless: unfinished == 0 || tcp > unfinished,
            delivered: 0,
            ended: Time::ZERO,
        }
    }

    fn outcome(mut self, inside: &mut Inside, scheduling: Scheduling) -> Outcome {
        let now = self.ended;
        let mut outcome = Outcome {
            name: self.scenario.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            ended_at_s: now.as_secs_f64(),
            delivered_packets: self.delivered,
            lateness: Some(inside.lateness.quantiles()),
            ..Outcome::default()
        };
        for flow in self.flows.drain(..) {
            flow.end(now, self.line_names, &mut outcome);
        }
        outcome.events.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        outcome.queues = inside.network.summaries(self.line_names, now);
        let recorders = self.queue_recorders.into_iter().flatten();
        outcome.series.extend(recorders.flat_map(|recorder| recorder.finish(now)));
        outcome.notes.extend(notes(inside, scheduling));
        outcome
    }
}

/// What an experimenter must be told of the machine.
fn notes(inside: &Inside, scheduling: Scheduling) -> Vec<String> {
    let accounts = &inside.accounts;
    let mut notes: Vec<String> = inside.lateness.verdict().into_iter().collect();
    notes.extend(scheduling.note().map(str::to_string));
    if accounts.unsent > 0 {
        notes.push(format!(
            "{} packets came through the network and were not taken by a device",
            accounts.unsent
        ));
    }
    if !accounts.refused.is_empty() {
        let reasons: Vec<String> =
            accounts.refused.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        notes.push(format!("packets that were not let into the network: {}", reasons.join(", ")));
    }
    let unaccounted = accounts.unaccounted(inside.network.inside());
    if unaccounted != 0 {
        notes.push(format!("{unaccounted} packets are unaccounted for: this is a fault of the gateway"));
    }
    notes
}

impl Control for Running<'_> {
    fn look(&mut self, now: Time, _: &mut Inside) -> ControlFlow<()> {
        if now < self.next_round {
            return ControlFlow::Continue(());
        }
        self.next_round = now + ROUND;
        let at = now.min(self.end);
        for flow in &mut self.flows {
            self.unfinished -= flow.round(at) as usize;
        }
        self.ended = at;
        let over = now >= self.end || (self.unfinished == 0 && !self.endless);
        if over || !self.watch.progress(at, self.end) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
    fn wake_at(&self) -> Option<Time> {
        Some(self.next_round.min(self.end))
    }
    fn enters(&mut self, _port: usize, now: Time, frame: &Frame) {
        if let Some((i, Direction::Forward)) = self.directions.flow(frame) {
            self.flows[i].sent(now, frame);
        }
    }
    fn leaves(&mut self, _port: usize, now: Time, frame: &Frame) {
        self.delivered += 1;
        if let Some((i, Direction::Backward)) = self.directions.flow(frame) {
            self.flows[i].acknowledged(now, frame);
        }
    }
    fn departs(&mut self, line: usize, now: Time, frame: &Frame) {
        if let (true, Some(bytes)) = (self.taps, frame.packet()) {
            self.watch.departs(line, now, Seen::Bytes(bytes));
        }
    }
    fn arrives(&mut self, line: usize, now: Time, frame: &Frame) {
        if let (true, Some(bytes)) = (self.taps, frame.packet()) {
            self.watch.arrives(line, now, Seen::Bytes(bytes));
        }
    }
    fn drops(&mut self, line: usize, now: Time, frame: &Frame, reason: DropReason) {
        if let Some((i, direction)) = self.directions.flow(frame) {
            let detail = format!("{} {}", self.line_names[line], reason.name());
            self.flows[i].lost += (direction == Direction::Forward) as u64;
            self.flows[i].noted(now, EventKind::Drop, direction, frame, detail);
        }
    }
    fn marks(&mut self, line: usize, since: Time, frame: &Frame) {
        if let Some((i, direction)) = self.directions.flow(frame) {
            let detail = self.line_names[line].clone();
            self.flows[i].noted(since, EventKind::Mark, direction, frame, detail);
        }
    }
    fn written(&mut self, now: Time, frame: &Frame, window: Written) {
        if let Some((i, Direction::Backward)) = self.directions.flow(frame) {
            self.flows[i].written(now, window);
        }
    }
    fn waits(&mut self, line: usize, now: Time, queue: &Queue<Frame>) {
        if let Some(recorders) = &mut self.queue_recorders {
            recorders[line].look(now, queue);
        }
    }
}
