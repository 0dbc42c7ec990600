//! `ackwin` between kernel connections: three network namespaces in a row, the middle one a router whose queue towards the receiver
//! is a token bucket with little room.

use crate::needs_kernel;
use crate::path::{Nature, Path, in_namespace, ip, remove, remove_orphans};
use narrows_core::{Bytes, Rate};
use narrows_kernel::ackwin::{Counts, Queue, attach, attached, detach};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::spawn;
use std::time::{Duration, Instant};

const RATE: u64 = 20_000_000;
const LIMIT: u64 = 40_000;
const FLOWS: usize = 4;
const A_WHILE: Duration = Duration::from_secs(2);

struct Row {
    names: [String; 3],
}

fn run(program: &str, arguments: &str) {
    let done = Command::new(program).args(arguments.split_whitespace()).output();
    let done = done.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(done.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

/// Everything the test needs beside what all of them do.
fn lacking() -> Option<&'static str> {
    let there = |program: &str| Command::new(program).arg("-V").output().is_ok_and(|o| o.status.success());
    if !there("tc") {
        return Some("needs tc (iproute2)");
    }
    Command::new("ethtool").arg("--version").output().is_err().then_some("needs ethtool")
}

/// Which devices have offloads: what passes may then be 64 KB at once, and have no checksum yet.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Offloads {
    /// Every checksum is written by one end and verified by the other.
    None,
    /// The receiver leaves checksums to its device. The router, behind the program, fills them in, and the sender verifies them.
    Beyond,
    All,
}

impl Row {
    /// Sender, router, receiver.
    fn new(mark: char, offloads: Offloads) -> Row {
        remove_orphans();
        let names = ["s", "r", "d"].map(|n| format!("nk{}-{mark}{n}", std::process::id()));
        let row = Row { names };
        let [s, r, d] = &row.names;
        row.names.iter().for_each(|n| ip(&format!("netns add {n}")));
        for (name, end, net, host) in
            [(s, "to_r", 1, 1), (r, "to_s", 1, 2), (r, "to_d", 2, 1), (d, "to_r", 2, 2)]
        {
            if name == s || end == "to_d" {
                let (peer, theirs) = if name == s { (r, "to_s") } else { (d, "to_r") };
                ip(&format!("-n {name} link add {end} type veth peer name {theirs} netns {peer}"));
            }
            ip(&format!("-n {name} addr add 10.78.{net}.{host}/24 dev {end}"));
            ip(&format!("-n {name} addr add fd78:{net}::{host}/64 dev {end} nodad"));
            ip(&format!("-n {name} link set {end} up"));
            if offloads == Offloads::None || (offloads == Offloads::Beyond && (name == s || end == "to_s")) {
                let off = "gro off gso off tso off tx off rx off";
                run("ip", &format!("netns exec {name} ethtool -K {end} {off}"));
            }
        }
        for (name, net, at) in [(s, 2, "1"), (d, 1, "2")] {
            ip(&format!(
                "-n {name} route add 10.78.{net}.0/24 via 10.78.{at}.{}",
                if net == 2 { 2 } else { 1 }
            ));
            ip(&format!(
                "-n {name} route add fd78:{net}::/64 via fd78:{at}::{}",
                if net == 2 { 2 } else { 1 }
            ));
        }
        let forward = || {
            for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                std::fs::write(format!("/proc/sys/net/{file}"), "1").expect("a router forwards");
            }
        };
        in_namespace(r, forward).join().unwrap();
        for name in [s, d] {
            let forget = || std::fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1").expect("a setting");
            in_namespace(name, forget).join().unwrap();
        }
        run("tc", &format!("-n {r} qdisc add dev to_d root tbf rate {RATE}bit burst 6000 limit {LIMIT}"));
        row
    }

    /// Sends with several flows, half of them over IPv6, until all has arrived: bit/s.
    fn transfer(&self) -> f64 {
        let begin = Instant::now();
        let flow = |i: usize| {
            let address = if i.is_multiple_of(2) { "10.78.2.2" } else { "fd78:2::2" };
            let to = SocketAddr::new(address.parse().unwrap(), 5000 + i as u16);
            let listener =
                in_namespace(&self.names[2], move || TcpListener::bind(to).unwrap()).join().unwrap();
            let receiver = spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
                loop {
                    match stream.read(&mut buffer).unwrap() {
                        0 => return total,
                        n => total += n as u64,
                    }
                }
            });
            in_namespace(&self.names[0], move || {
                let (mut stream, mut sent) = (TcpStream::connect(to).unwrap(), 0);
                let end = Instant::now() + A_WHILE;
                while Instant::now() < end {
                    sent += stream.write(&[7; 1 << 14]).unwrap() as u64;
                }
                drop(stream);
                assert_eq!(receiver.join().unwrap(), sent, "everything arrives");
                sent
            })
        };
        let flows: Vec<_> = (0..FLOWS).map(flow).collect();
        let bytes: u64 = flows.into_iter().map(|f| f.join().unwrap()).sum();
        bytes as f64 * 8.0 / begin.elapsed().as_secs_f64()
    }

    fn attach(&self) {
        let queue = Queue { rate: Rate(RATE), limit: Bytes(LIMIT), rtt: Duration::ZERO };
        in_namespace(&self.names[1], move || attach("to_d", &queue)).join().unwrap().unwrap();
    }

    fn detach(&self) -> Counts {
        in_namespace(&self.names[1], || detach("to_d")).join().unwrap().unwrap()
    }
}

/// A counter of a namespace's TCP.
fn tcp(namespace: &str, counter: &'static str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = in_namespace(namespace, read).join().unwrap();
    let mut lines = text.lines().filter(|l| l.starts_with("Tcp:")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    names.zip(values).find(|(n, _)| *n == counter).unwrap().1.parse().unwrap()
}

impl Drop for Row {
    fn drop(&mut self) {
        self.names.iter().for_each(|n| remove(n));
    }
}

/// Retransmissions and bit/s, without and with; what was done; checksum errors anywhere.
fn compare(mark: char, offloads: Offloads) -> ([u64; 2], [f64; 2], Counts, u64) {
    let row = Row::new(mark, offloads);
    let mut before = 0;
    let mut resent = || {
        let now = tcp(&row.names[0], "RetransSegs");
        now - std::mem::replace(&mut before, now)
    };
    let plain = row.transfer();
    let (resent_plain, ()) = (resent(), row.attach());
    assert!(attached().unwrap().iter().any(|a| a.device == "to_d" && !a.here), "it is listed from here, too");
    let granted = row.transfer();
    let (counts, resent_granted) = (row.detach(), resent());
    let errors = row.names.iter().map(|n| tcp(n, "InCsumErrors")).sum();
    println!(
        "offloads {offloads:?}: retransmissions {resent_plain} without, {resent_granted} with; {plain:.3e} and {granted:.3e} bit/s; {counts:?}"
    );
    ([resent_plain, resent_granted], [plain, granted], counts, errors)
}

#[test]
fn a_small_queue_loses_less_when_it_speaks_through_acks_and_every_checksum_is_right() {
    needs_kernel!();
    if let Some(reason) = lacking() {
        eprintln!("SKIPPED: {reason}");
        return;
    }
    for (mark, offloads) in [('n', Offloads::None), ('b', Offloads::Beyond), ('a', Offloads::All)] {
        // A busy machine may keep the senders from their processors: the line is used in one of three tries.
        let used = (0..3).any(|_| {
            let (resent, rates, counts, errors) = compare(mark, offloads);
            assert!(resent[1] < resent[0], "{resent:?}");
            assert!(counts.rewritten > 0 && counts.unknown == 0, "{counts:?}");
            assert_eq!(errors, 0, "checksum errors");
            rates[1] > 0.8 * RATE as f64
        });
        assert!(used, "the line is used");
    }
}

/// At the sender itself, whose device (TUN) has no link header; it verifies the checksums of what it receives.
#[test]
fn it_works_at_the_senders_own_device_and_on_bare_ip_packets() {
    needs_kernel!();
    let queue = Queue { rate: Rate(RATE), limit: Bytes(LIMIT), rtt: Duration::ZERO };
    let nature = Nature {
        bits_per_second: RATE as f64,
        one_way: Duration::from_millis(5),
        queue_bytes: LIMIT as usize,
    };
    let path = Path::new(nature);
    let resent = || tcp(path.near(), "RetransSegs");
    let transfers = || {
        let before = resent();
        let all: Vec<_> = (0..FLOWS).map(|_| path.transfer(Some("cubic"), A_WHILE)).collect();
        all.into_iter().for_each(|t| assert!(t.join().unwrap().1 > 0));
        resent() - before
    };
    let plain = transfers();
    path.at_near(move || attach("t0", &queue)).join().unwrap().unwrap();
    let granted = transfers();
    let counts = path.at_near(|| detach("t0")).join().unwrap().unwrap();
    println!("retransmissions {plain} without, {granted} with; {counts:?}");
    assert!(granted < plain, "{granted} with, {plain} without");
    assert!(counts.rewritten > 0 && counts.unknown == 0, "{counts:?}");
    assert_eq!(tcp(path.near(), "InCsumErrors"), 0);
}
