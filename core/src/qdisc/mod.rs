//! Queue disciplines: everything that makes a packet wait, drops or marks it. As in Linux, buffers, shapers, delay and loss
//! are all queue disciplines, and some contain another one. Active queue management (`red`, `codel`) is a law apart from the
//! queue it rules.

mod chosen;
pub mod class;
pub mod codel;
pub mod delay;
pub mod drr;
pub mod fifo;
mod heap;
pub mod loss;
pub mod priority;
pub mod rate_control;
pub mod red;
pub mod reorder;
pub mod reserve;
pub mod shaper;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod wfq;

use crate::packet::Packet;
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::rng::Rng;
use crate::time::Time;
use crate::units::Bytes;
use alloc::boxed::Box;
use class::Site;

/// Why a packet was dropped. Every drop has exactly one reason and is counted under it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum DropReason {
    /// The buffer had no room for it.
    Full,
    /// Random loss of the path.
    RandomLoss,
    /// It was on an explicit list of packets to lose.
    Listed,
    /// It is larger than the link's MTU.
    TooLarge,
    /// It is larger than the whole bucket or buffer, so it could never pass.
    NeverFits,
    /// The discipline dropped it as a signal of congestion, before the buffer was full.
    Early,
}

impl DropReason {
    /// All of them, in order.
    pub const ALL: [DropReason; 6] = [
        DropReason::Full,
        DropReason::RandomLoss,
        DropReason::Listed,
        DropReason::TooLarge,
        DropReason::NeverFits,
        DropReason::Early,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Full => "full",
            DropReason::RandomLoss => "random_loss",
            DropReason::Listed => "listed",
            DropReason::TooLarge => "too_large",
            DropReason::NeverFits => "never_fits",
            DropReason::Early => "early",
        }
    }
}

/// What waits in a queue discipline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Packets waiting.
    pub packets: u64,
    /// Their bytes at the IP level.
    pub bytes: Bytes,
}

/// Takes the packets that a queue discipline drops.
pub type Drops<'a, P> = &'a mut dyn FnMut(P, DropReason);

/// A queue discipline. For every call: packets in = packets out + dropped + backlog; and a packet dropped by `dequeue` was
/// ahead of the one that call delivers (but for one that `reorder` held back and that then finds no room).
pub trait Qdisc<P>: Send {
    /// Takes a packet, or drops it or others to make room.
    fn enqueue(&mut self, now: Time, packet: P, drop: Drops<'_, P>);
    /// Gives the next packet that may leave now.
    fn dequeue(&mut self, now: Time, drop: Drops<'_, P>) -> Option<P>;
    /// When to ask again: `None` if empty. At that time `dequeue` may still yield nothing; ask again then.
    fn ready_at(&self) -> Option<Time>;
    /// What waits.
    fn backlog(&self) -> Backlog;
    /// Whether a packet of that size would find room now. A discipline that cannot tell says yes.
    fn has_room(&mut self, _now: Time, _size: Bytes) -> bool {
        true
    }
    /// Shows its inner values by name, for series; `average_queue` in bytes, `average_packets` in packets, times in seconds. One
    /// that contains another shows what that one shows.
    fn inspect(&self, _probe: &mut dyn FnMut(&'static str, f64)) {}
}

/// What a builder is given beside its own settings.
pub struct Context<P> {
    /// The discipline inside, for those that contain one.
    pub inner: Option<Box<dyn Qdisc<P>>>,
    /// A random stream of its own.
    pub rng: Rng,
    /// The line it stands before, and the line's classes.
    pub site: Site,
}

/// One queue discipline of the registry.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name in files and flags.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters; the first may be given positionally: `fifo:128KiB`.
    pub parameters: &'static [Parameter],
    /// Whether it wraps another discipline (`inner` in scenario files; an unlimited FIFO if not given).
    pub contains: bool,
}

/// Whether [`Qdisc::has_room`] of the discipline called `name` knows, so that senders can be held back rather than packets dropped.
pub fn tells_room(name: &str) -> bool {
    matches!(name, "fifo" | "rate_control")
}

/// Every queue discipline: its entry, and the one place that builds it.
pub const REGISTRY: &[Entry] = &[
    fifo::ENTRY,
    red::ENTRY,
    codel::ENTRY,
    delay::ENTRY,
    shaper::ENTRY,
    rate_control::ENTRY,
    priority::ENTRY,
    drr::ENTRY,
    wfq::ENTRY,
    reserve::ENTRY,
    trace::ENTRY,
    loss::ENTRY,
    reorder::ENTRY,
];

/// Checks `settings` and builds the discipline called `name`. `None` if there is no such name.
pub fn by_name<P: Packet + Send + 'static>(
    name: &str,
    settings: &Settings,
    context: Context<P>,
) -> Option<Result<Box<dyn Qdisc<P>>, Unfit>> {
    fn boxed<P, Q: Qdisc<P> + 'static>(q: Result<Q, Unfit>) -> Result<Box<dyn Qdisc<P>>, Unfit> {
        q.map(|q| Box::new(q) as Box<dyn Qdisc<P>>)
    }
    let Context { inner, rng, site } = context;
    let inner = || inner.unwrap_or_else(|| Box::new(fifo::Fifo::unlimited()));
    Some(match name {
        "fifo" => boxed(fifo::Fifo::new(settings)),
        "red" => boxed(red::Red::new(settings, rng)),
        "codel" => boxed(codel::Codel::new(settings)),
        "delay" => boxed(delay::Delay::new(settings)),
        "shaper" => boxed(shaper::Shaper::new(settings, inner())),
        "rate_control" => boxed(rate_control::RateControl::new(settings)),
        "priority" => boxed(priority::Priority::new(settings, &site)),
        "drr" => boxed(drr::Drr::new(settings, &site)),
        "wfq" => boxed(wfq::Wfq::new(settings, &site)),
        "reserve" => boxed(reserve::Reserve::new(settings, &site)),
        "trace" => boxed(trace::Trace::new(settings, inner())),
        "loss" => boxed(loss::Loss::new(settings, inner(), rng)),
        "reorder" => boxed(reorder::Reorder::new(settings, inner(), rng)),
        _ => return None,
    })
}

pub(crate) const LIMIT: Parameter = Parameter {
    name: "limit",
    kind: Kind::Limit,
    default: "",
    meaning: "room for waiting packets, in bytes at the IP level (128KiB) or in packets (100p)",
};
