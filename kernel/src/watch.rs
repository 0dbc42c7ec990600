//! What connections do, as the kernel tells it through a ring buffer, and only while somebody asks: the watcher holds a lease
//! that runs out by itself, so a watcher that was killed costs nothing two seconds later.

use crate::Error;
use crate::load::{Maps, unreadable};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A connection began to use the controller.
    Started,
    /// An ACK arrived.
    Acked,
    /// The retransmission timer fired.
    TimedOut,
    /// The connection ended, or went over to another controller.
    Closed,
}

/// The mode of `swnd_update`.
pub use narrows_core::congestion::becc::control::Mode;

/// `struct event` of `bpf/connection.h`, byte for byte. Windows in bytes, except those that the kernel counts in packets.
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
#[allow(missing_docs)] // the names of connection.h, the paper and the kernel
pub struct Event {
    /// Microseconds of the monotonic clock.
    pub now: u64,
    /// bit/s; 0 from programs that keep none.
    pub bandwidth: u64,
    /// bytes/s
    pub pacing_rate: u64,
    /// Of the connection, counted by the program.
    pub number: u32,
    pub netns: u32,
    kind: u8,
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub state: u8,
    flags: u8,
    family: u8,
    local_port: u16,
    remote_port: u16,
    local: [u8; 16],
    remote: [u8; 16],
    pub acked: u32,
    pub mss: u32,
    pub duplicates_before: u32,
    pub duplicates: u32,
    echo_ms: u32,
    pub una: u32,
    pub nxt: u32,
    pub srtt_us: u32,
    /// Negative if the ACK gave none.
    pub rtt_us: i32,
    /// Packets of the delivery-rate sample.
    pub delivered: u32,
    pub interval_us: u32,
    pub min_rtt_us: u32,
    /// Packets that Reno would send.
    pub cwnd: u32,
    /// Packets that the kernel may send.
    pub snd_cwnd: u32,
    pub snd_swnd: u32,
    pub pre_snd_swnd: u32,
    pub t_acked: u32,
    pub t_maxacked: u32,
    pub t_msrd_th: u32,
    pub expct_th: u32,
    pub t_minrtt: u32,
    pub t_rtt: u32,
    mode: u32,
    /// The window in force beside Reno's, bytes.
    pub bound: u32,
}

impl Event {
    /// What happened.
    pub fn kind(&self) -> Kind {
        [Kind::Started, Kind::Acked, Kind::TimedOut, Kind::Closed][usize::from(self.kind & 3)]
    }

    /// The mode of `swnd_update`.
    pub fn mode(&self) -> Mode {
        match self.mode {
            0 => Mode::UpdateStart,
            1 => Mode::Updating,
            _ => Mode::NotUpdate,
        }
    }

    /// The RTT by the timestamp that the ACK echoed, milliseconds.
    pub fn echo_ms(&self) -> Option<u32> {
        (self.echo_ms != u32::MAX).then_some(self.echo_ms)
    }

    /// The ACK began a round.
    pub fn round_start(&self) -> bool {
        self.flags & 1 != 0
    }

    /// The sender had nothing to send within the rate sample.
    pub fn app_limited(&self) -> bool {
        self.flags & 2 != 0
    }

    /// This end of the connection.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.address(&self.local), self.local_port)
    }

    /// The other end.
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.address(&self.remote), self.remote_port)
    }

    fn address(&self, bytes: &[u8; 16]) -> IpAddr {
        match self.family {
            2 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            _ => IpAddr::from(Ipv6Addr::from(*bytes)).to_canonical(),
        }
    }
}

/// How long a lease lasts, and when it is renewed.
const LEASE: Duration = Duration::from_secs(2);
const RENEW: Duration = Duration::from_millis(500);

/// An open ear.
pub struct Watch {
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<Event>>>,
    lease: MapHandle,
    every: Duration,
    renewed: Duration,
    /// Its lock keeps others away.
    _alone: Option<File>,
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}

impl Watch {
    pub(crate) fn new(maps: &Maps, every: Duration) -> Result<Watch, Error> {
        let copy = |map: &MapHandle| MapHandle::try_from(map).map_err(unreadable);
        let heard = Rc::new(RefCell::new(Vec::new()));
        let sink = heard.clone();
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if let Ok((event, _)) = Event::read_from_prefix(bytes) {
                sink.borrow_mut().push(event);
            }
            0
        };
        builder.add(&maps.events, take).map_err(unreadable)?;
        let ring = builder.build().map_err(unreadable)?;
        ring.consume().map_err(unreadable)?; // what an earlier watcher left
        heard.borrow_mut().clear();
        let lease = copy(&maps.lease)?;
        let mut watch = Watch { ring, heard, lease, every, renewed: Duration::ZERO, _alone: None };
        watch.renew()?;
        Ok(watch)
    }

    pub(crate) fn holding(mut self, alone: File) -> Watch {
        self._alone = Some(alone);
        self
    }

    /// What has been told since the last time; waits for something up to `patience`.
    pub fn poll(&mut self, patience: Duration) -> Result<Vec<Event>, Error> {
        self.renew()?;
        match self.ring.poll(patience.min(RENEW)) {
            Err(e) if e.kind() != libbpf_rs::ErrorKind::Interrupted => return Err(unreadable(e)),
            _ => {}
        }
        Ok(self.heard.take())
    }

    fn renew(&mut self) -> Result<(), Error> {
        let now = now();
        if now < self.renewed + RENEW {
            return Ok(());
        }
        self.renewed = now;
        self.write_lease(now + LEASE)
    }

    fn write_lease(&self, until: Duration) -> Result<(), Error> {
        let words = [until.as_micros() as u64, self.every.as_micros() as u64];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
        self.lease.update(&0u32.to_ne_bytes(), &bytes, MapFlags::ANY).map_err(unreadable)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.write_lease(Duration::ZERO); // else it runs out by itself
    }
}
