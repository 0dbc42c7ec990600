//! Classes of packets, and a queue for each. A class is what an operator promises to a part of the traffic, in one set of
//! parameters that every discipline with classes reads: `priority` its level, `drr` and `wfq` its weight, `reserve` all of them. So
//! the same classes can be put before different disciplines and compared.
//!
//! A packet brings the number of its class with it ([`Packet::class`]). Where no classes are declared every flow is a class of its
//! own, of weight 1; it is remembered for as long as it makes a difference.

use super::{Backlog, DropReason, Drops};
use crate::ackwin::Room;
use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::units::{Bytes, Rate};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// Levels of priority: 1 goes first, as many as IEEE 802.1p has.
pub const LEVELS: u8 = 8;
/// Largest weight.
pub const HEAVIEST: u32 = 1_000_000;

/// What is promised to a part of the traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The rate it has reserved, of whole IP packets.
    pub rate: Option<Rate>,
    /// Work-ahead: how far it may be ahead of constant spacing at that rate.
    pub ahead: Bytes,
    /// How long a packet within rate and work-ahead takes at the most, its transmission included.
    pub delay: Option<Duration>,
    /// Its level: 1 to [`LEVELS`], 1 first.
    pub priority: u8,
    /// Its share of what is divided, against those of others.
    pub weight: u32,
    /// Room for its waiting packets; `None`: what the discipline gives each class.
    pub limit: Option<Room>,
    /// Whether it may have more than it has reserved.
    pub surplus: bool,
}

impl Class {
    /// A class to which nothing is promised.
    pub fn plain(name: impl Into<String>) -> Class {
        Class {
            name: name.into(),
            rate: None,
            ahead: Bytes::ZERO,
            delay: None,
            priority: LEVELS,
            weight: 1,
            limit: None,
            surplus: true,
        }
    }
}

/// Where a discipline stands: what it need not be told twice.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Site {
    /// The line it feeds, if that is known.
    pub line: Option<Feeds>,
    /// The line's classes in the order of their numbers; the last one is for whatever belongs to no other. None: each flow is one.
    pub classes: Arc<[Class]>,
}

/// What a discipline feeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feeds {
    /// Its rate, of whole IP packets; the lowest, if it changes.
    pub rate: Rate,
    /// Its largest packet.
    pub mtu: Bytes,
}

impl Site {
    /// The line, for a discipline that cannot do without.
    pub(super) fn line(&self, parameter: &'static str) -> Result<Feeds, Unfit> {
        self.line.ok_or_else(|| {
            Unfit::new(
                parameter,
                "what it needs of its line, rate and MTU, is not known here: put it before a line",
            )
        })
    }

    /// The classes, for a discipline that cannot do without.
    pub(super) fn declared(&self, parameter: &'static str, example: &str) -> Result<&[Class], Unfit> {
        if self.classes.is_empty() {
            let advice =
                format!("it needs classes, and the line has none: write beside `queue` class = [{example}]");
            return Err(Unfit::new(parameter, advice));
        }
        Ok(&self.classes)
    }

    /// What no discipline could do anything with.
    pub(super) fn check(&self, parameter: &'static str) -> Result<(), Unfit> {
        let mut names = BTreeSet::new();
        for class in self.classes.iter() {
            let refuse =
                |what: String| Err(Unfit::new(parameter, format!("class \"{}\": {what}", class.name)));
            if !names.insert(&class.name) {
                return refuse("there are two of this name: give each its own".into());
            }
            if !(1..=LEVELS).contains(&class.priority) {
                return refuse(format!("write a priority of 1 (first) to {LEVELS}, not {}", class.priority));
            }
            if !(1..=HEAVIEST).contains(&class.weight) {
                return refuse(format!("write a weight of 1 to {HEAVIEST}, not {}", class.weight));
            }
            match (class.limit, self.line) {
                (Some(Room::Packets(0)), _) => return refuse("write a limit of at least 1p".into()),
                (Some(Room::Bytes(room)), Some(line)) if room < line.mtu.0 => {
                    return refuse(format!("write a limit of at least a packet: \"{}B\"", line.mtu.0));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The parameter that [`Queues::new`] reads.
pub(super) const CLASS_LIMIT: Parameter = Parameter {
    name: "class_limit",
    kind: Kind::Limit,
    default: "1000p",
    meaning: "room for the waiting packets of each class that has no `limit` of its own",
};

/// The packets of one class.
struct Queue<T> {
    packets: VecDeque<T>,
    bytes: u64,
    most_bytes: u64,
    most_packets: u64,
    /// The flow it belongs to, where flows are classes.
    flow: u32,
}

/// A queue for each class, each with its own limit: what is dropped of one never is for another's sake. `T` is what is kept of a
/// packet.
pub(super) struct Queues<T> {
    queues: Vec<Queue<T>>,
    /// Where flows are classes: whose queue is where, and which are nobody's.
    flows: Option<(BTreeMap<u32, u32>, Vec<u32>)>,
    room: (u64, u64),
    backlog: Backlog,
}

fn room(limit: Room) -> (u64, u64) {
    match limit {
        Room::Bytes(bytes) => (bytes, u64::MAX),
        Room::Packets(packets) => (u64::MAX, packets),
    }
}

impl<T> Queues<T> {
    /// Empty queues for the classes of a line.
    pub fn new(settings: &Settings, site: &Site) -> Result<Queues<T>, Unfit> {
        site.check("class")?;
        let limit = settings.value("class_limit").and_then(Room::of);
        let limit =
            limit.filter(|room| !matches!(room, Room::Bytes(0) | Room::Packets(0))).ok_or_else(|| {
                Unfit::new(
                    "class_limit",
                    "a class without room loses everything: write for example 64kB or 100p",
                )
            })?;
        let flows = site.classes.is_empty().then(Default::default);
        let queue = |class: &Class| {
            let (most_bytes, most_packets) = room(class.limit.unwrap_or(limit));
            Queue { packets: VecDeque::new(), bytes: 0, most_bytes, most_packets, flow: 0 }
        };
        let queues = site.classes.iter().map(queue).collect();
        Ok(Queues { queues, flows, room: room(limit), backlog: Backlog::default() })
    }

    /// How many there are, also of those that are nobody's now.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// The queue for a packet; a new one if its flow has none.
    fn of(&mut self, class: u32) -> usize {
        let Some((flows, free)) = &mut self.flows else {
            return (class as usize).min(self.queues.len() - 1);
        };
        if let Some(at) = flows.get(&class) {
            return *at as usize;
        }
        let (most_bytes, most_packets) = self.room;
        let at = free.pop().unwrap_or_else(|| {
            let packets = VecDeque::new();
            self.queues.push(Queue { packets, bytes: 0, most_bytes, most_packets, flow: 0 });
            self.queues.len() as u32 - 1
        });
        self.queues[at as usize].flow = class;
        flows.insert(class, at);
        at as usize
    }

    /// Which queue has room for the packet, after dropping it if there is none.
    #[inline]
    pub fn admit<P: Packet>(&mut self, packet: P, drop: Drops<'_, P>) -> Option<(usize, P)> {
        let size = packet.size().0;
        let declared = self.flows.is_none();
        if !declared && size > self.room.0 {
            drop(packet, DropReason::NeverFits); // before a queue is made for it
            return None;
        }
        let at = self.of(packet.class());
        let queue = &self.queues[at];
        if size > queue.most_bytes {
            drop(packet, DropReason::NeverFits);
            return None;
        }
        if queue.bytes + size > queue.most_bytes || queue.packets.len() as u64 >= queue.most_packets {
            drop(packet, DropReason::Full);
            return None;
        }
        Some((at, packet))
    }

    /// A packet of this size goes to the end of a queue. Whether it is now the only one there.
    #[inline]
    pub fn push(&mut self, at: usize, size: Bytes, packet: T) -> bool {
        let queue = &mut self.queues[at];
        queue.packets.push_back(packet);
        queue.bytes += size.0;
        self.backlog.packets += 1;
        self.backlog.bytes += size;
        queue.packets.len() == 1
    }

    /// The first packet of a queue.
    #[inline]
    pub fn head(&self, at: usize) -> Option<&T> {
        self.queues[at].packets.front()
    }

    /// Takes the first packet, of the size that `size` gives, out of a queue.
    #[inline]
    pub fn pop(&mut self, at: usize, size: impl Fn(&T) -> Bytes) -> Option<T> {
        let queue = &mut self.queues[at];
        let packet = queue.packets.pop_front()?;
        let size = size(&packet);
        queue.bytes -= size.0;
        self.backlog.packets -= 1;
        self.backlog.bytes -= size;
        Some(packet)
    }

    /// Nothing need be remembered of the flow whose queue this was.
    pub fn forget(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        debug_assert!(queue.packets.is_empty());
        if let Some((flows, free)) = &mut self.flows
            && flows.remove(&queue.flow).is_some()
        {
            queue.packets = VecDeque::new(); // a thousand flows that were once long keep no memory
            free.push(at as u32);
        }
    }

    /// What waits.
    pub fn backlog(&self) -> Backlog {
        self.backlog
    }
}
