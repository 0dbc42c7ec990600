//! Strict priority: a packet leaves only if none of a higher level waits. Level 1 is first; within a level packets leave in order of
//! arrival, whatever their class. A class has its own limit, so a lower level that is starved loses its own packets only.
//!
//! Priority alone bounds the delay of the first level and of no other; what is sent at level 1 is taken from the rest without limit.
//! `reserve` is priority that cannot be abused.

use super::class::{CLASS_LIMIT, LEVELS, Queues, Site};
use super::{Backlog, Drops, Entry, Qdisc};
use crate::packet::Packet;
use crate::registry::{Settings, Unfit};
use crate::time::Time;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// `priority`, before a line with classes.
pub const ENTRY: Entry = Entry {
    name: "priority",
    summary: "strict priority over the line's classes, level 1 first; within a level in order of arrival",
    parameters: &[CLASS_LIMIT],
    contains: false,
};

/// A queue for each class, and for each level whose turn is when.
pub struct Priority<P> {
    queues: Queues<P>,
    /// Of each class, counted from 0.
    level: Vec<u8>,
    /// The classes of the packets that wait at each level, in order of arrival.
    turns: [VecDeque<u32>; LEVELS as usize],
}

impl<P: Packet> Priority<P> {
    /// Reads `class_limit` and the levels of the line's classes.
    pub fn new(settings: &Settings, site: &Site) -> Result<Self, Unfit> {
        let classes = site.declared(
            "class",
            "{ name = \"voice\", match = \"voice*\", priority = 1 }, { name = \"rest\" }",
        )?;
        Ok(Priority {
            queues: Queues::new(settings, site)?,
            level: classes.iter().map(|class| class.priority - 1).collect(),
            turns: Default::default(),
        })
    }
}

impl<P: Packet + Send> Qdisc<P> for Priority<P> {
    fn enqueue(&mut self, _now: Time, packet: P, drop: Drops<'_, P>) {
        if let Some((class, packet)) = self.queues.admit(packet, drop) {
            self.queues.push(class, packet.size(), packet);
            self.turns[self.level[class] as usize].push_back(class as u32);
        }
    }

    fn dequeue(&mut self, _now: Time, _drop: Drops<'_, P>) -> Option<P> {
        let class = self.turns.iter_mut().find_map(VecDeque::pop_front)?;
        self.queues.pop(class as usize, P::size)
    }

    fn ready_at(&self) -> Option<Time> {
        (self.backlog().packets > 0).then_some(Time::ZERO)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}
