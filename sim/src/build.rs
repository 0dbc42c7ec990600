//! From a scenario to components: parts by name from the registries, ways from routes, random streams by number.

use crate::agenda::Agenda;
use crate::flow::{Ends, Flow};
use crate::line::{Carried, Line, Queue};
use crate::record::Recorder;
use crate::{Cue, HERE, Sim};
use narrows_core::congestion::{self, Controller};
use narrows_core::qdisc::{self, Qdisc, fifo::Fifo};
use narrows_core::transport::tcp::stack::Stack;
use narrows_core::transport::tcp::{Config, Tcp};
use narrows_core::transport::udp::{Sink, Source};
use narrows_core::{FlowId, Rng, Time};
use narrows_lab::outcome::{Series, points_each};
use narrows_lab::route::{Hop, Routes};
use narrows_lab::scenario::{self, Link, Part, Refused, Scenario, TcpFlow, Transport};
use std::time::Duration;

/// Random streams are numbered by what they are for and whose they are, so that one more flow changes no other's numbers.
#[derive(Clone, Copy)]
enum Stream {
    TimerPhase = 1,
    Sequence = 2,
    Controller = 3,
    Queue = 4,
}

fn rng(seed: u64, stream: Stream, index: usize) -> Rng {
    Rng::new(seed, (stream as u64) << 32 | index as u64)
}

/// Builds a scenario.
pub fn sim(scenario: &Scenario, seed: u64) -> Result<Sim, Refused> {
    let mut lines = Vec::new();
    let mut line_names = Vec::new();
    let mut cues = Vec::new();
    for link in &scenario.links {
        let (from, to) = (&scenario.nodes[link.from].name, &scenario.nodes[link.to].name);
        for (line, name) in
            [(&link.forward, format!("{from}>{to}")), (&link.backward, format!("{to}>{from}"))]
        {
            let queue = queue(&line.queue, rng(seed, Stream::Queue, lines.len()))
                .map_err(|unfit| Refused::unfit(&format!("link.{name}.queue"), unfit))?;
            let change = |c: &scenario::Change| {
                (Time::ZERO + c.at, Cue::Change { line: lines.len(), rate: c.rate, delay: c.delay })
            };
            cues.extend(line.changes.iter().map(change));
            lines.push(Line::new(line.rate, line.delay, line.mtu, queue));
            line_names.push(name);
        }
    }
    let phases: Vec<Duration> = (scenario.nodes.iter().enumerate())
        .map(|(i, node)| node.timer_phase.unwrap_or_else(|| drawn_phase(seed, i)))
        .collect();
    let mut routes = Routes::new(&scenario.nodes, &scenario.links);
    let mut ways = Vec::new();
    let mut flows = Vec::new();
    for (i, flow) in scenario.flows.iter().enumerate() {
        let refused = |message: String| Refused { path: format!("flow.{}", flow.name), message };
        let route = routes.between(flow.from, flow.to).ok_or_else(|| {
            refused("there is no way from its source to its destination: add a link".into())
        })?;
        let (start, stop) = (Time::ZERO + flow.start, flow.stop.map(|s| Time::ZERO + s));
        let (ends, size, controller) = match &flow.transport {
            Transport::Tcp(tcp) => {
                let unfit = |u| Refused::unfit(&format!("flow.{}", flow.name), u);
                let ends = tcp_ends(scenario, tcp, &route, seed, i, [phases[flow.from], phases[flow.to]])
                    .map_err(unfit)?;
                (Ends::Tcp(Box::new(ends)), tcp.size.map(|s| s.0), tcp.controller.name.clone())
            }
            Transport::Udp(udp) => {
                let until = stop.unwrap_or(Time::MAX);
                let mut on: Vec<_> = udp
                    .on
                    .iter()
                    .map(|(a, b)| ((Time::ZERO + *a).max(start), (Time::ZERO + *b).min(until)))
                    .collect();
                if on.is_empty() {
                    on.push((start, until));
                }
                on.retain(|(a, b)| a < b);
                (
                    Ends::Udp(Source::new(udp.rate, udp.packet.0 as u32, on), Sink::default()),
                    None,
                    "udp".to_string(),
                )
            }
        };
        let recorder = scenario.record.flows.then(|| {
            Box::new(Recorder::new(&flow.name, scenario.flows.len(), scenario.record.rate_interval))
        });
        let first = way(&mut ways, route.iter().copied());
        let back = way(&mut ways, route.iter().rev().map(|h| Hop { forward: !h.forward, ..*h }));
        cues.push((start, Cue::Start(i)));
        if let (Some(stop), Ends::Tcp(_)) = (stop, &ends) {
            cues.push((stop, Cue::Stop(i)));
        }
        flows.push(Flow::new(
            FlowId(i as u32),
            flow.name.clone(),
            controller,
            ends,
            [first, back],
            size,
            start,
            stop,
            recorder,
        ));
    }
    // Popped from the back: latest first; of equal instants the one declared first comes last.
    cues.reverse();
    cues.sort_by_key(|cue| std::cmp::Reverse(cue.0));
    let tcp = |f: &&scenario::Flow| matches!(&f.transport, Transport::Tcp(_));
    let unfinished = flows.iter().filter(|f| f.bounded).count();
    let endless = unfinished == 0 || scenario.flows.iter().filter(tcp).count() > unfinished;
    let backlogs = scenario.record.queues.then(|| {
        line_names
            .iter()
            .map(|name| Series::new(name, "backlog", "B", points_each(line_names.len())))
            .collect()
    });
    Ok(Sim {
        name: scenario.name.clone(),
        seed,
        now: Time::ZERO,
        end: Time::ZERO + scenario.duration,
        agenda: Agenda::new(2 * (lines.len() + flows.len()) + 2),
        lines,
        line_names,
        backlogs,
        flows,
        ways,
        cues,
        tick: scenario.record.flows.then_some(scenario.record.rate_interval),
        unfinished,
        endless,
        taps: false,
        delivered: 0,
        hash: 0,
    })
}

/// A machine's periodic timers tick at a phase that nothing relates to the start of the run: uniform over a second, a multiple
/// of both BSD periods.
fn drawn_phase(seed: u64, node: usize) -> Duration {
    Duration::from_nanos(rng(seed, Stream::TimerPhase, node).below(1_000_000_000))
}

/// Writes a way into the table; returns where it begins.
fn way(ways: &mut Vec<u32>, hops: impl Iterator<Item = Hop>) -> u32 {
    let first = ways.len() as u32;
    ways.extend(hops.map(|h| (2 * h.link + !h.forward as usize) as u32));
    ways.push(HERE);
    first
}

fn queue(part: &Part, rng: Rng) -> Result<Queue, narrows_core::registry::Unfit> {
    if part.name == "fifo" {
        return Ok(Queue::Fifo(Fifo::new(&part.settings)?));
    }
    Ok(Queue::Other(discipline(part, rng)?))
}

fn discipline(part: &Part, mut rng: Rng) -> Result<Box<dyn Qdisc<Carried>>, narrows_core::registry::Unfit> {
    let inner_rng = Rng::new(rng.next_u64(), 1);
    let inner = part.inner.as_ref().map(|p| discipline(p, inner_rng)).transpose()?;
    let context = qdisc::Context { inner, rng };
    qdisc::by_name(&part.name, &part.settings, context)
        .expect("the scenario was checked against the registry")
}

fn controller(part: &Part, mut rng: Rng) -> Result<Box<dyn Controller>, narrows_core::registry::Unfit> {
    let inner_rng = Rng::new(rng.next_u64(), 1);
    let inner = part.inner.as_ref().map(|p| controller(p, inner_rng)).transpose()?;
    let entry = congestion::by_name(&part.name).expect("the scenario was checked against the registry");
    (entry.build)(&part.settings, congestion::Context { inner, rng })
}

/// IPv4 and TCP header without options.
const HEADERS: u64 = 40;
/// The timestamps option, padded.
const TIMESTAMPS: u32 = 12;

fn tcp_ends(
    scenario: &Scenario,
    flow: &TcpFlow,
    route: &[Hop],
    seed: u64,
    index: usize,
    phases: [Duration; 2],
) -> Result<(Tcp, Tcp), narrows_core::registry::Unfit> {
    let mtu = |h: &Hop| {
        let Link { forward, backward, .. } = &scenario.links[h.link];
        forward.mtu.0.min(backward.mtu.0)
    };
    let path_mtu = route.iter().map(mtu).min().unwrap_or(1500);
    let mut sequence = rng(seed, Stream::Sequence, index);
    let mut config = |part: &Part, phase: Duration, ports: (u16, u16)| {
        let stack = Stack::new(&part.settings)?;
        let options = if stack.timestamps { TIMESTAMPS } else { 0 };
        let mss = flow.mss.map_or((path_mtu - HEADERS) as u32, |payload| payload + options);
        Ok(Config {
            stack,
            mss,
            receive_buffer: flow.window,
            send_buffer: flow.send_buffer,
            timer_phase: phase,
            iss: sequence.next_u32(),
            ports,
            reads_at_once: true,
        })
    };
    let port = 1024 + (index % 60_000) as u16;
    let sender = config(&flow.stack, phases[0], (port, 5001))?;
    let receiver = config(&flow.receiver_stack, phases[1], (5001, port))?;
    let ours = controller(&flow.controller, rng(seed, Stream::Controller, 2 * index))?;
    let theirs = controller(&flow.controller, rng(seed, Stream::Controller, 2 * index + 1))?;
    let mut source = Tcp::connect(sender, ours);
    match flow.size {
        Some(size) => {
            source.offer(size.0);
            source.close();
        }
        None => source.offer(u64::MAX / 4),
    }
    Ok((source, Tcp::listen(receiver, theirs)))
}
