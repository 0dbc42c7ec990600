//! Our own ends of a flow on real packets: the scenario's stack and controller, with the same timer phases, sequence numbers and
//! random streams as in the simulator, and bytes instead of lengths.

use crate::build::{FLOW_PORT, address};
use crate::content::Content;
use crate::flow::Ledger;
use crate::linux::Cast;
use crate::port::end::{Application, End, Opening, SocketId, Unwatched};
use crate::run::Error;
use crate::stage::Stage;
use narrows_core::Time;
use narrows_core::registry::Unfit;
use narrows_core::transport::tcp::Config;
use narrows_core::transport::udp::Source;
use narrows_lab::parts;
use narrows_lab::scenario::{Refused, TcpFlow, UdpFlow};
use std::net::SocketAddrV4;

/// Our local port where we send: below those of the flows, one each.
const CLIENT_PORT: u16 = FLOW_PORT - crate::build::MOST_FLOWS as u16;

impl Cast<'_> {
    fn unfit(&self, index: usize) -> impl Fn(Unfit) -> Error {
        let path = format!("flow.{}", self.scenario.flows[index].name);
        move |unfit| Refused::unfit(&path, unfit).into()
    }

    /// We send the `index`th flow.
    pub fn our_source(
        &self,
        stage: &Stage,
        index: usize,
        flow: &TcpFlow,
        ledger: Ledger,
    ) -> Result<(End, SocketId), Error> {
        let of = &self.scenario.flows[index];
        let [from, to] = self.ports(of);
        let (config, _) = self.configs(index, flow)?;
        let [controller, _] = parts::controllers(flow, self.seed, index).map_err(self.unfit(index))?;
        let opening = Opening {
            config,
            controller,
            peer: Some(address(to)),
            content: Content::new(index as u64),
            application: flow.size.map_or(Application::WritesOn, |size| Application::Writes(size.0)),
            start: Time::ZERO + of.start,
            stop: of.stop.map(|s| Time::ZERO + s),
            pauses: Vec::new(),
            watcher: Box::new(ledger),
        };
        let end = stage.ours(from).clone();
        let id = end.with(|host| host.open(opening));
        Ok((end, id))
    }

    /// We receive it.
    pub fn our_sink(&self, stage: &Stage, index: usize, flow: &TcpFlow) -> Result<(End, SocketId), Error> {
        let [_, to] = self.ports(&self.scenario.flows[index]);
        let (_, config) = self.configs(index, flow)?;
        let [_, controller] = parts::controllers(flow, self.seed, index).map_err(self.unfit(index))?;
        let opening = Opening {
            config,
            controller,
            peer: None,
            content: Content::new(index as u64),
            application: Application::Reads,
            start: Time::ZERO,
            stop: None,
            pauses: Vec::new(),
            watcher: Box::new(Unwatched),
        };
        let end = stage.ours(to).clone();
        let id = end.with(|host| host.open(opening));
        Ok((end, id))
    }

    fn configs(&self, index: usize, flow: &TcpFlow) -> Result<(Config, Config), Error> {
        let of = &self.scenario.flows[index];
        let phases = parts::phases(self.scenario, self.seed);
        let [sender, receiver] = parts::tcp_configs(
            flow,
            self.built.path_mtus[index],
            self.seed,
            index,
            (CLIENT_PORT + index as u16, FLOW_PORT + index as u16),
            [phases[of.from], phases[of.to]],
        )
        .map_err(self.unfit(index))?;
        Ok((sender, receiver))
    }

    /// We send datagrams.
    pub fn our_udp_source(&self, stage: &Stage, index: usize, udp: &UdpFlow) -> (End, SocketId) {
        let of = &self.scenario.flows[index];
        let [from, to] = self.ports(of);
        let source = Source::new(udp.rate, udp.packet.0 as u32, parts::periods(of, udp));
        let to = SocketAddrV4::new(address(to), FLOW_PORT + index as u16);
        let end = stage.ours(from).clone();
        let id = end.with(|host| host.send_udp(CLIENT_PORT + index as u16, to, source));
        (end, id)
    }

    /// We receive them.
    pub fn our_udp_sink(&self, stage: &Stage, index: usize) -> (End, SocketId) {
        let [_, to] = self.ports(&self.scenario.flows[index]);
        let end = stage.ours(to).clone();
        let id = end.with(|host| host.receive_udp(FLOW_PORT + index as u16));
        (end, id)
    }
}
