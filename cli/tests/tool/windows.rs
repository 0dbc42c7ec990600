//! `narrows gateway` with `ack_window`: what tshark sees on both of its sides, what a reload changes under load, and what a flood
//! of SYNs leaves of it.

use super::gateway::Standing;
use super::hosts::unless_spoilt;
use super::{Folder, skipped};
use narrows_core::Time;
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::tcp::{Flags, Options, Segment, Seq};
use narrows_core::wire::{ipv4, protocol};
use narrows_net::frame::{Frame, joined};
use narrows_net::namespace::Namespace;
use narrows_net::netlink::Netlink;
use narrows_net::port::Port;
use narrows_net::port::ring::Ring;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const PORT: u16 = 5000;

/// client eth0 -- left MIDDLE right -- eth0 server
struct Site {
    client: Namespace,
    middle: Namespace,
    server: Namespace,
}

impl Site {
    /// `None`, said aloud, without root.
    fn new() -> Option<Site> {
        if fs::metadata("/proc/self").map_or(1, |m| m.uid()) != 0 {
            skipped("a gateway needs root");
            return None;
        }
        let [client, middle, server] = [(); 3].map(|()| Namespace::new().unwrap());
        for (host, there, address) in [(&client, "left", CLIENT), (&server, "right", SERVER)] {
            host.enter(|| {
                let net = Netlink::open()?;
                net.veth("eth0", there, &middle)?;
                net.address("eth0", (IpAddr::V4(address), 24))?;
                net.up("eth0", None, None)
            })
            .unwrap();
            middle.enter(|| Netlink::open()?.up(there, None, None)).unwrap();
        }
        Some(Site { client, middle, server })
    }

    /// A gateway of this configuration, with metrics, and where they are.
    fn stand(&self, folder: &Folder, config: &str) -> (Standing, SocketAddr) {
        folder.file("gateway.toml", format!("{config}metrics = \"127.0.0.1:0\"\nuser = \"root\"\n"));
        let mut gateway = Standing::between(&self.middle, &folder.0, "gateway.toml");
        let at = gateway.hear("metrics at http://");
        gateway.hear("without capabilities");
        let at = at.trim().trim_start_matches("metrics at http://").trim_end_matches("/metrics");
        (gateway, at.parse().unwrap())
    }

    /// What the gateway counts of its forward line's ACK windows: written, unknown.
    fn windows(&self, metrics: SocketAddr) -> [f64; 2] {
        thread::sleep(Duration::from_millis(600)); // they are put down twice a second
        let mut stream = self.middle.enter(|| TcpStream::connect(metrics)).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        ["written", "unknown"].map(|what| {
            let name = format!("narrows_windows_{what}_total{{direction=\"forward\"}}");
            let value = text.lines().find_map(|l| l.strip_prefix(&name));
            value.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse().unwrap()
        })
    }

    fn connect(&self) -> Connection {
        let at = SocketAddr::from((SERVER, PORT));
        let listener = self.server.enter(|| TcpListener::bind(at)).unwrap();
        let source = self.client.enter(|| TcpStream::connect_timeout(&at, Duration::from_secs(5))).unwrap();
        let sink = listener.accept().unwrap().0;
        sink.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Connection { source, sink }
    }
}

/// From the client to the server.
struct Connection {
    source: TcpStream,
    sink: TcpStream,
}

impl Connection {
    /// So many bytes, compared where they arrive.
    fn send(&mut self, size: usize) {
        let sent: Vec<u8> = (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut received = vec![0; size];
        thread::scope(|scope| {
            let writing = scope.spawn(|| self.source.write_all(&sent));
            self.sink.read_exact(&mut received).unwrap();
            writing.join().unwrap().unwrap();
        });
        assert!(sent == received, "{size} bytes came out changed");
    }
}

/// A running capture at eth0; killed if a test fails.
struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    fn begin(host: &Namespace, file: PathBuf) -> Capture {
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-i", "eth0", "-f", "tcp", "-B", "32", "-w"]).arg(&file).stderr(Stdio::piped());
        host.confine(&mut command).unwrap();
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let begun = lines.any(|line| line.starts_with("File:"));
        assert!(begun, "dumpcap captures");
        thread::spawn(move || lines.for_each(drop)); // or it is stopped by a full pipe
        Capture { child, file }
    }

    fn end(mut self) -> PathBuf {
        thread::sleep(Duration::from_millis(300)); // what waits in its buffer
        Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(self.child.wait().unwrap().success());
        self.file.clone()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What tshark says of packets from the server, by IP identification.
fn tshark(file: &Path, format: &[&str]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file).args(["-Y", &format!("tcp.srcport == {PORT}")]);
    let output = command.args(["-o", "tcp.check_checksum:TRUE"]).args(format).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A segment from the server, as tshark shows it.
#[derive(PartialEq, Eq, Debug)]
struct Shown {
    window: u64,
    checksum: String,
    /// Whether tshark found it right.
    good: bool,
    syn: bool,
    bytes: String,
}

/// By IP identification, which the kernel counts up within a connection.
fn shown(file: &Path) -> BTreeMap<u64, Shown> {
    let fields = ["ip.id", "tcp.window_size_value", "tcp.checksum", "tcp.checksum.status", "tcp.flags.syn"];
    let asked: Vec<&str> =
        ["-T", "fields"].into_iter().chain(fields.into_iter().flat_map(|field| ["-e", field])).collect();
    let lines = tshark(file, &asked);
    let whole: Value = serde_json::from_str(&tshark(file, &["-T", "jsonraw"])).unwrap();
    let whole = whole.as_array().unwrap();
    assert_eq!(whole.len(), lines.lines().count());
    let packets = lines.lines().zip(whole).map(|(line, whole)| {
        let values: Vec<&str> = line.split('\t').collect();
        let [id, window, checksum, status, syn] = values[..] else { panic!("{line}") };
        let bytes = whole["_source"]["layers"]["frame_raw"][0].as_str().unwrap().to_string();
        let id = u64::from_str_radix(id.trim_start_matches("0x"), 16).unwrap();
        let (good, syn) = (status == "1", matches!(syn, "1" | "True"));
        (id, Shown { window: window.parse().unwrap(), checksum: checksum.into(), good, syn, bytes })
    });
    packets.collect()
}

/// Where window and checksum are in the hexadecimal digits of an Ethernet frame with a plain IPv4 header.
const WINDOW_AND_CHECKSUM: std::ops::Range<usize> = 2 * (14 + 20 + 14)..2 * (14 + 20 + 18);

#[test]
fn tshark_on_both_sides_sees_only_windows_and_checksums_of_acks_change() {
    for tool in ["dumpcap", "tshark", "ethtool"] {
        if !Command::new(tool).arg("--version").output().is_ok_and(|o| o.status.success()) {
            return skipped(&format!("{tool} is not installed"));
        }
    }
    let Some(site) = Site::new() else { return };
    // Checksums are then finished when the packets leave their host, where they are captured.
    for host in [&site.client, &site.server] {
        let mut command = Command::new("ethtool");
        host.confine(command.args(["-K", "eth0", "tx", "off", "rx", "off", "gro", "off"])).unwrap();
        assert!(command.output().unwrap().status.success());
    }
    let folder = Folder::new();
    let config = "rate = \"20Mbit/s\"\ndelay = \"5ms\"\nqueue = \"fifo:16KiB\"\nack-window = { policy = \"share\", rtt = \"10ms\" }\n\
                  backward = { ack-window = \"none\" }\n";
    let (gateway, metrics) = site.stand(&folder, config);
    unless_spoilt(|| {
        let [written_before, _] = site.windows(metrics);
        let captures = [(&site.server, "before.pcapng"), (&site.client, "behind.pcapng")]
            .map(|(host, name)| Capture::begin(host, folder.0.join(name)));
        site.connect().send(2_000_000);
        let [before, behind] = captures.map(|capture| shown(&capture.end()));
        let [written, unknown] = site.windows(metrics);
        if before.len() != behind.len() || !before.keys().eq(behind.keys()) {
            return Err(format!("{} packets captured before, {} behind", before.len(), behind.len()));
        }
        let mut changed = 0;
        for (before, behind) in before.values().zip(behind.values()) {
            assert!(before.good && behind.good, "{before:?} {behind:?}");
            if before == behind {
                continue;
            }
            changed += 1;
            assert!(behind.window < before.window && !behind.syn, "{before:?} {behind:?}");
            assert_ne!(before.checksum, behind.checksum);
            let but = |p: &Shown| {
                [&p.bytes[..WINDOW_AND_CHECKSUM.start], &p.bytes[WINDOW_AND_CHECKSUM.end..]].concat()
            };
            assert_eq!(but(before), but(behind));
        }
        assert!(changed > 100 && unknown == 0.0, "{changed} changed, {unknown} unknown");
        if changed as f64 != written - written_before {
            return Err(format!("{changed} changed, {} counted", written - written_before));
        }
        Ok(())
    });
    assert!(gateway.end().contains("every packet is accounted for"));
}

#[test]
fn a_reload_begins_and_changes_what_is_written_into_acks_under_load() {
    let Some(site) = Site::new() else { return };
    let folder = Folder::new();
    let config = |key: &str, policy: &str| {
        format!("rate = \"20Mbit/s\"\ndelay = \"5ms\"\nqueue = \"fifo:16KiB\"\n{key} = {policy}\n")
    };
    let (mut gateway, metrics) = site.stand(&folder, &config("ack_window", "\"none\""));
    let mut reload = |text: &str, said: &str| {
        folder.file("gateway.toml", text);
        gateway.signal("-HUP");
        gateway.hear(said);
    };
    let mut old = site.connect();
    old.send(100_000);
    assert_eq!(site.windows(metrics), [0.0, 0.0]);
    // In the midst of 1 MB, which takes 0.4 s.
    let in_the_midst = |connection: &mut Connection, change: &mut dyn FnMut()| {
        thread::scope(|scope| {
            let sending = scope.spawn(|| connection.send(1_000_000));
            thread::sleep(Duration::from_millis(100));
            change();
            sending.join().unwrap();
        });
    };
    in_the_midst(&mut old, &mut || {
        reload(&config("ack-window", "{ policy = \"share\", rtt = \"10ms\" }"), "windows in ACKs: share");
    });
    let [written, unknown] = site.windows(metrics);
    assert!(written == 0.0 && unknown > 50.0, "its SYNs were not seen: {written} written, {unknown} unknown");
    let mut new = site.connect();
    in_the_midst(&mut new, &mut || {
        reload(
            &config("ack-window", "{ policy = \"coordinate\", rtt = \"10ms\" }"),
            "windows in ACKs: coordinate",
        );
    });
    let after_share = site.windows(metrics);
    assert!(after_share[0] > 50.0 && after_share[1] == unknown, "{after_share:?}, {unknown} before");
    new.send(1_000_000);
    let after_coordinate = site.windows(metrics);
    assert!(after_coordinate[0] > after_share[0] + 50.0, "{after_coordinate:?}, {after_share:?} before");
    assert_eq!(after_coordinate[1], unknown, "what was known of it still is");
    drop((old, new));
    let said = gateway.end();
    assert!(said.contains("refused 0, unsent 0") && said.contains("every packet is accounted for"), "{said}");
}

/// The `number`th SYN of a flood from made-up clients.
fn syn(number: u32) -> Frame {
    let from = Ipv4Addr::from_bits(0x0A0A_0000 + number / 50_000);
    let mut upper = Vec::new();
    let segment = Segment::<&[u8]> {
        source: 1024 + (number % 50_000) as u16,
        destination: 80,
        seq: Seq(number),
        flags: Flags::SYN,
        window: 64_240,
        options: Options { mss: Some(1460), window_scale: Some(7), ..Options::default() },
        ..Segment::default()
    };
    segment.encode(Pseudo::v4(from, SERVER), &mut upper);
    let mut packet = Vec::new();
    ipv4::Header::new(from, SERVER, protocol::TCP, upper.len() as u16).encode(&mut packet).unwrap();
    Frame::ethernet(joined([&[6, 0, 0, 0, 0, 2, 6, 0, 0, 0, 0, 1, 8, 0], &packet, &upper])).unwrap()
}

/// Resident memory of a process, in KiB.
fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_million_syns_take_bounded_memory_and_push_out_no_connection_in_use() {
    let Some(site) = Site::new() else { return };
    let folder = Folder::new();
    let config = "rate = \"100Mbit/s\"\ndelay = \"1ms\"\nqueue = \"fifo:16KiB\"\nack_window = { policy = \"share\", rtt = \"2ms\" }\n\
                  backward = { ack_window = \"none\" }\n";
    let (gateway, metrics) = site.stand(&folder, config);
    let mut old = site.connect();
    old.send(3_000_000);
    let [written, unknown] = site.windows(metrics);
    assert!(written > 100.0 && unknown == 0.0, "{written} written, {unknown} unknown");
    let before = resident(gateway.child.id());
    let unsent = site
        .client
        .enter(|| {
            let mut flood = Ring::open("eth0")?;
            let mut unsent = 0;
            let mut tell = |_: &Frame, went: bool| unsent += u64::from(!went);
            for number in 0..1_000_000 {
                flood.send(Time::ZERO, Time::ZERO, syn(number), &mut tell);
                if number % 64 == 63 {
                    flood.flush(&mut tell);
                }
            }
            flood.flush(&mut tell);
            Ok(unsent)
        })
        .unwrap();
    assert_eq!(unsent, 0);
    let after = resident(gateway.child.id());
    old.send(3_000_000);
    let still = site.windows(metrics);
    assert!(still[0] > written + 100.0 && still[1] == 0.0, "{still:?}, {written} written before the flood");
    site.connect().send(3_000_000);
    let new = site.windows(metrics);
    assert!(new[0] > still[0] + 100.0 && new[1] == 0.0, "{new:?}, {still:?} before");
    // 64 Ki connections, and buffers for what the queue holds.
    println!("{before} KiB resident before the flood, {after} after it");
    assert!(after < before + (16 << 10), "{before} KiB before, {after} after");
    let said = gateway.end();
    assert!(said.contains("every packet is accounted for"), "{said}");
}
