//! A standing bottleneck between two existing interfaces: what comes in at the first goes out at the second behind the forward
//! line, and the other way round behind the backward one. Everything crosses, ARP and other link-local traffic too: it is a
//! cable with two queues, not a router.
//!
//! It runs until it is told to stop, takes up a changed configuration without losing a queued packet, says in numbers what it
//! does ([`metrics`]), and sits out an interface that goes away.

pub mod metrics;
mod serve;

use crate::clock::Clock;
use crate::frame::Frame;
use crate::gateway::{Accounts, Control, Directions, Gateway, Inside};
use crate::network::{Network, Way, WayId};
use crate::port::Port;
use crate::port::ring::{Presence, Ring, Sight};
use metrics::{Metrics, Numbers};
use narrows_core::{Rng, Time};
use narrows_lab::file::Bottleneck;
use narrows_lab::line::{Line, Queue};
use narrows_lab::outcome::Quantiles;
use narrows_lab::parts::{self, Stream};
use narrows_lab::scenario;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

/// Why the gateway cannot stand, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// What is wrong.
    pub message: String,
    /// What to do instead.
    pub advice: String,
}

impl Refused {
    fn new(message: impl Into<String>, advice: impl Into<String>) -> Refused {
        Refused { message: message.into(), advice: advice.into() }
    }
}

/// What is asked of a running gateway.
#[derive(Debug)]
pub enum Order {
    /// The configuration has changed.
    Reconfigure(Box<Bottleneck>),
    /// The configuration has changed into one that cannot be used; only counted here.
    Unusable,
    /// End, with an account.
    Stop,
}

/// Orders from signals: SIGHUP reads the configuration again, SIGTERM and SIGINT end the gateway. `read` says itself why it
/// could not.
pub fn signals(mut read: impl FnMut() -> Option<Bottleneck> + Send + 'static) -> io::Result<Receiver<Order>> {
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT])?;
    let (orders, inbox) = channel();
    let listen = move || {
        for signal in signals.forever() {
            let order = match signal {
                SIGHUP => read().map_or(Order::Unusable, |config| Order::Reconfigure(Box::new(config))),
                _ => Order::Stop,
            };
            if orders.send(order).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(listen)?;
    Ok(inbox)
}

/// How often numbers are published.
const PUBLISH: Duration = Duration::from_millis(500);
/// How often the status line changes.
const STATUS: Duration = Duration::from_secs(1);
/// The seed of random disciplines: nothing here is repeatable, so it need not be chosen.
const SEED: u64 = 1;

/// What one direction is called.
pub const DIRECTIONS: [&str; 2] = ["forward", "backward"];

/// An open gateway.
pub struct Standing {
    gateway: Gateway,
    steering: Steering,
}

impl Standing {
    /// Opens the metrics' port and then both interfaces, in this thread's network namespace.
    pub fn open(between: [&str; 2], config: &Bottleneck) -> Result<Standing, Refused> {
        if between[0] == between[1] {
            let message = format!("{} cannot be both sides of the bottleneck", between[0]);
            return Err(Refused::new(message, "name two interfaces, for example --between eth0 eth1"));
        }
        let listener = config.metrics.map(TcpListener::bind).transpose().map_err(|e| {
            let at = config.metrics.expect("only what was wanted can fail");
            let advice = "write another port after `metrics` in the configuration, or stop who has this one (ss -ltnp)";
            Refused::new(format!("metrics cannot be served at {at}: {e}"), advice)
        })?;
        let rings = [open(between[0])?, open(between[1])?];
        let mut notes = Vec::new();
        for ((name, ring), line) in between.iter().zip(&rings).zip([&config.forward, &config.backward]) {
            if let Some(mtu) = ring.mtu().ok().filter(|mtu| u64::from(*mtu) > line.mtu.0) {
                notes.push(format!(
                    "{name} lets packets of {mtu} B in, and those above {} B are dropped here: write mtu = \"{mtu}B\" to let them pass",
                    line.mtu.0
                ));
            }
        }
        let sights = rings.each_ref().map(Ring::sight);
        let lines = [&config.forward, &config.backward].into_iter().enumerate();
        let lines = lines.map(|(i, line)| {
            let mut made = Line::new(line.rate, line.delay, line.mtu, queue(line, i));
            made.set_classes(parts::classes(line, std::iter::empty()));
            made.set_acks(parts::ack_window(line).expect("the configuration was checked"));
            made
        });
        let lines = lines.collect();
        let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
        let network = Network::new(lines, &ways, &[]);
        let across = Across([network.way(0), network.way(1)]);
        let ports = rings.into_iter().map(|ring| Box::new(ring) as Box<dyn Port>).collect();
        Ok(Standing {
            gateway: Gateway::new(ports, network, Box::new(across), Clock::start()),
            steering: Steering {
                names: between.map(String::from),
                sights,
                seen: [Presence::Up; 2],
                config: config.clone(),
                metrics: Metrics::new(listener, between),
                reloads: [0; 2],
                notes,
                published: Time::ZERO,
                shown: (Time::ZERO, [0; 2], [0; 2]),
                replaced: 0,
            },
        })
    }

    /// Moves packets until an [`Order::Stop`]. `tell` is given what concerns the operator, and `status`, if there is one, a line
    /// each second.
    ///
    /// # Errors
    /// The kernel refuses to wait, or an interface cannot be taken up again.
    pub fn run(
        mut self,
        orders: &Receiver<Order>,
        tell: &mut dyn FnMut(&str),
        status: Option<&mut dyn FnMut(&str)>,
    ) -> Result<Account, Refused> {
        for note in std::mem::take(&mut self.steering.notes) {
            tell(&note);
        }
        let started = self.steering.metrics.start();
        started.map_err(|e| Refused::new(format!("metrics cannot be served: {e}"), "leave `metrics` out"))?;
        let mut watch = Watch { steering: &mut self.steering, orders, tell, status };
        let ended = self.gateway.run(&mut watch);
        let Inside { network, accounts, lateness, .. } = &self.gateway.inside;
        let lines = network.lines().iter().map(Line::counters);
        let inside = lines.map(|c| c.backlog.packets + c.pipe).sum();
        let account = Account {
            accounts: accounts.clone(),
            inside,
            lateness: lateness.quantiles(),
            verdict: lateness.verdict(),
        };
        ended
            .map(|()| account)
            .map_err(|e| Refused::new(format!("the gateway had to end: {e}"), "start it again"))
    }

    /// Where metrics are served.
    pub fn metrics_at(&self) -> Option<std::net::SocketAddr> {
        self.steering.metrics.address()
    }
}

/// What passed, at the end.
#[derive(Clone, Debug)]
pub struct Account {
    /// In packets.
    pub accounts: Accounts,
    /// Packets that were still queued or on their way, and are lost with the gateway.
    pub inside: u64,
    /// How late packets left, in seconds.
    pub lateness: Quantiles,
    /// What must be said about that.
    pub verdict: Option<String>,
}

fn open(name: &str) -> Result<Ring, Refused> {
    Ring::open(name).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            let known = nix::net::if_::if_nameindex().map_or_else(
                |_| String::new(),
                |all| {
                    all.iter().map(|i| i.name().to_string_lossy().into_owned()).collect::<Vec<_>>().join(", ")
                },
            );
            Refused::new(format!("there is no interface {name}"), format!("there are: {known}"))
        }
        io::ErrorKind::Unsupported => Refused::new(
            format!("{name} carries no Ethernet frames"),
            "name an Ethernet, veth, bridge or VLAN interface",
        ),
        io::ErrorKind::PermissionDenied => Refused::new(
            format!("{name} cannot be opened without privileges"),
            "run as root, or with CAP_NET_RAW; it gives them up once its interfaces are open",
        ),
        _ => Refused::new(format!("{name} cannot be opened: {e}"), "see `ip link show`"),
    })
}

/// Whether a line needs a new queue: another one, or one that is told of other classes, another rate or another MTU.
fn stands_elsewhere(old: &scenario::Line, new: &scenario::Line) -> bool {
    let told = |line: &scenario::Line| line.queue.needs_line().then(|| line.site());
    new.queue != old.queue || told(new) != told(old)
}

fn queue(line: &scenario::Line, stream: usize) -> Queue<Frame> {
    build(line, parts::rng(SEED, Stream::Queue, stream))
}

fn build(line: &scenario::Line, rng: Rng) -> Queue<Frame> {
    parts::queue_of(line, rng).expect("the configuration was checked against the registry")
}

/// In at one port, out at the other.
struct Across([WayId; 2]);

impl Directions for Across {
    fn way(&self, port: usize, frame: Frame) -> Result<(WayId, Frame), Frame> {
        Ok((self.0[port], frame))
    }
}

/// What the gateway's operator sees and changes.
struct Steering {
    names: [String; 2],
    sights: [Sight; 2],
    seen: [Presence; 2],
    config: Bottleneck,
    metrics: Metrics,
    /// Taken and refused.
    reloads: [u64; 2],
    notes: Vec<String>,
    published: Time,
    /// When the status was last shown, and bytes and drops of each line then.
    shown: (Time, [u64; 2], [u64; 2]),
    /// How many queues have been replaced: each has random numbers of its own.
    replaced: usize,
}

/// The control of a running gateway.
struct Watch<'a, 'b> {
    steering: &'a mut Steering,
    orders: &'a Receiver<Order>,
    tell: &'a mut dyn FnMut(&str),
    status: Option<&'b mut dyn FnMut(&str)>,
}

impl Control for Watch<'_, '_> {
    fn look(&mut self, now: Time, inside: &mut Inside) -> ControlFlow<()> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Reconfigure(config)) => self.reconfigure(now, *config, inside),
                Ok(Order::Unusable) => self.steering.reloads[1] += 1,
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => {
                    self.steering.publish(inside);
                    return ControlFlow::Break(());
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        self.presence();
        if now.since(self.steering.published) >= PUBLISH {
            self.steering.published = now;
            self.steering.publish(inside);
        }
        if let Some(status) = &mut self.status
            && now.since(self.steering.shown.0) >= STATUS
        {
            status(&self.steering.status(now, inside));
        }
        ControlFlow::Continue(())
    }
}

impl Watch<'_, '_> {
    /// Says once that an interface has gone, and once that it is back.
    fn presence(&mut self) {
        let Steering { names, sights, seen, .. } = self.steering;
        for ((name, sight), seen) in names.iter().zip(sights).zip(seen) {
            let presence = sight.presence();
            if presence != *seen {
                *seen = presence;
                (self.tell)(&match presence {
                    Presence::Up => format!("{name} is back: packets pass again"),
                    Presence::Down => format!(
                        "{name} is down: what is due there is lost, and counted as unsent (ip link set {name} up)"
                    ),
                    Presence::Gone => format!(
                        "{name} is gone: what is due there is lost, and counted as unsent; it is taken up again when it comes back"
                    ),
                });
            }
        }
    }

    /// Each line takes its new rate, delay, MTU and queue; a queue that has not changed stays.
    fn reconfigure(&mut self, now: Time, config: Bottleneck, inside: &mut Inside) {
        let old = std::mem::replace(&mut self.steering.config, config.clone());
        let lines = [(&old.forward, &config.forward), (&old.backward, &config.backward)];
        for (i, (old, new)) in lines.into_iter().enumerate().filter(|(_, (old, new))| old != new) {
            self.steering.replaced += 2;
            let queue = stands_elsewhere(old, new).then(|| queue(new, i + self.steering.replaced));
            inside.reconfigure(now, i, new, queue, self);
        }
        self.steering.reloads[0] += 1;
        for line in config.describe() {
            (self.tell)(&format!("reloaded: {line}"));
        }
        if (old.metrics, &old.user) != (config.metrics, &config.user) {
            (self.tell)("`metrics` and `user` change when the gateway is started again");
        }
    }
}

impl Steering {
    fn publish(&mut self, inside: &Inside) {
        let lines = inside.network.lines();
        self.metrics.publish(Numbers {
            lines: [0, 1].map(|i| lines[i].counters()),
            waits: [0, 1].map(|i| lines[i].waits()),
            accounts: inside.accounts.clone(),
            lateness: inside.lateness.distribution().clone(),
            reloads: self.reloads,
            up: self.seen.map(|p| p == Presence::Up),
        });
    }

    /// What happened since the last one, in a line.
    fn status(&mut self, now: Time, inside: &Inside) -> String {
        let (before, bytes, drops) = &mut self.shown;
        let seconds = now.since(*before).as_secs_f64();
        let mut text = String::new();
        for (i, line) in inside.network.lines().iter().enumerate() {
            let c = line.counters();
            let rate = (c.departed_bytes - bytes[i]) as f64 * 8e-6 / seconds;
            let dropped = c.dropped() - drops[i];
            text += &format!(
                "{} {rate:.2} Mbit/s, {} queued ({} B), {dropped} dropped | ",
                DIRECTIONS[i], c.backlog.packets, c.backlog.bytes.0
            );
            (bytes[i], drops[i]) = (c.departed_bytes, c.dropped());
        }
        *before = now;
        let late = inside.lateness.quantiles();
        text + &format!("late {:.0}/{:.0} us (p50/p99)", late.p50 * 1e6, late.p99 * 1e6)
    }
}

#[cfg(test)]
mod tests;
