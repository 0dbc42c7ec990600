//! The gateway: one thread that owns ports and network and moves packets between them by the real clock.
//!
//! ```text
//!   sleep until a port is readable or something is due ──> take in what waits ──> let happen what is due ──> send ──┐
//!        ^                                                                                                         │
//!        └─────────────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! What is due within 20 us is sent early: half the wake-ups at 1 Gbit/s, for an error below what the kernel's timers have. A
//! timer is late by what it takes to wake a processor, tens of microseconds in a virtual machine: so the gateway goes to bed for
//! that much less ([`Alarm`]), and watches its ports for the rest.
//!
//! Every packet is accounted for: received = sent + unsent + refused, by reason + dropped, by reason + still inside.

use crate::clock::{Alarm, Clock, Lateness};
use crate::frame::{Frame, Kind, Malformed};
use crate::network::{Network, Tap, WayId};
use crate::port::Port;
use narrows_core::Time;
use narrows_core::packet::Packet;
use narrows_core::qdisc::DropReason;
use narrows_lab::line::{Queue, Written};
use narrows_lab::{parts, scenario};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

/// What is due within this is sent at once.
const EARLY: Duration = Duration::from_micros(20);
/// The longest sleep: so often the control is asked at least.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);

/// Where a packet that came in at a port goes; it may be put into a flow of the scenario. `None`: nowhere, which is counted.
pub trait Directions: Send {
    /// The way for `frame`, which came in at `port`.
    fn way(&self, port: usize, frame: Frame) -> Result<(WayId, Frame), Frame>;
}

/// Between two ports: what comes in at the one goes out at the other.
#[derive(Clone, Copy, Debug)]
pub struct Across(pub [WayId; 2]);

impl Directions for Across {
    fn way(&self, port: usize, frame: Frame) -> Result<(WayId, Frame), Frame> {
        Ok((self.0[port], frame))
    }
}

/// Who decides about the gateway while it runs, and looks on.
pub trait Control {
    /// Asked after every round, and every 50 ms when nothing happens. May reconfigure the network; `Break` ends the run.
    fn look(&mut self, now: Time, inside: &mut Inside) -> ControlFlow<()>;
    /// When to be asked at the latest.
    fn wake_at(&self) -> Option<Time> {
        None
    }
    /// A packet came in at a port.
    fn enters(&mut self, _port: usize, _now: Time, _frame: &Frame) {}
    /// A packet has gone out at a port: its device has taken it.
    fn leaves(&mut self, _port: usize, _now: Time, _frame: &Frame) {}
    /// A packet begins to leave on a line.
    fn departs(&mut self, _line: usize, _now: Time, _frame: &Frame) {}
    /// A packet has come to the end of a line.
    fn arrives(&mut self, _line: usize, _now: Time, _frame: &Frame) {}
    /// A packet was dropped at a line.
    fn drops(&mut self, _line: usize, _now: Time, _frame: &Frame, _reason: DropReason) {}
    /// A packet has begun to leave a line where it waited `since` and was marked.
    fn marks(&mut self, _line: usize, _since: Time, _frame: &Frame) {}
    /// A packet is about to go out whose window a router has written.
    fn written(&mut self, _now: Time, _frame: &Frame, _window: Written) {}
    /// Something has happened at a line's queue: what waits may have changed.
    fn waits(&mut self, _line: usize, _now: Time, _queue: &Queue<Frame>) {}
    /// A port's device is gone. `Break` (the default) ends the run with that error.
    fn lost(&mut self, _port: usize, _error: &io::Error) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// What came in and went out, in packets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accounts {
    /// Frames that came in at each port, refused ones included.
    pub received: Vec<u64>,
    /// Frames that went out at each port.
    pub sent: Vec<u64>,
    /// IP bytes that went out at each port.
    pub sent_bytes: Vec<u64>,
    /// Frames that a port could not send: its device was full or gone.
    pub unsent: u64,
    /// Frames that were not let in, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Frames let in that were not plain packets, by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Drops by reason, of all lines.
    pub dropped: BTreeMap<&'static str, u64>,
}

impl Accounts {
    /// `received = sent + unsent + refused + dropped + inside`: the difference, which is zero.
    pub fn unaccounted(&self, inside: u64) -> i64 {
        let sum = |m: &BTreeMap<&str, u64>| m.values().sum::<u64>();
        let out = self.sent.iter().sum::<u64>() + self.unsent + sum(&self.refused) + sum(&self.dropped);
        self.received.iter().sum::<u64>() as i64 - (out + inside) as i64
    }

    /// A packet went out at a port, or could not.
    fn left(&mut self, port: usize, now: Time, frame: &Frame, went: bool, control: &mut dyn Control) {
        if went {
            self.sent[port] += 1;
            self.sent_bytes[port] += frame.size().0;
            control.leaves(port, now, frame);
        } else {
            self.unsent += 1;
        }
    }
}

/// The part of the gateway that its control may look into and change.
pub struct Inside {
    /// Lines and ways.
    pub network: Network,
    /// What came in and went out.
    pub accounts: Accounts,
    /// How late packets left.
    pub lateness: Lateness,
    /// Packets due at ports, between network and port.
    due: Vec<(usize, Time, Frame)>,
}

impl Inside {
    /// A line becomes `new` at once, its queue only if one is given. No packet in it is lost.
    pub fn reconfigure(
        &mut self,
        now: Time,
        line: usize,
        new: &scenario::Line,
        queue: Option<Queue<Frame>>,
        control: &mut dyn Control,
    ) {
        let Inside { network, accounts, due, .. } = self;
        network.reconfigure(now, line, new.rate, new.delay, queue, &mut Collect { due, accounts, control });
        network.set_mtu(line, new.mtu);
        network.set_classes(line, parts::classes(new, std::iter::empty()));
        network.set_acks(line, parts::ack_window(new).expect("the configuration was checked"));
    }
}

/// Ports, the network between them, and the clock.
pub struct Gateway {
    ports: Vec<Box<dyn Port>>,
    /// Ports whose device is gone.
    gone: Vec<bool>,
    directions: Box<dyn Directions>,
    clock: Clock,
    alarm: Alarm,
    /// When the ports were last asked what they missed.
    asked: Time,
    /// What its control may look into.
    pub inside: Inside,
    /// Ports that may have something, as the last sleep ended.
    readable: Vec<bool>,
}

impl Gateway {
    /// A gateway that has not moved a packet.
    pub fn new(
        ports: Vec<Box<dyn Port>>,
        network: Network,
        directions: Box<dyn Directions>,
        clock: Clock,
    ) -> Gateway {
        let n = ports.len();
        let accounts = Accounts {
            received: vec![0; n],
            sent: vec![0; n],
            sent_bytes: vec![0; n],
            ..Accounts::default()
        };
        let inside = Inside { network, accounts, lateness: Lateness::default(), due: Vec::new() };
        let alarm = Alarm::default();
        let (gone, readable, asked) = (vec![false; n], vec![true; n], Time::ZERO);
        Gateway { ports, gone, readable, directions, clock, alarm, asked, inside }
    }

    /// Moves packets until `control` says `Break`.
    ///
    /// # Errors
    /// A device is gone and `control` did not want to go on without it; the kernel refuses to wait.
    pub fn run(&mut self, control: &mut dyn Control) -> io::Result<()> {
        loop {
            self.sleep(control.wake_at())?;
            for port in 0..self.ports.len() {
                self.take_in(port, control)?;
            }
            self.send_due(control);
            let now = self.clock.now();
            let over = control.look(now, &mut self.inside).is_break();
            if over || now.since(self.asked) >= LONGEST_SLEEP {
                self.asked = now;
                self.count_missed();
            }
            if over {
                self.hand_out(control); // what a reconfiguration has set free
                return Ok(());
            }
        }
    }

    /// Until a port is readable or something is due. Ports without a descriptor, or with a time of their own, are asked anyway.
    fn sleep(&mut self, control: Option<Time>) -> io::Result<()> {
        let wakes = self.ports.iter().filter_map(|p| p.wake_at()).chain(control).min().unwrap_or(Time::MAX);
        let now = self.clock.now();
        let early = self.inside.network.due_at() - EARLY / 2;
        let nap = self.alarm.nap(early.min(wakes).since(now).min(LONGEST_SLEEP));
        let mut fds = Vec::with_capacity(self.ports.len());
        for ((port, gone), readable) in self.ports.iter().zip(&self.gone).zip(&mut self.readable) {
            let descriptor = port.descriptor().filter(|_| !gone);
            *readable = !gone && (descriptor.is_none() || port.wake_at().is_some());
            if let Some(descriptor) = descriptor {
                fds.push((readable, PollFd::new(descriptor, PollFlags::POLLIN)));
            }
        }
        let (readable, mut fds): (Vec<_>, Vec<_>) = fds.into_iter().unzip();
        match ppoll(&mut fds, Some(TimeSpec::from_duration(nap)), None) {
            Ok(n) => {
                self.alarm.rang(nap, self.clock.now().since(now), n == 0);
                for (readable, fd) in readable.into_iter().zip(&fds) {
                    *readable |= fd.any() != Some(false);
                }
                Ok(())
            }
            Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn take_in(&mut self, port: usize, control: &mut dyn Control) -> io::Result<()> {
        if !self.readable[port] {
            return Ok(());
        }
        let Gateway { ports, directions, clock, inside, .. } = self;
        let Inside { network, accounts, due, .. } = inside;
        let now = clock.now();
        let done = ports[port].receive(now, &mut |frame| {
            accounts.received[port] += 1;
            let frame = match frame {
                Ok(frame) => frame,
                Err(malformed) => return *accounts.refused.entry(malformed.name()).or_default() += 1,
            };
            if let Some(kind) = kind_name(frame.kind()) {
                *accounts.kinds.entry(kind).or_default() += 1;
            }
            if frame.is_tagged() {
                *accounts.kinds.entry(VLAN).or_default() += 1;
            }
            control.enters(port, now, &frame);
            match directions.way(port, frame) {
                Ok((way, frame)) => network.arrive(now, way, frame, &mut Collect { due, accounts, control }),
                Err(_) => *accounts.refused.entry(NO_WAY).or_default() += 1,
            }
        });
        match done {
            Ok(()) => Ok(()),
            Err(e) => {
                self.gone[port] = true;
                if control.lost(port, &e).is_break() { Err(e) } else { Ok(()) }
            }
        }
    }

    /// What a port had no room for has come in, and was refused.
    fn count_missed(&mut self) {
        let accounts = &mut self.inside.accounts;
        for (port, p) in self.ports.iter_mut().enumerate() {
            let missed = p.missed();
            accounts.received[port] += missed;
            if missed > 0 {
                *accounts.refused.entry(Malformed::RingFull.name()).or_default() += missed;
            }
        }
    }

    fn send_due(&mut self, control: &mut dyn Control) {
        let Inside { network, accounts, due, .. } = &mut self.inside;
        network.advance(self.clock.now() + EARLY, &mut Collect { due, accounts, control });
        self.hand_out(control);
    }

    /// Gives what is due to the ports.
    fn hand_out(&mut self, control: &mut dyn Control) {
        let Gateway { ports, clock, inside, gone, .. } = self;
        let Inside { accounts, lateness, due, .. } = inside;
        if due.is_empty() {
            return;
        }
        for (port, at, frame) in due.drain(..) {
            let now = clock.now();
            lateness.record(at, now);
            let mut tell = |frame: &Frame, went| accounts.left(port, now, frame, went, control);
            if gone[port] {
                tell(&frame, false);
            } else {
                ports[port].send(now, at, frame, &mut tell);
            }
        }
        for (port, p) in ports.iter_mut().enumerate() {
            let now = clock.now();
            p.flush(&mut |frame, went| accounts.left(port, now, frame, went, control));
        }
    }
}

/// A packet for nobody here.
const NO_WAY: &str = "no_way";
/// A packet with a VLAN tag, whatever it is beside that.
const VLAN: &str = "vlan";

fn kind_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Plain => None,
        Kind::Fragment => Some("fragment"),
        Kind::Extended => Some("extension_header"),
        Kind::NotIp => Some("not_ip"),
    }
}

/// Collects what the network delivers, counts what it drops, and lets the control see both.
struct Collect<'a> {
    due: &'a mut Vec<(usize, Time, Frame)>,
    accounts: &'a mut Accounts,
    control: &'a mut dyn Control,
}

impl Tap for Collect<'_> {
    fn departs(&mut self, line: usize, now: Time, frame: &Frame) {
        self.control.departs(line, now, frame);
    }
    fn arrives(&mut self, line: usize, now: Time, frame: &Frame) {
        self.control.arrives(line, now, frame);
    }
    fn drops(&mut self, line: usize, now: Time, frame: &Frame, reason: DropReason) {
        *self.accounts.dropped.entry(reason.name()).or_default() += 1;
        self.control.drops(line, now, frame, reason);
    }
    fn marks(&mut self, line: usize, since: Time, frame: &Frame) {
        self.control.marks(line, since, frame);
    }
    fn written(&mut self, now: Time, frame: &Frame, window: Written) {
        self.control.written(now, frame, window);
    }
    fn waits(&mut self, line: usize, now: Time, queue: &Queue<Frame>) {
        self.control.waits(line, now, queue);
    }
    fn delivers(&mut self, port: usize, due: Time, frame: Frame) {
        self.due.push((port, due, frame));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Way;
    use crate::port::{Take, Tell};
    use narrows_core::qdisc::fifo::Fifo;
    use narrows_core::wire::ipv4::Header;
    use narrows_core::{Bytes, Rate};
    use narrows_lab::line::Line;
    use std::os::fd::BorrowedFd;
    use std::sync::{Arc, Mutex};

    const PACKETS: u16 = 100;

    fn frame(number: u16) -> Frame {
        let mut header = Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, number);
        header.identification = number;
        let mut bytes = Vec::new();
        header.encode(&mut bytes).unwrap();
        bytes.resize(bytes.len() + number as usize, 0);
        Frame::ip(bytes).unwrap()
    }

    fn number(frame: &Frame) -> u16 {
        u16::from_be_bytes([frame.bytes()[4], frame.bytes()[5]])
    }

    /// Packets come in here.
    struct Source(u16);

    impl Port for Source {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn receive(&mut self, _now: Time, take: Take<'_>) -> io::Result<()> {
            let from = self.0;
            self.0 = (from + 7).min(PACKETS);
            (from..self.0).for_each(|n| take(Ok(frame(n))));
            Ok(())
        }
        fn send(&mut self, _now: Time, _due: Time, _frame: Frame, _tell: Tell<'_>) {
            unreachable!("nothing goes this way");
        }
    }

    /// A device that refuses every third packet, either as it is handed over or with others at a flush.
    struct Fussy {
        at_once: bool,
        came: u64,
        waiting: Vec<Frame>,
        taken: Arc<Mutex<Vec<u16>>>,
    }

    impl Fussy {
        fn put(&mut self, frame: &Frame, tell: Tell<'_>) {
            self.came += 1;
            let takes = !self.came.is_multiple_of(3);
            if takes {
                self.taken.lock().unwrap().push(number(frame));
            }
            tell(frame, takes);
        }
    }

    impl Port for Fussy {
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
        fn receive(&mut self, _now: Time, _take: Take<'_>) -> io::Result<()> {
            Ok(())
        }
        fn send(&mut self, _now: Time, _due: Time, frame: Frame, tell: Tell<'_>) {
            if self.at_once { self.put(&frame, tell) } else { self.waiting.push(frame) }
        }
        fn flush(&mut self, tell: Tell<'_>) {
            std::mem::take(&mut self.waiting).iter().for_each(|frame| self.put(frame, tell));
        }
    }

    /// A capture, as it were.
    #[derive(Default)]
    struct Seen(Vec<(usize, u16)>);

    impl Control for Seen {
        fn look(&mut self, now: Time, inside: &mut Inside) -> ControlFlow<()> {
            assert!(now < Time::from_millis(20_000), "no end in sight: {:?}", inside.accounts);
            let over = inside.accounts.sent[1] + inside.accounts.unsent == PACKETS as u64;
            if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        fn leaves(&mut self, port: usize, _now: Time, frame: &Frame) {
            self.0.push((port, number(frame)));
        }
    }

    #[test]
    fn what_a_device_refuses_has_not_left() {
        for at_once in [false, true] {
            let taken = Arc::<Mutex<Vec<u16>>>::default();
            let fussy = Fussy { at_once, came: 0, waiting: Vec::new(), taken: taken.clone() };
            let line = || {
                let queue = Queue::Fifo(Fifo::unlimited());
                Line::new(Rate(1_000_000_000), Duration::from_micros(100), Bytes(1500), queue)
            };
            let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
            let network = Network::new(vec![line(), line()], &ways, &[]);
            let across = Box::new(Across([network.way(0), network.way(1)]));
            let ports: Vec<Box<dyn Port>> = vec![Box::new(Source(0)), Box::new(fussy)];
            let mut gateway = Gateway::new(ports, network, across, Clock::start());
            let mut seen = Seen::default();
            gateway.run(&mut seen).unwrap();
            let taken = taken.lock().unwrap();
            assert_eq!(taken.len() as u64, PACKETS as u64 * 2 / 3 + 1);
            assert_eq!(seen.0, taken.iter().map(|n| (1, *n)).collect::<Vec<_>>());
            let accounts = &gateway.inside.accounts;
            assert_eq!((accounts.sent[1], accounts.unsent), (taken.len() as u64, PACKETS as u64 / 3));
            assert_eq!(accounts.sent_bytes[1], taken.iter().map(|n| 20 + *n as u64).sum::<u64>());
            assert_eq!(accounts.unaccounted(gateway.inside.network.inside()), 0);
        }
    }
}
