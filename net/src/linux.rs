//! The kernel's ends of a flow: sockets that do what the scenario says, as far as the kernel lets itself be told, and what
//! TCP_INFO says of them, in the simulator's series and units.
//!
//! Deviations from the simulator: the stack is the kernel's own, whatever the scenario names; timestamps, SACK and window scale
//! are as the kernel has them by default; ECN is negotiated if the stack has it. `window` bounds what the receiver advertises.

use crate::build::{Built, FLOW_PORT, address};
use crate::clock::Clock;
use crate::content::Content;
use crate::run::{Error, Host, Options};
use crate::socket::{Receiving, Sending, SourceReport, TcpInfo, TcpSink, TcpSource, UdpSink, UdpSource};
use crate::stage::{Stage, ecn_ends, ecn_hosts, kernel_ends};
use narrows_core::Time;
use narrows_lab::parts;
use narrows_lab::record::{Recorder, Sight};
use narrows_lab::scenario::{Flow, Scenario, TcpFlow, Transport, UdpFlow};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// For each flow the kernel's congestion control, where the kernel sends.
pub type Controllers = Vec<Option<String>>;

/// What the kernel calls the controllers of the flows that it sends.
///
/// # Errors
/// It has no such controller.
pub fn controllers(scenario: &Scenario, host: Host, options: &Options) -> Result<Controllers, Error> {
    const LIST: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let available = std::fs::read_to_string(LIST)
        .map_err(|e| Error::unable(format!("{LIST} cannot be read: {e}"), "mount /proc"))?;
    let of = |flow: &Flow| {
        let Transport::Tcp(tcp) = &flow.transport else { return Ok(None) };
        if !kernel_ends(flow, host, options)[0] {
            return Ok(None);
        }
        let name = kernel_name(flow, tcp, options);
        if available.split_whitespace().any(|has| has == name) {
            return Ok(Some(name.to_string()));
        }
        let message = format!(
            "flow {}: this kernel has no congestion control `{name}`: it has {}",
            flow.name,
            available.split_whitespace().collect::<Vec<_>>().join(", ")
        );
        let help = match name {
            "becc" | "becc-modern" => format!("load it first: narrows kernel load {name}"),
            _ => "name one of these as the flow's kernel_controller, or load another (modprobe)".to_string(),
        };
        Err(Error::unable(message, help))
    };
    scenario.flows.iter().map(of).collect()
}

/// A note for every stack that the scenario chooses for an end and the kernel there does not have.
pub fn foreign_stacks(scenario: &Scenario, host: Host, options: &Options) -> Vec<String> {
    let mut of_stacks: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for flow in &scenario.flows {
        let Transport::Tcp(tcp) = &flow.transport else { continue };
        let ends = [("sends", &tcp.stack), ("receives", &tcp.receiver_stack)];
        for ((does, stack), kernels) in ends.into_iter().zip(kernel_ends(flow, host, options)) {
            if kernels && stack.name != DEFAULT_STACK {
                of_stacks.entry((does, &stack.name)).or_default().push(&flow.name);
            }
        }
    }
    let note = |((does, stack), flows): ((&str, &String), Vec<&str>)| {
        format!("{}: it is the kernel's own stack that {does} here, not {stack}", few(&flows))
    };
    of_stacks.into_iter().map(note).collect()
}

/// The first names, and how many more there are.
fn few(names: &[&str]) -> String {
    match names {
        [a, b, c, _, rest @ ..] => format!("{a}, {b}, {c} and {} more", rest.len() + 1),
        _ => names.join(", "),
    }
}

/// A note for every kernel's end whose stack has no ECN, at a host that has it for another flow's sake.
pub fn shared_ecn(scenario: &Scenario, host: Host, options: &Options) -> Vec<String> {
    let hosts = ecn_hosts(scenario, host, options);
    let mut notes = Vec::new();
    for flow in scenario.flows.iter().filter(|flow| matches!(flow.transport, Transport::Tcp(_))) {
        let ends = kernel_ends(flow, host, options).into_iter().zip(ecn_ends(flow));
        for (node, (kernels, ecn)) in [flow.from, flow.to].into_iter().zip(ends) {
            if kernels && !ecn && hosts.contains(&node) {
                let (flow, host) = (&flow.name, &scenario.nodes[node].name);
                notes.push(format!(
                    "{flow}: {host} negotiates ECN for another flow's sake, and so for this one: the kernel has one setting"
                ));
            }
        }
    }
    notes
}

/// What a scenario has that names no stack: the nearest to the kernel's.
const DEFAULT_STACK: &str = "rfc";

fn kernel_name<'a>(flow: &'a Flow, tcp: &'a TcpFlow, options: &'a Options) -> &'a str {
    let given = options.kernel_names.get(&flow.name).or(tcp.kernel_controller.as_ref());
    given.unwrap_or(&tcp.controller.name)
}

/// What every flow's ends are made of.
pub struct Cast<'a> {
    /// Whose flows.
    pub scenario: &'a Scenario,
    /// Addresses and ways.
    pub built: &'a Built,
    /// Of the run.
    pub seed: u64,
    /// Of the run.
    pub clock: Clock,
    /// How often flows are looked at.
    pub interval: Duration,
    /// What the kernel calls the flows' controllers.
    pub controllers: Controllers,
}

impl Cast<'_> {
    /// The hosts of a flow's source and destination, by port.
    pub fn ports(&self, flow: &Flow) -> [usize; 2] {
        [self.built.port(flow.from), self.built.port(flow.to)]
    }

    /// Where the `index`th flow's data go.
    pub fn destination(&self, index: usize) -> SocketAddr {
        let [_, to] = self.ports(&self.scenario.flows[index]);
        (address(to), FLOW_PORT + index as u16).into()
    }

    /// The MSS option that leads to the payload the scenario wants: Linux's segments carry timestamps.
    fn mss(&self, index: usize, flow: &TcpFlow) -> u32 {
        flow.mss.map_or(self.built.path_mtus[index] - parts::HEADERS, |payload| payload + parts::TIMESTAMPS)
    }

    /// The kernel receives the `index`th flow. To be called before it is sent.
    pub fn sink(&self, stage: &Stage, index: usize, flow: &TcpFlow) -> Result<TcpSink, Error> {
        let [_, to] = self.ports(&self.scenario.flows[index]);
        let receiving = Receiving {
            at: self.destination(index),
            window: Some(flow.window),
            mss: Some(self.mss(index, flow)),
            content: Content::new(index as u64),
            pauses: Vec::new(),
        };
        Ok(TcpSink::open(stage.namespace(to), self.clock, receiving)?)
    }

    /// The kernel sends the `index`th flow.
    pub fn source(&self, stage: &Stage, index: usize, flow: &TcpFlow) -> Result<TcpSource, Error> {
        let of = &self.scenario.flows[index];
        let [from, _] = self.ports(of);
        let sending = Sending {
            to: self.destination(index),
            controller: self.controllers[index].clone(),
            send_buffer: Some(flow.send_buffer),
            mss: Some(self.mss(index, flow)),
            content: Content::new(index as u64),
            size: flow.size.map(|s| s.0),
            start: Time::ZERO + of.start,
            stop: of.stop.map(|s| Time::ZERO + s),
            sample: Some(self.interval),
        };
        Ok(TcpSource::open(stage.namespace(from), self.clock, sending)?)
    }

    /// The kernel receives datagrams.
    pub fn udp_sink(&self, stage: &Stage, index: usize) -> Result<UdpSink, Error> {
        let [_, to] = self.ports(&self.scenario.flows[index]);
        Ok(UdpSink::open(stage.namespace(to), self.clock, self.destination(index))?)
    }

    /// The kernel sends datagrams.
    pub fn udp_source(&self, stage: &Stage, index: usize, udp: &UdpFlow) -> Result<UdpSource, Error> {
        let of = &self.scenario.flows[index];
        let [from, _] = self.ports(of);
        let (to, size) = (self.destination(index), udp.packet.0 as u32);
        Ok(UdpSource::open(stage.namespace(from), self.clock, to, udp.rate, size, parts::periods(of, udp))?)
    }
}

/// What TCP_INFO said over time becomes series with the simulator's names and units. An `ssthresh` that has not been set is
/// left out, as is a rate that the kernel does not pace to.
pub fn show(recorder: &mut Recorder, sight: &Sight, report: &SourceReport) {
    for sample in &report.samples {
        let TcpInfo { snd_cwnd, snd_mss, snd_ssthresh, rtt, pacing_rate, .. } = sample.info;
        recorder.look(sample.at, sight, |show| {
            show("cwnd", snd_cwnd as f64 * snd_mss as f64);
            if snd_ssthresh < i32::MAX as u32 {
                show("ssthresh", snd_ssthresh as f64 * snd_mss as f64);
            }
            if rtt > 0 {
                show("srtt", rtt as f64 * 1e-6);
            }
            if pacing_rate != u64::MAX {
                show("pacing_rate", pacing_rate as f64 * 8.0);
            }
        });
    }
}

/// Retransmission timeouts as the kernel counts them.
pub fn timeouts(report: &SourceReport) -> Option<u64> {
    report.samples.last().map(|s| s.info.total_rto as u64)
}
