//! Routers that speak through ACKs (T. Nagata, T. Miyazato, Y. Taniguchi, S. Tamaki, about 2003): an ACK that passes a router says
//! how much the sender may have outstanding; if that is more than the router can accept, the router writes its own number. The
//! sender ends up with the least of all routers on the way, half a round trip after the queue has grown, and without a loss.
//!
//! ```text
//!                 data ──> [queue L, q] ──> line C ──>
//!   sender                    router                     receiver
//!                 <── ACK, window min(a, b) <── ACK, window a
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | [`policy`] | what a router can accept: *b* |
//! | [`table`] | what it remembers of connections |
//! | [`count`] | how many flows are alive |
//! | [`report`] | what it says of its queue beside, for senders that forecast |
//!
//! What the paper leaves open: *b* ([`policy`]); the window field's scale, which is learned from both SYNs, so that connections whose
//! SYNs took another way pass unchanged, and are counted; never less than one segment, else the sender waits for its persist timer;
//! nothing in a SYN or RST is ever touched. Where a fair share is below one segment, ACKs can be held back instead (`hold`), so
//! that each brings out its segment when its turn has come.

pub mod count;
pub mod policy;
pub mod report;
pub mod table;
#[cfg(test)]
mod tests;

use crate::packet::Packet;
use crate::qdisc::Backlog;
use crate::registry::Value;
use crate::time::Time;
use crate::units::Rate;
use crate::wire::tcp::{Flags, RouterState, Seq};
use core::net::IpAddr;
use core::time::Duration;
use count::FlowCount;
use policy::{Chosen, Policy, Sight};
use report::Reporter;
use table::{Announced, Syn, Table};

/// What a router reads of a TCP segment that passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The same number for both directions of a connection, and for no other connection if possible.
    pub connection: u64,
    /// Control bits.
    pub flags: Flags,
    /// Acknowledgment number.
    pub ack: Seq,
    /// The window field.
    pub window: u16,
    /// The MSS option of a SYN.
    pub mss: Option<u16>,
    /// The window scale option of a SYN, 14 if it said more (RFC 7323 section 2.3).
    pub scale: Option<u8>,
    /// Bytes of data.
    pub payload: u32,
}

/// A packet whose TCP header a router may look into, and whose window it may write.
pub trait Passing: Packet {
    /// Its TCP header; `None` if it is no whole TCP segment, or one that cannot be read.
    fn look(&self) -> Option<Look>;
    /// Writes the window field, and updates the checksum (RFC 1624).
    fn set_window(&mut self, window: u16);
    /// Adds the state of a router, and makes the packet longer by it; `false`, and nothing changed, if it is not an ACK that invites
    /// to that and has room, or if its kind cannot be made longer.
    fn add_state(&mut self, _state: RouterState) -> bool {
        false
    }
    /// Its headers, for who tells classes of packets apart; `None` if it is a value, which is known by its flow, or not IP.
    fn header(&self) -> Option<Header> {
        None
    }
}

/// Who sends to whom, and how it is to be treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The transport's number.
    pub protocol: u8,
    /// Source and destination port, where there are any and they are known.
    pub ports: Option<(u16, u16)>,
    /// The differentiated services codepoint.
    pub dscp: u8,
}

/// How much a queue takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// In packets.
    Packets(u64),
    /// In bytes at the IP level.
    Bytes(u64),
}

impl Room {
    /// From a queue discipline's `limit`.
    pub fn of(limit: &Value) -> Option<Room> {
        match limit {
            Value::Packets(n) => Some(Room::Packets(*n)),
            Value::Bytes(b) => Some(Room::Bytes(b.0)),
            _ => None,
        }
    }
}

/// What was done to the ACKs that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Window fields looked at.
    pub passed: u64,
    /// Window fields that were made smaller.
    pub rewritten: u64,
    /// Left alone because the connection's SYNs were not seen.
    pub unknown: u64,
    /// Grants raised to one segment.
    pub floored: u64,
    /// ACKs held back.
    pub held: u64,
    /// States added.
    pub reported: u64,
}

/// What becomes of an ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// Its window was made smaller.
    pub rewritten: bool,
    /// It is to go on not before this.
    pub hold: Option<Time>,
}

/// The word a router has with the ACKs that pass it, about one of its queues.
#[derive(Clone, Debug)]
pub struct AckWindow {
    chosen: Chosen,
    room: Room,
    table: Table,
    flows: FlowCount,
    /// The average backlog, in the unit of `room`.
    average: f64,
    /// Until then the third packets of handshakes are expected.
    awaits_until: Time,
    reporter: Option<Reporter>,
    counters: Counters,
}

/// RED's weight, for the average: of what each ACK finds, since a segment brings one.
const WEIGHT: f64 = 0.002;
/// IP and TCP headers with timestamps: what a segment has beside its payload.
const HEADERS: f64 = 52.0;
/// Taken for the round trip of a connection whose handshake did not show it.
const GUESS: Duration = Duration::from_millis(100);
/// A packet without data: IPv4 or IPv6 with 60 bytes of TCP header, and some of options or extension headers.
const LONGEST_WITHOUT_DATA: u64 = 120;
/// The third packet of a handshake is looked for so long after the second.
const THIRD_PACKET: Duration = Duration::from_secs(1);
/// An ACK is held no longer: a retransmission timer waits 200 ms at least beyond the usual round trip.
const LONGEST_HOLD: Duration = Duration::from_millis(150);
/// Seconds after which it is any flow's turn again, however many there are.
const LONGEST_ROUND: f64 = 10.0;

impl AckWindow {
    /// For a queue with that much room.
    pub fn new(chosen: Chosen, room: Room) -> AckWindow {
        AckWindow {
            room,
            table: Table::new(chosen.connections),
            flows: FlowCount::new(chosen.alive),
            average: 0.0,
            awaits_until: Time::ZERO,
            reporter: chosen.report.map(Reporter::new),
            counters: Counters::default(),
            chosen,
        }
    }

    /// Goes on in place of `old`, with what that knew of the connections.
    #[must_use]
    pub fn after(self, old: AckWindow) -> AckWindow {
        let table = self.table.with(old.table);
        let flows = if self.chosen.alive == old.chosen.alive { old.flows } else { self.flows };
        let reporter = match (self.reporter, old.reporter) {
            (Some(new), Some(old)) => Some(new.after(old)),
            (new, _) => new,
        };
        AckWindow { table, flows, reporter, counters: old.counters, ..self }
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether the average backlog that a discipline keeps is of use.
    pub fn wants_average(&self) -> bool {
        self.chosen.policy == Policy::AvgFree
    }

    /// How many flows are alive, about.
    pub fn flows(&self) -> f64 {
        self.flows.flows()
    }

    /// A packet comes to the queue. What it says of the connection is in its handshake, and that is short; but its third packet may
    /// have data, and is waited for.
    #[inline]
    pub fn onward(&mut self, now: Time, packet: &impl Passing) {
        if let Some(reporter) = &mut self.reporter {
            reporter.came(now, packet.size().0);
        }
        let awaited = packet.size().0 <= LONGEST_WITHOUT_DATA || now < self.awaits_until;
        if !awaited || !self.chosen.writes() {
            return;
        }
        let Some(look) = packet.look() else { return };
        if look.flags.has(Flags::RST) {
            self.table.forget(look.connection);
        } else if look.flags.has(Flags::SYN) {
            self.table.enter(now, look.connection).opens(syn(now, true, &look));
        } else if let Some(connection) = self.table.find(now, look.connection) {
            connection.goes_on(now, true);
        }
    }

    /// A packet comes back from where the queue's packets go. Writes its window if that is more than can be accepted. `backlog`
    /// and `average`, if the discipline has one in the unit of its limit, are of the queue, `rate` of its line.
    pub fn back(
        &mut self,
        now: Time,
        packet: &mut impl Passing,
        backlog: Backlog,
        average: Option<f64>,
        rate: Rate,
    ) -> Verdict {
        if !self.chosen.writes() {
            return Verdict::default();
        }
        let Some(look) = packet.look() else { return Verdict::default() };
        if look.flags.has(Flags::RST) {
            self.table.forget(look.connection);
            return Verdict::default();
        }
        if look.flags.has(Flags::SYN) {
            self.table.enter(now, look.connection).opens(syn(now, false, &look));
            self.awaits_until = now + THIRD_PACKET;
            return Verdict::default();
        }
        if !look.flags.has(Flags::ACK) {
            return Verdict::default();
        }
        self.pass(now, look, packet, backlog, average, rate)
    }

    /// The state of the queue is added to a packet that comes back, if it is to be and the packet invites to it. `router` is what
    /// the queue is called on the path.
    pub fn report(
        &mut self,
        now: Time,
        packet: &mut impl Passing,
        router: u16,
        backlog: Backlog,
        rate: Rate,
    ) {
        if let Some(reporter) = &mut self.reporter {
            let state = reporter.state(now, router, backlog.bytes.0, rate);
            self.counters.reported += u64::from(packet.add_state(state));
        }
    }

    fn pass(
        &mut self,
        now: Time,
        look: Look,
        packet: &mut impl Passing,
        backlog: Backlog,
        average: Option<f64>,
        rate: Rate,
    ) -> Verdict {
        self.counters.passed += 1;
        let waiting = match self.room {
            Room::Packets(_) => backlog.packets as f64,
            Room::Bytes(_) => backlog.bytes.0 as f64,
        };
        self.average += WEIGHT * (waiting - self.average);
        let known = self.table.find(now, look.connection);
        let Some((connection, shift)) = known.and_then(|c| c.shift().map(|shift| (c, shift))) else {
            self.counters.unknown += 1;
            return Verdict::default();
        };
        // A flow shares the queue if its data take it: what comes back acknowledges something new. Of a connection whose handshake
        // was not seen anybody can send ACKs.
        let news = Seq(connection.ack).ahead_of(look.ack) < 0;
        if news {
            self.flows.see(now, look.connection);
        }
        let flows = self.flows.flows();
        connection.in_use = true;
        connection.goes_on(now, false);
        let mss = f64::from(connection.mss.max(1));
        let segment = mss + HEADERS;
        let in_segments = |amount: f64| match self.room {
            Room::Packets(_) => amount,
            Room::Bytes(_) => amount / segment,
        };
        let (Room::Packets(room) | Room::Bytes(room)) = self.room;
        let sight = Sight {
            room: in_segments(room as f64),
            waiting: in_segments(waiting),
            average: in_segments(average.unwrap_or(self.average)),
            rate,
            segment,
        };
        let rtt = self.chosen.rtt.or(connection.rtt()).unwrap_or(GUESS);
        let mut b = self.chosen.acceptable(&sight, flows, rtt);
        let micros = table::micros(now);
        if connection.grant > 0 {
            let ago = Duration::from_micros(u64::from(micros.wrapping_sub(connection.granted_at)));
            b = b.min(f64::from(connection.grant) / mss + self.chosen.growth(ago, rtt));
        }
        (connection.grant, connection.granted_at) = ((b.max(1.0) * mss).min(4e9) as u32, micros);
        self.counters.floored += (b < 1.0) as u64;
        // Whole segments. A field that counts in less than a segment is rounded up, which brings no further one; another down,
        // but not below one segment.
        let granted = (libm::floor(b.max(1.0)) * mss).min(f64::from(u32::MAX)) as u64;
        let (unit, least) = (1u64 << shift, u64::from(connection.mss.max(1)));
        let up = |bytes: u64| (bytes + unit - 1) >> shift;
        let field = if unit < least { up(granted) } else { (granted >> shift).max(up(least)) };
        let mut verdict = Verdict::default();
        if field < u64::from(look.window) {
            packet.set_window(field as u16);
            self.counters.rewritten += 1;
            verdict.rewritten = true;
        }
        connection.ack = look.ack.0;
        if self.chosen.hold && look.payload == 0 {
            let turn = connection.free_at.clamp(now, now + LONGEST_HOLD);
            if news && b < 1.0 {
                // Its next turn comes after a segment of every other flow.
                let round = (segment * 8.0 * flows / rate.0.max(1) as f64).min(LONGEST_ROUND);
                connection.free_at = turn + Duration::from_secs_f64(round);
            }
            if turn > now {
                self.counters.held += 1;
                verdict.hold = Some(turn);
            }
        }
        verdict
    }
}

fn syn(now: Time, onward: bool, look: &Look) -> Syn {
    Syn {
        onward,
        answers: look.flags.has(Flags::ACK),
        scale: look.scale.map_or(Announced::No, |shift| Announced::Shift(shift.min(14))),
        mss: look.mss.unwrap_or(536),
        at: table::micros(now),
    }
}

/// Spreads the bits of a key (the finaliser of SplitMix64, as in [`crate::rng`]).
fn mix(key: u64) -> u64 {
    let z = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}
