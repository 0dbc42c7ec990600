//! The rate controller of Y. Hisada and S. Ono ("Performance Evaluation of Bandwidth Reserved TCP Traffic", about 1997, section 2):
//!
//! ```text
//!   host ──> [ input queue, Qin bytes ] ── rate R, work-ahead W ──> [ output queue, Qout ] ──> line L
//! ```
//! The head of the input queue moves when there is credit for it ([`crate::limit`]) and the output queue has room. What finds no room
//! in the input queue is dropped, silently: it is inside the host. The paper names two regimes:
//!
//! * *Queue split*, R < L: a frame takes longer to move than to leave, the output queue is empty, and the input queue overflows beside it.
//! * *Queue cat*, R = L: both are one longer queue, and only when both are full is anything dropped.
//!
//! What the paper leaves open: whether work-ahead alone makes the cat (`weak`: W stays in the output queue while the line is busy),
//! or the head moves as soon as there is room (`strong`, the default, wherever R is at least the line's rate); and Qout, here Qin's
//! size unless given.

use super::{Backlog, DropReason, Drops, Entry, Qdisc};
use crate::limit::Bucket;
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use alloc::collections::VecDeque;

/// `{ kind = "rate_control", rate = "128kbit/s", input = "2KiB", line = "1.536Mbit/s" }`
pub const ENTRY: Entry = Entry {
    name: "rate_control",
    summary: "input queue, constant spacing with work-ahead, output queue: queue split and queue cat (Hisada and Ono)",
    parameters: &[
        Parameter {
            name: "rate",
            kind: Kind::Rate,
            default: "",
            meaning: "R, the reserved rate, of frames as the line has them",
        },
        Parameter {
            name: "input",
            kind: Kind::Bytes,
            default: "2KiB",
            meaning: "Qin, room in the input queue; what finds none is dropped (2 kB)",
        },
        Parameter {
            name: "ahead",
            kind: Kind::Bytes,
            default: "1KiB",
            meaning: "W, how far frames may be ahead of constant spacing (1 kbyte)",
        },
        Parameter {
            name: "output",
            kind: Kind::Bytes,
            default: "2KiB",
            meaning: "Qout, room in the output queue",
        },
        Parameter {
            name: "line",
            kind: Kind::Rate,
            default: "0bit/s",
            meaning: "L, the line's rate, by which `cat` tells whether R is as large; 0: larger than R",
        },
        Parameter {
            name: "cat",
            kind: Kind::Word(&["strong", "weak"]),
            default: "strong",
            meaning: "where R is at least L: the head moves whenever the output queue has room, or with credit only",
        },
    ],
    contains: false,
};

/// A queue and its bytes.
struct Room<P> {
    queue: VecDeque<P>,
    bytes: u64,
    limit: u64,
}

impl<P: Packet> Room<P> {
    fn new(limit: Bytes) -> Room<P> {
        Room { queue: VecDeque::new(), bytes: 0, limit: limit.0 }
    }
    fn has_for(&self, size: Bytes) -> bool {
        self.bytes + size.0 <= self.limit
    }
    fn push(&mut self, packet: P) {
        self.bytes += packet.size().0;
        self.queue.push_back(packet);
    }
    fn pop(&mut self) -> Option<P> {
        let packet = self.queue.pop_front()?;
        self.bytes -= packet.size().0;
        Some(packet)
    }
}

/// Input queue, rate controller, output queue.
pub struct RateControl<P> {
    input: Room<P>,
    output: Room<P>,
    bucket: Bucket,
    /// The head moves whenever there is room.
    cat: bool,
    /// Since when the head has been the head, and has had room before it.
    head_since: Time,
}

impl<P: Packet> RateControl<P> {
    /// Reads its parameters.
    pub fn new(settings: &Settings) -> Result<Self, Unfit> {
        let (rate, line) = (settings.rate("rate"), settings.rate("line"));
        if rate == Rate(0) {
            return Err(Unfit::new("rate", "nothing passes at rate zero: write for example 128kbit/s"));
        }
        for name in ["input", "output"] {
            if settings.bytes(name) == Bytes::ZERO {
                return Err(Unfit::new(
                    name,
                    "a queue without room drops everything: write for example 2KiB",
                ));
            }
        }
        let cat = settings.word("cat") == "strong" && line > Rate(0) && rate >= line;
        let bucket = Bucket::new(rate, settings.bytes("ahead"));
        let room = |name| Room::new(settings.bytes(name));
        Ok(RateControl { input: room("input"), output: room("output"), bucket, cat, head_since: Time::ZERO })
    }

    /// When the head of the input queue may move; `None` if there is none, or no room for it.
    fn moves_at(&self) -> Option<Time> {
        let size = self.input.queue.front()?.size();
        if !self.output.has_for(size) {
            return None;
        }
        Some(if self.cat { self.head_since } else { self.bucket.ready_at(self.head_since, size) })
    }

    /// Everything moves that may have moved until now, each at its own instant.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.moves_at().filter(|at| *at <= now)
            && let Some(packet) = self.input.pop()
        {
            if !self.cat {
                self.bucket.take(at, packet.size());
            }
            self.head_since = at;
            self.output.push(packet);
        }
    }
}

impl<P: Packet + Send> Qdisc<P> for RateControl<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        self.advance(now);
        let size = packet.size();
        if size.0 > self.input.limit.min(self.output.limit) {
            return drop(packet, DropReason::NeverFits);
        }
        if !self.input.has_for(size) {
            return drop(packet, DropReason::Full);
        }
        if self.input.queue.is_empty() {
            self.head_since = now;
        }
        self.input.push(packet);
        self.advance(now);
    }

    fn dequeue(&mut self, now: Time, _drop: Drops<'_, P>) -> Option<P> {
        self.advance(now);
        let packet = self.output.pop()?;
        self.head_since = now; // if it has room only now; otherwise credit is what it waits for
        self.advance(now);
        Some(packet)
    }

    fn ready_at(&self) -> Option<Time> {
        if self.output.queue.is_empty() { self.moves_at() } else { Some(Time::ZERO) }
    }

    fn backlog(&self) -> Backlog {
        Backlog {
            packets: (self.input.queue.len() + self.output.queue.len()) as u64,
            bytes: Bytes(self.input.bytes + self.output.bytes),
        }
    }

    fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        self.advance(now);
        self.input.has_for(size)
    }

    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        probe("input_queue", self.input.bytes as f64);
        probe("output_queue", self.output.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use crate::qdisc::DropReason;
    use crate::qdisc::tests::{Boxed, Parcel, build};
    use crate::registry::Value;
    use crate::time::Time;
    use crate::units::{Bytes, Rate};
    use core::time::Duration;
    use std::vec::Vec;

    /// The paper's controller: 128 kbit/s, frames of 512 bytes, an input queue of four and two of work-ahead.
    fn paper(line: u64, cat: &str) -> Boxed {
        let rate = |r| Value::Rate(Rate(r));
        let (two, one) = (Value::Bytes(Bytes(2048)), Value::Bytes(Bytes(1024)));
        let values = [
            ("rate", rate(128_000)),
            ("input", two.clone()),
            ("ahead", one),
            ("output", two),
            ("line", rate(line)),
            ("cat", Value::Word(cat.into())),
        ];
        build("rate_control", &values, None, 1).unwrap()
    }

    /// Frames that come at once at 1 s, through a line of rate `line`: when each began to leave, in ms, and how many were dropped.
    fn burst(mut queue: Boxed, line: u64, frames: u64) -> (Vec<u64>, u64) {
        let (mut now, mut dropped, mut left) = (Time::from_millis(1000), 0, Vec::new());
        let mut busy_until = now;
        for number in 0..frames {
            let frame = Parcel { number, flow: 0, size: 512, ecn: Default::default() };
            queue.enqueue(now, frame, &mut |_, reason| {
                assert_eq!(reason, DropReason::Full);
                dropped += 1;
            });
            if now >= busy_until
                && let Some(_frame) = queue.dequeue(now, &mut |_, _| {})
            {
                left.push(now.as_nanos() / 1_000_000);
                busy_until = now + Duration::from_nanos(512 * 8_000_000_000 / line);
            }
        }
        while let Some(at) = queue.ready_at() {
            now = at.max(busy_until).max(now);
            if queue.dequeue(now, &mut |_, _| {}).is_some() {
                left.push(now.as_nanos() / 1_000_000);
                busy_until = now + Duration::from_nanos(512 * 8_000_000_000 / line);
            }
        }
        (left, dropped)
    }

    #[test]
    fn split_two_frames_ahead_four_wait_and_the_rest_is_lost() {
        // 35 segments of a 16 kbyte window: 29 frames, 14 848 bytes, are the paper's 14 kbyte.
        let (left, dropped) = burst(paper(1_536_000, "strong"), 1_536_000, 35);
        assert_eq!(left, [1000, 1002, 1032, 1064, 1096, 1128]);
        assert_eq!(dropped, 29);
    }

    #[test]
    fn cat_both_queues_and_the_line_are_one_store() {
        // One on the line, four in the output queue, four in the input queue; weak: two of work-ahead, one of which is on the line.
        let (left, dropped) = burst(paper(128_000, "strong"), 128_000, 35);
        assert_eq!((left.len(), dropped), (9, 26));
        assert_eq!(left[..3], [1000, 1032, 1064]);
        let (left, dropped) = burst(paper(128_000, "weak"), 128_000, 35);
        assert_eq!((left.len(), dropped), (6, 29));
        assert_eq!(left, [1000, 1032, 1064, 1096, 1128, 1160]);
    }

    #[test]
    fn work_ahead_comes_back_after_a_silence_and_no_more_than_it() {
        let mut queue = paper(1_536_000, "strong");
        let frame = |number| Parcel { number, flow: 0, size: 512, ecn: Default::default() };
        for second in 1..4 {
            let now = Time::from_millis(1000 * second);
            (0..4).for_each(|i| queue.enqueue(now, frame(i), &mut |_, _| panic!("there is room")));
            let mut shown = Vec::new();
            queue.inspect(&mut |name, value| shown.push((name, value)));
            assert_eq!(shown, [("input_queue", 1024.0), ("output_queue", 1024.0)]);
            let at_once = (0..4).filter(|_| queue.dequeue(now, &mut |_, _| {}).is_some()).count();
            assert_eq!((at_once, queue.ready_at()), (2, Some(now + Duration::from_millis(32))));
            let rest = [32, 64].map(|ms| queue.dequeue(now + Duration::from_millis(ms), &mut |_, _| {}));
            assert!(rest.iter().all(Option::is_some) && queue.ready_at().is_none());
        }
    }
}
