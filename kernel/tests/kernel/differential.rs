//! One algorithm, two texts: the ACKs of real kernel connections, as the kernel's text saw them, go through the Rust text, and
//! every variable must be equal after every one. All of it is integers, so nothing is tolerated.
//!
//! The recorded trace in `tests/traces` lets the comparison run where no program can be loaded; `NARROWS_RECORD=1` makes a
//! new one.

use crate::path::{Nature, Path};
use crate::{load, name, needs_kernel, settings};
use narrows_core::congestion::becc::Becc;
use narrows_core::congestion::{Ack, Congestion, Controller, DuplicateAck, RateSample, Sent, Signal, Start};
use narrows_core::{Bytes, Rate, Rng, Time};
use narrows_kernel::{Event, Kind, Mode};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the comparison needs of an event, as numbers: the columns of a recorded trace.
const COLUMNS: [&str; 29] = [
    "kind",
    "now",
    "acked",
    "mss",
    "duplicates_before",
    "duplicates",
    "echo_ms",
    "una",
    "nxt",
    "rtt_us",
    "delivered",
    "interval_us",
    "round_start",
    "app_limited",
    "cwnd",
    "snd_swnd",
    "pre_snd_swnd",
    "t_acked",
    "t_maxacked",
    "t_msrd_th",
    "expct_th",
    "t_minrtt",
    "t_rtt",
    "mode",
    "bound",
    "bandwidth",
    "min_rtt_us",
    "state",
    "snd_cwnd",
];

/// A number in a trace that is not there.
const NONE: i64 = -1;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Row([i64; COLUMNS.len()]);

impl Row {
    fn of(e: &Event) -> Row {
        Row([
            e.kind() as i64,
            e.now as i64,
            e.acked.into(),
            e.mss.into(),
            e.duplicates_before.into(),
            e.duplicates.into(),
            e.echo_ms().map_or(NONE, i64::from),
            e.una.into(),
            e.nxt.into(),
            e.rtt_us.into(),
            e.delivered.into(),
            e.interval_us.into(),
            e.round_start().into(),
            e.app_limited().into(),
            e.cwnd.into(),
            e.snd_swnd.into(),
            e.pre_snd_swnd.into(),
            e.t_acked.into(),
            e.t_maxacked.into(),
            e.t_msrd_th.into(),
            e.expct_th.into(),
            e.t_minrtt.into(),
            e.t_rtt.into(),
            e.mode() as i64,
            e.bound.into(),
            e.bandwidth as i64,
            e.min_rtt_us.into(),
            e.state.into(),
            e.snd_cwnd.into(),
        ])
    }

    fn get(&self, column: &str) -> i64 {
        self.0[COLUMNS.iter().position(|c| *c == column).expect("a column of the table")]
    }

    fn is(&self, kind: Kind) -> bool {
        self.get("kind") == kind as i64
    }
}

/// Stands for Reno: its window is what the kernel's had become.
struct Recorded(Arc<AtomicU64>);

impl Controller for Recorded {
    fn on_start(&mut self, _: &Start) {}
    fn on_ack(&mut self, _: &Ack) {}
    fn on_congestion(&mut self, _: &Congestion) {}
    fn set_congestion_window(&mut self, _: Bytes) {}
    fn congestion_window(&self) -> Bytes {
        Bytes(self.0.load(Ordering::Relaxed))
    }
    fn ssthresh(&self) -> Bytes {
        Bytes(u64::MAX)
    }
}

/// The Rust text, fed with what the kernel saw.
struct Fed {
    becc: Becc,
    cwnd: Arc<AtomicU64>,
    una: (u32, u64),
}

impl Fed {
    fn new(program: &str, given: &[(&str, &str)], first: &Row) -> Fed {
        let cwnd = Arc::new(AtomicU64::new(0));
        let inner = Box::new(Recorded(cwnd.clone()));
        let mut becc = Becc::new(&settings(program, given), inner, Rng::new(1, 1)).expect("the settings fit");
        let handshake = first.get("rtt_us");
        becc.on_start(&Start {
            now: time(first),
            mss: first.get("mss") as u32,
            initial_window: Bytes(0),
            max_window: Bytes(1 << 30),
            rtt: (handshake > 0).then(|| Duration::from_micros(handshake as u64)),
        });
        Fed { becc, cwnd, una: (first.get("una") as u32, 0) }
    }

    fn feed(&mut self, row: &Row) {
        let now = time(row);
        let (una, mss) = (row.get("una") as u32, row.get("mss") as u64);
        self.una = (una, self.una.1 + u64::from(una.wrapping_sub(self.una.0)));
        let max = self.una.1 + u64::from((row.get("nxt") as u32).wrapping_sub(una));
        let una = self.una.1;
        self.cwnd.store(row.get("cwnd") as u64 * mss, Ordering::Relaxed);
        let positive = |name| u64::try_from(row.get(name)).ok().filter(|n| *n > 0);
        let echo = u64::try_from(row.get("echo_ms")).ok().map(Duration::from_millis);
        let acked = row.get("acked") as u64;
        if row.is(Kind::TimedOut) {
            self.becc.on_congestion(&Congestion { now, signal: Signal::Timeout, flight: Bytes(0) });
            return;
        }
        if acked > 0 {
            let interval = Duration::from_micros(positive("interval_us").unwrap_or(0));
            let rate = Rate::over(Bytes(positive("delivered").unwrap_or(0) * mss), interval);
            self.becc.on_ack(&Ack {
                now,
                acked: Bytes(acked),
                in_flight: Bytes(0),
                una,
                max,
                rtt: positive("rtt_us").map(Duration::from_micros),
                echo,
                min_rtt: None,
                round_start: row.get("round_start") == 1,
                in_recovery: false,
                window_limited: false,
                ce: false,
                rate: rate.map(|rate| RateSample {
                    rate,
                    interval,
                    app_limited: row.get("app_limited") == 1,
                }),
            });
        }
        // One of the kernel's ACKs may report several segments that have arrived out of order: as many duplicates.
        for count in row.get("duplicates_before") + 1..=row.get("duplicates") {
            let echo = echo.filter(|_| acked == 0);
            self.becc.on_duplicate_ack(&DuplicateAck { now, count: count as u32, una, max, echo });
        }
        self.becc.catch_up(now);
        self.becc.on_send(&Sent { now, bytes: Bytes(0), in_flight: Bytes(0), retransmission: false });
    }

    fn differences(&self, row: &Row) -> Vec<String> {
        let b = self.becc.block();
        let mode = match b.mode {
            Mode::UpdateStart => 0,
            Mode::Updating => 1,
            Mode::NotUpdate => 2,
        };
        let mut ours = vec![
            ("snd_swnd", i64::from(b.snd_swnd)),
            ("pre_snd_swnd", b.pre_snd_swnd.into()),
            ("t_acked", b.t_acked.into()),
            ("t_maxacked", b.t_maxacked.into()),
            ("t_msrd_th", b.t_msrd_th.into()),
            ("expct_th", b.expct_th.into()),
            ("t_minrtt", b.t_minrtt.into()),
            ("t_rtt", b.t_rtt.into()),
            ("mode", mode),
        ];
        // What is in force: the host's own window apart.
        if row.is(Kind::Acked) {
            self.cwnd.store(u64::MAX, Ordering::Relaxed);
            ours.push(("bound", self.becc.window().0 as i64));
            let mut seen = BTreeMap::new();
            self.becc.inspect(&mut |name, value| {
                seen.insert(name, value);
            });
            if let Some(bandwidth) = seen.get("bandwidth") {
                ours.push(("bandwidth", *bandwidth as i64));
                ours.push(("min_rtt_us", seen.get("min_rtt").map_or(0, |s| (s * 1e6).round() as i64)));
            }
        }
        let differs = |(name, value): (&str, i64)| {
            (row.get(name) != value).then(|| format!("{name}: kernel {}, Rust {value}", row.get(name)))
        };
        ours.into_iter().filter_map(differs).collect()
    }
}

fn time(row: &Row) -> Time {
    Time::from_nanos(row.get("now") as u64 * 1000)
}

/// Feeds a connection's rows, the first its start; says where the texts part, if they do.
fn compare(program: &str, given: &[(&str, &str)], rows: &[Row]) -> Result<(), String> {
    let mut rust = Fed::new(program, given, &rows[0]);
    for (i, row) in rows.iter().enumerate().skip(1).filter(|(_, row)| !row.is(Kind::Closed)) {
        rust.feed(row);
        let differences = rust.differences(row);
        if !differences.is_empty() {
            return Err(format!("event {i} of {}, {row:?}: {}", rows.len(), differences.join("; ")));
        }
    }
    Ok(())
}

/// Kernel connections under loss, each from its start.
fn record(of: &str, mark: char, given: &[(&str, &str)], nature: Nature, time: Duration) -> Vec<Vec<Row>> {
    let loaded = load(of, mark, given);
    let mut watch = loaded.watch(Duration::ZERO).expect("a ring buffer");
    let mut path = Path::new(nature);
    path.pause = SILENCE;
    let transfers: Vec<_> = (0..2).map(|_| path.transfer(Some(&name(mark)), time)).collect();
    let mut connections: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    let (deadline, mut closed) = (Instant::now() + time + SILENCE + Duration::from_secs(5), 0);
    while closed < 2 && Instant::now() < deadline {
        for event in watch.poll(Duration::from_millis(100)).expect("events") {
            closed += u32::from(event.kind() == Kind::Closed);
            connections.entry(event.number).or_default().push(Row::of(&event));
        }
    }
    transfers.into_iter().for_each(|t| drop(t.join().expect("the transfer succeeds")));
    assert_eq!(loaded.counts().expect("counts").lost, 0, "every event was heard");
    connections.into_values().collect()
}

/// Long enough for `update_period = 100ms` to skip in.
const SILENCE: Duration = Duration::from_millis(900);

const LOSSY: Nature =
    Nature { bits_per_second: 30e6, one_way: Duration::from_millis(7), queue_bytes: 40_000 };

fn both_texts_agree(of: &str, mark: char, given: &[(&str, &str)], nature: Nature) {
    let connections = record(of, mark, given, nature, Duration::from_millis(2000));
    assert_eq!(connections.len(), 2);
    for rows in &connections {
        assert!(rows[0].is(Kind::Started) && rows.len() > 200, "{} events", rows.len());
        let bounded = rows.iter().filter(|r| r.get("snd_swnd") < 1 << 29).count();
        assert!(bounded > 100, "a window was set: {bounded} of {} events", rows.len());
        assert!(rows.iter().any(|r| r.get("duplicates") >= 4), "there was loss");
        compare(of, given, rows).unwrap_or_else(|e| panic!("{of} {given:?}: {e}"));
    }
    assert!(connections.iter().flatten().any(|r| r.get("mode") != 2), "more than one mode was seen");
}

#[test]
fn the_papers_two_texts_agree_at_every_ack() {
    needs_kernel!();
    both_texts_agree("becc", 'd', &[], LOSSY);
}

#[test]
fn they_agree_with_other_parameters_too() {
    needs_kernel!();
    let given = [
        ("trigger", "3"),
        ("ms_period", "7ms"),
        ("update_period", "100ms"),
        ("alpha", "0.9"),
        ("alpha_weighs", "new"),
        ("window_gain", "1.5"),
        ("expect_from", "measurement"),
        ("guard", "true"),
    ];
    both_texts_agree("becc", 'e', &given, LOSSY);
}

#[test]
fn the_modern_ones_two_texts_agree_at_every_ack() {
    needs_kernel!();
    // It avoids loss where it can: here it cannot.
    let shallow = Nature { queue_bytes: 7_000, ..LOSSY };
    both_texts_agree("becc-modern", 'f', &[("rtt_window", "1s")], shallow);
}

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/becc.csv");

fn recorded() -> Vec<Row> {
    let text = std::fs::read_to_string(TRACE).expect("it is committed");
    let row = |line: &str| {
        let numbers: Vec<i64> = line.split(',').map(|n| n.parse().expect("a number")).collect();
        Row(numbers.try_into().expect("as many as columns"))
    };
    text.lines().filter(|l| !l.starts_with(['#', 'k'])).map(row).collect()
}

#[test]
fn a_recorded_connection_goes_through_the_rust_text_as_it_went_through_the_kernel() {
    if std::env::var_os("NARROWS_RECORD").is_some() {
        needs_kernel!();
        let slow = Nature { bits_per_second: 4e6, queue_bytes: 20_000, ..LOSSY };
        let rows = &record("becc", 'r', &[], slow, Duration::from_secs(3))[0];
        let line = |r: &Row| r.0.map(|n| n.to_string()).join(",") + "\n";
        let text = COLUMNS.join(",") + "\n" + &rows.iter().map(line).collect::<String>();
        std::fs::write(TRACE, text).expect("a place for the trace");
    }
    let rows = recorded();
    compare("becc", &[], &rows).unwrap_or_else(|e| panic!("{e}"));
    // The comparison can fail: one bit more acknowledged, one ACK left out, one parameter other than the kernel's.
    let middle =
        rows.iter().position(|r| r.get("duplicates") == 0 && r.get("acked") > 0 && r.get("t_acked") > 3000);
    let middle = middle.expect("an ACK");
    let mut wrong = rows.clone();
    wrong[middle].0[2] ^= 1;
    assert!(compare("becc", &[], &wrong).is_err());
    let mut short = rows.clone();
    short.remove(middle);
    assert!(compare("becc", &[], &short).is_err());
    assert!(compare("becc", &[("alpha", "0.74")], &rows).is_err());
}
