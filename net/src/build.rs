//! From a scenario to a network with a port for every host: the same lines with the same random streams as in the simulator.
//!
//! The `p`th host has the address 10.78.x.y; the `i`th flow goes to port [`FLOW_PORT`] + i of its destination, so that every
//! packet of the network names its flow. What belongs to no flow (a stray ICMP message) is refused, and counted.

use crate::frame::Frame;
use crate::gateway::Directions;
use crate::network::{Network, Way, WayId};
use narrows_core::FlowId;
use narrows_core::packet::Direction;

use narrows_lab::parts::{self, Lines};
use narrows_lab::route::{Hop, Routes};
use narrows_lab::scenario::{Refused, Scenario};
use std::net::Ipv4Addr;

/// The destination port of flow 0.
pub const FLOW_PORT: u16 = 20_000;
/// So many flows have ports: Linux's ephemeral ports begin above them, at 32768.
pub const MOST_FLOWS: usize = 10_000;

/// A scenario's network, ready for packets.
pub struct Built {
    /// Lines and ways.
    pub network: Network,
    /// Which way each flow's packets take.
    pub directions: ByFlow,
    /// `from>to` of every line.
    pub line_names: Vec<String>,
    /// The node of every port, in order: the scenario's hosts.
    pub hosts: Vec<usize>,
    /// The smallest MTU of every flow's way.
    pub path_mtus: Vec<u32>,
}

impl Built {
    /// The port of a node; it must be a host.
    pub fn port(&self, node: usize) -> usize {
        self.hosts.iter().position(|n| *n == node).expect("flows begin and end at hosts")
    }
}

/// The address of the host at port `port`.
pub fn address(port: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, (port / 250) as u8, (port % 250 + 1) as u8)
}

/// Builds a scenario's network.
pub fn build(scenario: &Scenario, seed: u64) -> Result<Built, Refused> {
    if scenario.flows.len() > MOST_FLOWS {
        let message = format!("at most {MOST_FLOWS} flows have ports on real packets: write fewer");
        return Err(Refused { path: "flow".into(), message });
    }
    if let Some(link) = scenario.links.iter().find(|l| l.forward.back_pressure || l.backward.back_pressure) {
        let message =
            "senders on real packets cannot be held back by a line yet: run it on sim, or leave it out";
        return Err(Refused { path: format!("link.{}.back_pressure", link.name), message: message.into() });
    }
    let Lines { lines, names: line_names, changes } = parts::lines(scenario, seed)?;
    let hosts: Vec<usize> = (0..scenario.nodes.len()).filter(|n| !scenario.nodes[*n].router).collect();
    let port = |node: usize| hosts.iter().position(|n| *n == node).expect("flows begin and end at hosts");
    let mut routes = Routes::new(&scenario.nodes, &scenario.links);
    let (mut ways, mut ends, mut path_mtus) = (Vec::new(), Vec::new(), Vec::new());
    for flow in &scenario.flows {
        let route = routes.between(flow.from, flow.to).filter(|r| !r.is_empty()).ok_or_else(|| Refused {
            path: format!("flow.{}", flow.name),
            message: "there is no way from its source to its destination: add a link".into(),
        })?;
        let line = |h: &Hop| 2 * h.link + !h.forward as usize;
        let (from, to) = (port(flow.from), port(flow.to));
        ways.push(Way { lines: route.iter().map(line).collect(), port: to });
        ways.push(Way { lines: route.iter().rev().map(|h| line(h) ^ 1).collect(), port: from });
        ends.push([from, to]);
        path_mtus.push(parts::path_mtu(scenario, &route));
    }
    let network = Network::new(lines, &ways, &changes);
    let ways = (0..ends.len()).map(|i| [network.way(2 * i), network.way(2 * i + 1)]).collect();
    Ok(Built { network, directions: ByFlow { ways, ends }, line_names, hosts, path_mtus })
}

/// Directs packets by the flow that their ports name.
#[derive(Clone)]
pub struct ByFlow {
    /// Forward and backward, per flow.
    ways: Vec<[WayId; 2]>,
    /// Where a flow's forward and backward packets come in.
    ends: Vec<[usize; 2]>,
}

impl ByFlow {
    /// Which flow a packet belongs to, and which way it goes; `None` if to none.
    pub fn flow(&self, frame: &Frame) -> Option<(usize, Direction)> {
        let (source, destination) = frame.tuple()?.ports;
        let of = |port: u16| Some(port.checked_sub(FLOW_PORT)? as usize).filter(|i| *i < self.ways.len());
        // A client's port is never among them, so one of the two decides.
        of(destination).map(|i| (i, Direction::Forward)).or_else(|| Some((of(source)?, Direction::Backward)))
    }
}

impl Directions for ByFlow {
    fn way(&self, port: usize, frame: Frame) -> Result<(WayId, Frame), Frame> {
        match self.flow(&frame) {
            Some((i, direction)) if self.ends[i][direction as usize] == port => {
                Ok((self.ways[i][direction as usize], frame.of_flow(FlowId(i as u32))))
            }
            _ => Err(frame),
        }
    }
}
