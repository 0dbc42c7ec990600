//! Windows of real kernels' ACKs, written by the router in the gateway: fewer drops, right checksums, nothing else changed; and states
//! of routers added to ACKs.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

use narrows_core::Time;
use narrows_core::ackwin::Passing;
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::{ipv4, tcp};
use narrows_lab::file::parse;
use narrows_lab::host::{Seen, Watch};
use narrows_lab::{Outcome, Scenario};
use narrows_net::frame::Frame;
use narrows_net::run::{Error, Host, KernelEnd, Options, run};
use std::collections::BTreeMap;

fn scenario(policy: &str) -> Scenario {
    let text = format!(
        r#"run = {{ duration = "4s" }}
host = [{{ name = "a" }}, {{ name = "b" }}]
router = [{{ name = "r" }}]
link = [
    {{ from = "a", to = "r", rate = "1Gbit/s", delay = "0ms" }},
    {{ from = "r", to = "b", rate = "20Mbit/s", delay = "10ms", queue = "fifo:64kB", ack_window = "{policy}" }},
]
flow = [{{ name = "bulk", from = "a", to = "b", count = 4, kernel_controller = "cubic", stagger = "50ms" }}]
record = {{ flows = true }}
"#
    );
    parse("ackwin.toml", &text).unwrap()
}

/// ACKs from b, before and behind the router that writes: by identification, which the kernel counts up.
#[derive(Default)]
struct Both {
    before: BTreeMap<(u64, u16), Vec<u8>>,
    changed: u64,
    compared: u64,
}

impl Both {
    fn of(bytes: &[u8]) -> Option<((u64, u16), Vec<u8>)> {
        let frame = Frame::ip(bytes.to_vec()).unwrap();
        let view = ipv4::View::new(bytes).ok()?;
        let from_b = view.source().octets()[3] == 2;
        from_b.then(|| ((frame.look().unwrap().connection, view.identification()), bytes.to_vec()))
    }
}

impl Watch for Both {
    fn wants_packets(&self) -> bool {
        true
    }
    /// Line 3 is from b to r, line 1 from r to a.
    fn departs(&mut self, line: usize, _now: Time, packet: Seen<'_>) {
        let Seen::Bytes(bytes) = packet else { unreachable!() };
        let Some((key, bytes)) = Both::of(bytes) else { return };
        if line == 3 {
            self.before.insert(key, bytes);
        } else if line == 1
            && let Some(before) = self.before.remove(&key)
        {
            let (a, b) = (ipv4::View::new(&before).unwrap(), ipv4::View::new(&bytes).unwrap());
            let segment = tcp::View::new(b.payload()).unwrap();
            assert!(segment.is_intact(Pseudo::v4(b.source(), b.destination())), "the checksum is right");
            self.compared += 1;
            self.changed += (before != bytes) as u64;
            let mut restored = bytes.clone();
            let tcp_at = b.header_len();
            for field in [14..16, 16..18] {
                let field = tcp_at + field.start..tcp_at + field.end;
                restored[field.clone()].copy_from_slice(&before[field]);
            }
            assert_eq!(restored, before, "only window and checksum change");
            assert!(segment.window() <= tcp::View::new(a.payload()).unwrap().window(), "never a larger one");
        }
    }
}

fn real(policy: &str, watch: &mut dyn Watch) -> Option<Outcome> {
    let options = Options { kernel_end: KernelEnd::Receiver, ..Options::default() };
    match run(&scenario(policy), Host::Linux, 1, watch, &options) {
        Ok(outcome) => Some(outcome),
        Err(Error::Unable { message, .. }) if !nix::unistd::geteuid().is_root() => {
            println!("SKIPPED: {message}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// A flow of ours through a router that reports, to that end.
fn reports(kernel_end: KernelEnd, watch: &mut dyn Watch) -> Option<Outcome> {
    let text = r#"run = { duration = "3s" }
host = [{ name = "a" }, { name = "b" }]
router = [{ name = "r" }, { name = "s" }]
link = [
    { from = "a", to = "r", rate = "1Gbit/s", delay = "5ms" },
    { from = "r", to = "s", rate = "10Mbit/s", delay = "5ms", queue = "fifo:64kB", ack_window = "report" },
    { from = "s", to = "b", rate = "1Gbit/s", delay = "1ms" },
]
flow = [{ name = "bulk", from = "a", to = "b", controller = { name = "forecast", forecaster = "kalman" }, stack = { name = "rfc", router_states = true } }]
record = { flows = true }
"#;
    let options = Options { kernel_end, ..Options::default() };
    match run(&parse("reports.toml", text).unwrap(), Host::Wire, 1, watch, &options) {
        Ok(outcome) => Some(outcome),
        Err(Error::Unable { message, .. }) if !nix::unistd::geteuid().is_root() => {
            println!("SKIPPED: {message}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// ACKs that come to the sender: how many say something of a router, and whether all are intact.
#[derive(Default)]
struct Heard {
    acks: u64,
    states: u64,
}

impl Watch for Heard {
    fn wants_packets(&self) -> bool {
        true
    }
    /// Line 1 is from r to a.
    fn departs(&mut self, line: usize, _now: Time, packet: Seen<'_>) {
        let Seen::Bytes(bytes) = packet else { unreachable!() };
        let Ok(v) = ipv4::View::new(bytes) else { return };
        if line == 1 && v.protocol() == 6 {
            let pseudo = Pseudo::v4(v.source(), v.destination());
            let segment = tcp::Segment::decode(v.payload(), Some(pseudo)).expect("it is intact");
            self.acks += 1;
            self.states += u64::from(segment.options.states.is_some_and(|states| !states.is_empty()));
        }
    }
}

#[test]
fn a_router_reports_on_real_packets_and_the_sender_forecasts() {
    let mut heard = Heard::default();
    let Some(outcome) = reports(KernelEnd::None, &mut heard) else { return };
    let queue = outcome.queues.iter().find(|q| q.name == "r>s").unwrap();
    assert!(heard.states > 500 && heard.states + 5 > heard.acks, "{} of {}", heard.states, heard.acks);
    assert!(queue.states_added >= heard.states, "{queue:?}");
    assert_eq!(queue.drops, 0, "{queue:?}");
    let forecast = outcome.series.iter().find(|s| s.quantity == "forecast_queue");
    assert!(forecast.is_some_and(|s| s.points.len() > 100), "what was heard was forecast");
}

#[test]
fn linux_is_not_shown_an_option_that_it_has_not_asked_for() {
    let mut heard = Heard::default();
    let Some(outcome) = reports(KernelEnd::Receiver, &mut heard) else { return };
    assert!(heard.acks > 500, "{} ACKs", heard.acks);
    assert_eq!((heard.states, outcome.queues.iter().map(|q| q.states_added).sum::<u64>()), (0, 0));
}

fn drops(outcome: &Outcome) -> (u64, u64, u64) {
    let queue = outcome.queues.iter().find(|q| q.name == "r>b").unwrap();
    (queue.drops, queue.windows_written, queue.windows_unknown)
}

#[test]
fn linux_loses_nothing_where_the_router_says_what_it_can_accept() {
    let Some(without) = real("none", &mut narrows_lab::host::Unwatched) else { return };
    let mut both = Both::default();
    let with = real("coordinate", &mut both).unwrap();
    let ((lost, unwritten, _), (left, written, unknown)) = (drops(&without), drops(&with));
    assert!(lost > 20 && unwritten == 0, "four cubics overflow 64 kB: {lost} drops");
    assert!(left * 10 <= lost, "{left} drops, {lost} without");
    assert!(written > 500 && unknown == 0, "{written} written, {unknown} unknown");
    assert!(both.changed > 500 && both.compared >= both.changed, "{} of {}", both.changed, both.compared);
    let goodput = |o: &Outcome| o.flows.iter().map(|f| f.goodput_bps).sum::<f64>();
    assert!(goodput(&with) > 0.9 * goodput(&without), "{} for {}", goodput(&with), goodput(&without));
}
