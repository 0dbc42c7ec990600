//! The hot parts, each by itself: what a packet costs in a queue, at an end, in a controller and on the wire; and one
//! simulated second of the comparison scenario, for what they cost together.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use narrows_core::congestion::{self, Ack, Controller, RateSample, Start};
use narrows_core::packet::{Direction, Packet};
use narrows_core::qdisc::class::{Class, Feeds, Site};
use narrows_core::qdisc::{self, Qdisc};
use narrows_core::registry::{Settings, Value};
use narrows_core::transport::Endpoint;
use narrows_core::transport::tcp::stack::Stack;
use narrows_core::transport::tcp::{Config, Tcp};
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::tcp::{Flags, Length, Options, Segment, Seq, Timestamps};
use narrows_core::wire::{ipv4, protocol};
use narrows_core::{Bytes, Datagram, Ecn, FlowId, Rate, Rng, Time};
use narrows_lab::file::{Document, parse};
use narrows_lab::host::Unwatched;
use narrows_lab::line::{Carried, Line, arrive};
use narrows_lab::parts;
use narrows_lab::scenario::{Part, Scenario, TcpFlow, Transport};
use narrows_net::frame::{Frame, joined};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

const MSS: u32 = 1448;

/// Two hosts, a line between them with this queue, a flow with this controller: parts come checked out of a scenario, as
/// they do in a run.
fn scenario(queue: &str, controller: &str) -> Scenario {
    let text = format!(
        "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"45Mbit/s\"\ndelay = \"5ms\"\nqueue = {queue}\n\
         [[flow]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\ncontroller = \"{controller}\"\n"
    );
    parse("bench", &text).unwrap_or_else(|e| panic!("{e}"))
}

fn flow(scenario: &Scenario) -> &TcpFlow {
    match &scenario.flows[0].transport {
        Transport::Tcp(flow) => flow,
        Transport::Udp(_) => unreachable!("the flow is TCP"),
    }
}

fn controller(part: &Part) -> Box<dyn Controller> {
    let entry = congestion::by_name(&part.name).expect("the scenario was checked against the registry");
    let context = congestion::Context { inner: part.inner.as_deref().map(controller), rng: Rng::new(1, 1) };
    (entry.build)(&part.settings, context).unwrap_or_else(|unfit| panic!("{}", unfit.advice))
}

fn queue(name: &str) -> Box<dyn Qdisc<Datagram>> {
    fn build(part: &Part) -> Box<dyn Qdisc<Datagram>> {
        let context = qdisc::Context {
            inner: part.inner.as_deref().map(build),
            rng: Rng::new(1, 1),
            site: Default::default(),
        };
        let built = qdisc::by_name(&part.name, &part.settings, context)
            .expect("the scenario was checked against the registry");
        built.unwrap_or_else(|unfit| panic!("{}", unfit.advice))
    }
    build(&scenario(name, "reno").links[0].forward.queue)
}

fn segment(number: u32) -> Segment {
    let timestamps = Some(Timestamps { value: number, echo: number });
    Segment {
        source: 1024,
        destination: 5001,
        seq: Seq(number.wrapping_mul(MSS)),
        flags: Flags::ACK,
        window: 65_535,
        options: Options { timestamps, ..Options::default() },
        payload: Length(MSS),
        ..Segment::default()
    }
}

/// One packet in and one out, with ten waiting; time goes on by 300 us, the bottleneck's rate or slower.
fn queues(c: &mut Criterion) {
    let mut group = c.benchmark_group("qdisc");
    group.throughput(Throughput::Elements(1));
    for (name, part) in [
        ("fifo", r#""fifo:100p""#),
        ("shaper", r#"{ kind = "shaper", rate = "45Mbit/s", burst = "15kB", inner = "fifo:100p" }"#),
    ] {
        let mut queue = queue(part);
        let packet = |i| Datagram::tcp(FlowId(0), Direction::Forward, Ecn::NotEct, segment(i));
        (0..10).for_each(|i| queue.enqueue(Time::ZERO, packet(i), &mut |_, _| {}));
        let (mut now, mut i) = (Time::ZERO, 10);
        group.bench_function(name, |b| {
            b.iter(|| {
                (now, i) = (now + Duration::from_micros(300), i + 1);
                queue.enqueue(now, packet(i), &mut |_, _| {});
                queue.dequeue(now, &mut |_, _| {})
            })
        });
    }
    group.finish();
}

/// A packet that knows its class.
struct Classed {
    class: u32,
    size: u64,
}

impl Packet for Classed {
    fn size(&self) -> Bytes {
        Bytes(self.size)
    }
    fn flow(&self) -> FlowId {
        FlowId(self.class)
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn mark_ce(&mut self) -> bool {
        false
    }
}

/// Classes before 10 Gbit/s, half of it reserved, each with a rate and a weight of its own.
fn classes(count: u32) -> Site {
    let class = |i: u32| Class {
        rate: Some(Rate(5_000_000_000 / count as u64)),
        weight: 1 + i % 16,
        priority: 1 + (i % 8) as u8,
        ..Class::plain(format!("{i}"))
    };
    let classes = (0..count).map(class).collect();
    Site { line: Some(Feeds { rate: Rate(10_000_000_000), mtu: Bytes(1500) }), classes }
}

/// One packet in and one out over classes that all have packets, in an order that no cache foresees; time goes on as fast as the line
/// takes them.
fn scheduled(c: &mut Criterion) {
    let mut group = c.benchmark_group("classes");
    group.throughput(Throughput::Elements(1));
    for count in [10u32, 1000, 100_000] {
        for (name, word) in [("priority", ""), ("drr", ""), ("wfq", "gps"), ("wfq", "start"), ("reserve", "")]
        {
            let values = [
                ("class_limit", Value::Packets(1000)),
                ("quantum", Value::Bytes(Bytes(1500))),
                ("clock", Value::Word(word.into())),
            ];
            let settings = Settings(values.map(|(k, v)| (k.to_string(), v)).into());
            let context = qdisc::Context { inner: None, rng: Rng::new(1, 1), site: classes(count) };
            let mut queue = qdisc::by_name(name, &settings, context)
                .expect("it is registered")
                .unwrap_or_else(|unfit| panic!("{}", unfit.advice));
            let mut now = Time::ZERO;
            let packet =
                |n: u64| Classed { class: (n * 61_803 % count as u64) as u32, size: 64 + n * 7919 % 1437 };
            let mut n = 0u64;
            while n < 4 * count as u64 {
                queue.enqueue(now, packet(n), &mut |_, _| {});
                n += 1;
            }
            group.bench_function(format!("{name} {word} {count}"), |b| {
                b.iter(|| {
                    (now, n) = (now + Duration::from_nanos(625), n + 1);
                    queue.enqueue(now, packet(n), &mut |_, _| {});
                    queue.dequeue(now, &mut |_, _| {})
                })
            });
            assert!(queue.backlog().packets > count as u64, "they all have packets");
        }
    }
    group.finish();
}

/// Two ends of a connection with a path of constant delay between them, both windows open.
struct Pair {
    now: Time,
    source: Tcp,
    sink: Tcp,
    path: VecDeque<Segment>,
}

impl Pair {
    fn new() -> Pair {
        let scenario = scenario(r#""fifo:100p""#, "reno");
        let part = &flow(&scenario).controller;
        let config = |ports| Config {
            stack: Stack::new(&flow(&scenario).stack.settings)
                .unwrap_or_else(|unfit| panic!("{}", unfit.advice)),
            mss: MSS + 12,
            receive_buffer: Bytes(256 << 10),
            send_buffer: Bytes(256 << 10),
            timer_phase: Duration::ZERO,
            iss: 1,
            ports,
            reads_at_once: true,
        };
        let mut source = Tcp::connect(config((1024, 5001)), controller(part));
        source.offer(u64::MAX / 4);
        let sink = Tcp::listen(config((5001, 1024)), controller(part));
        Pair { now: Time::ZERO, source, sink, path: VecDeque::new() }
    }

    /// Two segments arrive, their ACK returns, and the source sends what it allows.
    fn step(&mut self) {
        self.now += Duration::from_micros(500);
        for _ in 0..2 {
            let Some(segment) = self.path.pop_front() else { break };
            self.sink.receive(self.now, segment);
        }
        while let Some(ack) = self.sink.transmit(self.now) {
            self.source.receive(self.now, ack);
        }
        while let Some(segment) = self.source.transmit(self.now) {
            self.path.push_back(segment);
        }
    }
}

/// Two data segments in order and the ACK they bring, at both ends.
fn tcp(c: &mut Criterion) {
    let mut pair = Pair::new();
    (0..10_000).for_each(|_| pair.step());
    let before = pair.source.una();
    (0..1000).for_each(|_| pair.step());
    assert_eq!(
        pair.source.una() - before,
        2000 * MSS as u64,
        "the steady state is two segments and one ACK per step"
    );
    let mut group = c.benchmark_group("tcp");
    group.throughput(Throughput::Elements(2));
    group.bench_function("two segments and their ack", |b| b.iter(|| pair.step()));
    group.finish();
}

/// An ACK of two segments every 500 us: most do no more than count, some close a bandwidth window.
fn controllers(c: &mut Criterion) {
    let mut group = c.benchmark_group("on_ack");
    group.throughput(Throughput::Elements(1));
    for name in ["reno", "becc", "becc-modern"] {
        let scenario = scenario(r#""fifo:100p""#, name);
        let mut controller = controller(&flow(&scenario).controller);
        let (rtt, acked) = (Duration::from_millis(14), 2 * MSS as u64);
        let (mut now, mut una) = (Time::ZERO, 0);
        controller.on_start(&Start {
            now,
            mss: MSS,
            initial_window: Bytes(10 * MSS as u64),
            max_window: Bytes(1 << 20),
            rtt: Some(rtt),
        });
        let rate = RateSample { rate: Rate(46_336_000), interval: rtt, app_limited: false };
        group.bench_function(name, |b| {
            b.iter(|| {
                (now, una) = (now + Duration::from_micros(500), una + acked);
                controller.on_ack(black_box(&Ack {
                    now,
                    acked: Bytes(acked),
                    in_flight: Bytes(28 * acked),
                    una,
                    max: una + 28 * acked,
                    rtt: Some(rtt),
                    echo: Some(rtt),
                    min_rtt: Some(rtt),
                    round_start: una % (28 * acked) == 0,
                    in_recovery: false,
                    window_limited: true,
                    ce: false,
                    rate: Some(rate),
                }));
                controller.window()
            })
        });
    }
    group.finish();
}

/// A full segment with timestamps, checksum included.
fn wire(c: &mut Criterion) {
    let pseudo = Pseudo::v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let (segment, mut bytes) = (segment(1), Vec::new());
    segment.encode(pseudo, &mut bytes);
    let mut group = c.benchmark_group("segment");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("encode", |b| {
        let mut out = Vec::with_capacity(bytes.len());
        b.iter(|| {
            out.clear();
            black_box(&segment).encode(pseudo, &mut out);
            out.len()
        })
    });
    group.bench_function("decode", |b| {
        b.iter(|| Segment::decode(black_box(&bytes), Some(pseudo)).map(|s| s.ack))
    });
    group.finish();
}

/// The two lines of `narrows gateway`. Senders are at the forward line's start: data take line 0, their ACKs line 1.
struct Passage {
    lines: [Line<Frame>; 2],
    now: Time,
}

impl Passage {
    /// After the handshakes of so many connections; `forward` and `backward` are what is written into the ACKs of the data that
    /// take the line.
    fn open(forward: &str, backward: &str, connections: u32) -> Passage {
        let text = format!(
            "rate = \"10Gbit/s\"\ndelay = \"0ms\"\nqueue = \"fifo:64KiB\"\nack_window = {forward}\n\
             backward = {{ ack_window = {backward} }}\n"
        );
        let config =
            Document { name: "gateway.toml".into(), text }.bottleneck().unwrap_or_else(|e| panic!("{e}"));
        let lines = [config.forward, config.backward].map(|line| {
            let unfit = |unfit: narrows_core::registry::Unfit| panic!("{}", unfit.advice);
            let queue =
                parts::queue(&line.queue, parts::rng(1, parts::Stream::Queue, 0)).unwrap_or_else(unfit);
            let mut made = Line::new(line.rate, line.delay, line.mtu, queue);
            made.set_acks(parts::ack_window(&line).unwrap_or_else(|e| panic!("{}", e.advice)));
            made
        });
        let mut passage = Passage { lines, now: Time::from_millis(1) };
        for i in 0..connections {
            for (line, flags, number) in
                [(0, Flags::SYN, 0), (1, Flags::SYN | Flags::ACK, 1), (0, Flags::ACK, 1)]
            {
                passage.pass(line, received(&packet(i, line, flags, number, 0), number));
            }
        }
        passage
    }

    /// A packet comes to an idle line, leaves it, and passes the router behind it, 10 us after the last one. Never inlined, so
    /// that a profiler finds it.
    #[inline(never)]
    fn pass(&mut self, line: usize, frame: Frame) -> Frame {
        self.now += Duration::from_micros(10);
        self.lines[line].offer(self.now, Carried::new(frame, 0));
        arrive(&mut self.lines, line, self.now).expect("nothing is held back").packet
    }
}

/// A TCP packet of connection `i` that takes `line`: with timestamps, or in a SYN with MSS and window scale.
fn packet(i: u32, line: usize, flags: Flags, ack: u32, payload: u32) -> Vec<u8> {
    let hosts = [(0x0A00_0000 + i / 50_000, 1024 + (i % 50_000) as u16), (0x0A80_0001, 5001)];
    let ((from, source), (to, destination)) = (hosts[line], hosts[1 - line]);
    let options = match flags.has(Flags::SYN) {
        true => Options { mss: Some(1460), window_scale: Some(7), ..Options::default() },
        false => segment(ack).options,
    };
    let (ack, payload) = (Seq(ack), Length(payload));
    let segment = Segment { source, destination, ack, flags, options, payload, ..segment(1) };
    let mut upper = Vec::new();
    segment.encode(Pseudo::v4(from.into(), to.into()), &mut upper);
    ip(from, to, protocol::TCP, &upper)
}

fn ip(from: u32, to: u32, protocol: u8, upper: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = ipv4::Header::new(from.into(), to.into(), protocol, upper.len() as u16);
    header.encode(&mut bytes).expect("it is short enough");
    bytes.extend(upper);
    bytes
}

/// The packet as it comes in at an interface, with that ACK number if it is TCP.
fn received(packet: &[u8], ack: u32) -> Frame {
    let mut bytes = joined([&[2; 12][..], &[8, 0], packet]);
    if packet[9] == protocol::TCP {
        bytes[42..46].copy_from_slice(&ack.to_be_bytes());
    }
    Frame::ethernet(bytes).expect("it is whole")
}

/// What a packet costs in the gateway between its ports, with its ACKs or without a router's word in them: the differences are
/// the router's.
fn words(c: &mut Criterion) {
    let mut group = c.benchmark_group("gateway");
    group.throughput(Throughput::Elements(1));
    let mut bench =
        |name: String, forward: &str, backward: &str, connections: u32, line: usize, packets: &[Vec<u8>]| {
            let (mut passage, mut n) = (None, 0u32);
            group.bench_function(name, |b| {
                let passage = passage.get_or_insert_with(|| Passage::open(forward, backward, connections));
                b.iter_batched(
                    || {
                        n += 1;
                        // One connection after the other, in an order that no cache foresees.
                        received(&packets[n as usize * 61_803 % packets.len()], n)
                    },
                    |frame| passage.pass(line, frame),
                    BatchSize::NumIterations(64),
                )
            });
            passage.map(|passage| passage.lines[0].counters().acks).unwrap_or_default()
        };
    for connections in [1u32, 100_000] {
        let acks: Vec<_> = (0..connections).map(|i| packet(i, 1, Flags::ACK, 1, 0)).collect();
        for policy in ["none", "share", "coordinate"] {
            let words = format!("{{ policy = \"{policy}\", connections = 262144 }}");
            let words = if policy == "none" { "\"none\"" } else { &words };
            let name = format!("ack, {policy}, {connections} connections");
            let counted = bench(name, words, "\"none\"", connections, 1, &acks);
            // In a set of eight that has to take nine somebody is forgotten.
            let known = counted.passed - counted.unknown;
            assert!(counted.unknown * 100 <= counted.passed && counted.rewritten == known, "{counted:?}");
        }
    }
    let data = [packet(0, 0, Flags::ACK, 1, MSS)];
    let datagram = [ip(0x0A00_0001, 0x0A80_0001, protocol::UDP, &[0; 1000])];
    for (packets, what) in [(&data, "data"), (&datagram, "datagram")] {
        for (forward, backward) in [("none", "none"), ("share", "none"), ("share", "share")] {
            let name = format!("{what}, {forward} before it and {backward} behind it");
            bench(name, &format!("\"{forward}\""), &format!("\"{backward}\""), 1, 0, packets);
        }
    }
    group.finish();
}

/// The whole simulator: the comparison scenario, one second of it.
fn second(c: &mut Criterion) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/s1.toml");
    let scenario = Document::read(file).and_then(|d| d.with("run.duration", "1s")?.scenario());
    let scenario = scenario.unwrap_or_else(|e| panic!("{e}"));
    let run = || {
        narrows_sim::run(&scenario, 1, &mut Unwatched).unwrap_or_else(|refused| panic!("{}", refused.message))
    };
    let mut group = c.benchmark_group("simulator");
    // Data and ACKs: in the first second most data waits for what slow start lost.
    group.throughput(Throughput::Elements(run().delivered_packets));
    group.bench_function("one second of s1", |b| b.iter(run));
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(30);
    targets = queues, scheduled, tcp, controllers, wire, words, second
}
criterion_main!(benches);
