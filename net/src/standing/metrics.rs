//! What a standing gateway does, in numbers, for Prometheus: the gateway's thread puts them down twice a second, and an
//! ordinary thread serves the last ones over HTTP, so that no reader ever makes a packet late.

use super::serve::serve;
use crate::gateway::Accounts;
use narrows_lab::line::Counters;
use narrows_lab::outcome::Distribution;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

/// The state of the gateway at one instant.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    /// Forward and backward.
    pub lines: [Counters; 2],
    /// How long packets waited in the queue of each line.
    pub waits: [Distribution; 2],
    /// What came in and went out.
    pub accounts: Accounts,
    /// How late packets left.
    pub lateness: Distribution,
    /// Changed configurations taken, and refused.
    pub reloads: [u64; 2],
    /// Whether each interface can be used.
    pub up: [bool; 2],
}

/// Upper ends of the histograms' cells, in seconds.
const CELLS: [f64; 16] =
    [1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];

/// Names and values.
type Labels<'a, const N: usize> = [(&'a str, &'a str); N];
const EVERYWHERE: Labels<'static, 0> = [];

/// The numbers, and where to serve them.
pub struct Metrics {
    shared: Arc<Mutex<Numbers>>,
    listener: Option<TcpListener>,
    interfaces: [String; 2],
    at: Option<SocketAddr>,
    over: Arc<AtomicBool>,
}

impl Metrics {
    /// Nothing is served yet.
    pub fn new(listener: Option<TcpListener>, interfaces: [&str; 2]) -> Metrics {
        let at = listener.as_ref().and_then(|l| l.local_addr().ok());
        let interfaces = interfaces.map(String::from);
        Metrics { shared: Arc::default(), listener, interfaces, at, over: Arc::default() }
    }

    /// Begins to serve, on threads of its own.
    pub fn start(&mut self) -> io::Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let mut registry = Registry::with_prefix("narrows");
        let reading = Reading { shared: self.shared.clone(), interfaces: self.interfaces.clone() };
        registry.register_collector(Box::new(reading));
        let page = move |path: &str| {
            let mut text = String::new();
            (path == "/metrics" && encode(&mut text, &registry).is_ok())
                .then_some(("application/openmetrics-text; version=1.0.0; charset=utf-8", text))
        };
        let over = self.over.clone();
        let thread = thread::Builder::new().name("metrics".into());
        thread.spawn(move || serve(&listener, &over, Arc::new(page)))?;
        Ok(())
    }

    /// Where they are or will be served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.at
    }

    /// Replaces what is served. Who reads at this moment goes on reading the old numbers: a packet does not wait for that.
    pub fn publish(&self, numbers: Numbers) {
        if let Ok(mut shared) = self.shared.try_lock() {
            *shared = numbers;
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// What a scrape reads.
struct Reading {
    shared: Arc<Mutex<Numbers>>,
    interfaces: [String; 2],
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reading")
    }
}

impl Collector for Reading {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let n = self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let directions = super::DIRECTIONS.map(|d| [("direction", d)]);
        let ports = [0, 1].map(|i| [("interface", self.interfaces[i].as_str())]);
        let by_line = |f: fn(&Counters) -> u64| directions.into_iter().zip(n.lines.map(|c| f(&c)));
        let of = |v: &[u64], i: usize| v.get(i).copied().unwrap_or_default();
        let by_port = |v: &[u64]| [0, 1].map(|i| (ports[i], of(v, i)));
        let a = &n.accounts;

        counters(
            &mut out,
            "received_packets",
            "Frames that came in at an interface, refused ones included",
            by_port(&a.received),
        )?;
        counters(&mut out, "sent_packets", "Frames that went out at an interface", by_port(&a.sent))?;
        counters(&mut out, "sent_bytes", "IP bytes that went out at an interface", by_port(&a.sent_bytes))?;
        counters(
            &mut out,
            "unsent_packets",
            "Frames that an interface could not send",
            [(EVERYWHERE, a.unsent)],
        )?;
        let refused = a.refused.iter().map(|(reason, n)| ([("reason", *reason)], *n));
        counters(&mut out, "refused_packets", "Frames that were not let in, by reason", refused)?;
        let kinds = a.kinds.iter().map(|(kind, n)| ([("kind", *kind)], *n));
        counters(
            &mut out,
            "unusual_packets",
            "Frames let in that were not plain IP packets, by kind",
            kinds,
        )?;
        counters(&mut out, "line_arrived_packets", "Packets that came to a line", by_line(|c| c.arrived))?;
        counters(&mut out, "line_departed_packets", "Packets that a line has sent", by_line(|c| c.departed))?;
        counters(
            &mut out,
            "line_departed_bytes",
            "IP bytes that a line has sent",
            by_line(|c| c.departed_bytes),
        )?;
        counters(
            &mut out,
            "line_marked_packets",
            "Packets that a queue discipline marked (ECN)",
            by_line(|c| c.marks),
        )?;
        let drops = super::DIRECTIONS.iter().zip(&n.lines).flat_map(|(d, c)| {
            c.drops_by_reason().map(|(reason, n)| ([("direction", *d), ("reason", reason)], n))
        });
        counters(&mut out, "line_dropped_packets", "Packets that a line dropped, by reason", drops)?;
        counters(
            &mut out,
            "windows_written",
            "ACK windows that were made smaller for a line's queue",
            by_line(|c| c.acks.rewritten),
        )?;
        counters(
            &mut out,
            "windows_unknown",
            "ACK windows that were left alone because the connection's SYNs were not seen",
            by_line(|c| c.acks.unknown),
        )?;
        counters(
            &mut out,
            "acks_held",
            "ACKs that were held back for a line's queue",
            by_line(|c| c.acks.held),
        )?;
        counters(
            &mut out,
            "states_added",
            "ACKs to which the state of a line's queue was added",
            by_line(|c| c.acks.reported),
        )?;
        gauges(
            &mut out,
            "line_backlog_packets",
            "Packets that wait before a line",
            by_line(|c| c.backlog.packets),
        )?;
        gauges(
            &mut out,
            "line_backlog_bytes",
            "IP bytes that wait before a line",
            by_line(|c| c.backlog.bytes.0),
        )?;
        gauges(&mut out, "line_pipe_packets", "Packets on their way along a line", by_line(|c| c.pipe))?;
        gauges(
            &mut out,
            "interface_up",
            "Whether an interface can be used",
            [0, 1].map(|i| (ports[i], n.up[i] as u64)),
        )?;
        let results = [[("result", "taken")], [("result", "refused")]];
        counters(
            &mut out,
            "reloads",
            "Changed configurations, by what became of them",
            results.into_iter().zip(n.reloads),
        )?;
        histograms(
            &mut out,
            "line_wait_seconds",
            "How long packets waited in a line's queue",
            directions.into_iter().zip(&n.waits),
        )?;
        histograms(
            &mut out,
            "lateness_seconds",
            "How late packets left, by the emulated network's time",
            [(EVERYWHERE, &n.lateness)],
        )
    }
}

fn counters<'a, const N: usize>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels<'a, N>, u64)>,
) -> fmt::Result {
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    values.into_iter().try_for_each(|(labels, n)| {
        labelled(&mut metric, labels, |m| m.encode_counter::<NoLabelSet, _, f64>(&n, None))
    })
}

fn gauges<'a, const N: usize>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels<'a, N>, u64)>,
) -> fmt::Result {
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Gauge)?;
    values.into_iter().try_for_each(|(labels, n)| labelled(&mut metric, labels, |m| m.encode_gauge(&n)))
}

fn histograms<'a, const N: usize>(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels<'a, N>, &'a Distribution)>,
) -> fmt::Result {
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Histogram)?;
    values.into_iter().try_for_each(|(labels, distribution)| {
        let q = distribution.quantiles();
        let ends = CELLS.map(|end| (end, distribution.up_to(Duration::from_secs_f64(end))));
        let mut below = 0;
        let mut cells = Vec::new();
        for (end, up_to) in ends.into_iter().chain([(f64::INFINITY, q.count)]) {
            cells.push((end, up_to - below));
            below = up_to;
        }
        let sum = q.mean * q.count as f64;
        labelled(&mut metric, labels, |m| m.encode_histogram::<NoLabelSet>(sum, q.count, &cells, None))
    })
}

/// The library writes empty braces for no labels, which not every reader takes.
fn labelled<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: Labels<'_, N>,
    value: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if N == 0 { value(metric) } else { value(&mut metric.encode_family(&labels)?) }
}
