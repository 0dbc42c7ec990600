//! The packet path: any bytes as frames, at any instants, through queues of every kind. Nothing panics, every frame is refused
//! by name, delivered, dropped or still inside; what is marked stays a packet whose header checksum is right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::packet::Packet;
use narrows_core::qdisc::DropReason;
use narrows_core::{Ecn, Time};
use narrows_lab::file::Document;
use narrows_lab::line::Line;
use narrows_lab::parts;
use narrows_lab::scenario;
use narrows_net::frame::Frame;
use narrows_net::network::{Network, Tap, Way};
use std::sync::LazyLock;
use std::time::Duration;

const QUEUES: [&str; 10] = [
    "\"fifo:9kB\"",
    "\"fifo:3p\"",
    "\"delay:3ms\"",
    "{ kind = \"shaper\", rate = \"2Mbit/s\", burst = \"3kB\", inner = \"fifo:8p\" }",
    "{ kind = \"loss\", probability = 0.3, inner = { kind = \"reorder\", probability = 0.3, inner = \"fifo:5p\" } }",
    "{ kind = \"trace\", at = [1, 2, 2, 5], inner = \"fifo:20kB\" }",
    "\"drr:9kB\"",
    "\"wfq:5p\"",
    "{ kind = \"wfq\", clock = \"start\" }\nclass = [{ name = \"a\", match = { source_port = \"0-32767\" }, weight = 3, limit = \"4p\" }]",
    "\"reserve\"\nclass = [{ name = \"a\", match = { protocol = 6 }, rate = \"1Mbit/s\", surplus = false }, { name = \"b\", rate = \"2Mbit/s\" }]",
];

#[derive(Default)]
struct Counts {
    delivered: u64,
    dropped: u64,
}

impl Tap for Counts {
    fn drops(&mut self, _line: usize, _now: Time, _frame: &Frame, _reason: DropReason) {
        self.dropped += 1;
    }
    fn delivers(&mut self, _port: usize, _due: Time, frame: Frame) {
        assert!(frame.size().0 <= frame.bytes().len() as u64);
        self.delivered += 1;
    }
}

/// A gateway's line per kind of queue, parsed once.
static LINES: LazyLock<Vec<scenario::Line>> = LazyLock::new(|| {
    let line = |queue: &&str| {
        let text = format!("rate = \"10Mbit/s\"\ndelay = \"1ms\"\nqueue = {queue}\n");
        Document { name: "path".into(), text }.bottleneck().expect("a gateway").forward
    };
    QUEUES.iter().map(line).collect()
});

fn network(of: &scenario::Line) -> Network {
    let line = |i| {
        let queue = parts::queue_of(of, parts::rng(1, parts::Stream::Queue, i)).expect("a queue");
        let mut line = Line::new(of.rate, of.delay, of.mtu, queue);
        line.set_classes(parts::classes(of, std::iter::empty()));
        line
    };
    Network::new(vec![line(0), line(1)], &[Way { lines: vec![0, 1], port: 1 }], &[])
}

/// Marking changes the ECN field alone, and the packet stays one.
fn mark(frame: &Frame) {
    let mut marked = frame.clone();
    if !marked.mark_ce() {
        return assert_eq!(marked.bytes(), frame.bytes());
    }
    let packet = marked.packet().expect("only IP packets are marked").to_vec();
    let again = Frame::ip(packet).expect("its checksum is right");
    assert_eq!(
        (again.ecn(), again.size(), again.kind(), again.tuple()),
        (Ecn::Ce, frame.size(), frame.kind(), frame.tuple())
    );
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut network = network(&LINES[*first as usize % QUEUES.len()]);
    let way = network.way(0);
    let (mut counts, mut received, mut refused, mut now) = (Counts::default(), 0, 0, Time::ZERO);
    // Each frame: what it is and when (one byte each), how long (two bytes), its bytes.
    while let [kind, gap, high, low, more @ ..] = rest {
        let (frame, others) = more.split_at(more.len().min(u16::from_be_bytes([*high, *low]) as usize));
        rest = others;
        now += Duration::from_micros(*gap as u64 * 40);
        received += 1;
        let frame = if kind % 2 == 0 { Frame::ip(frame.to_vec()) } else { Frame::ethernet(frame.to_vec()) };
        match frame {
            Ok(frame) => {
                mark(&frame);
                network.arrive(now, way, frame, &mut counts);
            }
            Err(_) => refused += 1,
        }
        assert_eq!(received, refused + counts.delivered + counts.dropped + network.inside());
    }
    network.advance(now + Duration::from_secs(3600), &mut counts);
    assert_eq!((received, network.inside()), (refused + counts.delivered + counts.dropped, 0));
});
