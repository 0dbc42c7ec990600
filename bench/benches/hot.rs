//! The hot parts, each by itself: what a packet costs in a queue, at an end, in a controller and on the wire; and one
//! simulated second of the comparison scenario, for what they cost together.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use narrows_core::congestion::{self, Ack, Controller, RateSample, Start};
use narrows_core::packet::Direction;
use narrows_core::qdisc::{self, Qdisc};
use narrows_core::transport::Endpoint;
use narrows_core::transport::tcp::stack::Stack;
use narrows_core::transport::tcp::{Config, Tcp};
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::tcp::{Flags, Length, Options, Segment, Seq, Timestamps};
use narrows_core::{Bytes, Datagram, Ecn, FlowId, Rate, Rng, Time};
use narrows_lab::file::{Document, parse};
use narrows_lab::host::Unwatched;
use narrows_lab::scenario::{Part, Scenario, TcpFlow, Transport};
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
        let context = qdisc::Context { inner: part.inner.as_deref().map(build), rng: Rng::new(1, 1) };
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
    targets = queues, tcp, controllers, wire, second
}
criterion_main!(benches);
