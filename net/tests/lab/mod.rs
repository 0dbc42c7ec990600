//! Two hosts with one flow between them, each ours or the kernel's, and the gateway that they cross.
#![allow(dead_code)] // each test uses a part of it

use narrows_core::packet::Packet;
use narrows_core::wire::protocol;
use narrows_core::wire::tcp::Flags;
use narrows_core::{Ecn, Time};
use narrows_lab::file::parse;
use narrows_lab::parts;
use narrows_lab::scenario::{TcpFlow, Transport};
use narrows_net::build::{Built, FLOW_PORT, address, build};
use narrows_net::clock::Clock;
use narrows_net::content::Content;
use narrows_net::frame::Frame;
use narrows_net::gateway::{Control, Gateway, Inside};
use narrows_net::namespace::Namespace;
use narrows_net::port::Tell;
use narrows_net::port::end::{Application, End, Opening, SocketId, Unwatched};
use narrows_net::port::tun::Tun;
use narrows_net::port::{Port, Take};
use narrows_net::socket::{Receiving, Sample, Sending, TcpInfo, TcpSink, TcpSource};
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Whose TCP is at an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Linux's, with Reno.
    Kernel,
    /// Ours, of this stack (as a scenario writes it), with Reno.
    Ours(&'static str),
}

/// BSD's.
pub const NET2: Side = Side::Ours("\"net2\"");
/// The standards'.
pub const RFC: Side = Side::Ours("\"rfc\"");

/// What is between the two hosts, the same in both directions, and what else a case asks for.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub rate: &'static str,
    pub delay: &'static str,
    pub queue: &'static str,
    /// Queue in the other direction, if another one.
    pub back: Option<&'static str>,
    pub mtu: u32,
    pub window: &'static str,
    /// When the receiver does not read, in ms.
    pub pause: Option<(u64, u64)>,
    /// Whether both ends are to use ECN.
    pub ecn: bool,
    /// Which ECN-capable packets to the receiver are marked, counted from 0, in order.
    pub mark: &'static [u64],
    /// Whether packets are kept, as they pass the sender.
    pub capture: bool,
}

impl Default for Path {
    fn default() -> Path {
        Path {
            rate: "100Mbit/s",
            delay: "2ms",
            queue: "\"fifo:200p\"",
            back: None,
            mtu: 1500,
            window: "128KiB",
            pause: None,
            ecn: false,
            mark: &[],
            capture: false,
        }
    }
}

/// What came of it.
#[derive(Default)]
pub struct Ran {
    pub failure: Option<String>,
    /// Whether every byte arrived and was the right one, and the end of the stream was seen.
    pub completed: bool,
    /// When the sender had everything acknowledged, in seconds.
    pub finished: f64,
    /// What gateway and our ends took of a core, in seconds.
    pub cpu: f64,
    pub retransmissions: u64,
    /// Largest packet, and ACKs that closed the window.
    pub largest: u64,
    pub zero_windows: u64,
    /// The window that the receiver advertised last.
    pub window: u64,
    /// What the kernel's sender knew over time, and at the end.
    pub samples: Vec<Sample>,
    pub info: TcpInfo,
    /// Reductions of our sender on an ECN echo.
    pub ecn_reductions: u64,
    pub packets: Vec<(Time, Vec<u8>)>,
}

impl std::fmt::Debug for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ran { failure, completed, finished, cpu, retransmissions, zero_windows, .. } = self;
        write!(f, "completed {completed}, failure {failure:?}, {finished:.3} s, {cpu:.3} s of a core, ")?;
        write!(f, "{retransmissions} retransmissions, {zero_windows} zero windows")
    }
}

/// An end as it is: a namespace behind a TUN device, or a port.
pub enum Host {
    Kernel(Arc<Namespace>),
    Ours(End),
}

pub struct Lab {
    pub gateway: Gateway,
    pub clock: Clock,
    pub hosts: [Host; 2],
    pub path: Path,
    pub flow: TcpFlow,
    scenario: narrows_lab::scenario::Scenario,
}

/// A transfer of `size` bytes from the one to the other; `None`, and why, where this machine does not allow it.
pub fn both(from: Side, to: Side, size: u64, path: Path) -> Option<Ran> {
    let mut lab = Lab::new(path, from, to)?;
    let before = cpu_time();
    let mut ran = lab.transfer(size);
    ran.cpu = cpu_time() - before;
    println!("{from:?} to {to:?}: {:.1} Mbit/s, {ran:?}", size as f64 * 8e-6 / ran.finished);
    Some(ran)
}

/// Of this thread, in seconds.
fn cpu_time() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_THREAD).unwrap();
    [usage.user_time(), usage.system_time()]
        .iter()
        .map(|t| t.tv_sec() as f64 + t.tv_usec() as f64 * 1e-6)
        .sum()
}

impl Lab {
    pub fn new(path: Path, from: Side, to: Side) -> Option<Lab> {
        let stack = |side| if let Side::Ours(stack) = side { stack } else { "\"rfc\"" };
        let Path { rate, delay, queue, mtu, window, .. } = path;
        let back = path.back.unwrap_or(queue);
        let text = format!(
            r#"
            run = {{ duration = "60s" }}
            host = [{{ name = "a" }}, {{ name = "b" }}]
            [[link]]
            from = "a"
            to = "b"
            rate = "{rate}"
            delay = "{delay}"
            mtu = "{mtu}B"
            queue = {queue}
            backward = {{ queue = {back} }}
            [[flow]]
            name = "f"
            from = "a"
            to = "b"
            stack = {}
            receiver_stack = {}
            window = "{window}"
            "#,
            stack(from),
            stack(to)
        );
        let scenario = parse("test", &text).unwrap_or_else(|e| panic!("{e}"));
        let Transport::Tcp(flow) = scenario.flows[0].transport.clone() else { unreachable!() };
        let Built { network, directions, .. } = build(&scenario, 1).unwrap();
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        let hosts = [from, to].map(|side| {
            let address = address(ports.len());
            if side != Side::Kernel {
                let end = End::new(address);
                ports.push(Box::new(end.clone()));
                return Some(Host::Ours(end));
            }
            let opened = Namespace::new().and_then(|ns| {
                let tun = Tun::open(&ns, "path0", mtu, &[(address.into(), 16)])?;
                if path.ecn {
                    ns.ecn(true)?;
                }
                Ok((ns, tun))
            });
            let (namespace, tun) = opened.inspect_err(|e| println!("SKIPPED: {e}")).ok()?;
            ports.push(Box::new(tun));
            Some(Host::Kernel(Arc::new(namespace)))
        });
        let [Some(a), Some(b)] = hosts else { return None };
        let inner = ports.pop().unwrap();
        ports.push(Box::new(Marker { inner, mark: path.mark, seen: 0 }));
        let clock = Clock::start();
        let gateway = Gateway::new(ports, network, Box::new(directions), clock);
        Some(Lab { gateway, clock, hosts: [a, b], path, flow: *flow, scenario })
    }

    /// How an end of ours would open the flow, as its source (0) or sink (1).
    pub fn opening(&self, end: usize, application: Application) -> Opening {
        let ports = (40_000, FLOW_PORT);
        let phases = parts::phases(&self.scenario, 1);
        let configs =
            parts::tcp_configs(&self.flow, self.path.mtu, 1, 0, ports, [phases[0], phases[1]]).unwrap();
        let controllers = parts::controllers(&self.flow, 1, 0).unwrap();
        let [c0, c1] = configs.into_iter().zip(controllers).collect::<Vec<_>>().try_into().ok().unwrap();
        let (config, controller) = if end == 0 { c0 } else { c1 };
        let pause = self.path.pause.filter(|_| end == 1);
        Opening {
            config,
            controller,
            peer: (end == 0).then(|| address(1)),
            content: Content::new(0),
            application,
            start: Time::ZERO,
            stop: None,
            pauses: pause.map(|(a, b)| (Time::from_millis(a), Time::from_millis(b))).into_iter().collect(),
            watcher: Box::new(Unwatched),
        }
    }

    /// Runs the gateway until `over` says so; fails after 60 s.
    pub fn run(&mut self, watch: &mut Watch, over: &mut dyn FnMut(Time) -> bool) {
        let mut control = Until(watch, over);
        self.gateway.run(&mut control).unwrap();
    }

    pub fn transfer(&mut self, size: u64) -> Ran {
        let to = SocketAddr::new(address(1).into(), FLOW_PORT);
        let content = Content::new(0);
        enum Sink {
            Kernel(TcpSink),
            Ours(SocketId),
        }
        let pause = self.path.pause.map(|(a, b)| (Time::from_millis(a), Time::from_millis(b)));
        let sink = match &self.hosts[1] {
            Host::Kernel(namespace) => {
                let window = Some(self.flow.window);
                let pauses = pause.into_iter().collect();
                let receiving = Receiving { at: to, window, mss: None, content, pauses };
                Sink::Kernel(TcpSink::open(namespace, self.clock, receiving).unwrap())
            }
            Host::Ours(end) => {
                let opening = self.opening(1, Application::Reads);
                Sink::Ours(end.with(|host| host.open(opening)))
            }
        };
        enum Source {
            Kernel(TcpSource),
            Ours(SocketId),
        }
        let source = match &self.hosts[0] {
            Host::Kernel(namespace) => {
                let sending = Sending {
                    to,
                    controller: Some("reno".into()),
                    send_buffer: Some(self.flow.send_buffer),
                    mss: None,
                    content,
                    size: Some(size),
                    start: Time::ZERO,
                    stop: None,
                    sample: Some(Duration::from_millis(10)),
                };
                Source::Kernel(TcpSource::open(namespace, self.clock, sending).unwrap())
            }
            Host::Ours(end) => {
                let opening = self.opening(0, Application::Writes(size));
                Source::Ours(end.with(|host| host.open(opening)))
            }
        };
        let ends =
            self.hosts.each_ref().map(|h| if let Host::Ours(end) = h { Some(end.clone()) } else { None });
        let mut watch = Watch { capture: self.path.capture, ..Watch::default() };
        let mut over = |_now: Time| {
            let source_over = match &source {
                Source::Kernel(source) => source.progress().over,
                Source::Ours(id) => ends[0].as_ref().unwrap().with(|h| h.tcp(*id).finished().is_some()),
            };
            source_over
                && match &sink {
                    Sink::Kernel(sink) => sink.progress().over,
                    Sink::Ours(id) => ends[1].as_ref().unwrap().with(|h| h.tcp(*id).tcp().at_end()),
                }
        };
        self.run(&mut watch, &mut over);
        let mut ran = Ran { packets: watch.packets, largest: watch.largest, ..Ran::default() };
        (ran.zero_windows, ran.window) = (watch.zero_windows, watch.window);
        match source {
            Source::Kernel(source) => {
                let report = source.finish();
                ran.failure = report.failure.map(|f| f.to_string());
                ran.finished = report.finished.unwrap_or_default().as_secs_f64();
                ran.info = report.samples.last().map(|s| s.info).unwrap_or_default();
                ran.samples = report.samples;
                ran.retransmissions = ran.info.total_retrans as u64;
            }
            Source::Ours(id) => ends[0].as_ref().unwrap().with(|h| {
                ran.finished = h.tcp(id).finished().unwrap_or_default().as_secs_f64();
                let counters = *h.tcp(id).tcp().counters();
                (ran.retransmissions, ran.ecn_reductions) =
                    (counters.retransmissions, counters.ecn_reductions);
            }),
        }
        let (bytes, digest, first_wrong) = match sink {
            Sink::Kernel(sink) => {
                let report = sink.finish();
                ran.failure = ran.failure.or(report.failure.map(|f| f.to_string()));
                (report.bytes, report.digest, report.first_wrong)
            }
            Sink::Ours(id) => ends[1].as_ref().unwrap().with(|h| {
                let received = h.tcp(id).received();
                (received.bytes(), received.digest(), received.first_wrong())
            }),
        };
        assert_eq!(first_wrong, None, "a byte that was not sent");
        ran.completed = watch.in_time && bytes == size && digest == content.digest(size);
        ran
    }
}

/// A port whose way in marks packets, as the last router before it would.
struct Marker {
    inner: Box<dyn Port>,
    mark: &'static [u64],
    seen: u64,
}

impl Port for Marker {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
    fn receive(&mut self, now: Time, take: Take<'_>) -> std::io::Result<()> {
        self.inner.receive(now, take)
    }
    fn send(&mut self, now: Time, due: Time, mut frame: Frame, tell: Tell<'_>) {
        if frame.ecn() != Ecn::NotEct {
            if self.mark.contains(&self.seen) {
                frame.mark_ce();
            }
            self.seen += 1;
        }
        self.inner.send(now, due, frame, tell);
    }
    fn flush(&mut self, tell: Tell<'_>) {
        self.inner.flush(tell);
    }
    fn wake_at(&self) -> Option<Time> {
        self.inner.wake_at()
    }
}

/// Looks at what passes.
#[derive(Default)]
pub struct Watch {
    pub capture: bool,
    pub packets: Vec<(Time, Vec<u8>)>,
    pub largest: u64,
    pub zero_windows: u64,
    pub window: u64,
    shift: u8,
    pub in_time: bool,
}

impl Watch {
    fn keep(&mut self, port: usize, now: Time, frame: &Frame) {
        if self.capture && port == 0 {
            self.packets.push((now, frame.bytes().to_vec()));
        }
    }
}

struct Until<'a>(&'a mut Watch, &'a mut dyn FnMut(Time) -> bool);

impl Control for Until<'_> {
    fn look(&mut self, now: Time, _inside: &mut Inside) -> ControlFlow<()> {
        self.0.in_time = now < Time::from_millis(60_000);
        if (self.1)(now) || !self.0.in_time { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn enters(&mut self, port: usize, now: Time, frame: &Frame) {
        self.0.keep(port, now, frame);
        let watch = &mut *self.0;
        watch.largest = watch.largest.max(frame.size().0);
        if frame.bytes()[9] != protocol::TCP {
            return;
        }
        let tcp = narrows_core::wire::tcp::View::new(&frame.bytes()[20..]).unwrap();
        if port == 1 {
            if tcp.flags().has(Flags::SYN) {
                let segment = narrows_core::wire::tcp::Segment::decode(&frame.bytes()[20..], None).unwrap();
                watch.shift = segment.options.window_scale.unwrap_or(0);
            } else if !tcp.flags().has(Flags::RST) {
                let window = (tcp.window() as u64) << watch.shift;
                watch.window = window;
                watch.zero_windows += (window == 0) as u64;
            }
        }
    }
    fn leaves(&mut self, port: usize, now: Time, frame: &Frame) {
        self.0.keep(port, now, frame);
    }
}

/// Whether the window that was seen is the one asked for, but for what the last segments take.
pub fn bounded(seen: u64, asked: u64) -> bool {
    seen > asked * 9 / 10 && seen <= asked
}

/// What tshark marks in a capture, with how often: bad checksums, malformed packets, warnings, its analysis of TCP. `None`, and
/// why, if there is no tshark.
pub fn tshark(packets: &[(Time, Vec<u8>)]) -> Option<BTreeMap<String, u64>> {
    let mut bytes = Vec::new();
    // pcap with nanoseconds, link type IPV4.
    for word in [0xA1B2_3C4Du32, 0x0004_0002, 0, 0, 65_535, 228] {
        bytes.extend(word.to_le_bytes());
    }
    for (at, packet) in packets {
        let nanos = at.as_nanos();
        let len = packet.len() as u32;
        for word in [(nanos / 1_000_000_000) as u32, (nanos % 1_000_000_000) as u32, len, len] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    let mut command = Command::new("tshark");
    command.args(["-n", "-r", "-", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
    command.args(["-Y", "tcp.analysis.flags || _ws.malformed || _ws.expert.severity >= 6291456 || !(ip.checksum.status == 1) || !(tcp.checksum.status == 1)"]);
    command.args(["-T", "pdml"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.inspect_err(|e| println!("SKIPPED: tshark: {e}")).ok()?;
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut counts = BTreeMap::new();
    let name = |line: &str| Some(line.split_once("name=\"")?.1.split_once('"')?.0.to_string());
    let marks = |name: &String| {
        // These say what an ACK acknowledges, and are no marks.
        let plain = ["tcp.analysis.acks_frame", "tcp.analysis.ack_rtt", "tcp.analysis.initial_rtt"];
        let plain = plain.contains(&&**name) || name.starts_with("tcp.analysis.bytes_in_flight");
        let analysis = name.starts_with("tcp.analysis.") && name != "tcp.analysis.flags" && !plain;
        analysis && name != "tcp.analysis.push_bytes_sent"
            || name == "_ws.malformed"
            || name.contains("checksum_bad")
    };
    for name in text.lines().filter_map(name).filter(marks) {
        *counts.entry(name).or_insert(0) += 1;
    }
    Some(counts)
}
