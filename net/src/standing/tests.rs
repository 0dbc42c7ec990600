//! Real TCP stacks, in namespaces of their own, on both sides of a standing bottleneck.

use super::*;
use crate::namespace::Namespace;
use crate::netlink::Netlink;
use crate::port::ring::socket::PacketSocket;
use narrows_core::packet::Packet;
use narrows_core::qdisc::{Backlog, Drops, Qdisc, fifo::Fifo};
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::{ipv4, ipv6, protocol, tcp};
use narrows_core::{Bytes, Ecn, Rate};
use narrows_lab::file::Document;
use narrows_lab::line::Carried;
use nix::unistd::Uid;
use std::io::{IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

const CLIENT: [&str; 2] = ["10.9.0.1", "fd09::1"];
const SERVER: [&str; 2] = ["10.9.0.2", "fd09::2"];

/// client eth0 -- left MIDDLE right -- eth0 server
struct Site {
    client: Namespace,
    middle: Namespace,
    server: Namespace,
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Site {
    /// `None`, said aloud, without root.
    fn new() -> Option<Site> {
        if !Uid::effective().is_root() {
            eprintln!("SKIPPED: namespaces and packet sockets need root");
            return None;
        }
        let [client, middle, server] = [(); 3].map(|()| Namespace::new().unwrap());
        let site = Site { client, middle, server };
        site.plug(&site.client, "left", CLIENT);
        site.plug(&site.server, "right", SERVER);
        Some(site)
    }

    /// A cable from a host's eth0 to the middle.
    fn plug(&self, host: &Namespace, there: &str, addresses: [&str; 2]) {
        host.enter(|| {
            let net = Netlink::open()?;
            net.veth("eth0", there, &self.middle)?;
            net.address("eth0", (address(addresses[0]), 24))?;
            net.address("eth0", (address(addresses[1]), 64))?;
            net.up("eth0", None, None)
        })
        .unwrap();
        self.middle.enter(|| Netlink::open()?.up(there, None, None)).unwrap();
    }

    fn open(&self, config: &str) -> Result<Standing, Refused> {
        let mut refused = None;
        let config = configured(config);
        let opened = self.middle.enter(|| {
            Standing::open(["left", "right"], &config).map_err(|e| {
                refused = Some(e);
                io::Error::other("refused")
            })
        });
        opened.map_err(|_| refused.unwrap())
    }

    fn stand(&self, config: &str) -> Running {
        let standing = self.open(config).unwrap();
        let (orders, inbox) = channel();
        let told = Arc::<Mutex<Vec<String>>>::default();
        let (ear, metrics) = (told.clone(), standing.metrics_at());
        let thread = thread::spawn(move || {
            crate::clock::hurry();
            standing.run(&inbox, &mut |note| ear.lock().unwrap().push(note.into()), None)
        });
        Running { orders, told, metrics, thread }
    }

    /// Frames as they come out of the gateway towards the server.
    fn listen(&self) -> PacketSocket {
        self.server
            .enter(|| {
                let socket = PacketSocket::open()?;
                socket.bind(socket.index("eth0")?)?;
                Ok(socket)
            })
            .unwrap()
    }

    /// Bytes as they are onto the client's cable.
    fn inject(&self, frames: &[Vec<u8>]) {
        self.client
            .enter(|| {
                let socket = PacketSocket::open()?;
                socket.bind(socket.index("eth0")?)?;
                for frame in frames {
                    let plain = [0; crate::port::segment::Offload::SIZE];
                    socket.send(&[IoSlice::new(&plain), IoSlice::new(frame)], &[2])?;
                }
                Ok(())
            })
            .unwrap();
    }

    fn command(&self, namespace: &Namespace, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = Command::new(words[0]);
        namespace.confine(command.args(&words[1..])).unwrap();
        let output = command.output().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Sends `size` bytes from client to server over TCP and compares them; how long it took.
    fn transfer(&self, server: &str, size: usize) -> Duration {
        let at = SocketAddr::new(address(server), 5000);
        let listener = self.server.enter(|| TcpListener::bind(at)).unwrap();
        let receiver = thread::spawn(move || {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let sent: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut stream =
            self.client.enter(|| TcpStream::connect_timeout(&at, Duration::from_secs(3))).unwrap();
        let began = Instant::now();
        stream.write_all(&sent).unwrap();
        drop(stream);
        assert!(receiver.join().unwrap() == sent, "{size} bytes to {server} came out changed");
        began.elapsed()
    }
}

fn configured(text: &str) -> Bottleneck {
    Document { name: "gateway.toml".into(), text: text.into() }.bottleneck().unwrap()
}

struct Running {
    orders: Sender<Order>,
    told: Arc<Mutex<Vec<String>>>,
    metrics: Option<SocketAddr>,
    thread: JoinHandle<Result<Account, Refused>>,
}

impl Running {
    /// Ends it. Every packet must be accounted for.
    #[track_caller]
    fn stop(self) -> Account {
        self.orders.send(Order::Stop).unwrap();
        let account = self.thread.join().unwrap().unwrap();
        assert_eq!(account.accounts.unaccounted(account.inside), 0, "{account:?}");
        account
    }

    /// Waits until it has told so.
    #[track_caller]
    fn told(&self, words: &str) {
        let said = || self.told.lock().unwrap().iter().filter(|t| t.contains(words)).count();
        wait(|| said() > 0);
        assert_eq!(said(), 1, "once: {:?}", self.told.lock().unwrap());
    }
}

#[track_caller]
fn wait(mut until: impl FnMut() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < Duration::from_secs(5), "waited in vain");
        thread::sleep(Duration::from_millis(5));
    }
}

const FAST: &str = "rate = \"1Gbit/s\"\ndelay = \"100us\"\n";

#[test]
fn tcp_of_both_families_crosses_whatever_the_offloads_and_no_super_packet_is_queued() {
    let Some(site) = Site::new() else { return };
    let running = site.stand(FAST);
    for server in SERVER {
        site.transfer(server, 8_000_000);
    }
    for (namespace, device) in
        [(&site.client, "eth0"), (&site.middle, "left"), (&site.middle, "right"), (&site.server, "eth0")]
    {
        site.command(namespace, &format!("ethtool -K {device} tx off rx off tso off gso off gro off"));
    }
    for server in SERVER {
        site.transfer(server, 2_000_000);
    }
    let account = running.stop();
    assert!(!account.accounts.dropped.contains_key("too_large"), "{account:?}");
    assert!(account.accounts.sent[1] > 20_000_000 / 1448, "{account:?}");
    assert_eq!(account.accounts.unsent, 0, "{account:?}");
    assert!(account.accounts.refused.is_empty(), "{account:?}");
}

#[test]
fn tcp_gets_the_lines_rate_and_no_more() {
    let Some(site) = Site::new() else { return };
    let running = site.stand("rate = \"45Mbit/s\"\ndelay = \"2ms\"\nqueue = \"fifo:128KiB\"");
    let took = site.transfer(SERVER[0], 5_000_000);
    let rate = 5_000_000.0 * 8e-6 / took.as_secs_f64();
    let account = running.stop();
    assert!(rate < 45.0 * 1448.0 / 1500.0 + 0.5, "{rate} Mbit/s, {account:?}");
    assert!(rate > 38.0 || account.verdict.is_some(), "{rate} Mbit/s, {account:?}");
}

/// Marks every tenth packet that may be marked.
struct Marker(Fifo<Carried<Frame>>, u64);

impl Qdisc<Carried<Frame>> for Marker {
    fn enqueue(&mut self, now: Time, packet: Carried<Frame>, drop: Drops<'_, Carried<Frame>>) {
        self.0.enqueue(now, packet, drop);
    }
    fn dequeue(&mut self, now: Time, drop: Drops<'_, Carried<Frame>>) -> Option<Carried<Frame>> {
        let mut packet = self.0.dequeue(now, drop)?;
        self.1 += 1;
        if self.1.is_multiple_of(10) {
            packet.mark_ce();
        }
        Some(packet)
    }
    fn ready_at(&self) -> Option<Time> {
        self.0.ready_at()
    }
    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
}

/// Looks at every frame that leaves.
#[derive(Default)]
struct Inspector {
    stop: Arc<std::sync::atomic::AtomicBool>,
    wrong: u64,
    marked: u64,
    echoed: u64,
    reduced: u64,
}

impl Control for Inspector {
    fn look(&mut self, _: Time, _: &mut Inside) -> ControlFlow<()> {
        if self.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
    fn leaves(&mut self, _: usize, _: Time, frame: &Frame) {
        let Some(packet) = frame.packet() else { return };
        let (pseudo, number, upper) = if packet[0] >> 4 == 6 {
            let v = ipv6::View::new(packet).unwrap();
            let upper = v.upper().unwrap();
            self.marked += u64::from(v.ecn() == Ecn::Ce);
            (Pseudo::v6(v.source(), v.destination()), upper.protocol, upper.payload)
        } else {
            let v = ipv4::View::new(packet).unwrap();
            self.wrong += u64::from(!v.is_intact());
            self.marked += u64::from(v.ecn() == Ecn::Ce);
            (Pseudo::v4(v.source(), v.destination()), v.protocol(), v.payload())
        };
        if number == protocol::TCP {
            self.wrong += u64::from(!pseudo.over(number, upper).is_intact());
            let flags = tcp::View::new(upper).unwrap().flags().0;
            let established = flags & 0x02 == 0; // in a SYN both bits negotiate
            self.echoed += u64::from(established && flags & 0x40 != 0);
            self.reduced += u64::from(established && flags & 0x80 != 0);
        }
    }
}

#[test]
fn marks_are_made_and_understood_and_every_checksum_is_right() {
    let Some(site) = Site::new() else { return };
    for namespace in [&site.client, &site.server] {
        namespace.ecn(true).unwrap();
    }
    let ports = site
        .middle
        .enter(|| Ok(["left", "right"].map(|name| Box::new(Ring::open(name).unwrap()) as Box<dyn Port>)));
    let line = || {
        let queue = Queue::Other(Box::new(Marker(Fifo::unlimited(), 0)));
        Line::new(Rate(200_000_000), Duration::from_micros(500), Bytes(1500), queue)
    };
    let ways = [Way { lines: vec![0], port: 1 }, Way { lines: vec![1], port: 0 }];
    let network = Network::new(vec![line(), line()], &ways, &[]);
    let across = Across([network.way(0), network.way(1)]);
    let mut gateway = Gateway::new(ports.unwrap().into(), network, Box::new(across), Clock::start());
    let mut inspector = Inspector::default();
    let stop = inspector.stop.clone();
    let thread = thread::spawn(move || {
        gateway.run(&mut inspector).unwrap();
        (inspector, gateway.inside.network.lines()[0].counters())
    });
    for server in SERVER {
        site.transfer(server, 2_000_000);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let (seen, forward) = thread.join().unwrap();
    assert_eq!(seen.wrong, 0);
    assert!(forward.marks > 200 && seen.marked >= forward.marks, "{} {}", forward.marks, seen.marked);
    assert!(seen.echoed > 100 && seen.reduced > 10, "{} echoed, {} reduced", seen.echoed, seen.reduced);
}

/// Datagrams cross while the configuration becomes the second and the third of `texts`.
fn reload_under_load(texts: [&str; 3]) {
    let Some(site) = Site::new() else { return };
    let [first, changes @ ..] = texts;
    let running = site.stand(first);
    let at = SocketAddr::new(address(SERVER[0]), 6000);
    let receiver = site.server.enter(|| UdpSocket::bind(at)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
    let numbers = thread::spawn(move || {
        let mut buffer = [0; 2000];
        let next = |_| {
            receiver.recv(&mut buffer).ok()?;
            Some(u32::from_be_bytes(buffer[..4].try_into().unwrap()))
        };
        (0..180).map_while(next).collect::<Vec<u32>>()
    });
    let sender = site.client.enter(|| UdpSocket::bind((address(CLIENT[0]), 0))).unwrap();
    let send = |from: u32| {
        for i in from..from + 60 {
            let mut datagram = [0; 1000];
            datagram[..4].copy_from_slice(&i.to_be_bytes());
            sender.send_to(&datagram, at).unwrap();
        }
    };
    // At 2 Mbit/s 60 packets wait for 0.25 s, and most of them are there at every change.
    send(0);
    for (text, from) in changes.into_iter().zip([60, 120]) {
        thread::sleep(Duration::from_millis(60));
        running.orders.send(Order::Reconfigure(Box::new(configured(text)))).unwrap();
        running.orders.send(Order::Unusable).unwrap();
        thread::sleep(Duration::from_millis(60));
        send(from);
    }
    let numbers = numbers.join().unwrap();
    running.told("start");
    let account = running.stop();
    let dropped = account.accounts.dropped.values().sum::<u64>();
    assert_eq!(numbers, (0..180).collect::<Vec<_>>(), "{account:?}");
    assert_eq!(dropped, 0);
}

#[test]
fn a_reload_under_load_loses_and_overtakes_no_packet() {
    reload_under_load([
        "rate = \"2Mbit/s\"\ndelay = \"1ms\"\nqueue = \"fifo:1000p\"",
        "rate = \"4Mbit/s\"\ndelay = \"1ms\"\nmtu = \"1400B\"\nqueue = { kind = \"shaper\", rate = \"3Mbit/s\", burst = \"3kB\", inner = \"fifo:1000p\" }",
        "rate = \"2Mbit/s\"\ndelay = \"3ms\"\nqueue = \"fifo:90p\"\nuser = \"root\"",
    ]);
}

#[test]
fn a_change_of_what_is_written_into_acks_loses_and_overtakes_no_packet() {
    let line = "rate = \"2Mbit/s\"\ndelay = \"1ms\"\nqueue = \"fifo:1000p\"\n";
    let policies =
        ["ack_window = \"none\"", "ack-window = \"share\"", "ack_window = \"coordinate\"\nuser = \"root\""];
    let texts = policies.map(|policy| format!("{line}{policy}"));
    reload_under_load(texts.each_ref().map(String::as_str));
}

/// From a made-up sender to everyone.
fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    [&[0xFF; 6][..], &[6, 0, 0, 0, 0, 1], &kind.to_be_bytes(), packet].concat()
}

/// A header with a right checksum, and a UDP header.
fn ipv4(length: u16, fragment: u16) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 255];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let sum = narrows_core::wire::checksum::Sum::default().bytes(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([0, 1, 0, 2, 0, 8, 0, 0]);
    packet
}

#[test]
fn garbage_is_refused_and_the_unusual_passes_each_counted_under_its_name() {
    let Some(site) = Site::new() else { return };
    let running = site.stand("rate = \"1Gbit/s\"\ndelay = \"1ms\"\nmtu = \"1000B\"");
    running.told("left lets packets of 1500 B in, and those above 1000 B are dropped");
    let mut server = site.listen();
    let wrong_sum = [&ipv4(28, 0)[..10], &[0, 0], &ipv4(28, 0)[12..]].concat();
    let extended =
        [&[0x60, 0, 0, 0, 0, 16, 60, 64][..], &[0xFD; 32], &[17, 0, 1, 4, 0, 0, 0, 0], &ipv4(28, 0)[20..]];
    let tagged = [&[0x00, 42, 0x08, 0x00][..], &ipv4(28, 0)].concat();
    let passing = [
        ethernet(0x0800, &ipv4(28, 0x2000)),
        ethernet(0x86DD, &extended.concat()),
        ethernet(0x8100, &tagged),
        ethernet(0x0806, &[0; 28]),
    ];
    let refused = [
        ethernet(0x0800, &[0x45]),
        ethernet(0x0800, &ipv4(29, 0)),
        ethernet(0x86DD, &[0x60; 39]),
        ethernet(0x0800, &[0x55; 40]),
        ethernet(0x0800, &wrong_sum),
        ethernet(0x0800, &[&ipv4(1001, 0)[..], &[0; 973]].concat()),
    ];
    site.inject(&[&refused[..], &passing].concat());
    let mut came = Vec::new();
    wait(|| {
        server.take(|r| {
            if r.bytes[6] == 6 {
                crate::port::segment::restore(
                    crate::port::segment::Link::Ethernet,
                    r.bytes,
                    r.offload,
                    r.tag,
                    &mut |frame| came.push(frame),
                )
                .unwrap();
            }
        });
        came.len() == passing.len()
    });
    assert_eq!(came, passing);
    let account = running.stop();
    let a = &account.accounts;
    let refused: Vec<_> = a.refused.iter().map(|(name, n)| (*name, *n)).collect();
    assert_eq!(refused, [("bad_checksum", 1), ("bad_field", 1), ("truncated", 3)]);
    assert_eq!(a.dropped.iter().collect::<Vec<_>>(), [(&"too_large", &1)]);
    for kind in ["fragment", "extension_header", "vlan", "not_ip"] {
        assert!(a.kinds.contains_key(kind), "{kind}: {a:?}");
    }
    assert_eq!(a.kinds["vlan"], 1);
    // The kernel sends nothing shorter than an Ethernet header.
    assert_eq!(Frame::ethernet(vec![0]).unwrap_err(), crate::frame::Malformed::Truncated);
}

#[test]
fn metrics_add_up_and_a_taken_port_is_refused_before_anything_is_opened() {
    let Some(site) = Site::new() else { return };
    let running = site.stand("rate = \"1Gbit/s\"\ndelay = \"1ms\"\nmetrics = \"127.0.0.1:0\"");
    let at = running.metrics.unwrap();
    let ask = |path: &str| {
        let mut stream = site.middle.enter(|| TcpStream::connect(at)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    site.transfer(SERVER[0], 1_000_000);
    let value = |text: &str, line: &str| {
        let found =
            text.lines().find_map(|l| l.strip_prefix(line)).unwrap_or_else(|| panic!("{line} in {text}"));
        found.trim().parse::<f64>().unwrap()
    };
    wait(|| value(&ask("/metrics"), "narrows_received_packets_total{interface=\"left\"}") > 690.0);
    let text = ask("/metrics");
    let packets = |line: &str| value(&text, line);
    assert_eq!(
        packets("narrows_line_arrived_packets_total{direction=\"forward\"}"),
        packets("narrows_line_departed_packets_total{direction=\"forward\"}")
            + packets("narrows_line_backlog_packets{direction=\"forward\"}")
    );
    assert_eq!(
        packets("narrows_line_wait_seconds_count{direction=\"forward\"}"),
        packets("narrows_line_wait_seconds_bucket{le=\"+Inf\",direction=\"forward\"}")
    );
    assert!(packets("narrows_lateness_seconds_count") > 690.0);
    assert_eq!(packets("narrows_unsent_packets_total"), 0.0);
    assert_eq!(packets("narrows_interface_up{interface=\"right\"}"), 1.0);
    assert!(text.starts_with("HTTP/1.0 200") && text.ends_with("# EOF\n"), "{text}");
    assert!(ask("/").starts_with("HTTP/1.0 404"));

    let Err(refused) = site.open(&format!("{FAST}metrics = \"{at}\"")) else { panic!("twice") };
    assert!(refused.message.contains(&format!("metrics cannot be served at {at}")), "{refused}");
    running.stop();
}

#[test]
fn interfaces_that_cannot_be_used_are_refused_with_what_to_do() {
    let Some(site) = Site::new() else { return };
    let refused = |between: [&str; 2]| {
        let opened = site.middle.enter(|| Ok(Standing::open(between, &configured(FAST)).err())).unwrap();
        opened.map(|e| format!("{e}; {}", e.advice)).unwrap()
    };
    assert_eq!(refused(["left", "wrong"]), "there is no interface wrong; there are: lo, left, right");
    assert!(refused(["left", "lo"]).starts_with("lo carries no Ethernet frames"));
    assert!(refused(["left", "left"]).contains("both sides"));
}

fn promiscuity(site: &Site) -> u32 {
    use rtnetlink::packet_route::link::LinkAttribute;
    let devices = site.middle.enter(|| Netlink::open()?.devices()).unwrap();
    let attributes = devices.into_iter().flat_map(|d| d.attributes);
    attributes.map(|a| if let LinkAttribute::Promiscuity(n) = a { n } else { 0 }).sum()
}

#[test]
fn an_interface_may_go_down_or_vanish_and_come_back_and_nothing_of_the_gateway_stays() {
    let Some(site) = Site::new() else { return };
    let running = site.stand(FAST);
    site.transfer(SERVER[0], 100_000);
    assert_eq!(promiscuity(&site), 2);

    site.command(&site.middle, "ip link set right down");
    running.told("right is down");
    site.command(&site.middle, "ip link set right up");
    running.told("right is back");
    site.transfer(SERVER[0], 100_000);

    site.middle.enter(|| Netlink::open()?.remove("left")).unwrap();
    running.told("left is gone");
    let to = SocketAddr::new(address(CLIENT[0]), 9);
    let sender = site.server.enter(|| UdpSocket::bind((address(SERVER[0]), 0))).unwrap();
    for _ in 0..10 {
        sender.send_to(&[7; 100], to).unwrap();
    }
    site.plug(&site.client, "left", CLIENT);
    running.told("left is back");
    site.transfer(SERVER[0], 100_000);
    assert_eq!(promiscuity(&site), 2);
    let account = running.stop();
    assert!(account.accounts.unsent >= 10, "{account:?}");
    assert_eq!(promiscuity(&site), 0);
}
