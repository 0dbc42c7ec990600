//! A queue discipline that takes over from another one: what waits in the old one leaves first, in its own way and at its own
//! pace; what arrives waits in the new one. Nothing is moved between them, so nothing can be lost.

use super::{Carried, Queue};
use narrows_core::packet::Packet;
use narrows_core::qdisc::{Backlog, Drops, Qdisc};
use narrows_core::{Bytes, Time};

/// An old discipline until it is empty, then the new one.
pub(super) struct Succession<P> {
    /// It may be a succession itself. Gone once it is empty.
    old: Option<Queue<P>>,
    new: Queue<P>,
}

impl<P> Succession<P> {
    pub(super) fn new(old: Queue<P>, new: Queue<P>) -> Self {
        Succession { old: Some(old), new }
    }
}

impl<P: Packet + Send> Qdisc<Carried<P>> for Succession<P> {
    fn enqueue(&mut self, now: Time, packet: Carried<P>, drop: Drops<'_, Carried<P>>) {
        self.new.enqueue(now, packet, drop)
    }

    fn dequeue(&mut self, now: Time, drop: Drops<'_, Carried<P>>) -> Option<Carried<P>> {
        if let Some(old) = &mut self.old {
            let packet = old.dequeue(now, drop);
            let empty = old.ready_at().is_none();
            if empty {
                self.old = None;
            }
            if packet.is_some() || !empty {
                return packet;
            }
        }
        self.new.dequeue(now, drop)
    }

    fn ready_at(&self) -> Option<Time> {
        self.old.as_ref().and_then(Queue::ready_at).or_else(|| self.new.ready_at())
    }

    fn backlog(&self) -> Backlog {
        let old = self.old.as_ref().map_or(Backlog::default(), Queue::backlog);
        let new = self.new.backlog();
        Backlog { packets: old.packets + new.packets, bytes: Bytes(old.bytes.0 + new.bytes.0) }
    }

    /// Of the new one: it decides on what arrives.
    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        self.new.inspect(probe)
    }
}
