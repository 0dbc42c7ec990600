//! A flow on real packets: whose its two ends are, and what is counted at its sender by the same rules as in the simulator.

use crate::frame::Frame;
use crate::linux::{self, Cast};
use crate::observe::Observed;
use crate::port::end::{Bytewise, End, SocketId, UdpSocket, Watcher};
use crate::run::Error;
use crate::socket::{TcpSink, TcpSource, UdpSink, UdpSource};
use crate::stage::Stage;
use narrows_core::Time;
use narrows_core::packet::{Body, Direction};
use narrows_core::transport::tcp::{Counters, State};
use narrows_core::wire::tcp::{Length, Payload, Segment};
use narrows_core::wire::udp::Message;
use narrows_core::wire::{ipv4, protocol};
use narrows_lab::line::Written;
use narrows_lab::meter::Meter;
use narrows_lab::outcome::{EventKind, FlowSummary, Outcome};
use narrows_lab::record::Recorder;
use narrows_lab::scenario::Transport;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who sends.
pub enum Sender {
    /// A TCP socket of the kernel's, and what its packets show.
    Kernel(TcpSource, Box<Observed>),
    /// A TCP of our own, which its watcher looks at.
    Ours(End, SocketId),
    /// A UDP socket of the kernel's.
    KernelUdp(UdpSource),
    /// Datagrams of our own.
    OurUdp(End, SocketId),
}

/// Who receives.
pub enum Receiver {
    /// A TCP socket of the kernel's.
    Kernel(TcpSink),
    /// A TCP of our own.
    Ours(End, SocketId),
    /// A UDP socket of the kernel's.
    KernelUdp(UdpSink),
    /// Our own.
    OurUdp(End, SocketId),
}

/// What is counted and recorded at a sender. Our own TCP's watcher writes here from within the gateway.
#[derive(Clone)]
pub struct Ledger(Arc<Mutex<Pages>>);

/// What is written in it.
pub struct Pages {
    /// What is counted.
    pub meter: Meter,
    /// What is recorded over time, if anything.
    pub recorder: Option<Recorder>,
}

impl Ledger {
    /// Nothing yet.
    pub fn new(meter: Meter, recorder: Option<Recorder>) -> Ledger {
        Ledger(Arc::new(Mutex::new(Pages { meter, recorder })))
    }

    fn open(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The simulator's rules, for a TCP of our own.
impl Watcher for Ledger {
    fn sent(&mut self, now: Time, tcp: &mut Bytewise, segment: &Segment<Vec<u8>>) {
        let mut pages = self.open();
        let Pages { meter, recorder } = &mut *pages;
        if tcp.max() - tcp.una() <= segment.payload.len() as u64 {
            meter.idle(now); // nothing was outstanding before it
        }
        if let Some(recorder) = recorder {
            recorder.sent(now, segment.seq, segment.payload.len() as u64);
        }
    }
    fn received(&mut self, now: Time, tcp: &mut Bytewise) {
        let meter = &mut self.open().meter;
        if let Some(rtt) = tcp.take_rtt() {
            meter.rtt(rtt);
        }
        meter.advance(now, tcp.acknowledged());
    }
    fn rests(&mut self, now: Time, tcp: &mut Bytewise) {
        if let Some(recorder) = &mut self.open().recorder {
            recorder.look_at(now, tcp);
        }
    }
}

/// A flow of the scenario, as it runs.
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Its congestion control, as the scenario names it.
    pub controller: String,
    /// Who sends.
    pub sender: Sender,
    /// Who receives.
    pub receiver: Receiver,
    /// What is counted.
    pub ledger: Ledger,
    /// How much it sends, if that is said.
    pub size: Option<u64>,
    /// When it starts.
    pub start: Time,
    /// When it stops.
    pub stop: Option<Time>,
    /// Packets lost on the way.
    pub lost: u64,
    /// Whether its end has been noted.
    pub over: bool,
}

impl Flow {
    fn is_tcp(&self) -> bool {
        matches!(self.sender, Sender::Kernel(..) | Sender::Ours(..))
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        self.is_tcp() && (self.size.is_some() || self.stop.is_some())
    }

    /// A packet of the sender's comes into the network.
    pub fn sent(&mut self, now: Time, frame: &Frame) {
        let Sender::Kernel(_, observed) = &mut self.sender else { return };
        let Some(Body::Tcp(segment)) = body(frame) else { return };
        let mut pages = self.ledger.open();
        let Pages { meter, recorder } = &mut *pages;
        if observed.una() == observed.max() {
            meter.idle(now); // nothing was outstanding
        }
        observed.sent(now, &segment);
        if let Some(recorder) = recorder {
            recorder.sent(now, segment.seq, segment.payload.len() as u64);
            recorder.look(now, &observed.sight(), |_| {});
        }
    }

    /// A packet has come back to the sender.
    pub fn acknowledged(&mut self, now: Time, frame: &Frame) {
        let Sender::Kernel(_, observed) = &mut self.sender else { return };
        let Some(Body::Tcp(segment)) = body(frame) else { return };
        let rtt = observed.received(now, &segment);
        let mut pages = self.ledger.open();
        let Pages { meter, recorder } = &mut *pages;
        // A flow that was stopped has sent what lies before its FIN.
        if let Some(fin) = observed.fin() {
            meter.limit(now, fin);
        }
        if let Some(rtt) = rtt {
            meter.rtt(rtt);
        }
        meter.advance(now, observed.una());
        if let Some(recorder) = recorder {
            recorder.look(now, &observed.sight(), |_| {});
        }
    }

    /// An ACK is about to come back whose window a router has written.
    pub fn written(&self, now: Time, window: Written) {
        let mut pages = self.ledger.open();
        pages.meter.written(now, window);
        if let Some(recorder) = &mut pages.recorder {
            recorder.written(now, window.line);
        }
    }

    /// A packet of the flow was dropped or marked.
    pub fn noted(&self, at: Time, kind: EventKind, direction: Direction, frame: &Frame, detail: String) {
        let Some(recorder) = &mut self.ledger.open().recorder else { return };
        let value = match (body(frame), direction) {
            (Some(Body::Tcp(s)), Direction::Forward) => recorder.offset(s.seq),
            (Some(Body::Tcp(s)), Direction::Backward) => recorder.offset(s.ack),
            (Some(Body::Udp(m)), _) => m.number as f64,
            (None, _) => return,
        };
        recorder.event(at, kind, value, detail);
    }

    /// Now and then: whether it is over since it was last asked, and had an end to come to.
    pub fn round(&mut self, now: Time) -> bool {
        if self.over {
            return false;
        }
        let mut stopped = None;
        let given_up = match &self.sender {
            Sender::Ours(end, id) => end.with(|host| {
                let socket = host.tcp(*id);
                stopped = socket.finished().map(|at| (at, socket.tcp().written()));
                now > self.start && socket.tcp().state() == State::Closed
            }),
            Sender::Kernel(source, _) => source.progress().over,
            Sender::KernelUdp(_) | Sender::OurUdp(..) => false,
        };
        let mut pages = self.ledger.open();
        let Pages { meter, recorder } = &mut *pages;
        if let Some((at, written)) = stopped {
            meter.limit(at, written);
        }
        if let (Some(at), Some(recorder)) = (meter.finished(), recorder) {
            recorder.event(at, EventKind::Finished, 0.0, String::new());
        }
        self.over = meter.finished().is_some() || given_up;
        self.over && self.is_bounded()
    }

    /// The run is over: the flow in numbers, and what was recorded of it; `lines` are the lines' names.
    pub fn end(mut self, now: Time, lines: &[String], outcome: &mut Outcome) {
        self.round(now);
        let mut said = Vec::new();
        let delivered = self.receiver.end(&mut said);
        let mut pages = self.ledger.open();
        let Pages { meter, recorder } = &mut *pages;
        let mut summary = FlowSummary::default();
        let mut ended = meter.finished();
        match self.sender {
            Sender::Kernel(source, observed) => {
                meter.end(now, observed.max() > observed.una());
                meter.fill(&mut summary, lines);
                let report = source.finish();
                count(&mut summary, observed.counters());
                summary.rto_count = linux::timeouts(&report).unwrap_or(summary.rto_count);
                if let Some(recorder) = recorder {
                    linux::show(recorder, &observed.sight(), &report);
                }
                said.extend(report.failure.map(|f| f.to_string()));
            }
            Sender::Ours(end, id) => end.with(|host| {
                let tcp = host.tcp(id).tcp();
                meter.end(now, tcp.max() > tcp.una());
                meter.fill(&mut summary, lines);
                count(&mut summary, tcp.counters());
            }),
            Sender::KernelUdp(source) => {
                let (sent, failure) = source.finish();
                (summary.segments_sent, ended) = (sent, self.stop);
                said.extend(failure.map(|f| f.to_string()));
            }
            Sender::OurUdp(end, id) => {
                summary.segments_sent = end.with(|host| match host.udp(id) {
                    UdpSocket::Source(source, _) => source.sent(),
                    UdpSocket::Sink(_) => 0,
                });
                ended = self.stop;
            }
        }
        let end = ended.unwrap_or(now).min(now);
        let seconds = end.since(self.start).as_secs_f64();
        summary.completed = ended.is_some_and(|at| at <= now);
        summary.goodput_bps = if seconds > 0.0 { delivered as f64 * 8.0 / seconds } else { 0.0 };
        (summary.started_at_s, summary.finished_at_s) = (self.start.as_secs_f64(), end.as_secs_f64());
        if let Some(recorder) = recorder.take() {
            let (series, events, omitted) = recorder.finish(now);
            outcome.series.extend(series);
            outcome.events.extend(events);
            outcome.events_omitted += omitted;
        }
        let Flow { name, controller, lost, .. } = self;
        outcome.notes.extend(said.into_iter().map(|said| format!("{name}: {said}")));
        outcome.flows.push(FlowSummary { name, controller, lost, delivered_bytes: delivered, ..summary });
    }
}

impl Receiver {
    /// How many bytes have arrived in order; `said` is what there is to say of them.
    fn end(self, said: &mut Vec<String>) -> u64 {
        let wrong = |at: u64| format!("byte {at} was not the one that was sent");
        match self {
            Receiver::Kernel(sink) => {
                let report = sink.finish();
                said.extend(report.first_wrong.map(wrong));
                said.extend(report.failure.map(|f| f.to_string()));
                report.bytes
            }
            Receiver::Ours(end, id) => end.with(|host| {
                let socket = host.tcp(id);
                said.extend(socket.received().first_wrong().map(wrong));
                socket.tcp().delivered()
            }),
            Receiver::KernelUdp(sink) => {
                let (sink, failure) = sink.finish();
                said.extend(failure.map(|f| f.to_string()));
                sink.bytes()
            }
            Receiver::OurUdp(end, id) => end.with(|host| match host.udp(id) {
                UdpSocket::Sink(sink) => sink.bytes(),
                UdpSocket::Source(..) => 0,
            }),
        }
    }
}

fn count(summary: &mut FlowSummary, counters: &Counters) {
    summary.segments_sent = counters.segments_sent;
    summary.retransmissions = counters.retransmissions;
    summary.retransmit_ratio = counters.retransmissions as f64 / counters.segments_sent.max(1) as f64;
    summary.rto_count = counters.timeouts;
    summary.fast_retransmits = counters.fast_retransmits;
    summary.ecn_reductions = counters.ecn_reductions;
}

/// What an IPv4 packet of ours or the kernel's carries, as a value.
fn body(frame: &Frame) -> Option<Body> {
    let view = ipv4::View::new(frame.packet()?).ok()?;
    match view.protocol() {
        protocol::TCP => {
            let segment = Segment::decode(view.payload(), None).ok()?;
            Some(Body::Tcp(segment.with_payload(Length(segment.payload.len() as u32))))
        }
        protocol::UDP => Some(Body::Udp(Message::decode(view.payload(), None).ok()?)),
        _ => None,
    }
}

impl Cast<'_> {
    /// The `index`th flow, ready to start: its receiver listens. `kernel` says which ends are the kernel's.
    pub fn flow(&self, stage: &Stage, index: usize, kernel: [bool; 2]) -> Result<Flow, Error> {
        let of = &self.scenario.flows[index];
        let (start, stop) = (Time::ZERO + of.start, of.stop.map(|s| Time::ZERO + s));
        let size = match &of.transport {
            Transport::Tcp(tcp) => tcp.size.map(|s| s.0),
            Transport::Udp(_) => None,
        };
        let record = &self.scenario.record;
        let recorder =
            record.flows.then(|| Recorder::new(&of.name, self.scenario.flows.len(), record.rate_interval));
        let ledger = Ledger::new(Meter::new(start, size), recorder);
        let (sender, receiver, controller) = match &of.transport {
            Transport::Tcp(tcp) => {
                let receiver = if kernel[1] {
                    Receiver::Kernel(self.sink(stage, index, tcp)?)
                } else {
                    let (end, id) = self.our_sink(stage, index, tcp)?;
                    Receiver::Ours(end, id)
                };
                let sender = if kernel[0] {
                    Sender::Kernel(self.source(stage, index, tcp)?, Box::default())
                } else {
                    let (end, id) = self.our_source(stage, index, tcp, ledger.clone())?;
                    Sender::Ours(end, id)
                };
                let named = tcp.kernel_controller.as_ref().filter(|_| kernel[0]);
                (sender, receiver, named.unwrap_or(&tcp.controller.name).clone())
            }
            Transport::Udp(udp) if kernel[0] => {
                let receiver = Receiver::KernelUdp(self.udp_sink(stage, index)?);
                (Sender::KernelUdp(self.udp_source(stage, index, udp)?), receiver, "udp".to_string())
            }
            Transport::Udp(udp) => {
                let (end, id) = self.our_udp_sink(stage, index);
                let receiver = Receiver::OurUdp(end, id);
                let (end, id) = self.our_udp_source(stage, index, udp);
                (Sender::OurUdp(end, id), receiver, "udp".to_string())
            }
        };
        let (name, lost, over) = (of.name.clone(), 0, false);
        Ok(Flow { name, controller, sender, receiver, ledger, size, start, stop, lost, over })
    }
}
