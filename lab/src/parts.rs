//! From parts of a scenario to the algorithms they name: queues, controllers, TCP ends. Every host builds with these, so that a
//! scenario means the same on all of them.

use crate::class::{Classes, Classifier};
use crate::line::{Carried, Line, Queue};
use crate::route::Hop;
use crate::scenario::{self, Change, Flow, Link, Part, Refused, Scenario, TcpFlow, UdpFlow};
use narrows_core::ackwin::policy::{self, Chosen};
use narrows_core::ackwin::{AckWindow, Passing, Room};
use narrows_core::congestion::{self, Controller};
use narrows_core::packet::Packet;
use narrows_core::qdisc::class::Site;
use narrows_core::qdisc::{self, Qdisc, fifo::Fifo};
use narrows_core::registry::{Unfit, Value};
use narrows_core::transport::tcp::Config;
use narrows_core::transport::tcp::stack::Stack;
use narrows_core::{Rng, Time};
use std::time::Duration;

/// Random streams are numbered by what they are for and whose they are, so that one more flow changes no other's numbers.
#[derive(Clone, Copy)]
#[allow(missing_docs)] // what their names say
pub enum Stream {
    TimerPhase = 1,
    Sequence = 2,
    Controller = 3,
    Queue = 4,
    Start = 5,
}

/// The random stream of the `index`th owner of its kind.
pub fn rng(seed: u64, stream: Stream, index: usize) -> Rng {
    Rng::new(seed, (stream as u64) << 32 | index as u64)
}

/// A line's queue, told of the line and its classes.
pub fn queue_of<P: Packet + Send + 'static>(line: &scenario::Line, rng: Rng) -> Result<Queue<P>, Unfit> {
    at_site(&line.queue, rng, &line.site())
}

/// A queue anywhere.
pub fn queue<P: Packet + Send + 'static>(part: &Part, rng: Rng) -> Result<Queue<P>, Unfit> {
    at_site(part, rng, &Site::default())
}

fn at_site<P: Packet + Send + 'static>(part: &Part, rng: Rng, site: &Site) -> Result<Queue<P>, Unfit> {
    if part.name == "fifo" {
        return Ok(Queue::Fifo(Fifo::new(&part.settings)?));
    }
    Ok(Queue::Other(discipline(part, rng, site)?))
}

/// Where the discipline inside `part` stands: behind a shaper the line is as slow as that.
pub(crate) fn inside(part: &Part, site: &Site) -> Site {
    let mut site = site.clone();
    if let (Some(line), "shaper", Some(Value::Rate(rate))) =
        (&mut site.line, &*part.name, part.settings.value("rate"))
    {
        line.rate = line.rate.min(*rate);
    }
    site
}

/// The classes of a line; `flows` are the scenario's, by their numbers.
pub fn classes<'a>(line: &scenario::Line, flows: impl Iterator<Item = &'a str>) -> Option<Classes> {
    let classifier = Classifier::new(&line.classes, flows)?;
    let promised = line.classes.iter().map(|m| (m.class.name.clone(), line.bound(&m.class)));
    Some(Classes::new(classifier, promised))
}

/// What is written into the ACKs of the data that take a line.
pub fn ack_window(line: &scenario::Line) -> Result<Option<AckWindow>, Unfit> {
    let Part { name, settings, .. } = &line.ack_window;
    let entry = policy::by_name(name).expect("the scenario was checked against the registry");
    let Some(chosen) = Chosen::new(entry, settings)? else { return Ok(None) };
    let room =
        line.queue.limit().and_then(Room::of).expect("the scenario was checked: the queue has a limit");
    Ok(Some(AckWindow::new(chosen, room)))
}

fn discipline<P: Packet + Send + 'static>(
    part: &Part,
    mut rng: Rng,
    site: &Site,
) -> Result<Box<dyn Qdisc<Carried<P>>>, Unfit> {
    let inner_rng = Rng::new(rng.next_u64(), 1);
    let inner = part.inner.as_ref().map(|p| discipline(p, inner_rng, &inside(part, site))).transpose()?;
    let context = qdisc::Context { inner, rng, site: site.clone() };
    qdisc::by_name(&part.name, &part.settings, context)
        .expect("the scenario was checked against the registry")
}

/// The lines of a scenario, forward and backward of each link in order; what each is called; and which of them changes when.
pub struct Lines<P> {
    /// Idle.
    pub lines: Vec<Line<P>>,
    /// `from>to`.
    pub names: Vec<String>,
    /// Index of the line, and its change.
    pub changes: Vec<(usize, Change)>,
}

/// Builds every line of a scenario.
pub fn lines<P: Passing + Send + 'static>(scenario: &Scenario, seed: u64) -> Result<Lines<P>, Refused> {
    let mut built = Lines { lines: Vec::new(), names: Vec::new(), changes: Vec::new() };
    for link in &scenario.links {
        let (from, to) = (&scenario.nodes[link.from].name, &scenario.nodes[link.to].name);
        for (line, name) in
            [(&link.forward, format!("{from}>{to}")), (&link.backward, format!("{to}>{from}"))]
        {
            let index = built.lines.len();
            let unfit = |key: &'static str| {
                let name = name.clone();
                move |unfit| Refused::unfit(&format!("link.{name}.{key}"), unfit)
            };
            let queue = queue_of(line, rng(seed, Stream::Queue, index)).map_err(unfit("queue"))?;
            built.changes.extend(line.changes.iter().map(|c| (index, *c)));
            let mut made = Line::new(line.rate, line.delay, line.mtu, queue);
            made.set_classes(classes(line, scenario.flows.iter().map(|f| &*f.name)));
            made.set_framing(line.framing);
            made.set_back_pressure(line.back_pressure);
            made.set_acks(ack_window(line).map_err(unfit("ack_window"))?);
            built.lines.push(made);
            built.names.push(name);
        }
    }
    Ok(built)
}

/// A sender's congestion control.
pub fn controller(part: &Part, mut rng: Rng) -> Result<Box<dyn Controller>, Unfit> {
    let inner_rng = Rng::new(rng.next_u64(), 1);
    let inner = part.inner.as_ref().map(|p| controller(p, inner_rng)).transpose()?;
    let entry = congestion::by_name(&part.name).expect("the scenario was checked against the registry");
    (entry.build)(&part.settings, congestion::Context { inner, rng })
}

/// The phase of every node's periodic timers: given, or drawn. Nothing relates it to the start of the run: uniform over a
/// second, a multiple of both BSD periods.
pub fn phases(scenario: &Scenario, seed: u64) -> Vec<Duration> {
    let drawn = |i| Duration::from_nanos(rng(seed, Stream::TimerPhase, i).below(1_000_000_000));
    scenario.nodes.iter().enumerate().map(|(i, node)| node.timer_phase.unwrap_or_else(|| drawn(i))).collect()
}

/// IPv4 and TCP header without options.
pub const HEADERS: u32 = 40;
/// The timestamps option, padded.
pub const TIMESTAMPS: u32 = 12;

/// The smallest MTU on a way.
pub fn path_mtu(scenario: &Scenario, route: &[Hop]) -> u32 {
    let mtu = |h: &Hop| {
        let Link { forward, backward, .. } = &scenario.links[h.link];
        forward.mtu.0.min(backward.mtu.0)
    };
    route.iter().map(mtu).min().unwrap_or(1500) as u32
}

/// What the `index`th flow's ends, sender and receiver, are made of; `ports` and `phases` are the sender's and the receiver's.
pub fn tcp_configs(
    flow: &TcpFlow,
    path_mtu: u32,
    seed: u64,
    index: usize,
    ports: (u16, u16),
    phases: [Duration; 2],
) -> Result<[Config; 2], Unfit> {
    let mut sequence = rng(seed, Stream::Sequence, index);
    let mut config = |part: &Part, timer_phase, ports| {
        let stack = Stack::new(&part.settings)?;
        let options = if stack.timestamps { TIMESTAMPS } else { 0 };
        let mss = flow.mss.map_or(path_mtu - HEADERS, |payload| payload + options);
        Ok(Config {
            stack,
            mss,
            receive_buffer: flow.window,
            send_buffer: flow.send_buffer,
            timer_phase,
            iss: sequence.next_u32(),
            ports,
            reads_at_once: true,
        })
    };
    let sender = config(&flow.stack, phases[0], ports)?;
    Ok([sender, config(&flow.receiver_stack, phases[1], (ports.1, ports.0))?])
}

/// When a datagram flow is on: its periods, within start and stop.
pub fn periods(flow: &Flow, udp: &UdpFlow) -> Vec<(Time, Time)> {
    let (start, stop) = (Time::ZERO + flow.start, flow.stop.map_or(Time::MAX, |s| Time::ZERO + s));
    let within = |(a, b): &(Duration, Duration)| ((Time::ZERO + *a).max(start), (Time::ZERO + *b).min(stop));
    let mut on: Vec<_> = udp.on.iter().map(within).collect();
    if on.is_empty() {
        on.push((start, stop));
    }
    on.retain(|(a, b)| a < b);
    on
}

/// The controllers of the `index`th flow's ends, sender and receiver.
pub fn controllers(flow: &TcpFlow, seed: u64, index: usize) -> Result<[Box<dyn Controller>; 2], Unfit> {
    let one = |i| controller(&flow.controller, rng(seed, Stream::Controller, i));
    Ok([one(2 * index)?, one(2 * index + 1)?])
}
