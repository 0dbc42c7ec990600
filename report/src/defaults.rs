//! The figures every run gets without asking: where its flows stood, what their controllers thought, how fast they were, and
//! what waited in the queues.

use crate::figure::{Axis, Band, Figure, Ink, Layer, Mark, RunKey, Shown, Style, point};
use crate::plan::{stall_band, stalls, swept};
use narrows_lab::Outcome;
use narrows_lab::outcome::{Event, EventKind, FlowSummary, Series};

/// Runs that are drawn in full; of more runs, the summaries and the sweep say what there is to see.
const RUNS: usize = 2;
/// Flows of a run that get figures of their own.
const FLOWS: usize = 4;

/// The figures of `narrows run`: a sweep over the first swept number if there is one, then the first runs in detail.
pub fn default_figures(runs: &[Outcome]) -> Vec<Shown> {
    let details = runs.iter().take(RUNS).enumerate().flat_map(|(at, run)| details(run, at, runs.len()));
    swept(runs).into_iter().chain(details).collect()
}

fn details(run: &Outcome, at: usize, runs: usize) -> Vec<Shown> {
    let which = match (runs, point(run)) {
        (1, _) => String::new(),
        (_, point) if point.is_empty() => format!(" (seed {})", run.seed),
        (_, point) => format!(" ({point}, seed {})", run.seed),
    };
    let shown = |(id, title, caption, mut figure): (String, String, &str, Figure)| {
        let id: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        figure.id = format!("run{at}-{id}");
        figure.title = format!("{title}{which}");
        figure.caption = caption.into();
        Shown { figure, runs: vec![RunKey::of(run)], command: String::new() }
    };
    let mut figures = Vec::new();
    for flow in run.flows.iter().take(FLOWS) {
        let name = &flow.name;
        let time_sequence = (
            format!("{name}-sequence"),
            format!("{name}: sequence numbers"),
            TIME_SEQUENCE,
            sequence(run, flow),
        );
        let windows = (format!("{name}-windows"), format!("{name}: windows"), WINDOWS, windows(run, flow));
        figures.extend([time_sequence, windows]);
    }
    let flows: Vec<&str> = run.flows.iter().map(|f| f.name.as_str()).collect();
    figures.push(("rates".into(), "Rates of the flows".into(), RATES, rates(run, &flows)));
    figures.push(("queues".into(), "Backlog of the queues".into(), QUEUES, queues(run, &flows)));
    figures
        .into_iter()
        .filter(|(.., figure)| figure.layers.iter().any(|l| l.points.len() > 1))
        .map(shown)
        .collect()
}

const TIME_SEQUENCE: &str = "Every segment sent and every ACK that came back. Open circles were lost in a queue, plus signs \
    are duplicate ACKs, filled circles were sent again, crosses are timeouts; shaded is the time in which nothing moved.";
const WINDOWS: &str = "What the sender allowed itself.";
const RATES: &str = "Averaged over the interval at which rates are recorded.";
const QUEUES: &str = "What waited before each line.";

fn axis(label: &str) -> Axis {
    Axis { label: label.into(), ..Axis::default() }
}

fn figure(y: &str, layers: Vec<Layer>, bands: Vec<Band>) -> Figure {
    Figure { x: axis("Time (s)"), y: axis(y), layers, bands, ..Figure::default() }
}

fn layer(series: &Series, label: &str, style: Style, ink: Ink, scale: f64) -> Layer {
    let points = series.points.iter().map(|&(t, v)| (t, v * scale)).collect();
    Layer { label: label.into(), style, ink, right_axis: false, points, spread: None }
}

fn sequence(run: &Outcome, flow: &FlowSummary) -> Figure {
    let series = |quantity, label, style, ink| {
        run.series(&flow.name, quantity).map(|s| layer(s, label, style, ink, 1e-3))
    };
    let happened = |kind: EventKind, label: &str| {
        let of_kind = |e: &&Event| e.kind == kind && e.flow == flow.name;
        let points: Vec<_> = run.events.iter().filter(of_kind).map(|e| (e.time_s, e.value * 1e-3)).collect();
        let (style, ink) = (Style::Marks(Mark::of(kind)), Ink::of(kind));
        (!points.is_empty()).then(|| Layer {
            label: label.into(),
            style,
            ink,
            right_axis: false,
            points,
            spread: None,
        })
    };
    let layers = [
        series("seq_sent", "segment sent", Style::Points, Ink::Blue),
        series("ack_received", "ACK received", Style::Step, Ink::Green),
        happened(EventKind::DuplicateAck, "duplicate ACK"),
        happened(EventKind::Retransmission, "sent again"),
        happened(EventKind::Drop, "lost"),
        happened(EventKind::Mark, "marked"),
        happened(EventKind::Timeout, "timeout"),
    ];
    let layers = if flow.controller == "udp" { Vec::new() } else { layers.into_iter().flatten().collect() };
    let bands = stalls(run, flow).into_iter().map(|gap| stall_band(gap, 1.0)).collect();
    figure("Sequence number (kbyte)", layers, bands)
}

/// Everything of the flow that is counted in bytes, except positions in the stream, and except the receiver's window if there
/// always was more room in it than ever was sent.
fn windows(run: &Outcome, flow: &FlowSummary) -> Figure {
    let values = |s: &Series| s.points.iter().map(|p| p.1).collect::<Vec<_>>();
    let sent = run.series(&flow.name, "in_flight").map_or(0.0, |s| values(s).into_iter().fold(0.0, f64::max));
    let shown = |s: &Series| match s.quantity.as_str() {
        "seq_sent" | "ack_received" => false,
        "window" => values(s).iter().any(|window| *window < sent),
        _ => true,
    };
    let of_flow = run.series.iter().filter(|s| s.subject == flow.name && s.unit == "B" && shown(s));
    let layers = of_flow.zip(Ink::FOR_LAYERS).map(|(s, ink)| layer(s, &s.quantity, Style::Step, ink, 1e-3));
    let bands = stalls(run, flow).into_iter().map(|gap| stall_band(gap, 1.0)).collect();
    figure("Window (kbyte)", layers.collect(), bands)
}

fn rates(run: &Outcome, flows: &[&str]) -> Figure {
    let rates = run.series.iter().filter(|s| s.unit == "bit/s" && flows.contains(&s.subject.as_str()));
    let layers = rates
        .zip(Ink::FOR_LAYERS)
        .map(|(s, ink)| layer(s, &format!("{} {}", s.subject, s.quantity), Style::Line, ink, 1e-6));
    figure("Rate (Mbit/s)", layers.collect(), Vec::new())
}

fn queues(run: &Outcome, flows: &[&str]) -> Figure {
    let used = |s: &&Series| {
        s.unit == "B" && !flows.contains(&s.subject.as_str()) && s.points.iter().any(|p| p.1 > 0.0)
    };
    let layers = run.series.iter().filter(used).zip(Ink::FOR_LAYERS);
    let layers = layers.map(|(s, ink)| {
        let of_itself = s.quantity == "backlog";
        let label = if of_itself { s.subject.clone() } else { format!("{} {}", s.subject, s.quantity) };
        layer(s, &label, Style::Step, ink, 1e-3)
    });
    figure("Backlog (kbyte)", layers.collect(), Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::specimen;

    #[test]
    fn a_single_run_gets_its_sequence_windows_and_queues() {
        let figures = default_figures(&[specimen::run("trace", "reno", 120, 3000, 1)]);
        let ids: Vec<&str> = figures.iter().map(|f| f.figure.id.as_str()).collect();
        assert_eq!(ids, ["run0-bulk-sequence", "run0-bulk-windows", "run0-queues"]);
        let labels: Vec<&str> = figures[0].figure.layers.iter().map(|l| l.label.as_str()).collect();
        assert_eq!(
            labels,
            ["segment sent", "ACK received", "duplicate ACK", "sent again", "lost", "timeout"]
        );
        assert!(figures[0].figure.bands.iter().any(|b| b.stall));
    }

    #[test]
    fn a_sweep_comes_first() {
        let runs: Vec<_> = [10, 20, 50].map(|window| specimen::run("s", "reno", window, 300, 1)).into();
        let figures = default_figures(&runs);
        assert_eq!(figures[0].figure.x.label, "flow.bulk.window");
        assert_eq!(figures[0].figure.layers[0].points.len(), 3);
    }
}
