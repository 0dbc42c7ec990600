//! What to run: hosts, routers, links with a queue discipline per direction, and flows. This is the resolved form, every
//! value checked and in its type; [`crate::file`] reads it from TOML.

use crate::class::Matched;
use crate::parts;
use crate::quantity::Quantity;
use narrows_core::qdisc::class::{Class, Feeds, Site};
use narrows_core::qdisc::reserve;
use narrows_core::registry::{Settings, Unfit};
use narrows_core::units::{Bytes, Rate};
use narrows_core::wire::framing::Framing;
use std::borrow::Cow;
use std::time::Duration;

/// A checked scenario. Names are unique, every link joins two known nodes, every flow has a route, every buffer holds a
/// packet.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// A short name, from the file's name if not given.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// When the run ends at the latest. It ends earlier when every flow with a size has completed.
    pub duration: Duration,
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Links between them.
    pub links: Vec<Link>,
    /// Who sends what to whom.
    pub flows: Vec<Flow>,
    /// What to record beside the summaries.
    pub record: Record,
}

impl Scenario {
    /// The scenario as it runs with this seed: every flow has its start.
    pub fn drawn(&self, seed: u64) -> Cow<'_, Scenario> {
        if self.flows.iter().all(|f| f.jitter.is_zero()) {
            return Cow::Borrowed(self);
        }
        let mut drawn = self.clone();
        for (i, flow) in drawn.flows.iter_mut().enumerate() {
            let most = std::mem::take(&mut flow.jitter).as_nanos() as u64;
            flow.start += Duration::from_nanos(parts::rng(seed, parts::Stream::Start, i).below(most.max(1)));
        }
        Cow::Owned(drawn)
    }

    /// Whether a host on which our own TCP sends can run it; `host` is what messages call that host.
    ///
    /// # Errors
    /// A flow names a controller of the kernel's: to run another one in its place would be a different experiment.
    pub fn needs_no_kernel(&self, host: &str) -> Result<(), Refused> {
        for flow in &self.flows {
            if let Transport::Tcp(tcp) = &flow.transport
                && let Some(name) = &tcp.kernel_controller
            {
                let path = format!("flow.{}.kernel_controller", flow.name);
                let message = format!(
                    "\"{name}\" runs in the Linux kernel, and {host} has none at this end: run it on host linux, or leave it out \
                     ({host} runs `controller`)"
                );
                return Err(Refused { path, message });
            }
        }
        Ok(())
    }
}

/// A host (with transport ends) or a router (without).
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// A router forwards only; flows begin and end at hosts.
    pub router: bool,
    /// Phase of the machine's coarse timers against the start of the run; drawn from the seed if not given.
    pub timer_phase: Option<Duration>,
}

/// Two lines between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name: `from>to` unless the file names it.
    pub name: String,
    /// Index into [`Scenario::nodes`].
    pub from: usize,
    /// Index into [`Scenario::nodes`].
    pub to: usize,
    /// From `from` to `to`.
    pub forward: Line,
    /// From `to` to `from`.
    pub backward: Line,
}

impl Link {
    /// The line along `from` to `to`, or the one back.
    pub fn line(&self, forward: bool) -> &Line {
        if forward { &self.forward } else { &self.backward }
    }
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Rate of whole packets as they are framed.
    pub rate: Rate,
    /// One-way propagation delay.
    pub delay: Duration,
    /// Largest IP packet.
    pub mtu: Bytes,
    /// How packets are framed.
    pub framing: Framing,
    /// Whether the host before the line holds its senders back while there is no room, rather than drop their packets.
    pub back_pressure: bool,
    /// What waits before the line.
    pub queue: Part,
    /// Its classes, the last one for whatever belongs to no other; none if each flow is one.
    pub classes: Vec<Matched>,
    /// What is written into the ACKs of the data that take this line, as they pass the node before it.
    pub ack_window: Part,
    /// Changes during the run, in order of time.
    pub changes: Vec<Change>,
}

impl Line {
    /// What the disciplines before it are told of it.
    pub fn site(&self) -> Site {
        let classes = self.classes.iter().map(|m| m.class.clone()).collect();
        Site { line: Some(self.at_worst()), classes }
    }

    /// Its lowest rate, and its largest packet as it is framed.
    fn at_worst(&self) -> Feeds {
        let rates = self.changes.iter().filter_map(|change| change.rate);
        Feeds { rate: rates.fold(self.rate, Rate::min), mtu: Bytes(self.framing.size(self.mtu.0)) }
    }

    /// The bound on the delay of a class that keeps to its reservation: that of `reserve`, for no other queue keeps it.
    pub fn bound(&self, class: &Class) -> Option<Duration> {
        self.feeds().filter(|_| class.rate.is_some()).and_then(|line| reserve::bound(class, line))
    }

    /// What a class is promised before this line, in words: `voice: 1Mbit/s, 20ms at most`.
    pub fn promise(&self, class: &Class) -> String {
        match (class.rate, self.bound(class)) {
            (Some(rate), Some(bound)) => {
                let micros = bound.as_nanos().div_ceil(1000) as u64;
                format!("{}: {}, {} at most", class.name, rate.write(), Duration::from_micros(micros).write())
            }
            _ => class.name.clone(),
        }
    }

    /// What a `reserve` among its queues feeds: behind a shaper that. `None` if there is none.
    fn feeds(&self) -> Option<Feeds> {
        let (mut part, mut site) = (&self.queue, Site { line: Some(self.at_worst()), ..Site::default() });
        while part.name != reserve::ENTRY.name {
            site = parts::inside(part, &site);
            part = part.inner.as_deref()?;
        }
        site.line
    }
}

/// A line changes during the run. Packets already on their way keep their order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// When.
    pub at: Duration,
    /// The rate from then on.
    pub rate: Option<Rate>,
    /// The delay from then on.
    pub delay: Option<Duration>,
}

/// An algorithm of a registry, with its settings (complete: defaults filled in), and the one it contains.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name in the registry.
    pub name: String,
    /// Every parameter.
    pub settings: Settings,
    /// The part inside.
    pub inner: Option<Box<Part>>,
}

impl Part {
    /// Whether this queue discipline, or one inside it, is made for the line's rate, MTU or classes.
    pub fn needs_line(&self) -> bool {
        self.settings.value("class_limit").is_some() || self.inner.as_ref().is_some_and(|i| i.needs_line())
    }

    /// How much a queue discipline takes, or the one inside it.
    pub fn limit(&self) -> Option<&narrows_core::registry::Value> {
        self.settings.value("limit").or_else(|| self.inner.as_ref()?.limit())
    }
}

/// A flow from a host to a host.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Index into [`Scenario::nodes`].
    pub from: usize,
    /// Index into [`Scenario::nodes`].
    pub to: usize,
    /// When it starts.
    pub start: Duration,
    /// By how much it may start later: drawn from the seed.
    pub jitter: Duration,
    /// When it stops offering data, if before its size is reached.
    pub stop: Option<Duration>,
    /// What it speaks.
    pub transport: Transport,
}

/// What a flow speaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A TCP transfer.
    Tcp(Box<TcpFlow>),
    /// Datagrams at a constant rate.
    Udp(UdpFlow),
}

/// A TCP transfer.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpFlow {
    /// Application bytes; `None` sends until stopped.
    pub size: Option<Bytes>,
    /// Sender's stack.
    pub stack: Part,
    /// Receiver's stack.
    pub receiver_stack: Part,
    /// The sender's congestion control.
    pub controller: Part,
    /// The kernel's congestion control of this name, on host linux; the other hosts run `controller`.
    pub kernel_controller: Option<String>,
    /// The largest window: the receiver's buffer.
    pub window: Bytes,
    /// The sender's buffer: what may be unacknowledged.
    pub send_buffer: Bytes,
    /// Largest payload; `None` derives it from the route's MTU and the options.
    pub mss: Option<u32>,
}

/// Datagrams at a constant rate.
#[derive(Clone, Debug, PartialEq)]
pub struct UdpFlow {
    /// Rate of whole IP packets.
    pub rate: Rate,
    /// Size of one IP packet.
    pub packet: Bytes,
    /// When it is on: from, until. Empty: always between start and stop.
    pub on: Vec<(Duration, Duration)>,
}

/// What to record beside the summaries.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Record {
    /// Per-flow series and events.
    pub flows: bool,
    /// Per-queue series.
    pub queues: bool,
    /// Interval over which `*_rate` series are averaged.
    pub rate_interval: Duration,
}

/// Why a scenario cannot run although every single value is well-formed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Where: a path like `flow.bulk.window`.
    pub path: String,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl Refused {
    /// An algorithm's parameter does not fit.
    pub fn unfit(path: &str, unfit: Unfit) -> Refused {
        Refused { path: format!("{path}.{}", unfit.parameter), message: unfit.advice }
    }
}
