//! One algorithm, two texts: the same packets, at the same set times, through the programs (`BPF_PROG_TEST_RUN`) and through
//! `narrows_core::ackwin`. Every byte that comes out must be equal, and so must the counts. As root only; elsewhere it says so.

use super::*;
use libbpf_rs::ProgramInput;
use narrows_core::ackwin::policy::{Chosen, by_name};
use narrows_core::ackwin::{AckWindow, Look, Passing, Room};
use narrows_core::qdisc::Backlog;
use narrows_core::registry::{Settings, Value};
use narrows_core::wire::checksum::{self, Pseudo};
use narrows_core::wire::tcp::{Flags, Length, Options, Segment, Seq, View};
use narrows_core::wire::{ipv4, ipv6, protocol};
use narrows_core::{Ecn, FlowId, Packet, Rng, Time};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why the programs cannot be tried here, if they cannot.
fn impossible() -> Option<String> {
    if let Some(missing) = Facts::cheap().missing() {
        return Some(missing.to_string());
    }
    let ip = std::process::Command::new("ip").arg("-V").output();
    (!knows_tcx() || ip.is_err()).then(|| "needs Linux 6.6 and iproute2".into())
}

macro_rules! needs_kernel {
    () => {
        if let Some(reason) = impossible() {
            eprintln!("SKIPPED: {reason}");
            return;
        }
    };
}

/// An Ethernet frame, and whether it travels with the data.
#[derive(Clone)]
struct Frame {
    bytes: Vec<u8>,
    onward: bool,
}

const LINK: usize = 14;

/// Addresses as 16 bytes, the segment, and its checksum's pseudo-header.
type Parts<'a> = ([[u8; 16]; 2], &'a [u8], Pseudo);

/// The number that the program gives a connection, by the finaliser of SplitMix64.
fn number(words: [u64; 5]) -> u64 {
    words.iter().fold(0, |h, w| {
        let z = h ^ w;
        let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    })
}

impl Frame {
    fn parts(&self) -> Option<Parts<'_>> {
        let packet = &self.bytes[LINK..];
        if packet[0] >> 4 == 6 {
            let v = ipv6::View::new(packet).ok()?;
            let upper = v.upper().ok().filter(|u| u.protocol == protocol::TCP)?;
            let (a, b) = (v.source(), v.destination());
            Some(([a.octets(), b.octets()], upper.payload, Pseudo::v6(a, b)))
        } else {
            let v = ipv4::View::new(packet).ok().filter(|v| v.protocol() == protocol::TCP)?;
            let (a, b) = (v.source(), v.destination());
            let mapped = |a: Ipv4Addr| a.to_ipv6_mapped().octets();
            Some(([mapped(a), mapped(b)], v.payload(), Pseudo::v4(a, b)))
        }
    }
}

impl Frame {
    fn is_intact(&self) -> Option<bool> {
        let (_, segment, pseudo) = self.parts()?;
        View::new(segment).ok().map(|v| v.is_intact(pseudo))
    }
}

impl Packet for Frame {
    fn size(&self) -> Bytes {
        Bytes((self.bytes.len() - LINK) as u64)
    }
    fn flow(&self) -> FlowId {
        FlowId(0)
    }
    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }
    fn mark_ce(&mut self) -> bool {
        false
    }
}

impl Passing for Frame {
    fn look(&self) -> Option<Look> {
        let ([from, to], segment, _) = self.parts()?;
        let view = View::new(segment).ok()?;
        let syn = if view.flags().has(Flags::SYN) { view.syn_options().ok()? } else { Options::default() };
        let port = |at: usize| u64::from(u16::from_ne_bytes([segment[at], segment[at + 1]]));
        let (near, far) = if self.onward { (from, to) } else { (to, from) };
        let (near_port, far_port) = if self.onward { (port(0), port(2)) } else { (port(2), port(0)) };
        let word = |i: usize| {
            let word = |a: [u8; 16]| u64::from(u32::from_ne_bytes([a[i], a[i + 1], a[i + 2], a[i + 3]]));
            word(near) << 32 | word(far)
        };
        Some(Look {
            connection: number([word(0), word(4), word(8), word(12), near_port << 16 | far_port]),
            flags: view.flags(),
            ack: view.ack(),
            window: view.window(),
            mss: syn.mss,
            scale: syn.window_scale,
            payload: view.payload().len() as u32,
        })
    }
    fn set_window(&mut self, window: u16) {
        let at = {
            let (_, segment, _) = self.parts().expect("it was looked at");
            self.bytes.len() - segment.len()
        };
        let word = |i: usize| u16::from_be_bytes([self.bytes[at + i], self.bytes[at + i + 1]]);
        let sum = checksum::update(word(16), word(14), window);
        self.bytes[at + 14..at + 16].copy_from_slice(&window.to_be_bytes());
        self.bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A frame of connection `of` (odd ones speak IPv6).
fn frame(of: u16, onward: bool, segment: Segment<Length>) -> Frame {
    let (near_port, far_port) = (1000 + of, 80);
    let (source, destination) = if onward { (near_port, far_port) } else { (far_port, near_port) };
    let segment = Segment { source, destination, ..segment };
    let mut bytes = vec![2; 12];
    let turn = |a: [u8; 2]| if onward { a } else { [a[1], a[0]] };
    let mut tcp = Vec::new();
    if of % 2 == 1 {
        let [source, destination] = turn([1, 2]).map(|n| Ipv6Addr::new(0xFD00, of, 0, 0, 0, 0, 0, n.into()));
        segment.encode(Pseudo::v6(source, destination), &mut tcp);
        bytes.extend([0x86, 0xDD]);
        let (next_header, payload) = (protocol::TCP, tcp.len() as u16);
        let (hop_limit, dscp, ecn, flow_label) = (64, 0, Ecn::NotEct, 0);
        ipv6::Header { source, destination, next_header, payload, hop_limit, dscp, ecn, flow_label }
            .encode(&mut bytes);
    } else {
        let [source, destination] = turn([1, 2]).map(|n| Ipv4Addr::new(10, 0, of as u8, n));
        segment.encode(Pseudo::v4(source, destination), &mut tcp);
        bytes.extend([8, 0]);
        let header = ipv4::Header::new(source, destination, protocol::TCP, tcp.len() as u16);
        header.encode(&mut bytes).expect("it is short");
    }
    bytes.extend(tcp);
    Frame { bytes, onward }
}

/// The queue of the program's opening comment, exactly: its ends of transmission in 1/rate nanoseconds.
struct Line {
    queue: Queue,
    free_at: u128,
}

impl Line {
    fn backlog(&self, now: Time) -> u64 {
        let rate = u128::from(self.queue.rate.0);
        let left = (self.free_at / rate).saturating_sub(now.as_nanos().into());
        (left * rate / 8_000_000_000) as u64
    }
    fn join(&mut self, now: Time, size: u64) {
        if self.backlog(now) + size > self.queue.limit.0 {
            return;
        }
        let (rate, now) = (u128::from(self.queue.rate.0), u128::from(now.as_nanos()));
        let from = if self.free_at / rate < now { now * rate } else { self.free_at };
        self.free_at = from + u128::from(size) * 8_000_000_000;
    }
}

/// Both texts.
struct Both {
    loaded: Loaded,
    clock: MapHandle,
    rust: AckWindow,
    line: Line,
    now: Time,
}

impl Both {
    fn new(queue: Queue) -> Both {
        let mut settings = Settings::default();
        for (name, value) in [
            ("rtt", Value::Time(queue.rtt)),
            ("alive", Value::Time(Duration::from_secs(1))),
            ("hold", Value::Flag(false)),
            ("report", Value::Flag(false)),
            ("load_over", Value::Time(Duration::from_millis(50))),
            ("connections", Value::Count(65_536)),
        ] {
            settings.0.insert(name.to_string(), value);
        }
        let chosen = Chosen::new(by_name("share").unwrap(), &settings).unwrap().unwrap();
        let loaded = Loaded::new(&queue, LINK as u32).unwrap_or_else(|e| panic!("{e}"));
        let clock = loaded.object.maps().find(|m| m.name().to_string_lossy().ends_with(".data.clock"));
        Both {
            clock: MapHandle::try_from(&clock.unwrap()).unwrap(),
            rust: AckWindow::new(chosen, Room::Bytes(queue.limit.0)),
            line: Line { queue, free_at: 0 },
            now: Time::from_millis(10),
            loaded,
        }
    }

    /// The packet passes both; what comes out, which is the same.
    fn pass(&mut self, frame: Frame) -> Frame {
        let now = self.now.as_nanos().to_ne_bytes();
        self.clock.update(&0u32.to_ne_bytes(), &now, MapFlags::ANY).unwrap();
        let name = if frame.onward { "ackwin_onward" } else { "ackwin_back" };
        let program = self.loaded.object.progs_mut().find(|p| p.name() == name).unwrap();
        let mut out = vec![0; frame.bytes.len()];
        let input =
            ProgramInput { data_in: Some(&frame.bytes), data_out: Some(&mut out), ..Default::default() };
        assert_eq!(program.test_run(input).unwrap().return_value as i32, -1, "the next program's turn");

        let mut ours = frame.clone();
        if frame.onward {
            self.line.join(self.now, frame.bytes.len() as u64);
            self.rust.onward(self.now, &ours);
        } else {
            let backlog = Backlog { packets: 0, bytes: Bytes(self.line.backlog(self.now)) };
            self.rust.back(self.now, &mut ours, backlog, None, self.line.queue.rate);
        }
        let theirs = Frame { bytes: out, onward: frame.onward };
        let window = |f: &Frame| f.look().map(|l| l.window);
        assert_eq!(window(&theirs), window(&ours), "at {:?}, of {:?}", self.now, frame.look());
        assert_eq!(theirs.bytes, ours.bytes);
        assert_eq!(theirs.is_intact(), frame.is_intact(), "its checksum is as right as it was");
        theirs
    }

    fn wait(&mut self, time: Duration) -> &mut Both {
        self.now += time;
        self
    }

    fn agree(&self) -> Counts {
        let (theirs, ours) = (Counts::read(&self.loaded.counts).unwrap(), self.rust.counters());
        let Counts { passed, rewritten, unknown, floored } = theirs;
        assert_eq!((passed, rewritten, unknown), (ours.passed, ours.rewritten, ours.unknown));
        assert_eq!(floored, ours.floored);
        theirs
    }

    /// The data sender opens; 50 ms beyond the device, 30 ms before it.
    fn open(&mut self, of: u16, mss: u16, shifts: [Option<u8>; 2]) {
        let options = |window_scale| Options { window_scale, mss: Some(mss), ..Options::default() };
        let syn =
            |flags, shift| Segment { flags, options: options(shift), window: 60_000, ..Segment::default() };
        self.pass(frame(of, true, syn(Flags::SYN, shifts[0])));
        self.wait(Duration::from_millis(50)).pass(frame(of, false, syn(Flags::SYN | Flags::ACK, shifts[1])));
        self.wait(Duration::from_millis(30)).pass(frame(of, true, ack(60_000)));
    }
}

fn ack(window: u16) -> Segment<Length> {
    Segment { flags: Flags::ACK, ack: Seq(9), window, ..Segment::default() }
}

fn queue(rate: u64, limit: u64, rtt: Duration) -> Queue {
    Queue { rate: Rate(rate), limit: Bytes(limit), rtt }
}

#[test]
fn a_worked_grant() {
    needs_kernel!();
    // C R = 10.52e6 * 0.080 / 8 = 105,200 bytes, the queue 33,664: 132 segments of 1052 bytes.
    let mut both = Both::new(queue(10_520_000, 33_664, Duration::ZERO));
    both.open(2, 1000, [Some(7), Some(7)]);
    both.wait(Duration::from_secs(1));
    let window = |f: Frame| f.look().unwrap().window;
    assert_eq!(window(both.pass(frame(2, false, ack(60_000)))), 132_000u32.div_ceil(128) as u16);
    // 16 segments of 1052 bytes, 1066 with the link's header, wait: 17,056 bytes. 115.7 are left.
    for _ in 0..16 {
        let data = Segment { flags: Flags::ACK, payload: Length(1012), ..Segment::default() };
        both.pass(frame(2, true, data));
    }
    assert_eq!(window(both.pass(frame(2, false, ack(60_000)))), 115_000u32.div_ceil(128) as u16);
    assert_eq!(window(both.pass(frame(2, false, ack(100)))), 100, "the receiver takes less");
    // Of a flow whose SYNs were not seen nothing is known, and it does not count. A second one: half of what there is, less
    // the third packet of its handshake, which waits.
    both.pass(frame(3, false, ack(60_000)));
    assert_eq!(window(both.pass(frame(2, false, ack(60_000)))), 115_000u32.div_ceil(128) as u16);
    both.open(4, 1000, [Some(7), Some(7)]);
    both.pass(frame(4, false, ack(60_000)));
    assert_eq!(window(both.pass(frame(2, false, ack(60_000)))), 65_000u32.div_ceil(128) as u16);
    // A forged SYN changes nothing: nobody answers it.
    let forged = Options { window_scale: Some(14), mss: Some(1), ..Options::default() };
    both.pass(frame(2, true, Segment { flags: Flags::SYN, options: forged.clone(), ..Segment::default() }));
    both.pass(frame(2, false, Segment { flags: Flags::SYN, options: forged, ..Segment::default() }));
    assert_eq!(window(both.pass(frame(2, false, ack(60_000)))), 65_000u32.div_ceil(128) as u16);
    assert_eq!(both.agree(), Counts { passed: 8, rewritten: 6, unknown: 1, floored: 0 });
}

fn shift(rng: &mut Rng) -> Option<u8> {
    (!rng.chance(0.2)).then(|| rng.below(16) as u8) // 15 is more than may be said
}

/// One packet of a world where anything may happen.
fn something(rng: &mut Rng) -> Frame {
    let of = rng.below(48) as u16;
    let plain =
        |flags, payload| Segment { flags, payload: Length(payload), window: 60_000, ..Segment::default() };
    let syn = |flags, rng: &mut Rng| {
        let mss = (!rng.chance(0.1)).then(|| 200 + rng.below(8800) as u16);
        let options = Options { mss, window_scale: shift(rng), ..Options::default() };
        Segment { flags, options, window: 60_000, ..Segment::default() }
    };
    match rng.below(100) {
        0..3 => frame(of, true, syn(Flags::SYN, rng)),
        3..6 => frame(of, false, syn(Flags::SYN | Flags::ACK, rng)),
        6 => frame(of, false, syn(Flags::SYN, rng)),
        7 => frame(of, true, syn(Flags::SYN | Flags::ACK, rng)),
        8 if rng.chance(0.2) => frame(of, rng.chance(0.5), plain(Flags::RST, 0)),
        8..12 => frame(of, true, plain(Flags::ACK, 0)),
        12..50 => frame(of, true, plain(Flags::ACK, rng.below(1449) as u32)),
        50 => frame(of, false, plain(Flags::PSH, 5)), // no ACK
        51 => {
            // An option, the first, that reaches beyond the header.
            let mut malformed = frame(of, rng.chance(0.5), syn(Flags::SYN, rng));
            let at = LINK + if of % 2 == 1 { 40 } else { 20 } + 21;
            if let Some(length) = malformed.bytes.get_mut(at) {
                *length = 200;
            }
            malformed
        }
        52 => {
            let mut other = frame(of & !1, false, plain(Flags::ACK, 0));
            other.bytes[LINK + 9] = protocol::UDP;
            other
        }
        _ => {
            let payload = if rng.chance(0.2) { rng.below(1000) as u32 } else { 0 };
            let fin = if rng.chance(0.01) { Flags::FIN } else { Flags::default() };
            let window = rng.next_u32() as u16;
            frame(of, false, Segment { flags: Flags::ACK | fin, window, payload: Length(payload), ..ack(0) })
        }
    }
}

#[test]
fn both_texts_write_the_same_windows() {
    needs_kernel!();
    for (seed, given) in [
        queue(20_000_003, 30_011, Duration::ZERO),
        queue(45_000_007, 131_101, Duration::from_micros(40_001)),
        queue(999_999_937, 8_388_593, Duration::from_micros(9_973)),
        queue(64_007, 1_999, Duration::ZERO),
        queue(100_000_000_000, 1 << 30, Duration::from_secs(60)),
    ]
    .into_iter()
    .enumerate()
    {
        let (mut both, mut rng) = (Both::new(given), Rng::new(seed as u64, 0));
        // The time in which a packet of 700 bytes leaves, so that queues come and go.
        let pace = (700 * 8_000_000_000 / given.rate.0).clamp(1_000, 40_000_000);
        for _ in 0..20_000 {
            let silence = if rng.chance(0.0005) { rng.below(3_000_000_000) } else { rng.below(pace) };
            let packet = something(&mut rng);
            both.wait(Duration::from_nanos(silence)).pass(packet);
        }
        let counts = both.agree();
        assert!(counts.passed > 5_000 && counts.unknown > 50, "{given:?}: {counts:?}");
        // The last queue, at the upper ends, takes more than any window can offer.
        assert_eq!(counts.rewritten > 500, given.rate.0 < RATES[1], "{given:?}: {counts:?}");
    }
}

/// Each clears up what the others have left by half.
static PINS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// A device of our own, which goes with the value.
struct Dummy(String);

impl Dummy {
    fn new(mark: char) -> Dummy {
        let name = format!("nd{}{mark}", std::process::id());
        let ip = std::process::Command::new("ip").args(["link", "add", &name, "type", "veth"]).status();
        assert!(ip.is_ok_and(|s| s.success()), "iproute2 makes a device");
        Dummy(name)
    }
}

impl Drop for Dummy {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn what_a_killed_attach_or_detach_leaves_the_next_one_clears() {
    needs_kernel!();
    let _alone = PINS.lock().unwrap();
    let device = Dummy::new('k');
    let given = queue(45_000_000, 131_072, Duration::from_millis(40));
    let listed = || attached().unwrap().into_iter().find(|a| a.device == device.0);
    // Pinning goes forwards through these, unpinning backwards: a kill leaves the first few of them.
    let pins = ["about", "counts", "egress", "ingress"];
    for left in 0..pins.len() {
        for by_attaching in [true, false] {
            attach(&device.0, &given).unwrap();
            let folder = pins::place_of(&device.0);
            assert_eq!(listed().map(|a| (a.queue, a.here)), Some((given, true)));
            pins[left..].iter().rev().for_each(|p| std::fs::remove_file(folder.join(p)).unwrap());
            assert!(listed().is_none(), "half of it is nothing");
            match by_attaching {
                true => attach(&device.0, &given).unwrap(),
                false => assert!(detach(&device.0).unwrap_err().message.contains("not attached to")),
            }
            assert_eq!(folder.exists(), by_attaching);
            assert_eq!(detach(&device.0).is_ok(), by_attaching);
            assert!(!folder.exists());
        }
    }
}

#[test]
fn a_device_that_is_gone_takes_its_folder_with_it_when_next_something_is_attached() {
    needs_kernel!();
    let _alone = PINS.lock().unwrap();
    let (gone, next) = (Dummy::new('g'), Dummy::new('n'));
    let given = queue(45_000_000, 131_072, Duration::ZERO);
    attach(&gone.0, &given).unwrap();
    let again = attach(&gone.0, &given).unwrap_err();
    assert!(again.message.contains("already") && again.advice.contains("detach ackwin"), "{again}");
    let folder = pins::place_of(&gone.0);
    drop(gone);
    assert!(folder.exists());
    attach(&next.0, &given).unwrap();
    assert!(!folder.exists());
    detach(&next.0).unwrap();
}

#[test]
fn what_cannot_be_is_refused_with_what_to_write() {
    let good = queue(1_000_000, 65_536, Duration::ZERO);
    for (bad, words) in [
        (queue(0, 65_536, Duration::ZERO), "--rate 45Mbit/s"),
        (queue(200_000_000_000, 65_536, Duration::ZERO), "--rate 45Mbit/s"),
        (queue(1_000_000, 0, Duration::ZERO), "--limit 128KiB"),
        (queue(1_000_000, 65_536, Duration::from_nanos(1_500)), "--rtt 40ms"),
    ] {
        assert!(attach("lo", &bad).unwrap_err().advice.contains(words), "{bad:?}");
    }
    let error = attach("nodevice0", &good).unwrap_err();
    assert!(error.message.contains("no device `nodevice0`") && error.advice.contains("lo"), "{error}");
    // A TUN device has no link address. GRE is 778.
    let headers = [Some(1), None, Some(778)].map(link_header);
    assert_eq!(headers, [Some(14), Some(0), None]);
}
