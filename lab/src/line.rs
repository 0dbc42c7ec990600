//! One direction of a link: a queue discipline, a transmitter, and a pipe that holds what is on its way. Every host has this
//! same one, in virtual time and in real time, with values or with bytes for packets.

mod carried;
mod succession;
#[cfg(test)]
mod tests;

pub use carried::{Carried, Written};

use crate::class::Classes;
use crate::outcome::{Distribution, QueueSummary};
use carried::UNCLASSIFIED;
use narrows_core::ackwin::{self, AckWindow, Passing};
use narrows_core::packet::Packet;
use narrows_core::qdisc::{Backlog, DropReason, Drops, Qdisc, fifo::Fifo};
use narrows_core::wire::framing::Framing;
use narrows_core::{Bytes, Ecn, Rate, Time};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use succession::Succession;

/// A queue discipline; the plain FIFO is called without a detour.
pub enum Queue<P> {
    /// Drop-tail. An idle line may pass a packet by it: it would be taken and given at once.
    Fifo(Fifo<Carried<P>>),
    /// Any other.
    Other(Box<dyn Qdisc<Carried<P>>>),
}

impl<P: Packet + Send> Queue<P> {
    #[inline]
    fn enqueue(&mut self, now: Time, p: Carried<P>, drop: Drops<'_, Carried<P>>) {
        match self {
            Queue::Fifo(q) => q.enqueue(now, p, drop),
            Queue::Other(q) => q.enqueue(now, p, drop),
        }
    }
    #[inline]
    fn dequeue(&mut self, now: Time, drop: Drops<'_, Carried<P>>) -> Option<Carried<P>> {
        match self {
            Queue::Fifo(q) => q.dequeue(now, drop),
            Queue::Other(q) => q.dequeue(now, drop),
        }
    }
    #[inline]
    fn ready_at(&self) -> Option<Time> {
        match self {
            Queue::Fifo(q) => q.ready_at(),
            Queue::Other(q) => q.ready_at(),
        }
    }
    #[inline]
    fn has_room(&mut self, now: Time, size: Bytes) -> bool {
        match self {
            Queue::Fifo(q) => q.has_room(now, size),
            Queue::Other(q) => q.has_room(now, size),
        }
    }
    /// What waits.
    #[inline]
    pub fn backlog(&self) -> Backlog {
        match self {
            Queue::Fifo(q) => q.backlog(),
            Queue::Other(q) => q.backlog(),
        }
    }
    /// What it shows of itself by name; the plain FIFO shows nothing.
    pub fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        match self {
            Queue::Fifo(_) => {}
            Queue::Other(q) => q.inspect(probe),
        }
    }
}

/// What the line did in a call that concerns others, and what it wants of the agenda after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// A packet began to leave: [`Line::newest`].
    pub left: bool,
    /// When it came to the queue, if it came unmarked and leaves marked.
    pub marked: Option<Time>,
    /// Call [`Line::ready`] at this instant.
    pub ready: Option<Time>,
    /// Call [`Line::arrive`] at this instant: the pipe was empty before.
    pub arrival: Option<Time>,
}

/// What a line has done so far, for metrics. Always `arrived = departed + dropped() + backlog.packets`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets that came.
    pub arrived: u64,
    /// Packets that began to leave: those at the far end and those in the pipe.
    pub departed: u64,
    /// Their bytes at the IP level.
    pub departed_bytes: u64,
    /// Packets that the queue discipline marked.
    pub marks: u64,
    /// Packets dropped, in the order of [`DropReason::ALL`].
    pub drops: [u64; DropReason::ALL.len()],
    /// What waits, also in disciplines that have been replaced.
    pub backlog: Backlog,
    /// Packets in the pipe, and those held back at its end.
    pub pipe: u64,
    /// What the router before the line did to the ACKs that passed it.
    pub acks: ackwin::Counters,
}

impl Counters {
    /// Packets dropped, for whatever reason.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// The reasons there were, and how many packets were dropped for each.
    pub fn drops_by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DropReason::ALL.iter().zip(self.drops).filter(|(_, n)| *n > 0).map(|(reason, n)| (reason.name(), n))
    }
}

/// The next packet that is on its way on line `i` comes to its end: it, unless the router there holds it back. When the next one
/// will arrive, [`Line::arrival_at`] says. Lines come in pairs, one for each direction of a link: 0 and 1, 2 and 3, ...
#[inline]
pub fn arrive<P: Passing + Send>(lines: &mut [Line<P>], i: usize, now: Time) -> Option<Carried<P>> {
    if let Some(released) = lines[i].release() {
        return Some(released);
    }
    let (_, packet) =
        lines[i].pipe.pop_front().expect("an arrival is scheduled only for a packet that is there");
    match lines.get(i ^ 1) {
        Some(back) if back.acks.is_some() => pass(lines, i, now, packet),
        _ => Some(packet),
    }
}

/// At the end of line `i` is a router that may write into the packet, and hold it back.
#[inline(never)]
fn pass<P: Passing + Send>(
    lines: &mut [Line<P>],
    i: usize,
    now: Time,
    mut packet: Carried<P>,
) -> Option<Carried<P>> {
    if let Some(until) = lines[i ^ 1].speak(now, i ^ 1, &mut packet) {
        let line = &mut lines[i];
        line.held.insert((until, line.holds), packet);
        line.holds += 1;
        return None;
    }
    Some(packet)
}

/// One direction of a link.
pub struct Line<P> {
    rate: Rate,
    delay: Duration,
    mtu: u32,
    framing: Framing,
    /// Whether who sends is to wait for room.
    back_pressure: bool,
    /// What waits for the transmitter.
    pub queue: Queue<P>,
    /// The remainder of the last transmission's division: see [`Rate::transmit`].
    carry: u64,
    busy_until: Time,
    /// Whether [`Line::ready`] is on the agenda.
    awaited: bool,
    pipe: VecDeque<(Time, Carried<P>)>,
    /// What the router before the line says to the senders of what takes it; and, while it says nothing, what it knew.
    acks: Option<Box<AckWindow>>,
    silent: Option<Box<AckWindow>>,
    /// Its classes, if it has any.
    classes: Option<Box<Classes>>,
    /// ACKs that have come to the end and are held back there, by when they go on; and how many there ever were.
    held: BTreeMap<(Time, u64), Carried<P>>,
    holds: u64,
    arrived: u64,
    departed: u64,
    departed_bytes: u64,
    marked: u64,
    drops: [u64; DropReason::ALL.len()],
    /// What the last call dropped, until the caller takes it.
    dropped: Vec<(Carried<P>, DropReason)>,
    /// Packets that did not wait at all.
    unhindered: u64,
    waits: Distribution,
    backlog_max: u64,
    /// Packets times nanoseconds that they waited: instants at which packets left the queue, less those at which they entered
    /// it, so that what waits now still misses its end.
    waited: i128,
    /// Bits the line could have carried up to `counted_from`, before its rate last changed.
    capacity: f64,
    counted_from: Time,
}

impl<P: Passing + Send> Line<P> {
    /// An idle line.
    pub fn new(rate: Rate, delay: Duration, mtu: Bytes, queue: Queue<P>) -> Self {
        Line {
            rate,
            delay,
            mtu: mtu.0.min(u32::MAX as u64) as u32,
            framing: Framing::None,
            back_pressure: false,
            queue,
            carry: 0,
            busy_until: Time::ZERO,
            awaited: false,
            pipe: VecDeque::new(),
            acks: None,
            silent: None,
            classes: None,
            held: BTreeMap::new(),
            holds: 0,
            arrived: 0,
            departed: 0,
            departed_bytes: 0,
            marked: 0,
            drops: [0; DropReason::ALL.len()],
            dropped: Vec::new(),
            unhindered: 0,
            waits: Distribution::default(),
            backlog_max: 0,
            waited: 0,
            capacity: 0.0,
            counted_from: Time::ZERO,
        }
    }

    /// From now on the router before the line writes into the ACKs that pass it, or no longer does. What it knew of connections
    /// it still knows.
    pub fn set_acks(&mut self, acks: Option<AckWindow>) {
        let old = self.acks.take().or(self.silent.take());
        match (acks, old) {
            (Some(new), Some(old)) => self.acks = Some(Box::new(new.after(*old))),
            (new, old) => (self.acks, self.silent) = (new.map(Box::new), old),
        }
    }

    /// From now on packets that come belong to these classes.
    pub fn set_classes(&mut self, classes: Option<Classes>) {
        self.classes = classes.map(Box::new);
    }

    /// From now on each packet takes what it is framed as. What is in the line already stays as it is.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Whether who sends into this line is held back while there is no room, rather than packets be dropped.
    pub fn set_back_pressure(&mut self, on: bool) {
        self.back_pressure = on;
    }

    /// Whether it may hold senders back.
    pub fn has_back_pressure(&self) -> bool {
        self.back_pressure
    }

    /// Whether a sender may send a packet of the line's MTU into it now; if not, again when one has left.
    #[inline]
    pub fn admits(&mut self, now: Time) -> bool {
        !self.back_pressure || self.queue.has_room(now, Bytes(self.framing.size(self.mtu as u64)))
    }

    /// A packet comes to the line. Not inlined: its caller's copy of the packet is the one that is put into the queue or the pipe.
    #[inline(never)]
    pub fn offer(&mut self, now: Time, mut packet: Carried<P>) -> Wish {
        self.arrived += 1;
        if self.acks.is_some() {
            self.listen(now, &packet);
        }
        packet.class = self.classes.as_ref().map_or(UNCLASSIFIED, |c| c.of(&packet.packet));
        if packet.packet.size().0 > self.mtu as u64 {
            self.dropped.push((packet, DropReason::TooLarge));
            return Wish::default();
        }
        packet.framing = self.framing;
        if now >= self.busy_until && !self.awaited && matches!(&self.queue, Queue::Fifo(_)) {
            self.unhindered += 1;
            packet.enqueued = now;
            return Wish { left: true, arrival: self.send(now, packet), ..Wish::default() };
        }
        (packet.enqueued, packet.marked) = (now, packet.ecn() == Ecn::Ce);
        let (before, dropped) = (self.dropped.len(), &mut self.dropped);
        self.queue.enqueue(now, packet, &mut |p, reason| dropped.push((p, reason)));
        self.waited += (self.dropped.len() as i128 - before as i128 - 1) * now.as_nanos() as i128;
        self.backlog_max = self.backlog_max.max(self.queue.backlog().bytes.0);
        if now >= self.busy_until && (!self.awaited || matches!(&self.queue, Queue::Other(_))) {
            return self.ready(now); // the newcomer may be ready before what was awaited
        }
        if self.awaited {
            return Wish::default();
        }
        self.awaited = true;
        Wish { ready: Some(self.busy_until), ..Wish::default() }
    }

    /// The transmitter may be free and a packet ready to leave.
    #[inline]
    pub fn ready(&mut self, now: Time) -> Wish {
        self.awaited = false;
        let (before, dropped) = (self.dropped.len(), &mut self.dropped);
        let next = self.queue.dequeue(now, &mut |p, reason| dropped.push((p, reason)));
        let gone = self.dropped.len() - before + next.is_some() as usize;
        self.waited += gone as i128 * now.as_nanos() as i128;
        let mut wish = Wish::default();
        if let Some(packet) = next {
            if packet.enqueued == now {
                self.unhindered += 1
            } else {
                self.waits.record(now.since(packet.enqueued))
            }
            if packet.ecn() == Ecn::Ce && !packet.marked {
                self.marked += 1;
                wish.marked = Some(packet.enqueued);
            }
            wish.left = true;
            wish.arrival = self.send(now, packet);
        }
        if let Some(at) = self.queue.ready_at() {
            let at = at.max(self.busy_until);
            // A discipline that is not ready when it said it would be is asked again, but time must go on.
            wish.ready = Some(if at > now { at } else { now + Duration::from_nanos(1) });
            self.awaited = true;
        }
        wish
    }

    /// Begins to transmit. Returns the arrival at the far end if nothing else is on its way.
    #[inline]
    fn send(&mut self, now: Time, packet: Carried<P>) -> Option<Time> {
        if now > self.busy_until {
            self.carry = 0; // the line was idle: nothing to make up for
        }
        let size = packet.size().0 as u32;
        self.departed += 1;
        self.departed_bytes += packet.packet.size().0;
        self.busy_until = now + Duration::from_nanos(self.rate.transmit(size, &mut self.carry));
        if let Some(classes) = &mut self.classes {
            let took = self.busy_until.since(packet.enqueued);
            classes.sent(packet.class, packet.packet.size().0, took);
        }
        let mut arrival = self.busy_until + self.delay;
        let first = match self.pipe.back() {
            // After the delay has become shorter, packets still keep their order.
            Some((before, _)) => {
                arrival = arrival.max(*before);
                None
            }
            None => Some(arrival),
        };
        self.pipe.push_back((arrival, packet));
        first
    }

    /// Whether the last call dropped packets.
    #[inline]
    pub fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Hands out what the last call dropped, in order.
    pub fn dropped(&mut self) -> impl Iterator<Item = (Carried<P>, DropReason)> + '_ {
        let (drops, classes) = (&mut self.drops, &mut self.classes);
        self.dropped.drain(..).inspect(move |(packet, reason)| {
            drops[*reason as usize] += 1;
            if let Some(classes) = classes {
                classes.dropped(packet.class);
            }
        })
    }

    /// The packet that last began to leave.
    pub fn newest(&self) -> Option<&P> {
        self.pipe.back().map(|(_, carried)| &carried.packet)
    }

    /// A packet that was held back, if it goes on before the next one of the pipe arrives.
    #[inline]
    fn release(&mut self) -> Option<Carried<P>> {
        let held = self.held.first_entry()?;
        let in_pipe = self.pipe.front().map_or(Time::MAX, |(at, _)| *at);
        (held.key().0 <= in_pipe).then(|| held.remove())
    }

    /// When the next packet arrives.
    #[inline]
    pub fn arrival_at(&self) -> Option<Time> {
        let in_pipe = self.pipe.front().map(|(at, _)| *at);
        match self.held.first_key_value() {
            None => in_pipe,
            Some(((at, _), _)) => Some(in_pipe.map_or(*at, |t| t.min(*at))),
        }
    }

    /// The router before the line sees a packet that takes it. A call: inlined, it makes every packet's fields be read one by one
    /// before anyone asks whether there is such a router.
    #[inline(never)]
    fn listen(&mut self, now: Time, packet: &Carried<P>) {
        if let Some(acks) = &mut self.acks {
            acks.onward(now, packet);
        }
    }

    /// A packet that goes the other way passes the router before this line: `Some` if it is to be held until then.
    fn speak(&mut self, now: Time, line: usize, packet: &mut Carried<P>) -> Option<Time> {
        let acks = self.acks.as_mut()?;
        let mut average = None;
        if acks.wants_average() {
            self.queue.inspect(&mut |name, value| {
                if name.starts_with("average_") {
                    average = Some(value);
                }
            });
        }
        let backlog = self.queue.backlog();
        let verdict = acks.back(now, packet, backlog, average, self.rate);
        acks.report(now, packet, line as u16, backlog, self.rate);
        if verdict.rewritten {
            (packet.writer, packet.written) = (line as u16 + 1, now);
        }
        verdict.hold
    }

    /// Rate or delay change from now on.
    pub fn change(&mut self, now: Time, rate: Option<Rate>, delay: Option<Duration>) {
        self.count_capacity(now);
        self.rate = rate.unwrap_or(self.rate);
        self.delay = delay.unwrap_or(self.delay);
    }

    /// Another queue discipline takes over. What waits in the old one leaves first, in its own way and at its own pace;
    /// what arrives from now on waits in the new one.
    pub fn replace(&mut self, now: Time, queue: Queue<P>) -> Wish
    where
        P: 'static,
    {
        let old = std::mem::replace(&mut self.queue, queue);
        if old.backlog().packets == 0 {
            return Wish::default();
        }
        let new = std::mem::replace(&mut self.queue, Queue::Fifo(Fifo::unlimited()));
        self.queue = Queue::Other(Box::new(Succession::new(old, new)));
        if now >= self.busy_until { self.ready(now) } else { Wish::default() }
    }

    /// The largest packet from now on.
    pub fn set_mtu(&mut self, mtu: Bytes) {
        self.mtu = mtu.0.min(u32::MAX as u64) as u32;
    }

    /// How long packets have waited so far.
    pub fn waits(&self) -> Distribution {
        let mut waits = self.waits.clone();
        waits.record_zeros(self.unhindered);
        waits
    }

    /// What the line has done so far.
    pub fn counters(&self) -> Counters {
        let mut drops = self.drops;
        self.dropped.iter().for_each(|(_, reason)| drops[*reason as usize] += 1);
        Counters {
            arrived: self.arrived,
            departed: self.departed,
            departed_bytes: self.departed_bytes,
            marks: self.marked,
            drops,
            backlog: self.queue.backlog(),
            pipe: (self.pipe.len() + self.held.len()) as u64,
            acks: self.acks.as_ref().or(self.silent.as_ref()).map(|acks| acks.counters()).unwrap_or_default(),
        }
    }

    fn count_capacity(&mut self, now: Time) {
        self.capacity += self.rate.0 as f64 * now.since(self.counted_from).as_secs_f64();
        self.counted_from = now;
    }

    /// The line in numbers, at the end of a run.
    pub fn summary(&mut self, name: String, now: Time) -> QueueSummary {
        self.count_capacity(now);
        self.waits.record_zeros(self.unhindered);
        let counters = self.counters();
        let (elapsed, waiting) = (now.as_nanos() as i128, counters.backlog.packets as i128);
        QueueSummary {
            name,
            arrived: counters.arrived,
            departed: counters.departed,
            departed_bytes: counters.departed_bytes,
            drops: counters.dropped(),
            drop_ratio: counters.dropped() as f64 / counters.arrived.max(1) as f64,
            drops_by_reason: counters.drops_by_reason().map(|(reason, n)| (reason.to_string(), n)).collect(),
            marks: counters.marks,
            utilisation: if self.capacity > 0.0 {
                counters.departed_bytes as f64 * 8.0 / self.capacity
            } else {
                0.0
            },
            delay: self.waits.quantiles(),
            backlog_max_bytes: self.backlog_max,
            acks_passed: counters.acks.passed,
            windows_written: counters.acks.rewritten,
            windows_unknown: counters.acks.unknown,
            acks_held: counters.acks.held,
            states_added: counters.acks.reported,
            classes: self.classes.as_ref().map(|c| c.summaries()).unwrap_or_default(),
            backlog_mean_packets: if elapsed > 0 {
                (self.waited + waiting * elapsed) as f64 / elapsed as f64
            } else {
                0.0
            },
        }
    }
}
