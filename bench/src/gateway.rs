//! How exact and how fast the gateway is: two namespaces with kernel sockets, the gateway between them on a TUN device in each
//! (`emulate`, scenarios on real packets) or on packet sockets and a cable to each (`narrows gateway`).
//!
//! * pacing: datagrams faster than the line; by how much the gaps between the kernel's receive timestamps miss the time that a
//!   packet takes on the line;
//! * added delay: single datagrams over a line that only delays; by how much the kernel's receive timestamp misses the delay;
//! * TCP at 1 Gbit/s, and without a rate: goodput, and the CPU time of the gateway's thread per packet.
//!
//! `gateway [SECONDS] [--ordinary]`: seconds per measurement (3 if not said); `--ordinary` does without real-time scheduling and
//! lets processors sleep.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it measures the real clock

use narrows_core::{Rate, Time};
use narrows_lab::line::Line;
use narrows_lab::outcome::{Distribution, Quantiles};
use narrows_lab::{file, parts};
use narrows_net::clock::{Awake, Clock, Scheduling, hurry};
use narrows_net::gateway::{Across, Control, Gateway, Inside};
use narrows_net::namespace::Namespace;
use narrows_net::netlink::Netlink;
use narrows_net::network::{Network, Way};
use narrows_net::port::Port;
use narrows_net::port::ring::Ring;
use narrows_net::port::tun::Tun;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt};
use nix::time::{ClockId, clock_gettime};
use std::io::{IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const HERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 2);
const PORT: u16 = 5001;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = arguments.iter().find_map(|a| a.parse().ok()).unwrap_or(3.0);
    let ordinary = arguments.iter().any(|a| a == "--ordinary");
    let length = Duration::from_secs_f64(seconds);
    match measure(length, ordinary) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("SKIPPED gateway: {e}");
            ExitCode::SUCCESS
        }
    }
}

fn measure(length: Duration, ordinary: bool) -> std::io::Result<()> {
    for devices in [Devices::Tun, Devices::Ring] {
        println!("{devices:?}:");
        measure_on(devices, length, ordinary)?;
    }
    Ok(())
}

fn measure_on(devices: Devices, length: Duration, ordinary: bool) -> std::io::Result<()> {
    let open = |rate: &str, delay: &str| Path::open(devices, rate, delay, ordinary);
    for (rate, size) in [("45Mbit/s", 1000), ("1Gbit/s", 1500)] {
        let path = open(rate, "0ms")?;
        let spacing = Duration::from_nanos(size as u64 * 8_000_000_000 / rate_of(rate).0);
        let stamps = path.stamps(length, size, |_| spacing * 9 / 10)?;
        let mut errors = Distribution::default();
        for pair in stamps.windows(2).filter(|p| p[1].number == p[0].number + 1) {
            errors.record(pair[1].received.abs_diff(pair[0].received).abs_diff(spacing)); // the wall clock may be set back
        }
        say(&format!("pacing error at {rate}"), errors.quantiles(), &path.close());
    }
    let path = open("100Gbit/s", "5ms")?;
    let uneven = |n: u64| Duration::from_micros(700 + n * 7919 % 600);
    let stamps = path.stamps(length, 1000, uneven)?;
    let mut errors = Distribution::default();
    for Stamp { sent, received, .. } in stamps {
        errors.record(received.saturating_sub(sent).abs_diff(Duration::from_millis(5)));
    }
    say("added delay, error at 5 ms", errors.quantiles(), &path.close());
    for (rate, what) in [("1Gbit/s", "TCP at 1 Gbit/s"), ("100Gbit/s", "TCP without a rate")] {
        let path = open(rate, "1ms")?;
        let bits = path.transfer(length)?;
        let end = path.close();
        println!(
            "  {what}: {:.0} Mbit/s of payload; gateway {:.0} % of a core, {:.2} us of CPU time per packet; {}",
            bits * 1e-6,
            end.cpu.as_secs_f64() / end.wall.as_secs_f64() * 100.0,
            end.cpu.as_secs_f64() * 1e6 / end.packets.max(1) as f64,
            end.about()
        );
    }
    Ok(())
}

fn rate_of(text: &str) -> Rate {
    use narrows_lab::quantity::Quantity;
    Rate::read(text).expect("a rate")
}

fn say(what: &str, q: Quantiles, end: &End) {
    println!(
        "  {what}: p50 {:.0}, p95 {:.0}, p99 {:.0}, most {:.0} us over {} packets; {}",
        q.p50 * 1e6,
        q.p95 * 1e6,
        q.p99 * 1e6,
        q.max * 1e6,
        q.count,
        end.about()
    );
}

/// What the gateway's thread knows when it ends.
struct End {
    scheduling: Scheduling,
    lateness: Quantiles,
    cpu: Duration,
    wall: Duration,
    packets: u64,
    unaccounted: i64,
}

impl End {
    fn about(&self) -> String {
        assert_eq!(self.unaccounted, 0, "every packet is accounted for");
        let class = match self.scheduling {
            Scheduling::RealTime => "real-time",
            Scheduling::Ordinary => "ordinary scheduling",
        };
        let q = self.lateness;
        format!("{class}, gateway late by {:.0}/{:.0} us (p50/p99)", q.p50 * 1e6, q.p99 * 1e6)
    }
}

/// What the gateway's ports are.
#[derive(Clone, Copy, Debug)]
enum Devices {
    Tun,
    Ring,
}

impl Devices {
    /// A port whose other side is a device of `namespace` with this address. `middle` is where its cable ends, if it has one.
    fn port(
        self,
        namespace: &Namespace,
        middle: &Namespace,
        address: Ipv4Addr,
    ) -> std::io::Result<Box<dyn Port>> {
        let address = (IpAddr::V4(address), 24);
        if let Devices::Tun = self {
            return Ok(Box::new(Tun::open(namespace, "narrows0", 1500, &[address])?));
        }
        let there = if address.0 == IpAddr::V4(HERE) { "left" } else { "right" };
        namespace.enter(|| {
            let net = Netlink::open()?;
            net.veth("eth0", there, middle)?;
            net.address("eth0", address)?;
            net.up("eth0", None, None)
        })?;
        middle.enter(|| {
            Netlink::open()?.up(there, None, None)?;
            Ok(Box::new(Ring::open(there)?) as Box<dyn Port>)
        })
    }
}

/// Two namespaces and the running gateway between them.
struct Path {
    here: Namespace,
    there: Namespace,
    stop: Arc<AtomicBool>,
    gateway: thread::JoinHandle<End>,
}

/// When a datagram was sent, and when the kernel received it, by the wall clock. Between consecutive numbers none was lost.
struct Stamp {
    number: u64,
    sent: Duration,
    received: Duration,
}

struct UntilStopped(Arc<AtomicBool>);

impl Control for UntilStopped {
    fn look(&mut self, _now: Time, _inside: &mut Inside) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Path {
    fn open(devices: Devices, rate: &str, delay: &str, ordinary: bool) -> std::io::Result<Path> {
        let (here, there, middle) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
        let ports = vec![devices.port(&here, &middle, HERE)?, devices.port(&there, &middle, THERE)?];
        let text = format!(
            "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
             rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"fifo:1000p\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\n"
        );
        let scenario = file::parse("bench", &text).expect("a scenario");
        let lines = [true, false].map(|forward| {
            let line = scenario.links[0].line(forward);
            let queue = parts::queue(&line.queue, parts::rng(1, parts::Stream::Queue, 0)).expect("a queue");
            Line::new(line.rate, line.delay, line.mtu, queue)
        });
        let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
        let network = Network::new(lines.into(), &ways, &[]);
        let across = Across([network.way(0), network.way(1)]);
        let stop = Arc::new(AtomicBool::new(false));
        let mut until = UntilStopped(stop.clone());
        let gateway = thread::spawn(move || {
            let scheduling = if ordinary { Scheduling::Ordinary } else { hurry() };
            let _awake = (!ordinary).then(Awake::ask);
            let clock = Clock::start();
            let cpu =
                || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has it"));
            let (before, mut gateway) = (cpu(), Gateway::new(ports, network, Box::new(across), clock));
            gateway.run(&mut until).expect("both devices are there to the end");
            let accounts = &gateway.inside.accounts;
            let inside = gateway.inside.network.inside();
            End {
                scheduling,
                lateness: gateway.inside.lateness.quantiles(),
                cpu: cpu() - before,
                wall: clock.now().since(Time::ZERO),
                packets: accounts.sent.iter().sum(),
                unaccounted: accounts.unaccounted(inside),
            }
        });
        Ok(Path { here, there, stop, gateway })
    }

    fn close(self) -> End {
        self.stop.store(true, Ordering::Relaxed);
        self.gateway.join().expect("the gateway does not panic")
    }

    /// Datagrams of `size` bytes at the IP level for `length`, `gap(n)` before the nth: when each was sent, and when the kernel
    /// received it.
    fn stamps(
        &self,
        length: Duration,
        size: usize,
        gap: impl Fn(u64) -> Duration + Sync,
    ) -> std::io::Result<Vec<Stamp>> {
        let receiver = self.there.enter(|| UdpSocket::bind((THERE, PORT)))?;
        setsockopt(&receiver, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&receiver, sockopt::RcvBufForce, &(32 << 20))
            .or_else(|_| setsockopt(&receiver, sockopt::RcvBuf, &(8 << 20)))?;
        receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
        let sender = self.here.enter(|| UdpSocket::bind((HERE, 0)))?;
        sender.connect((THERE, PORT))?;
        thread::scope(|scope| {
            scope.spawn(|| {
                hurry();
                let (start, mut due) = (Instant::now(), Duration::ZERO);
                let mut payload = vec![0; size - 28];
                for n in 0.. {
                    due += gap(n);
                    if due > length {
                        break;
                    }
                    // A thread in real time must not spin; what the sleep misses the next gaps make up for.
                    if let Some(nap) = due.checked_sub(start.elapsed()) {
                        thread::sleep(nap);
                    }
                    payload[..8].copy_from_slice(&(wall_clock().as_nanos() as u64).to_be_bytes());
                    payload[8..16].copy_from_slice(&n.to_be_bytes());
                    let _ = sender.send(&payload);
                }
            });
            let (mut stamps, mut bytes, mut space) =
                (Vec::new(), vec![0; size], nix::cmsg_space!(nix::libc::timespec));
            loop {
                let mut parts = [IoSliceMut::new(&mut bytes)];
                let fd = receiver.as_raw_fd();
                let Ok(message) = recvmsg::<SockaddrIn>(fd, &mut parts, Some(&mut space), MsgFlags::empty())
                else {
                    return Ok(stamps);
                };
                let stamp = message.cmsgs()?.find_map(|c| match c {
                    ControlMessageOwned::ScmTimestampns(t) => Some(Duration::from(t)),
                    _ => None,
                });
                let said = message.iovs().next().and_then(|b| b.first_chunk::<16>().copied());
                if let (Some(received), Some(said)) = (stamp, said) {
                    let said = u128::from_be_bytes(said);
                    let (sent, number) = (Duration::from_nanos((said >> 64) as u64), said as u64);
                    stamps.push(Stamp { number, sent, received });
                }
            }
        })
    }

    /// A kernel TCP transfer for `length`; payload in bit/s, from half a second on.
    fn transfer(&self, length: Duration) -> std::io::Result<f64> {
        let listener = self.there.enter(|| TcpListener::bind((THERE, PORT)))?;
        let mut source = self.here.enter(|| TcpStream::connect((THERE, PORT)))?;
        let (mut sink, _) = listener.accept()?;
        let end = Instant::now() + length;
        thread::scope(|scope| {
            scope.spawn(move || {
                let data = vec![0x5A; 1 << 17];
                while Instant::now() < end && source.write_all(&data).is_ok() {}
            });
            let (mut buffer, mut counted) = (vec![0; 1 << 18], 0u64);
            let from = Instant::now() + Duration::from_millis(500);
            let mut last = from;
            loop {
                match sink.read(&mut buffer)? {
                    0 => break,
                    n if Instant::now() > from => {
                        counted += n as u64;
                        last = Instant::now();
                    }
                    _ => {}
                }
            }
            Ok(counted as f64 * 8.0 / (last - from).as_secs_f64())
        })
    }
}

/// The clock of the kernel's timestamps.
fn wall_clock() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).expect("Linux has it").into()
}
