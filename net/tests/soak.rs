//! The gateway under load and faults: TCP at 500 Mbit/s over both kinds of device, while frames of rubbish are injected, packets
//! are lost and overtake each other, and the line changes its rate, delay and queue at random. Nothing crashes, every packet is accounted
//! for at every moment, and the memory stays flat.
//!
//! `NARROWS_SOAK_SECONDS=600 cargo test --release -p narrows-net --test soak -- --nocapture` is the long form.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)] // real time

mod injector;

use injector::Injector;
use narrows_core::{Rng, Time};
use narrows_lab::line::{Line, Queue};
use narrows_lab::{parts, scenario};
use narrows_net::clock::{Clock, hurry};
use narrows_net::frame::Frame;
use narrows_net::gateway::{Across, Control, Gateway, Inside};
use narrows_net::namespace::Namespace;
use narrows_net::netlink::Netlink;
use narrows_net::network::{Network, Way};
use narrows_net::port::Port;
use narrows_net::port::ring::Ring;
use narrows_net::port::tun::Tun;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ADDRESSES: [IpAddr; 2] =
    [IpAddr::V4(std::net::Ipv4Addr::new(10, 80, 0, 1)), IpAddr::V4(std::net::Ipv4Addr::new(10, 80, 0, 2))];
const DEVICE: &str = "narrows0";
const FLOWS: usize = 4;
const QUEUES: [&str; 5] = [
    "\"fifo:256KiB\"",
    "\"fifo:40p\"",
    "{ kind = \"loss\", probability = 1e-5, inner = \"fifo:256KiB\" }",
    "{ kind = \"reorder\", probability = 1e-3, by = \"1ms\", inner = \"fifo:256KiB\" }",
    "{ kind = \"shaper\", rate = \"450Mbit/s\", burst = \"30kB\", inner = \"fifo:100p\" }",
];

/// One direction of a link.
fn line(rate: u64, delay_us: u64, queue: &str) -> scenario::Line {
    let text = format!(
        "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
         rate = \"{rate}bit/s\"\ndelay = \"{delay_us}us\"\nqueue = {queue}\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
    );
    narrows_lab::file::parse("soak", &text).unwrap().links.remove(0).forward
}

fn queue(line: &scenario::Line, seed: u64) -> Queue<Frame> {
    parts::queue(&line.queue, Rng::new(seed, 1)).unwrap()
}

/// Changes a line every quarter of a second, and looks at the accounts.
struct Faults<'a> {
    stop: &'a AtomicBool,
    rng: Rng,
    next: Time,
    changes: u64,
    looks: u64,
}

impl Control for Faults<'_> {
    fn look(&mut self, now: Time, inside: &mut Inside) -> ControlFlow<()> {
        self.looks += 1;
        if self.looks.is_multiple_of(64) {
            assert_eq!(inside.accounts.unaccounted(inside.network.inside()), 0, "{:?}", inside.accounts);
        }
        if now >= self.next {
            self.next = now + Duration::from_millis(250);
            self.changes += 1;
            let mut below = |n: u64| self.rng.below(n);
            let (i, rate, delay) = (below(2) as usize, 475_000_000 + below(50_000_001), below(3000));
            let new = line(rate, delay, QUEUES[below(QUEUES.len() as u64) as usize]);
            let queue = queue(&new, self.changes);
            inside.reconfigure(now, i, &new, Some(queue), self);
        }
        if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Resident memory of this process, bytes.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Frames of rubbish, a thousand a second, out at the near device; half of them look like IP after `header`.
fn inject(
    namespace: &Namespace,
    header: &[u8],
    stop: &AtomicBool,
    injected: &AtomicU64,
) -> std::io::Result<()> {
    let injector = Injector::new(namespace, DEVICE)?;
    let mut rng = Rng::new(7, 7);
    while !stop.load(Ordering::Relaxed) {
        let longest = if rng.below(4) == 0 { 8 } else { 1400 };
        let mut bytes: Vec<u8> = (0..1 + rng.below(longest)).map(|_| rng.next_u32() as u8).collect();
        if rng.below(2) == 0 {
            bytes[0] = if rng.below(2) == 0 { 0x45 } else { 0x60 };
            bytes.splice(..0, header.iter().copied());
        }
        // The device's own queue may be full of what TCP sends.
        if injector.send(&bytes).is_ok() {
            injected.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Two hosts' namespaces and the two ports of a gateway between them; what a frame of rubbish begins with there.
struct Site {
    here: Namespace,
    there: Namespace,
    ports: Vec<Box<dyn Port>>,
    header: &'static [u8],
    _middle: Option<Namespace>,
}

impl Site {
    fn over_tun() -> std::io::Result<Site> {
        let (here, there) = (Namespace::new()?, Namespace::new()?);
        let tun = |n: &Namespace, a| Tun::open(n, DEVICE, 1500, &[(a, 24)]);
        let ports: Vec<Box<dyn Port>> =
            vec![Box::new(tun(&here, ADDRESSES[0])?), Box::new(tun(&there, ADDRESSES[1])?)];
        Ok(Site { here, there, ports, header: &[], _middle: None })
    }

    fn between_interfaces() -> std::io::Result<Site> {
        let [here, there, middle] = [Namespace::new()?, Namespace::new()?, Namespace::new()?];
        let plug = |host: &Namespace, outer: &'static str, address| {
            host.enter(|| {
                let net = Netlink::open()?;
                net.veth(DEVICE, outer, &middle)?;
                net.address(DEVICE, (address, 24))?;
                net.up(DEVICE, None, None)
            })?;
            middle.enter(|| {
                Netlink::open()?.up(outer, None, None)?;
                Ok(Box::new(Ring::open(outer)?) as Box<dyn Port>)
            })
        };
        let ports = vec![plug(&here, "left", ADDRESSES[0])?, plug(&there, "right", ADDRESSES[1])?];
        Ok(Site {
            here,
            there,
            ports,
            header: &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0],
            _middle: Some(middle),
        })
    }
}

#[test]
fn nothing_crashes_leaks_or_gets_lost_in_the_books_over_tun() {
    soak(Site::over_tun());
}

#[test]
fn nothing_crashes_leaks_or_gets_lost_in_the_books_between_interfaces() {
    soak(Site::between_interfaces());
}

fn soak(site: std::io::Result<Site>) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let seconds: u64 = std::env::var("NARROWS_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let Site { here, there, ports, header, _middle } = match site {
        Ok(site) => site,
        Err(e) => return println!("SKIPPED: {e}"),
    };
    let first = line(500_000_000, 1000, QUEUES[0]);
    let line = |seed| Line::new(first.rate, first.delay, first.mtu, queue(&first, seed));
    let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
    let network = Network::new(vec![line(1), line(2)], &ways, &[]);
    let across = Across([network.way(0), network.way(1)]);
    let (stop, injected) = (AtomicBool::new(false), AtomicU64::new(0));
    let end = Instant::now() + Duration::from_secs(seconds);
    thread::scope(|scope| {
        let gateway = scope.spawn(|| {
            hurry();
            let mut faults =
                Faults { stop: &stop, rng: Rng::new(1, 1), next: Time::ZERO, changes: 0, looks: 0 };
            let mut gateway = Gateway::new(ports, network, Box::new(across), Clock::start());
            let done = gateway.run(&mut faults);
            stop.store(true, Ordering::Relaxed);
            done.unwrap();
            (gateway.inside, faults.changes)
        });
        scope.spawn(|| inject(&here, header, &stop, &injected).unwrap());
        let listener = there.enter(|| TcpListener::bind((ADDRESSES[1], 5001))).unwrap();
        let received = AtomicU64::new(0);
        let early = thread::scope(|transfers| {
            for _ in 0..FLOWS {
                let mut source = here.enter(|| TcpStream::connect((ADDRESSES[1], 5001))).unwrap();
                let (mut sink, _) = listener.accept().unwrap();
                transfers.spawn(move || {
                    let data = vec![0x5A; 1 << 16];
                    while Instant::now() < end && source.write_all(&data).is_ok() {}
                });
                let received = &received;
                transfers.spawn(move || {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(n @ 1..) = sink.read(&mut bytes) {
                        received.fetch_add(n as u64, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(Duration::from_secs(seconds) / 4);
            memory()
        });
        let received = received.into_inner();
        stop.store(true, Ordering::Relaxed);
        let late = memory();
        let (inside, changes) = gateway.join().unwrap();
        let a = &inside.accounts;
        println!(
            "{seconds} s: {} MB received, {:.0} Mbit/s; {changes} reconfigurations; {} frames of rubbish; refused {:?}; \
             dropped {:?}; {} inside; memory {:.1} then {:.1} MiB; lateness {:?}",
            received / 1_000_000,
            received as f64 * 8e-6 / seconds as f64,
            injected.load(Ordering::Relaxed),
            a.refused,
            a.dropped,
            inside.network.inside(),
            early as f64 / 1048576.0,
            late as f64 / 1048576.0,
            inside.lateness.quantiles()
        );
        assert_eq!(a.unaccounted(inside.network.inside()), 0);
        assert!(
            received > seconds * 5_000_000 && changes >= seconds * 3,
            "{received} bytes, {changes} changes"
        );
        let refused: u64 = a.refused.values().sum();
        assert!(refused > 0 && refused <= injected.load(Ordering::Relaxed) + 1, "rubbish is refused by name");
        assert!(late < early + early / 4 + (4 << 20), "memory grew from {early} to {late} bytes");
    });
}
