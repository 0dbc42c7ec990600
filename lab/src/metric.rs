//! What can be measured of a run, by name: [`REGISTRY`]. What can be said of many runs: [`set::Reduce`].
//!
//! A metric is a plain function from a run to a number in a base unit. What a run cannot tell is [`Undefined`] with the
//! reason, never 0: a transfer that did not complete has no completion time, and a run without a timeout no first one.

pub mod number;
pub mod set;
mod trace;

use crate::outcome::{Event, EventKind, FlowSummary, Outcome, QueueSummary, Series};
pub use number::{Number, Unit};

/// Why a run has no such number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Undefined(pub String);

impl Undefined {
    fn new(reason: &str) -> Undefined {
        Undefined(reason.into())
    }
}

/// A number in the metric's base unit, or why there is none.
pub type Measured<T = f64> = Result<T, Undefined>;

/// Of what a metric speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One flow: `flow = "bulk"`.
    Flow,
    /// All flows whose name begins so: `flow = "bulk"`.
    Flows,
    /// One direction of a link: `queue = "r1>r2"`.
    Queue,
    /// One flow and one direction of a link: `flow = "bulk", queue = "r1>r2"`.
    FlowAtQueue,
    /// A flow's or a queue's series: `series = "cwnd"` with `flow` or `queue`.
    Series,
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in claims.
    pub name: &'static str,
    /// Its unit; `None`: that of the series.
    pub unit: Option<Unit>,
    /// Of what it speaks.
    pub subject: Subject,
    /// What may refine it, beside the subject.
    pub options: &'static [&'static str],
    /// What it is, in one line.
    pub meaning: &'static str,
    measure: fn(&Run<'_>) -> Measured,
}

/// What a metric is asked about: the subject, and the options of [`Metric::options`]. Times are seconds from the start of
/// the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// A flow's name, or for [`Subject::Flows`] how the names begin.
    pub flow: Option<String>,
    /// A link direction, `from>to`.
    pub queue: Option<String>,
    /// The quantity of a series.
    pub series: Option<String>,
    /// From, until; either side may be open.
    pub window: (Option<f64>, Option<f64>),
    /// The shortest and the longest flat stretch that counts.
    pub band: (Option<f64>, Option<f64>),
    /// Width of a bin.
    pub bin: Option<f64>,
    /// Which change counts.
    pub change: Change,
}

/// Which change of a series counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Any.
    #[default]
    Any,
    /// To a larger value.
    Rise,
    /// To a smaller value.
    Fall,
}

impl Metric {
    /// Measures one run.
    pub fn of(&self, outcome: &Outcome, ask: &Ask) -> Measured<Number> {
        let run = Run { outcome, ask };
        let value = (self.measure)(&run)?;
        let (unit, factor) = match self.unit {
            Some(unit) => (unit, 1.0),
            None => {
                let first = || -> Measured<_> { Ok(Some(run.flows()?[0].name.clone())) };
                let flow = if self.subject == Subject::Flows { first()? } else { ask.flow.clone() };
                let ask = Ask { flow, ..ask.clone() };
                let series = Run { outcome, ask: &ask }.series("")?;
                Unit::of_series(&series.unit).ok_or_else(|| {
                    Undefined(format!("series {} has the unknown unit `{}`", series.quantity, series.unit))
                })?
            }
        };
        Ok(Number::new(value * factor, unit))
    }
}

/// The metric called `name`.
pub fn by_name(name: &str) -> Option<&'static Metric> {
    REGISTRY.iter().find(|m| m.name == name)
}

macro_rules! metric {
    ($name:literal, $unit:expr, $subject:ident $(($($option:literal),+))?, $meaning:literal, $measure:expr) => {
        Metric {
            name: $name,
            unit: $unit,
            subject: Subject::$subject,
            options: &[$($($option),+)?],
            meaning: $meaning,
            measure: $measure,
        }
    };
}

const RATE: Option<Unit> = Some(Unit::BitPerSecond);
const TIME: Option<Unit> = Some(Unit::Second);
const ONE: Option<Unit> = Some(Unit::One);

/// Every metric of a run.
pub const REGISTRY: &[Metric] = &[
    metric!(
        "goodput",
        RATE,
        Flow,
        "application bytes that arrived in order, over start to end of the flow",
        |r| Ok(r.flow()?.goodput_bps)
    ),
    metric!(
        "completion_time",
        TIME,
        Flow,
        "from the flow's start until its last byte was acknowledged",
        |r| {
            let f = r.flow()?;
            if f.completed {
                Ok(f.finished_at_s - f.started_at_s)
            } else {
                Err(Undefined("the transfer did not complete".into()))
            }
        }
    ),
    metric!("retransmissions", ONE, Flow, "data segments sent again", |r| Ok(
        r.flow()?.retransmissions as f64
    )),
    metric!("retransmit_ratio", ONE, Flow, "data segments sent again, of all sent", |r| {
        let f = r.flow()?;
        if f.segments_sent > 0 { Ok(f.retransmit_ratio) } else { Err(Undefined::new("no segment was sent")) }
    }),
    metric!("rto_count", ONE, Flow, "retransmission timeouts", |r| Ok(r.flow()?.rto_count as f64)),
    metric!("rto_count_in", ONE, Flow("window"), "retransmission timeouts within a window of time", |r| Ok(
        r.all_events(EventKind::Timeout)?.filter(|e| r.in_window(e.time_s)).count() as f64
    )),
    metric!(
        "first_rto_at",
        TIME,
        Flow,
        "from the flow's start until its first retransmission timeout",
        |r| Ok(r.first_event(EventKind::Timeout)?.time_s - r.flow()?.started_at_s)
    ),
    metric!("first_loss_at", TIME, Flow, "from the flow's start until its first packet was dropped", |r| Ok(
        r.first_event(EventKind::Drop)?.time_s - r.flow()?.started_at_s
    )),
    metric!("fast_retransmits", ONE, Flow, "entries into fast retransmit", |r| Ok(
        r.flow()?.fast_retransmits as f64
    )),
    metric!("ecn_reductions", ONE, Flow, "reductions of the window on an ECN echo", |r| Ok(r
        .flow()?
        .ecn_reductions
        as f64)),
    metric!(
        "fast_retransmits_before_first_rto",
        ONE,
        Flow,
        "entries into fast retransmit before the first timeout; undefined without a timeout",
        trace::fast_retransmits_before_first_rto
    ),
    metric!(
        "silence_before_first_rto",
        TIME,
        Flow,
        "how long nothing had been sent when the first timeout came",
        trace::silence_before_first_rto
    ),
    metric!(
        "silence_before_rto_max",
        TIME,
        Flow,
        "longest time for which nothing had been sent when a timeout came: the longest RTO in use",
        trace::silence_before_rto_max
    ),
    metric!(
        "lost_consecutive_max",
        ONE,
        Flow,
        "longest run of segments lost side by side, up to the first timeout (or the end)",
        trace::lost_consecutive_max
    ),
    metric!(
        "stall_time",
        TIME,
        Flow,
        "time without progress although data was outstanding (gaps over 250 ms and 4 RTTs)",
        |r| Ok(r.flow()?.stall_time_s)
    ),
    metric!(
        "mark_notice",
        TIME,
        Flow,
        "median time from the marking of a packet to the reduction on its echo",
        |r| set::Reduce::Median.of(&trace::mark_notices(r)?)
    ),
    metric!(
        "mark_notice_max",
        TIME,
        Flow,
        "longest time from the marking of a packet to the reduction on its echo",
        |r| { set::Reduce::Max.of(&trace::mark_notices(r)?) }
    ),
    metric!(
        "window_notice",
        TIME,
        Flow,
        "median time from a router's writing a window until the sender has it",
        |r| Ok(r.window_notice()?.p50)
    ),
    metric!(
        "window_notice_max",
        TIME,
        Flow,
        "longest time from a router's writing a window until the sender has it",
        |r| Ok(r.window_notice()?.max)
    ),
    metric!(
        "bottleneck_share",
        ONE,
        FlowAtQueue("window"),
        "part of the time in which the flow's window was the one written for the queue",
        trace::bottleneck_share
    ),
    metric!(
        "bottleneck_found",
        TIME,
        FlowAtQueue("window"),
        "from the start of the window until the flow's window is one written for the queue",
        trace::bottleneck_found
    ),
    metric!("stalls", ONE, Flow, "how many such gaps", |r| Ok(r.flow()?.stalls as f64)),
    metric!(
        "flat_count",
        ONE,
        Flow("band", "window"),
        "flat stretches of ack_received between advances (default: 500 ms and longer)",
        |r| Ok(trace::flats(r)?.len() as f64)
    ),
    metric!("flat_median", TIME, Flow("band", "window"), "median length of those flat stretches", |r| {
        set::Reduce::Median.of(&trace::flats(r)?).map_err(|_| Undefined::new("there is no flat stretch"))
    }),
    metric!("flat_longest", TIME, Flow("band", "window"), "longest of those flat stretches", |r| {
        set::Reduce::Max.of(&trace::flats(r)?).map_err(|_| Undefined::new("there is no flat stretch"))
    }),
    metric!(
        "rate_peak",
        RATE,
        Flow("series", "window", "bin"),
        "largest advance of seq_sent or ack_received (default) in a bin (default: 30 ms)",
        trace::rate_peak
    ),
    metric!("rtt_min", TIME, Flow, "smallest RTT sample", |r| Ok(r.rtt()?.min)),
    metric!("rtt_p50", TIME, Flow, "median RTT sample", |r| Ok(r.rtt()?.p50)),
    metric!("rtt_p95", TIME, Flow, "95th percentile of the RTT samples", |r| Ok(r.rtt()?.p95)),
    metric!("rtt_max", TIME, Flow, "largest RTT sample", |r| Ok(r.rtt()?.max)),
    metric!(
        "window_use",
        ONE,
        Flow,
        "goodput over the largest window per minimum RTT; the window bounds it by 1",
        |r| {
            let (goodput, rtt_min) = (r.flow()?.goodput_bps, r.rtt()?.min);
            Ok(goodput * rtt_min / (8.0 * r.flow_window()?))
        }
    ),
    metric!(
        "sum_goodput",
        RATE,
        Flows,
        "application bytes of all flows whose name begins so, over the first start to the last end",
        |r| {
            let flows = r.flows()?;
            let start = flows.iter().map(|f| f.started_at_s).fold(f64::INFINITY, f64::min);
            let end = flows.iter().map(|f| f.finished_at_s).fold(0.0, f64::max);
            Ok(flows.iter().map(|f| f.delivered_bytes as f64).sum::<f64>() * 8.0 / (end - start))
        }
    ),
    metric!(
        "jain",
        ONE,
        Flows,
        "Jain's fairness index of their goodputs: 1/n to 1 (Jain, Chiu, Hawe 1984)",
        |r| {
            let rates: Vec<f64> = r.flows()?.iter().map(|f| f.goodput_bps).collect();
            jain(&rates).ok_or_else(|| Undefined::new("none of the flows delivered anything"))
        }
    ),
    metric!(
        "sum_rto_count_in",
        ONE,
        Flows("window"),
        "retransmission timeouts of all flows whose name begins so, within a window of time",
        |r| {
            let each = r.flows()?.into_iter().map(|f| {
                Ok(r.events_of(&f.name, EventKind::Timeout)?.filter(|e| r.in_window(e.time_s)).count())
            });
            Ok(each.sum::<Measured<usize>>()? as f64)
        }
    ),
    metric!(
        "sum_series_max",
        None,
        Flows("series", "window"),
        "largest sum of a series over all flows whose name begins so, each of which holds a value until the next",
        trace::sum_series_max
    ),
    metric!("queue_delay_p50", TIME, Queue, "median time spent waiting in the queue", |r| Ok(r
        .queue_delay()?
        .p50)),
    metric!(
        "queue_delay_p95",
        TIME,
        Queue,
        "95th percentile of the time spent waiting in the queue",
        |r| Ok(r.queue_delay()?.p95)
    ),
    metric!("drops", ONE, Queue, "packets the queue dropped", |r| Ok(r.queue()?.drops as f64)),
    metric!(
        "windows_written",
        ONE,
        Queue,
        "ACK windows that the router before the queue made smaller",
        |r| Ok(r.queue()?.windows_written as f64)
    ),
    metric!("states_added", ONE, Queue, "states of the queue that the router before it added to ACKs", |r| {
        Ok(r.queue()?.states_added as f64)
    }),
    metric!("drop_ratio", ONE, Queue, "packets the queue dropped, of all that came", |r| {
        let q = r.queue()?;
        if q.arrived > 0 { Ok(q.drop_ratio) } else { Err(Undefined::new("no packet came to the queue")) }
    }),
    metric!("marks", ONE, Queue, "packets the queue marked congestion experienced", |r| Ok(
        r.queue()?.marks as f64
    )),
    metric!("backlog_mean_packets", ONE, Queue, "packets that waited, on average over the run", |r| Ok(r
        .queue()?
        .backlog_mean_packets)),
    metric!("utilisation", ONE, Queue, "what the line carried, of what it could have", |r| Ok(r
        .queue()?
        .utilisation)),
    metric!(
        "series_mean",
        None,
        Series("window"),
        "mean over time; a value holds until the next",
        trace::series_mean
    ),
    metric!("series_max", None, Series("window"), "largest value", |r| Ok(r
        .points("")?
        .iter()
        .map(|p| p.1)
        .fold(f64::NEG_INFINITY, f64::max))),
    metric!("series_min", None, Series("window"), "smallest value", |r| Ok(r
        .points("")?
        .iter()
        .map(|p| p.1)
        .fold(f64::INFINITY, f64::min))),
    metric!("series_last", None, Series("window"), "last value", |r| r
        .points("")?
        .last()
        .map(|p| p.1)
        .ok_or_else(|| Undefined::new("the series is empty"))),
    metric!(
        "change_interval",
        TIME,
        Series("window", "change"),
        "median time from one change of the series (any, rise, fall) to the next",
        trace::change_interval
    ),
    metric!(
        "set_again_within",
        TIME,
        Series("window", "change"),
        "time from the start of the window to the series' next change (any, rise, fall)",
        trace::set_again_within
    ),
];

/// (sum x)^2 / (n sum x^2); `None` if all are zero or there are none.
pub fn jain(x: &[f64]) -> Option<f64> {
    let (sum, squares) = x.iter().fold((0.0, 0.0), |(s, q), v| (s + v, q + v * v));
    (squares > 0.0).then(|| sum * sum / (x.len() as f64 * squares))
}

/// A run and what is asked of it. Every accessor says why it has nothing.
struct Run<'a> {
    outcome: &'a Outcome,
    ask: &'a Ask,
}

impl<'a> Run<'a> {
    fn flow_name(&self) -> Measured<&'a str> {
        self.ask.flow.as_deref().ok_or_else(|| Undefined::new("no flow is named"))
    }

    /// The flow, if it ever ran.
    fn flow(&self) -> Measured<&'a FlowSummary> {
        let name = self.flow_name()?;
        let flow = self.outcome.flow(name).ok_or_else(|| Undefined(format!("the run has no flow {name}")))?;
        started(flow)
    }

    fn flows(&self) -> Measured<Vec<&'a FlowSummary>> {
        let prefix = self.flow_name()?;
        let of_prefix: Vec<_> = self.outcome.flows.iter().filter(|f| f.name.starts_with(prefix)).collect();
        if of_prefix.is_empty() {
            return Err(Undefined(format!("no flow's name begins with {prefix}")));
        }
        of_prefix.into_iter().map(started).collect()
    }

    fn rtt(&self) -> Measured<crate::outcome::Quantiles> {
        let q = self.flow()?.rtt;
        if q.count > 0 { Ok(q) } else { Err(Undefined::new("no RTT was measured")) }
    }

    fn window_notice(&self) -> Measured<crate::outcome::Quantiles> {
        let q = self.flow()?.window_notice;
        if q.count > 0 { Ok(q) } else { Err(Undefined::new("no router wrote a window")) }
    }

    fn queue(&self) -> Measured<&'a QueueSummary> {
        Ok(&self.outcome.queues[self.queue_number()?])
    }

    /// Which of the outcome's queues is asked for.
    fn queue_number(&self) -> Measured<usize> {
        let name = self.ask.queue.as_deref().ok_or_else(|| Undefined::new("no queue is named"))?;
        let found = self.outcome.queues.iter().position(|q| q.name == name);
        found.ok_or_else(|| Undefined(format!("the run has no queue {name}")))
    }

    fn queue_delay(&self) -> Measured<crate::outcome::Quantiles> {
        let q = self.queue()?.delay;
        if q.count > 0 { Ok(q) } else { Err(Undefined::new("no packet passed the queue")) }
    }

    /// The largest window the flow was given: by the sweep, else by the resolved scenario.
    fn flow_window(&self) -> Measured<f64> {
        let name = self.flow_name()?;
        let given = self.outcome.given.get(&format!("flow.{name}.window")).cloned();
        let written = given.or_else(|| {
            let scenario: toml::Table = toml::from_str(&self.outcome.scenario).ok()?;
            let flows = scenario.get("flow")?.as_array()?;
            let flow = flows.iter().find(|f| f.get("name").and_then(toml::Value::as_str) == Some(name))?;
            Some(flow.get("window")?.as_str()?.to_owned())
        });
        let amount: Option<Number> = written.and_then(|w| w.trim_matches('"').parse().ok());
        amount
            .filter(|a| a.unit == Unit::Byte && a.value > 0.0)
            .map(|a| a.value)
            .ok_or_else(|| Undefined(format!("the window of {name} is not known")))
    }

    /// The asked series, or `default` of the flow if none is asked for. `becc.snd_swnd` finds `snd_swnd`.
    fn series(&self, default: &str) -> Measured<&'a Series> {
        let subject = match (&self.ask.queue, &self.ask.flow) {
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => return Err(Undefined::new("no flow or queue is named")),
        };
        let quantity = self.ask.series.as_deref().unwrap_or(default);
        let short = quantity.rsplit('.').next().unwrap_or(quantity);
        self.outcome
            .series(subject, quantity)
            .or_else(|| self.outcome.series(subject, short))
            .ok_or_else(|| Undefined(format!("the run recorded no series {quantity} of {subject}")))
    }

    fn in_window(&self, t: f64) -> bool {
        let (from, until) = self.ask.window;
        from.is_none_or(|from| t >= from) && until.is_none_or(|until| t <= until)
    }

    /// The series within the window, at least one point. A value holds until the next, so the window begins with the one it
    /// finds.
    fn points(&self, default: &str) -> Measured<Vec<(f64, f64)>> {
        let series = self.series(default)?;
        let found = self.ask.window.0.and_then(|from| {
            let last = series.points.iter().rfind(|p| p.0 <= from)?;
            (last.0 < from).then_some((from, last.1))
        });
        let within = series.points.iter().copied().filter(|p| self.in_window(p.0));
        let points: Vec<_> = found.into_iter().chain(within).collect();
        if points.is_empty() {
            return Err(Undefined(format!("series {} has no value within the window", series.quantity)));
        }
        Ok(points)
    }

    fn kept(&self, kind: EventKind) -> impl Iterator<Item = &'a Event> + use<'a> {
        let (outcome, flow) = (self.outcome, self.ask.flow.as_deref());
        outcome.events.iter().filter(move |e| e.kind == kind && Some(e.flow.as_str()) == flow)
    }

    /// Every event of a kind; undefined if the run counted more than it kept.
    fn all_events(&self, kind: EventKind) -> Measured<impl Iterator<Item = &'a Event> + use<'a>> {
        self.events_of(&self.flow()?.name, kind)
    }

    /// The same of any flow.
    fn events_of(
        &self,
        flow: &'a str,
        kind: EventKind,
    ) -> Measured<impl Iterator<Item = &'a Event> + use<'a>> {
        let outcome = self.outcome;
        let kept = move || outcome.events.iter().filter(move |e| e.kind == kind && e.flow == flow);
        let summary = outcome.flow(flow).ok_or_else(|| Undefined(format!("there is no flow {flow}")))?;
        let (kept_count, counted) = (kept().count() as u64, counted(summary, kind));
        if kept_count < counted {
            return Err(Undefined(format!(
                "{kept_count} of {counted} {kind:?} events were kept: set [record] flows = true, or run shorter"
            )));
        }
        Ok(kept())
    }

    /// The first event of a kind; undefined if there was none, or if it was not recorded.
    fn first_event(&self, kind: EventKind) -> Measured<&'a Event> {
        let counted = counted(self.flow()?, kind);
        self.kept(kind).next().ok_or_else(|| match counted {
            0 => Undefined(format!("there was no {kind:?}")),
            _ => Undefined(format!("{kind:?} events were not recorded: set [record] flows = true")),
        })
    }
}

fn started(flow: &FlowSummary) -> Measured<&FlowSummary> {
    if flow.finished_at_s > flow.started_at_s {
        Ok(flow)
    } else {
        Err(Undefined(format!("flow {} never ran", flow.name)))
    }
}

fn counted(flow: &FlowSummary, kind: EventKind) -> u64 {
    match kind {
        EventKind::Drop => flow.lost,
        EventKind::Retransmission => flow.retransmissions,
        EventKind::FastRetransmit => flow.fast_retransmits,
        EventKind::EcnReduction => flow.ecn_reductions,
        EventKind::Timeout => flow.rto_count,
        EventKind::Mark | EventKind::DuplicateAck | EventKind::Established | EventKind::Finished => 0,
    }
}

#[cfg(test)]
mod tests;
