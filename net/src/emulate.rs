//! An emulated path with a program behind it: a [`Layer`], a gateway on a thread of its own between its two devices, and at the
//! end an account of what passed.

use crate::build;
use crate::clock::{Awake, Clock, Lateness, Scheduling, hurry};
use crate::frame::Frame;
use crate::gateway::{Across, Control, Gateway, Inside};
use crate::layer::Layer;
use crate::namespace::Namespace;
use crate::port::{Port, tun};
use narrows_core::Time;
use narrows_lab::outcome::{Quantiles, QueueSummary};
use narrows_lab::scenario::{Refused, Scenario};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// What the path is like.
pub struct Path {
    /// Two hosts and one link; forward is up, from the program to the host side. It has one flow, so that queues can be written
    /// in bandwidth-delay products.
    pub scenario: Scenario,
    /// For whatever is random.
    pub seed: u64,
    /// Is shown every packet, as it enters or leaves at port 0, the program's, or port 1, the host side's.
    pub watch: Option<Watch>,
}

/// Is shown packets: at which port, when, and their bytes.
pub type Watch = Box<dyn FnMut(usize, Time, &[u8]) + Send>;

/// Why there is no emulated path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path cannot be as wanted.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// The machine does not allow it.
    #[error("{0}")]
    Machine(#[from] io::Error),
}

/// A path that packets cross.
pub struct Emulation {
    /// Where the program belongs.
    pub inside: Namespace,
    /// Where the outermost host is reached, by IPv4 and by IPv6 if there is any.
    pub host: (Ipv4Addr, Option<Ipv6Addr>),
    outside: Namespace,
    far_name: String,
    stop: Arc<AtomicBool>,
    gateway: JoinHandle<io::Result<Account>>,
}

impl Emulation {
    /// Packets begin to cross, between the namespace this thread is in and a new one.
    pub fn start(path: Path) -> Result<Emulation, Error> {
        let link = &path.scenario.links[0];
        let mtus = [&link.forward, &link.backward].map(|line| line.mtu.0 as u32);
        let built = build::build(&path.scenario, path.seed)?;
        let Layer { inside, outside, host, host6, near, far, far_name } = Layer::new(mtus)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut until = Until { stop: stop.clone(), watch: path.watch };
        let gateway = thread::Builder::new().name("gateway".into()).spawn(move || {
            let (scheduling, _awake) = (hurry(), Awake::ask());
            let across = Across([0, 1].map(|way| built.network.way(way)));
            let ports: Vec<Box<dyn Port>> = vec![Box::new(near), Box::new(far)];
            let clock = Clock::start();
            let mut gateway = Gateway::new(ports, built.network, Box::new(across), clock);
            gateway.run(&mut until)?;
            Ok(Account::of(gateway.inside, clock.now(), scheduling))
        })?;
        Ok(Emulation { inside, host: (host, host6), outside, far_name, stop, gateway })
    }

    /// Whether packets no longer cross, because a device is gone: [`Emulation::end`] says why.
    pub fn is_over(&self) -> bool {
        self.gateway.is_finished()
    }

    /// No packet crosses any more.
    pub fn end(self) -> io::Result<Account> {
        let lost =
            [tun::kernel_drops(&self.inside, "narrows"), tun::kernel_drops(&self.outside, &self.far_name)];
        self.stop.store(true, Ordering::Relaxed);
        let mut account = self.gateway.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        for (direction, lost) in account.directions.iter_mut().zip(lost) {
            direction.dropped_before = lost;
        }
        Ok(account)
    }
}

struct Until {
    stop: Arc<AtomicBool>,
    watch: Option<Watch>,
}

impl Until {
    fn show(&mut self, port: usize, now: Time, frame: &Frame) {
        if let Some(watch) = &mut self.watch {
            watch(port, now, frame.bytes());
        }
    }
}

impl Control for Until {
    fn look(&mut self, _now: Time, _inside: &mut Inside) -> ControlFlow<()> {
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn enters(&mut self, port: usize, now: Time, frame: &Frame) {
        self.show(port, now, frame);
    }
    fn leaves(&mut self, port: usize, now: Time, frame: &Frame) {
        self.show(port, now, frame);
    }
}

/// What passed, and how well. Times in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct Account {
    /// How long it lasted.
    pub duration_s: f64,
    /// Up, from the program to the host side; and down.
    pub directions: [Direction; 2],
    /// Packets that were not let in, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Packets let in that were not plain ones, by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Packets that a device did not take.
    pub unsent: u64,
    /// Packets still under way at the end.
    pub inside: u64,
    /// How late packets left.
    pub lateness: Quantiles,
    /// Whether the gateway had real-time scheduling.
    pub real_time: bool,
    /// Processor time the gateway used.
    pub cpu_s: f64,
    /// Set if the machine spoilt the run: how.
    pub verdict: Option<String>,
}

/// One direction of the path.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// Packets that came in.
    pub received: u64,
    /// Packets that went out.
    pub sent: u64,
    /// Their bytes, IP headers included.
    pub sent_bytes: u64,
    /// Packets that the kernel dropped because the gateway was too slow for them.
    pub dropped_before: u64,
    /// The queue and the link.
    pub queue: QueueSummary,
}

impl Account {
    fn of(inside: Inside, now: Time, scheduling: Scheduling) -> Account {
        let Inside { mut network, accounts, lateness, .. } = inside;
        let named = |counts: &BTreeMap<&str, u64>| counts.iter().map(|(k, n)| (k.to_string(), *n)).collect();
        let names = ["up".to_string(), "down".to_string()];
        let mut queues = network.summaries(&names, now).into_iter();
        let directions = [0, 1].map(|i| Direction {
            received: accounts.received[i],
            sent: accounts.sent[1 - i],
            sent_bytes: accounts.sent_bytes[1 - i],
            dropped_before: 0,
            queue: queues.next().expect("there are two lines"),
        });
        Account {
            duration_s: now.as_secs_f64(),
            directions,
            refused: named(&accounts.refused),
            kinds: named(&accounts.kinds),
            unsent: accounts.unsent,
            inside: accounts.unaccounted(0).max(0) as u64,
            lateness: lateness.quantiles(),
            real_time: scheduling == Scheduling::RealTime,
            cpu_s: cpu_time(),
            verdict: verdict(&lateness, scheduling),
        }
    }
}

fn verdict(lateness: &Lateness, scheduling: Scheduling) -> Option<String> {
    lateness.verdict().map(|v| match scheduling.note() {
        Some(note) => format!("{v} ({note})"),
        None => v,
    })
}

/// Processor time of this thread, in seconds.
fn cpu_time() -> f64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0.0, |t| t.tv_sec() as f64 + t.tv_nsec() as f64 * 1e-9)
}
