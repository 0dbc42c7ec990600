//! Rate control, weighted fair queueing and priority executed as one: each class declares what it requires, in one set of parameters,
//! and one queue structure keeps it. This is the framework that Y. Hisada and S. Ono announce ("Performance Evaluation of Bandwidth
//! Reserved TCP Traffic", about 1997, section 1: requirement-driven multiplexing), built from what has been proved since.
//!
//! ```text
//!   class queues ──> head: eligible when the class's bucket (rate, ahead) has credit for it ([`crate::limit`])
//!                      │ eligible                                    │ none is
//!                      ▼                                             ▼
//!          earliest deadline (eligible + delay) first      surplus: highest priority, and there by weight
//! ```
//! * A packet's eligible time is that at which a shaper would let it go, whenever it is really sent: credit is taken at that time. So
//!   packets of a class within (rate, ahead) are eligible as they come, and are through within `delay`, whatever other classes send, if
//!   [`crate::limit::calculus`] admits them all; a set that it does not admit is refused, with numbers that would fit.
//! * What nobody has reserved, or uses, goes to classes with `surplus`: first by priority, within a level by start-time fair queueing
//!   over weights. It takes no credit, as in H-FSC (I. Stoica, H. Zhang, T. Ng, SIGCOMM 1997, section III): whoever had more a moment ago
//!   is not punished for it. With `surplus = false` a class is shaped to its rate, as by the paper's rate controller.
//! * Work-ahead is at least the line's MTU: so it is a token bucket in the strict sense, whose output is known at the next hop.
//! * Cascaded, the rate controller holds packets that the scheduler behind it had time for, and the scheduler's backlog overflows
//!   beside a shaper that idles (the paper's queue split). Here a packet waits in one place, its class's queue, for whichever comes
//!   first: its credit or spare time. Loss is of the class alone that sends too much.
//!
//! Three heaps of classes, so O(log classes) for each packet: those whose head waits for credit by when it is eligible; those whose
//! head is eligible by its deadline (of equal ones the class declared first); and for each level those with packets by virtual time.
//!
//! Deviations from H-FSC: token buckets in place of two-piece service curves, so that one earliest-deadline test says what is
//! promised; and weights divide the surplus only, not a reservation's part of the line.

use super::class::{CLASS_LIMIT, Class, Feeds, LEVELS, Queues, Site};
use super::heap::Heap;
use super::{Backlog, Drops, Entry, Qdisc};
use crate::ackwin::Room;
use crate::limit::Bucket;
use crate::limit::calculus::{Envelope, Promise, Server};
use crate::packet::Packet;
use crate::registry::{Settings, Unfit};
use crate::time::Time;
use crate::units::{Bytes, Rate};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

#[cfg(test)]
mod tests;

/// `reserve`, before a line with classes.
pub const ENTRY: Entry = Entry {
    name: "reserve",
    summary: "reserved rate, work-ahead, delay bound, priority and weight of the line's classes, executed as one (after Hisada and Ono)",
    parameters: &[CLASS_LIMIT],
    contains: false,
};

/// What one byte is in virtual time: fine enough for the largest weight, and short keys keep a heap of many classes near.
const BYTE: u64 = 1 << 20;
/// Virtual time begins anew here: at 10 Gbit/s and weight 1 once an hour.
const TURN: u64 = 1 << 62;
/// The longest delay that is proposed.
const LONGEST: Duration = Duration::from_secs(3600);

/// A class under way.
struct Course {
    /// Its credit, if it has reserved any.
    bucket: Option<Bucket>,
    delay: Duration,
    /// Counted from 0.
    level: u8,
    surplus: bool,
    weight: u32,
    /// When its head is eligible.
    eligible: Time,
    /// Virtual time of its level at which its next packet may have surplus.
    start: u64,
}

/// A packet and when it came.
struct Arrived<P> {
    packet: P,
    at: Time,
}

/// The integrated multiplexer.
pub struct Reserve<P> {
    queues: Queues<Arrived<P>>,
    courses: Vec<Course>,
    /// Classes whose head waits for credit, by when it is eligible.
    waiting: Heap<Time>,
    /// Classes whose head is eligible, by its deadline.
    due: Heap<Time>,
    /// Classes with packets that may have surplus, of each level, by `start`; and the level's virtual time.
    spare: [(Heap<u64>, u64); LEVELS as usize],
}

impl<P: Packet> Reserve<P> {
    /// Reads `class_limit` and the line's classes, if they can all be kept.
    pub fn new(settings: &Settings, site: &Site) -> Result<Self, Unfit> {
        let example = "{ name = \"voice\", match = \"voice*\", rate = \"1Mbit/s\", delay = \"20ms\" }, { name = \"rest\" }";
        let classes = site.declared("class", example)?;
        let line = site.line("class")?;
        let queues = Queues::new(settings, site)?;
        admit(classes, line)?;
        let course = |class: &Class| Course {
            bucket: class.rate.map(|rate| Bucket::new(rate, burst(class, line))),
            delay: bound(class, line).unwrap_or_default(),
            level: class.priority - 1,
            surplus: class.surplus,
            weight: class.weight,
            eligible: Time::ZERO,
            start: 0,
        };
        Ok(Reserve {
            queues,
            courses: classes.iter().map(course).collect(),
            waiting: Heap::new(),
            due: Heap::new(),
            spare: core::array::from_fn(|_| (Heap::new(), 0)),
        })
    }

    /// The class has a new head, which may use the credit from `since` on.
    #[inline]
    fn head(&mut self, class: usize, since: Time, size: Bytes) {
        let course = &mut self.courses[class];
        if let Some(bucket) = &course.bucket {
            course.eligible = bucket.ready_at(since, size);
            self.waiting.set(class, course.eligible);
        }
    }

    /// Takes the head of a class out. If it used credit, the next one may do so from the instant on at which it did; otherwise, with
    /// `spared`, from that instant on: as if it had come only then.
    #[inline]
    fn leave(&mut self, class: usize, spared: Option<Time>) -> Option<P> {
        let gone = self.queues.pop(class, |arrived| arrived.packet.size())?;
        let course = &mut self.courses[class];
        let since = spared.unwrap_or(course.eligible);
        match self.queues.head(class).map(|next| (next.at.max(since), next.packet.size())) {
            Some((since, size)) => self.head(class, since, size),
            None => {
                self.waiting.remove(class);
                if course.surplus {
                    self.spare[course.level as usize].0.remove(class);
                }
            }
        }
        Some(gone.packet)
    }

    /// Virtual time of a level begins anew; what is ahead of it stays as far ahead.
    #[cold]
    fn turn(&mut self, level: usize) {
        let (heap, virtual_time) = &mut self.spare[level];
        let passed = core::mem::take(virtual_time);
        for (class, course) in self.courses.iter_mut().enumerate().filter(|(_, c)| c.level as usize == level)
        {
            course.start = course.start.saturating_sub(passed);
            if heap.has(class) {
                heap.set(class, course.start);
            }
        }
    }

    /// The class at the head of the surplus, and its tag.
    fn spare(&self) -> Option<(usize, u64, usize)> {
        let mut levels = self.spare.iter().enumerate();
        levels.find_map(|(level, (heap, _))| heap.first().map(|(tag, class)| (level, tag, class)))
    }
}

impl<P: Packet + Send> Qdisc<P> for Reserve<P> {
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>) {
        let Some((class, packet)) = self.queues.admit(packet, drop) else { return };
        let size = packet.size();
        if self.queues.push(class, size, Arrived { packet, at: now }) {
            self.head(class, now, size);
            let course = &mut self.courses[class];
            if course.surplus {
                let (heap, virtual_time) = &mut self.spare[course.level as usize];
                course.start = course.start.max(*virtual_time);
                heap.set(class, course.start);
            }
        }
    }

    fn dequeue(&mut self, now: Time, _drop: Drops<'_, P>) -> Option<P> {
        while let Some((_, class)) = self.waiting.first().filter(|(at, _)| *at <= now) {
            self.waiting.pop();
            let course = &self.courses[class];
            self.due.set(class, course.eligible + course.delay);
        }
        if let Some((_, class)) = self.due.pop() {
            let size = self.queues.head(class)?.packet.size();
            let course = &mut self.courses[class];
            if let Some(bucket) = &mut course.bucket {
                bucket.take(course.eligible, size);
            }
            return self.leave(class, None);
        }
        let (level, tag, class) = self.spare()?;
        let size = self.queues.head(class)?.packet.size();
        let course = &mut self.courses[class];
        course.start = tag + size.0 * BYTE / course.weight as u64;
        let (heap, virtual_time) = &mut self.spare[level];
        heap.set(class, course.start);
        *virtual_time = tag;
        if tag > TURN {
            self.turn(level);
        }
        self.leave(class, Some(now))
    }

    fn ready_at(&self) -> Option<Time> {
        if !self.due.is_empty() || self.spare().is_some() {
            return Some(Time::ZERO);
        }
        self.waiting.first().map(|(at, _)| at)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}

/// What a class may send at once: its work-ahead, but no less than the line's largest packet, which the test has to count in any case.
/// A smaller bucket would let one such packet pass too, but forget credit while smaller ones wait; what it lets through then keeps to
/// no curve of this burst.
fn burst(class: &Class, line: Feeds) -> Bytes {
    class.ahead.max(line.mtu)
}

/// What a class is promised before a line, if it has reserved anything.
fn promise(class: &Class, line: Feeds) -> Option<Promise> {
    let server = Server { rate: line.rate, packet: line.mtu };
    let envelope = Envelope { burst: burst(class, line), rate: class.rate? };
    Some(Promise { envelope, delay: class.delay.unwrap_or_else(|| server.natural_delay(envelope)) })
}

/// The bound on the delay of a class within its rate and work-ahead: what it asked for, or what its rate gives.
pub fn bound(class: &Class, line: Feeds) -> Option<Duration> {
    promise(class, line).map(|p| p.delay)
}

/// Whether all classes can be kept. The first one that cannot beside those before it is refused, with what would fit.
fn admit(classes: &[Class], line: Feeds) -> Result<(), Unfit> {
    let server = Server { rate: line.rate, packet: line.mtu };
    let mut promises = Vec::new();
    let mut whose = Vec::new();
    for class in classes {
        let refuse = |what: String| Err(Unfit::new("class", format!("class \"{}\": {what}", class.name)));
        match class.rate {
            Some(Rate(0)) => return refuse("nothing is reserved at rate zero: leave `rate` out".into()),
            None if class.delay.is_some() || class.ahead > Bytes::ZERO => {
                let taken = promises.iter().map(|p: &Promise| p.envelope.rate.0).sum();
                let left = Rate(line.rate.0.saturating_sub(taken));
                return refuse(format!(
                    "`delay` and `ahead` are promised for a rate: write rate = \"...\", at most \"{}\"",
                    rate_text(left)
                ));
            }
            None if !class.surplus => {
                return refuse("it has no rate and no surplus, so it would never send: write a rate".into());
            }
            _ => {}
        }
        if let Some(promise) = promise(class, line) {
            promises.push(promise);
            whose.push(class);
        }
    }
    if promises.is_empty() {
        let advice = format!(
            "no class has a rate, so nothing is reserved: write for example rate = \"{}\" for one, or use wfq",
            rate_text(Rate(line.rate.0 / 4))
        );
        return Err(Unfit::new("class", advice));
    }
    let fitting = server.fitting(&promises);
    if let Some(class) = whose.get(fitting) {
        return Err(Unfit::new("class", overbooked(class, &server, &promises[..fitting], promises[fitting])));
    }
    for (class, promise) in whose.iter().zip(&promises) {
        let need = promise.envelope.burst + class.rate.unwrap_or(Rate(0)).bytes_in(promise.delay);
        if let Some(Room::Bytes(room)) =
            class.limit.filter(|limit| matches!(limit, Room::Bytes(b) if *b < need.0))
        {
            let advice = format!(
                "class \"{}\": within its rate and work-ahead {}B may wait, and its limit is {room}B: write limit = \"{}B\" or more",
                class.name, need.0, need.0
            );
            return Err(Unfit::new("class", advice));
        }
    }
    Ok(())
}

/// Why a class cannot be kept beside others, and what would fit.
fn overbooked(class: &Class, server: &Server, others: &[Promise], wanted: Promise) -> String {
    let Promise { envelope, delay } = wanted;
    let mut fits = Vec::new();
    if let Some(shortest) = server.shortest_delay(others, envelope, LONGEST) {
        fits.push(format!("delay = \"{}\" or longer", delay_text(shortest)));
    }
    if let Some(rate) = server.largest_rate(others, envelope.burst, class.delay)
        && rate < envelope.rate
    {
        fits.push(format!("rate = \"{}\" or less", rate_text(rate)));
    }
    // An ahead of less than a packet promises no less than a packet.
    if let Some(burst) = server.largest_burst(others, envelope.rate, delay)
        && class.ahead > burst
        && burst >= server.packet
    {
        fits.push(format!("ahead = \"{}B\" or less", burst.0));
    }
    let taken: u64 = others.iter().map(|p| p.envelope.rate.0).sum();
    let fits = match &fits[..] {
        [] => "nothing else fits: leave its rate out, or take from the classes before it".to_string(),
        _ => format!("write {}", fits.join(", or ")),
    };
    format!(
        "class \"{}\": {}, {}B at once and {} cannot be kept on a line of {} with packets of {}B, of which {} are reserved before it: \
         {fits}",
        class.name,
        rate_text(envelope.rate),
        envelope.burst.0,
        delay_text(delay),
        rate_text(server.rate),
        server.packet.0,
        rate_text(Rate(taken)),
    )
}

/// A rate in scenario notation, rounded down to four digits or more.
fn rate_text(rate: Rate) -> String {
    match rate.0 {
        bits @ 0..10_000 => format!("{bits}bit/s"),
        bits if bits % 1_000_000 == 0 => format!("{}Mbit/s", bits / 1_000_000),
        bits => format!("{}kbit/s", bits / 1000),
    }
}

/// A delay in scenario notation, rounded up to a microsecond.
fn delay_text(delay: Duration) -> String {
    let micros = delay.as_nanos().div_ceil(1000);
    let text = format!("{}.{:03}", micros / 1000, micros % 1000);
    format!("{}ms", text.trim_end_matches('0').trim_end_matches('.'))
}
