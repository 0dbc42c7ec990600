//! Routers that report, and senders that forecast: from the queue to the controller.

use super::{chain, pair, run, watched};
use narrows_core::packet::Body;
use narrows_core::wire::tcp::Flags;
use narrows_lab::Outcome;
use narrows_lab::host::{Seen, Watch};

/// A flow over 10 Mbit/s and 25 ms each way, 60 packets before it: more than the path holds (42).
fn flow(ack_window: &str, stack: &str, controller: &str) -> String {
    let link =
        format!("rate = \"10Mbit/s\"\ndelay = \"25ms\"\nqueue = \"fifo:60p\"\nack_window = {ack_window}");
    let flow = format!("stack = {stack}\ncontroller = {controller}\nwindow = \"1MiB\"");
    pair("duration = \"20s\"", &link, &[&flow])
}

const STACK: &str = "{ name = \"rfc\", router_states = true }";

fn drops(o: &Outcome) -> u64 {
    o.queues.iter().map(|q| q.drops).sum()
}

/// States on the sender's line and on the receiver's, and the sizes of pure ACKs.
#[derive(Default)]
struct Reports {
    sent: usize,
    sizes: std::collections::BTreeSet<u64>,
}

impl Watch for Reports {
    fn wants_packets(&self) -> bool {
        true
    }
    fn departs(&mut self, _line: usize, _at: narrows_core::Time, packet: Seen<'_>) {
        let Seen::Value(d) = packet else { panic!("the simulator moves values") };
        let Body::Tcp(s) = &d.body else { panic!("only TCP here") };
        self.sent += s.options.states.as_ref().is_some_and(|s| !s.is_empty()) as usize;
        if s.payload.0 == 0 && !s.flags.has(Flags::SYN) {
            self.sizes.insert(u64::from(d.size));
        }
        assert_eq!(d.size, 20 + s.size());
    }
}

#[test]
fn every_forecaster_keeps_the_queue_from_overflowing_where_reno_fills_it() {
    let reno = run(&flow("\"report\"", STACK, "\"reno\""), 1);
    assert!(drops(&reno) > 0 && reno.queues[0].backlog_max_bytes > 80_000, "{:?}", reno.queues[0]);
    for forecaster in ["persistence", "holt", "ar", "kalman", "own"] {
        let controller =
            format!("{{ name = \"forecast\", forecaster = \"{forecaster}\", target = \"30kB\" }}");
        let o = run(&flow("\"report\"", STACK, &controller), 1);
        let (q, used) = (&o.queues[0], o.queues[0].utilisation);
        assert!(q.backlog_mean_packets < 30.0 && used > 0.9, "{forecaster}: {q:?}");
        // Slow start may double once more before a forecaster has learnt; what follows must not overflow.
        assert!(drops(&o) <= drops(&reno) / 2, "{forecaster}: {}", drops(&o));
    }
}

#[test]
fn without_reports_forecast_is_its_inner_controller() {
    let of = |ack_window, stack, controller| run(&flow(ack_window, stack, controller), 1).trace_hash;
    let forecast = "\"forecast\"";
    assert_eq!(of("\"none\"", STACK, forecast), of("\"none\"", STACK, "\"reno\""), "nobody reports");
    assert_eq!(
        of("\"report\"", "\"rfc\"", forecast),
        of("\"none\"", "\"rfc\"", "\"reno\""),
        "nobody invites"
    );
    assert_ne!(of("\"report\"", STACK, forecast), of("\"none\"", STACK, "\"reno\""));
}

#[test]
fn an_ack_that_invites_is_four_bytes_longer_and_reports_only_where_there_is_a_router_behind() {
    for (stack, sizes) in [("\"rfc\"", [52]), (STACK, [56])] {
        let mut seen = Reports::default();
        watched(&flow("\"report\"", stack, "\"reno\""), 1, &mut seen);
        assert_eq!(seen.sizes.into_iter().collect::<Vec<_>>(), sizes, "{stack}");
        assert_eq!(seen.sent, 0, "the only router is the sender's own: no line behind it");
    }
}

#[test]
fn a_router_on_the_way_makes_an_ack_twelve_bytes_longer() {
    let line = "rate = \"10Mbit/s\"\ndelay = \"5ms\"\nqueue = \"fifo:60p\"\nack_window = \"report\"";
    let flow = format!("stack = {STACK}\nsize = \"300kB\"");
    let mut seen = Reports::default();
    let o = watched(&chain("duration = \"5s\"", line, line, &[&flow]), 1, &mut seen);
    // From the sink 56 bytes; behind the router an entry of 10 and 2 of padding.
    assert_eq!(seen.sizes.into_iter().collect::<Vec<_>>(), [56, 68]);
    assert!(seen.sent as u64 > o.flows[0].segments_sent / 3, "{} of {:?}", seen.sent, o.flows[0]);
}
