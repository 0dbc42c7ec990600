//! Two namespaces, a TUN device in each, and a gateway between them: real packets of the kernel's cross our network.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod injector;

use injector::Injector;
use narrows_core::qdisc::fifo::Fifo;
use narrows_core::{Bytes, Rate, Time};
use narrows_lab::line::{Line, Queue};
use narrows_net::clock::{Clock, hurry};
use narrows_net::gateway::{Accounts, Across, Control, Gateway, Inside};
use narrows_net::namespace::Namespace;
use narrows_net::network::{Network, Way};
use narrows_net::port::{Port, tun::Tun};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// Two ends of a line, of 45 Mbit/s if not said otherwise, and 5 ms each way.
struct Path {
    ends: [Namespace; 2],
    stop: Arc<AtomicBool>,
    gateway: Option<thread::JoinHandle<(Accounts, u64)>>,
}

struct Until(Arc<AtomicBool>);

impl Control for Until {
    fn look(&mut self, _now: Time, _inside: &mut Inside) -> ControlFlow<()> {
        if self.0.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Path {
    /// `None`, and why, where this machine does not allow it.
    fn new() -> Option<Path> {
        Path::of(Rate(45_000_000))
    }

    fn of(rate: Rate) -> Option<Path> {
        let device = |at: &Namespace, addresses: &[(&str, u8)]| {
            let addresses: Vec<(IpAddr, u8)> =
                addresses.iter().map(|(a, n)| (a.parse().unwrap(), *n)).collect();
            Tun::open(at, "path0", 1500, &addresses)
        };
        let open = || {
            let ends = [Namespace::new()?, Namespace::new()?];
            let left = device(&ends[0], &[("10.9.0.1", 24), ("fd00:9::1", 64)])?;
            let right = device(&ends[1], &[("10.9.0.2", 24), ("fd00:9::2", 64)])?;
            Ok::<_, std::io::Error>((ends, [left, right]))
        };
        let (ends, tuns) = match open() {
            Ok(opened) => opened,
            Err(e) => {
                println!("SKIPPED: {e}");
                return None;
            }
        };
        let line = || Line::new(rate, Duration::from_millis(5), Bytes(1500), Queue::Fifo(Fifo::unlimited()));
        let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
        let network = Network::new(vec![line(), line()], &ways, &[]);
        let across = Across([network.way(0), network.way(1)]);
        let ports = tuns.map(|t| Box::new(t) as Box<dyn Port>).into_iter().collect();
        let stop = Arc::new(AtomicBool::new(false));
        let mut until = Until(stop.clone());
        let gateway = thread::spawn(move || {
            hurry();
            let mut gateway = Gateway::new(ports, network, Box::new(across), Clock::start());
            gateway.run(&mut until).unwrap();
            let now = Time::ZERO + Duration::from_secs(3600);
            let names = ["right".to_string(), "left".to_string()];
            let queues = gateway.inside.network.summaries(&names, now);
            let inside = queues.iter().map(|q| q.arrived - q.drops).sum::<u64>()
                - gateway.inside.accounts.sent.iter().sum::<u64>()
                - gateway.inside.accounts.unsent;
            (gateway.inside.accounts, inside)
        });
        Some(Path { ends, stop, gateway: Some(gateway) })
    }

    fn close(mut self) -> (Accounts, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.gateway.take().unwrap().join().unwrap()
    }
}

#[test]
fn datagrams_cross_in_both_families_after_twice_the_delay() {
    let Some(path) = Path::new() else { return };
    for address in ["10.9.0.2:7000", "[fd00:9::2]:7000"] {
        let any = if address.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let echo = path.ends[1].enter(|| UdpSocket::bind(address)).unwrap();
        let ping = path.ends[0].enter(|| UdpSocket::bind(any)).unwrap();
        ping.set_read_timeout(Some(SECOND)).unwrap();
        echo.set_read_timeout(Some(SECOND)).unwrap();
        let mut trips = Vec::new();
        for i in 0..10u8 {
            let sent = Instant::now();
            ping.send_to(&[i; 100], address).unwrap();
            let mut packet = [0; 200];
            let (n, from) = echo.recv_from(&mut packet).unwrap();
            echo.send_to(&packet[..n], from).unwrap();
            assert_eq!(ping.recv(&mut packet).unwrap(), 100);
            assert_eq!(packet[..100], [i; 100]);
            trips.push(sent.elapsed());
        }
        let best = trips.into_iter().min().unwrap();
        assert!(best >= Duration::from_micros(10_000 - 40), "{best:?}");
        assert!(best < Duration::from_millis(13), "{best:?}");
    }
    let (accounts, inside) = path.close();
    assert_eq!(accounts.unaccounted(inside), 0, "{accounts:?}");
    assert_eq!(accounts.received, [20, 20], "nothing but what was sent crosses: {accounts:?}");
    assert_eq!(accounts.sent, [20, 20]);
}

/// The kernel sends so many bytes; what arrives is what was sent. How long it took.
fn transfer(path: &Path, to: &str, size: u32) -> Duration {
    let listener = path.ends[1].enter(|| TcpListener::bind(to)).unwrap();
    let receiver = thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    let data: Vec<u8> = (0..size).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let began = Instant::now();
    let mut sender = path.ends[0].enter(|| TcpStream::connect(to)).unwrap();
    sender.write_all(&data).unwrap();
    drop(sender);
    assert!(receiver.join().unwrap() == data, "the bytes that arrive are those that were sent");
    began.elapsed()
}

#[test]
fn a_tcp_transfer_fills_the_line_and_every_packet_is_accounted_for() {
    let Some(path) = Path::new() else { return };
    let size = 4_000_000;
    let took = transfer(&path, "10.9.0.2:7001", size);
    let rate = size as f64 * 8.0 / took.as_secs_f64() * 1e-6;
    assert!((20.0..45.0).contains(&rate), "{rate} Mbit/s through 45 Mbit/s");
    let came = arrivals(&path);
    let (accounts, inside) = path.close();
    assert_eq!(accounts.unaccounted(inside), 0, "{accounts:?}");
    assert!(accounts.sent[1] >= size as u64 / 1448, "no super-packets: {accounts:?}");
    // The last ones may have come after the count was taken.
    let each = accounts.sent[1] - 3..=accounts.sent[1];
    assert!(each.contains(&came), "at this rate each packet goes by itself: {came} of {}", accounts.sent[1]);
}

/// Packets, or super-packets, that the receiving kernel has been given.
fn arrivals(path: &Path) -> u64 {
    let devices = path.ends[1].enter(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap();
    let device = devices.lines().find_map(|l| l.trim_start().strip_prefix("path0:")).unwrap();
    device.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn super_packets_are_cut_for_the_network_and_joined_for_the_kernel() {
    for to in ["10.9.0.2:7002", "[fd00:9::2]:7002"] {
        let Some(path) = Path::of(Rate(100_000_000_000)) else { return };
        let size = 40_000_000;
        transfer(&path, to, size);
        let came = arrivals(&path);
        let (accounts, inside) = path.close();
        assert_eq!(accounts.unaccounted(inside), 0, "{accounts:?}");
        assert_eq!(accounts.dropped.len() + accounts.refused.len(), 0, "none above 1500 bytes: {accounts:?}");
        assert!(accounts.sent[1] >= size as u64 / 1448, "{accounts:?}");
        assert!(came < accounts.sent[1] / 3, "{came} for {accounts:?}");
    }
}

#[test]
fn a_name_that_is_taken_is_refused_with_a_reason() {
    let Some(path) = Path::new() else { return };
    let refused = |name: &str| Tun::open(&path.ends[0], name, 1500, &[]).err().unwrap().to_string();
    assert!(refused("path0").contains("choose another name"), "{}", refused("path0"));
    assert!(refused("much-longer-than-15").contains("1 to 15"));
    path.close();
}

#[test]
fn a_gateway_whose_device_is_removed_ends_with_an_error() {
    let Some(path) = Path::new() else { return };
    path.ends[0].enter(|| narrows_net::netlink::Netlink::open()?.remove("path0")).unwrap();
    let gateway = path.gateway.as_ref().unwrap();
    for _ in 0..100 {
        if gateway.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(gateway.is_finished(), "it does not wait for a device that is gone");
}

/// An IPv4 packet of UDP to 10.9.0.2, with this fragment field.
fn ipv4(fragment: u16, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let words = packet.chunks(2).map(|w| u16::from_be_bytes([w[0], w[1]]) as u32).sum::<u32>();
    packet[10..12].copy_from_slice(&(!((words & 0xFFFF) + (words >> 16)) as u16).to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 packet to fd00:9::2 whose first header after its own is this.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
    packet.extend("fd00:9::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet.extend("fd00:9::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    packet.extend(payload);
    packet
}

#[test]
fn bad_and_unusual_packets_are_counted_under_their_names_and_harm_nothing() {
    let Some(path) = Path::new() else { return };
    let inject = Injector::new(&path.ends[0], "path0").unwrap();
    let udp = [0, 9, 0, 9, 0, 8, 0, 0];
    let whole = ipv4(0, &udp);
    for n in [1, 2, 19, 27] {
        inject.send(&whole[..n]).unwrap(); // 1 byte, half a header, and less than its length says
    }
    inject.send(&ipv6(17, &udp)[..39]).unwrap();
    let mut version = whole.clone();
    version[0] = 0x95;
    inject.send(&version).unwrap();
    let mut short_header = whole.clone();
    short_header[0] = 0x41;
    inject.send(&short_header).unwrap();
    let mut checksum = whole.clone();
    checksum[10] ^= 1;
    inject.send(&checksum).unwrap();
    inject.send(&ipv4(0x2000, &udp)).unwrap(); // a first fragment, and a second one
    inject.send(&ipv4(0x0001, &udp)).unwrap();
    inject.send(&ipv6(44, &[17, 0, 0, 1, 0, 0, 0, 1, 0, 9, 0, 9, 0, 8, 0, 0])).unwrap(); // a fragment header
    inject.send(&ipv6(0, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 9, 0, 9, 0, 8, 0, 0])).unwrap(); // hop-by-hop options
    inject.send(&whole).unwrap();
    thread::sleep(Duration::from_millis(100));
    let (accounts, inside) = path.close();
    let refused: Vec<_> = accounts.refused.iter().map(|(k, n)| (*k, *n)).collect();
    assert_eq!(refused, [("bad_checksum", 1), ("bad_field", 2), ("truncated", 5)]);
    let kinds: Vec<_> = accounts.kinds.iter().map(|(k, n)| (*k, *n)).collect();
    assert_eq!(kinds, [("extension_header", 1), ("fragment", 3)]);
    assert_eq!(accounts.sent[1], 5, "the unusual ones pass: {accounts:?}");
    assert_eq!(accounts.unaccounted(inside), 0, "{accounts:?}");
}

#[test]
fn a_packet_larger_than_the_links_mtu_is_dropped_as_too_large() {
    let Some(path) = Path::new() else { return };
    path.ends[0].enter(|| narrows_net::netlink::Netlink::open()?.up("path0", Some(9000), None)).unwrap();
    let socket = path.ends[0].enter(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.send_to(&[0; 1472], "10.9.0.2:9").unwrap();
    socket.send_to(&[0; 1473], "10.9.0.2:9").unwrap();
    thread::sleep(Duration::from_millis(100));
    let (accounts, inside) = path.close();
    assert_eq!(accounts.dropped.get("too_large"), Some(&1), "{accounts:?}");
    assert_eq!(accounts.sent[1], 1, "{accounts:?}");
    assert_eq!(accounts.unaccounted(inside), 0, "{accounts:?}");
}
