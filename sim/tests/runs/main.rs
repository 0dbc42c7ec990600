//! Whole runs from the outside: repeatable to the bit, nothing lost that is not counted, and the numbers that closed forms give.
#![allow(clippy::unwrap_used)]

mod aqm;
mod classes;
mod closed_forms;
mod conservation;
mod determinism;
mod ecn;
mod forecast;
mod reserve;
mod schedule;

use narrows_core::Time;
use narrows_core::packet::{Body, Direction};
use narrows_lab::host::{Seen, Unwatched, Watch};
use narrows_lab::{Outcome, file};

/// The scenarios that every test of all runs goes through; each is a file that `narrows run` takes.
const SCENARIOS: [(&str, &str); 8] = [
    ("reno", include_str!("../scenarios/reno.toml")),
    ("becc", include_str!("../scenarios/becc.toml")),
    ("random-loss", include_str!("../scenarios/random-loss.toml")),
    ("cross-traffic", include_str!("../scenarios/cross-traffic.toml")),
    ("route-change", include_str!("../scenarios/route-change.toml")),
    ("late-packets", include_str!("../scenarios/late-packets.toml")),
    ("cellular", include_str!("../scenarios/cellular.toml")),
    ("aqm", include_str!("../scenarios/aqm.toml")),
];

fn run(text: &str, seed: u64) -> Outcome {
    watched(text, seed, &mut Unwatched)
}

fn watched(text: &str, seed: u64, watch: &mut dyn Watch) -> Outcome {
    let scenario = file::parse("test.toml", text).unwrap_or_else(|e| panic!("{e}: {:?}\n{text}", e.advice()));
    narrows_sim::run(&scenario, seed, watch).unwrap_or_else(|e| panic!("{}: {}", e.path, e.message))
}

/// Two hosts, `a` and `b`, joined by one link with `link` in it, and the flows; `run` is what stands in `[run]`.
fn pair(run: &str, link: &str, flows: &[&str]) -> String {
    let flows: String = flows.iter().map(|f| format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\n{f}\n")).collect();
    format!(
        "[run]\n{run}\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\n{link}\n{flows}"
    )
}

/// Hosts `a` and `b` with a router between them. `first` stands in the link `a>r`, `second` in `r>b`.
fn chain(run: &str, first: &str, second: &str, flows: &[&str]) -> String {
    let flows: String = flows.iter().map(|f| format!("[[flow]]\nfrom = \"a\"\nto = \"b\"\n{f}\n")).collect();
    format!(
        "[run]\n{run}\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[router]]\nname = \"r\"\n\
        [[link]]\nfrom = \"a\"\nto = \"r\"\n{first}\n[[link]]\nfrom = \"r\"\nto = \"b\"\n{second}\n{flows}"
    )
}

/// A packet that began to leave on a line.
struct Sighting {
    line: usize,
    at: Time,
    flow: u32,
    /// Towards the flow's sink.
    forward: bool,
    /// Payload in bytes.
    payload: u32,
    /// A datagram's number.
    number: u64,
}

/// Writes down every packet on every line.
#[derive(Default)]
struct Tap(Vec<Sighting>);

impl Watch for Tap {
    fn wants_packets(&self) -> bool {
        true
    }
    fn departs(&mut self, line: usize, at: Time, packet: Seen<'_>) {
        let Seen::Value(d) = packet else { panic!("the simulator moves values") };
        let (payload, number) = match &d.body {
            Body::Tcp(segment) => (segment.payload.0, 0),
            Body::Udp(message) => (message.length, message.number),
        };
        self.0.push(Sighting {
            line,
            at,
            flow: d.flow.0,
            forward: d.direction == Direction::Forward,
            payload,
            number,
        });
    }
}

impl Tap {
    /// Packets with payload on a line.
    fn data(&self, line: usize) -> impl Iterator<Item = &Sighting> {
        self.0.iter().filter(move |s| s.line == line && s.forward && s.payload > 0)
    }
}
