//! From a scenario to components: parts by name from the registries, ways from routes, random streams by number.

use crate::flow::{Ends, Flow};
use crate::{Cue, HERE, Sim};
use narrows_core::registry::Unfit;
use narrows_core::transport::tcp::Tcp;
use narrows_core::transport::udp::{Sink, Source};
use narrows_core::{FlowId, Time};
use narrows_lab::agenda::Agenda;
use narrows_lab::parts::{self, Lines};
use narrows_lab::record::{QueueRecorder, Recorder};
use narrows_lab::route::{Hop, Routes};
use narrows_lab::scenario::{self, Change, Refused, Scenario, TcpFlow, Transport};
use std::collections::VecDeque;
use std::time::Duration;

/// Builds a scenario.
pub fn sim(scenario: &Scenario, seed: u64) -> Result<Sim, Refused> {
    scenario.needs_no_kernel("sim")?;
    let scenario = &*scenario.drawn(seed);
    let Lines { lines, names: line_names, changes } = parts::lines(scenario, seed)?;
    let cue =
        |(line, c): (usize, Change)| (Time::ZERO + c.at, Cue::Change { line, rate: c.rate, delay: c.delay });
    let mut cues: Vec<_> = changes.into_iter().map(cue).collect();
    let phases = parts::phases(scenario, seed);
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
                let ends = tcp_ends(
                    tcp,
                    parts::path_mtu(scenario, &route),
                    seed,
                    i,
                    [phases[flow.from], phases[flow.to]],
                )
                .map_err(unfit)?;
                (Ends::Tcp(Box::new(ends)), tcp.size.map(|s| s.0), tcp.controller.name.clone())
            }
            Transport::Udp(udp) => {
                let source = Source::new(udp.rate, udp.packet.0 as u32, parts::periods(flow, udp));
                (Ends::Udp(source, Sink::default()), None, "udp".to_string())
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
    let queue_recorders = scenario.record.queues.then(|| QueueRecorder::of_lines(&line_names));
    Ok(Sim {
        name: scenario.name.clone(),
        seed,
        now: Time::ZERO,
        end: Time::ZERO + scenario.duration,
        back_pressure: lines.iter().any(|line| line.has_back_pressure()),
        held_back: vec![VecDeque::new(); lines.len()],
        agenda: Agenda::new(2 * (lines.len() + flows.len()) + 2),
        lines,
        line_names,
        queue_recorders,
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

/// Writes a way into the table; returns where it begins.
fn way(ways: &mut Vec<u32>, hops: impl Iterator<Item = Hop>) -> u32 {
    let first = ways.len() as u32;
    ways.extend(hops.map(|h| (2 * h.link + !h.forward as usize) as u32));
    ways.push(HERE);
    first
}

/// Both ends of a flow, the sender's data written.
fn tcp_ends(
    flow: &TcpFlow,
    path_mtu: u32,
    seed: u64,
    index: usize,
    phases: [Duration; 2],
) -> Result<(Tcp, Tcp), Unfit> {
    let port = 1024 + (index % 60_000) as u16;
    let [sender, receiver] = parts::tcp_configs(flow, path_mtu, seed, index, (port, 5001), phases)?;
    let [ours, theirs] = parts::controllers(flow, seed, index)?;
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
