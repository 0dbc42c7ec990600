//! What a scenario is played on: for each of its hosts a network namespace with a TUN device, if any of its flows ends in the
//! kernel there, and a host of our own, if any of them ends in this process. Both have the host's one address and are one port
//! of the gateway; which of them a packet is for, its flow says.

use crate::build::{Built, address};
use crate::frame::Frame;
use crate::namespace::Namespace;
use crate::port::end::End;
use crate::port::tun::{self, Tun};
use crate::port::{Port, Take, Tell};
use crate::run::{Error, Host, KernelEnd, Options};
use narrows_core::Time;
use narrows_core::packet::Packet;
use narrows_lab::scenario::{Flow, Scenario, Transport};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;

/// The prefix of all hosts' addresses: whatever is sent to any of them leaves by the one device there is.
const PREFIX: u8 = 16;
/// What a host's device is called, within its namespace.
const DEVICE: &str = "narrows";

/// Namespaces, hosts of our own, and the ports they are behind; by the number of the scenario's host.
pub struct Stage {
    /// One per host, for the gateway.
    pub ports: Vec<Box<dyn Port>>,
    namespaces: Vec<Option<Namespace>>,
    ours: Vec<End>,
}

/// Whether a flow's sender and its receiver are the kernel's.
pub fn kernel_ends(flow: &Flow, host: Host, options: &Options) -> [bool; 2] {
    match (host, &flow.transport, options.kernel_end) {
        (Host::Linux, ..) => [true, true],
        (Host::Wire, Transport::Udp(_), _) | (Host::Wire, _, KernelEnd::None) => [false, false],
        (Host::Wire, _, KernelEnd::Receiver) => [false, true],
        (Host::Wire, _, KernelEnd::Sender) => [true, false],
    }
}

/// Whether the stacks of a flow's sender and of its receiver have ECN.
pub fn ecn_ends(flow: &Flow) -> [bool; 2] {
    match &flow.transport {
        Transport::Tcp(tcp) => [&tcp.stack, &tcp.receiver_stack].map(|stack| stack.settings.flag("ecn")),
        Transport::Udp(_) => [false, false],
    }
}

/// The scenario's hosts whose kernel is to negotiate ECN. It has one setting for all connections of a namespace, so one flow's
/// end there that has ECN in its stack is enough.
pub fn ecn_hosts(scenario: &Scenario, host: Host, options: &Options) -> BTreeSet<usize> {
    let of = |flow: &Flow| {
        let ends = kernel_ends(flow, host, options).into_iter().zip(ecn_ends(flow));
        let wanted =
            [flow.from, flow.to].into_iter().zip(ends).filter(|(_, (kernels, ecn))| *kernels && *ecn);
        wanted.map(|(node, _)| node).collect::<Vec<_>>()
    };
    scenario.flows.iter().flat_map(of).collect()
}

impl Stage {
    /// Makes all namespaces and devices.
    ///
    /// # Errors
    /// The machine does not allow them.
    pub fn set(scenario: &Scenario, built: &Built, host: Host, options: &Options) -> Result<Stage, Error> {
        let n = built.hosts.len();
        let (mut kernel, mut ours) = (vec![false; n], vec![vec![false; scenario.flows.len()]; n]);
        for (i, flow) in scenario.flows.iter().enumerate() {
            for (node, kernels) in [flow.from, flow.to].into_iter().zip(kernel_ends(flow, host, options)) {
                let port = built.port(node);
                kernel[port] |= kernels;
                ours[port][i] = !kernels;
            }
        }
        let ends: Vec<End> = (0..n).map(|p| End::new(address(p))).collect();
        let ecn = ecn_hosts(scenario, host, options);
        let offered = scenario.flows.iter().any(|flow| ecn_ends(flow)[0]);
        let mut stage = Stage { ports: Vec::new(), namespaces: Vec::new(), ours: ends };
        for (p, ours) in ours.into_iter().enumerate() {
            let (mut namespace, mut device) = (None, None);
            if kernel[p] {
                let made = Namespace::new()?;
                if offered {
                    made.ecn(ecn.contains(&built.hosts[p]))?; // otherwise every kernel accepts it
                }
                let mtu = mtu(scenario, built.hosts[p]);
                device = Some(Tun::open(&made, DEVICE, mtu, &[(address(p).into(), PREFIX)])?);
                namespace = Some(made);
            }
            stage.ports.push(Box::new(HostPort { device, end: stage.ours[p].clone(), ours }));
            stage.namespaces.push(namespace);
        }
        Ok(stage)
    }

    /// The namespace of the host at port `port`, which has flows that end in the kernel.
    pub fn namespace(&self, port: usize) -> &Namespace {
        self.namespaces[port].as_ref().expect("a host with a kernel's end has a namespace")
    }

    /// How many packets the kernel dropped because we did not take them from its devices in time, if any.
    pub fn kernel_drops(&self) -> Option<u64> {
        let of = self.namespaces.iter().flatten().map(|namespace| tun::kernel_drops(namespace, DEVICE));
        Some(of.sum()).filter(|n| *n > 0)
    }

    /// What came to hosts of our own and was of no use to them, if anything, as notes.
    pub fn strangers(&self) -> Vec<String> {
        let of = |(port, end): (usize, &End)| {
            let refused = end.with(|host| host.refused().clone());
            let reasons: Vec<String> = refused.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
            let at = address(port);
            (!reasons.is_empty()).then(|| format!("packets of no use to {at}: {}", reasons.join(", ")))
        };
        self.ours.iter().enumerate().filter_map(of).collect()
    }

    /// The host of our own at port `port`.
    pub fn ours(&self, port: usize) -> &End {
        &self.ours[port]
    }
}

/// The MTU of a host's device: the smallest of its links.
fn mtu(scenario: &Scenario, node: usize) -> u32 {
    let links = scenario.links.iter().filter(|l| l.from == node || l.to == node);
    let smallest = links.map(|l| l.forward.mtu.0.min(l.backward.mtu.0)).min();
    smallest.map_or(1500, |mtu| mtu.min(u16::MAX as u64) as u32)
}

/// A host's one port.
struct HostPort {
    device: Option<Tun>,
    end: End,
    /// Whose flows' ends here are our own.
    ours: Vec<bool>,
}

impl Port for HostPort {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_ref()?.descriptor()
    }
    fn receive(&mut self, now: Time, take: Take<'_>) -> io::Result<()> {
        self.end.receive(now, take)?;
        self.device.as_mut().map_or(Ok(()), |device| device.receive(now, take))
    }
    fn send(&mut self, now: Time, due: Time, frame: Frame, tell: Tell<'_>) {
        match &mut self.device {
            Some(device) if !self.ours[frame.flow().0 as usize] => device.send(now, due, frame, tell),
            _ => self.end.send(now, due, frame, tell),
        }
    }
    fn flush(&mut self, tell: Tell<'_>) {
        if let Some(device) = &mut self.device {
            device.flush(tell);
        }
    }
    fn wake_at(&self) -> Option<Time> {
        self.end.wake_at()
    }
}
