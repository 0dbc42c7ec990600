//! Scenarios in real time, as a caller of the library makes them. They need root.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use std::sync::atomic::{AtomicU32, Ordering};

use narrows_core::Time;
use narrows_lab::file::Document;
use narrows_lab::host::{Seen, Unwatched, Watch};
use narrows_lab::{Outcome, Scenario};
use narrows_net::run::{Error, Host, KernelEnd, Options, run};

/// 8 Mbit/s and 10 ms of RTT.
fn scenario(flows: &str, seconds: &str) -> Scenario {
    let text = format!(
        r#"run = {{ duration = "{seconds}" }}
host = [{{ name = "a" }}, {{ name = "b" }}]
link = [{{ from = "a", to = "b", rate = "8Mbit/s", delay = "5ms", queue = "fifo:40p" }}]
flow = [{flows}]
record = {{ flows = true, queues = true }}
"#
    );
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("narrows-net-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("s.toml");
    std::fs::write(&file, text).unwrap();
    let scenario = Document::read(&file).unwrap().scenario().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    scenario
}

/// The outcome, or `None`, said aloud, where there are no real packets to be had.
fn real(scenario: &Scenario, host: Host, end: KernelEnd, watch: &mut dyn Watch) -> Option<Outcome> {
    let options = Options { kernel_end: end, ..Options::default() };
    match run(scenario, host, 1, watch, &options) {
        Ok(outcome) => Some(outcome),
        Err(Error::Unable { message, .. }) if !is_root() => {
            eprintln!("SKIPPED: {message}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

const BULK: &str = r#"{ name = "bulk", from = "a", to = "b", size = "500kB" }"#;

#[test]
fn whoever_sends_and_whoever_receives_every_byte_arrives_once_and_is_the_right_one() {
    for (host, end) in [
        (Host::Linux, KernelEnd::Receiver),
        (Host::Wire, KernelEnd::Receiver),
        (Host::Wire, KernelEnd::Sender),
        (Host::Wire, KernelEnd::None),
    ] {
        let Some(outcome) = real(&scenario(BULK, "10s"), host, end, &mut Unwatched) else { return };
        let flow = &outcome.flows[0];
        assert_eq!((flow.delivered_bytes, flow.completed), (500_000, true), "{host:?} {end:?}: {flow:?}");
        assert!(
            outcome.ended_at_s < 2.0,
            "{host:?} {end:?}: over when its one flow is: {}",
            outcome.ended_at_s
        );
        let faults = outcome.notes.iter().filter(|n| n.contains("byte") || n.contains("unaccounted"));
        assert_eq!(faults.count(), 0, "{:?}", outcome.notes);
        assert_eq!((outcome.host.as_str(), outcome.trace_hash), (host.name(), 0));
    }
}

/// Stops a run after half a second.
struct Impatient;

impl Watch for Impatient {
    fn progress(&mut self, now: Time, _end: Time) -> bool {
        now < Time::from_millis(500)
    }
}

#[test]
fn a_run_that_is_stopped_returns_what_it_has_seen() {
    let endless = r#"{ name = "bulk", from = "a", to = "b" }"#;
    let Some(outcome) = real(&scenario(endless, "60s"), Host::Linux, KernelEnd::None, &mut Impatient) else {
        return;
    };
    assert!((0.5..0.7).contains(&outcome.ended_at_s), "{}", outcome.ended_at_s);
    let flow = &outcome.flows[0];
    assert!(!flow.completed && flow.goodput_bps > 5e6, "{flow:?}");
    assert!(outcome.series("bulk", "cwnd").is_some_and(|s| s.points.len() > 5));
}

/// Counts the packets it is shown.
#[derive(Default)]
struct Counting(u64);

impl Watch for Counting {
    fn wants_packets(&self) -> bool {
        true
    }
    fn arrives(&mut self, _line: usize, _now: Time, packet: Seen<'_>) {
        assert!(matches!(packet, Seen::Bytes([0x45, ..])), "IPv4 without options");
        self.0 += 1;
    }
}

#[test]
fn datagrams_keep_their_rate_and_each_is_seen() {
    let noise =
        r#"{ from = "a", to = "b", transport = "udp", rate = "4Mbit/s", packet = "1000B", stop = "900ms" }"#;
    for host in [Host::Linux, Host::Wire] {
        let mut counting = Counting::default();
        let Some(outcome) = real(&scenario(noise, "1s"), host, KernelEnd::Receiver, &mut counting) else {
            return;
        };
        let flow = &outcome.flows[0];
        assert_eq!((flow.segments_sent, flow.lost, flow.completed), (450, 0, true), "{host:?}: {flow:?}");
        assert_eq!(flow.delivered_bytes, 450 * 972, "{host:?}");
        assert_eq!((counting.0, outcome.delivered_packets), (450, 450), "{host:?}");
    }
}

#[test]
fn more_hosts_than_real_packets_can_have_are_refused_in_one_sentence() {
    let mut crowd = scenario(BULK, "1s");
    for i in 0..300 {
        let node = narrows_lab::scenario::Node { name: format!("h{i}"), ..crowd.nodes[0].clone() };
        crowd.nodes.push(node);
    }
    let error = run(&crowd, Host::Linux, 1, &mut Unwatched, &Options::default()).unwrap_err();
    assert!(error.to_string().contains("at most 200") && error.help().is_none(), "{error}");
}

/// The ECN bits of the SYN and SYN-ACK of each flow, by the receiver's port, and how many packets are ECN-capable.
#[derive(Default)]
struct Negotiations {
    syns: std::collections::BTreeMap<u16, Vec<u8>>,
    capable: u64,
}

impl Watch for Negotiations {
    fn wants_packets(&self) -> bool {
        true
    }
    fn departs(&mut self, _line: usize, _now: Time, packet: Seen<'_>) {
        let Seen::Bytes(packet) = packet else { panic!("real packets are bytes") };
        let tcp = &packet[20..];
        self.capable += (packet[1] & 3 != 0) as u64;
        if tcp[13] & 0x02 != 0 {
            let ports = [0, 2].map(|at| u16::from_be_bytes([tcp[at], tcp[at + 1]]));
            self.syns.entry(ports[0].min(ports[1])).or_default().push(tcp[13] & 0xC0);
        }
    }
}

#[test]
fn the_kernel_negotiates_ecn_where_the_stack_has_it() {
    let flow = |name: &str, stack: &str| {
        format!(r#"{{ name = "{name}", from = "a", to = "b", size = "50kB", stack = {stack} }}"#)
    };
    let (with, without) = (r#"{ name = "rfc", ecn = true }"#, r#""rfc""#);
    let one_sided = format!(
        r#"{{ name = "f", from = "a", to = "b", size = "50kB", stack = {with}, receiver_stack = "rfc" }}"#
    );
    for (flows, bits) in
        [(flow("f", with), [0xC0, 0x40]), (flow("f", without), [0, 0]), (one_sided, [0xC0, 0])]
    {
        for end in [KernelEnd::Receiver, KernelEnd::Sender] {
            for host in [Host::Linux, Host::Wire] {
                let mut seen = Negotiations::default();
                let Some(outcome) = real(&scenario(&flows, "5s"), host, end, &mut seen) else { return };
                assert!(outcome.flows[0].completed, "{outcome:?}");
                assert_eq!(
                    seen.syns.values().collect::<Vec<_>>(),
                    [&bits.to_vec()],
                    "{host:?} {end:?} {flows}"
                );
                assert_eq!(seen.capable > 0, bits[1] != 0, "{host:?} {end:?} {flows}");
                assert!(!outcome.notes.iter().any(|n| n.contains("ECN")), "{:?}", outcome.notes);
            }
        }
    }
    // One setting for a host's connections: the flow that has no ECN gets it too, and is told so at both ends.
    let both = format!("{}, {}", flow("f", with), flow("g", without));
    let mut seen = Negotiations::default();
    let outcome = real(&scenario(&both, "5s"), Host::Linux, KernelEnd::Receiver, &mut seen).unwrap();
    assert_eq!(seen.syns.values().collect::<Vec<_>>(), [&vec![0xC0, 0x40]; 2]);
    let told: Vec<_> = outcome.notes.iter().filter(|n| n.contains("ECN")).collect();
    assert!(told.len() == 2 && told[0].starts_with("g: a ") && told[1].starts_with("g: b "), "{told:?}");
}
