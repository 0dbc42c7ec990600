//! A figure as data: axes, layers of points, shaded intervals. [`crate::plan`] fills it from runs, [`crate::svg`] draws it
//! for print and [`crate::page`] for the browser, so that the two show the same thing.
//!
//! Colours are the eight of Okabe and Ito ("Color universal design", 2008), which stay apart under every common colour
//! blindness. Colour never stands alone: marks differ in shape, lines in dash.

use narrows_lab::outcome::EventKind;
use serde::{Deserialize, Serialize};

/// What is drawn, in the units of the axes (already scaled).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Short and unique on a page: it names files and anchors.
    pub id: String,
    /// One line.
    pub title: String,
    /// What a reader should see in it.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The left axis.
    pub y: Axis,
    /// The right axis, for layers with [`Layer::right_axis`].
    pub right: Option<Axis>,
    /// Drawn in this order, later ones on top.
    pub layers: Vec<Layer>,
    /// Shaded intervals of x.
    pub bands: Vec<Band>,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Axis {
    /// Quantity and unit: `Time (s)`.
    pub label: String,
    /// From, to; from the data if not given.
    pub range: Option<(f64, f64)>,
    /// Logarithmic. Values that are not positive are left out.
    pub log: bool,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// For the legend.
    pub label: String,
    /// How they are drawn.
    pub style: Style,
    /// In which colour.
    pub ink: Ink,
    /// Measured on the right axis.
    pub right_axis: bool,
    /// (x, y), in order of x.
    pub points: Vec<(f64, f64)>,
    /// Per point the lowest and highest of the values it is the mean of.
    pub spread: Option<Vec<(f64, f64)>>,
}

/// How a layer is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "mark")]
pub enum Style {
    /// Joined by straight lines.
    Line,
    /// Each value holds until the next.
    Step,
    /// A dot each.
    Points,
    /// A mark each: for single happenings.
    Marks(Mark),
    /// Marks joined by straight lines: for measured curves.
    Curve(Mark),
}

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // shapes by their names
pub enum Mark {
    OpenCircle,
    FilledCircle,
    Plus,
    Cross,
    Triangle,
    OpenSquare,
    Diamond,
    Bar,
}

impl Mark {
    /// The shapes of a figure's curves, in this order.
    pub const FOR_CURVES: [Mark; 6] =
        [Mark::FilledCircle, Mark::OpenSquare, Mark::Triangle, Mark::Diamond, Mark::OpenCircle, Mark::Cross];

    /// The shape that means `kind` on every figure: open circles for what was lost, filled ones for what was sent again,
    /// plus signs for duplicate ACKs, as in the classic time-sequence plots.
    pub fn of(kind: EventKind) -> Mark {
        match kind {
            EventKind::Drop => Mark::OpenCircle,
            EventKind::Mark => Mark::OpenSquare,
            EventKind::Retransmission => Mark::FilledCircle,
            EventKind::DuplicateAck => Mark::Plus,
            EventKind::FastRetransmit | EventKind::EcnReduction => Mark::Triangle,
            EventKind::Timeout => Mark::Cross,
            EventKind::Established | EventKind::Finished => Mark::Diamond,
        }
    }
}

impl Style {
    /// What a figure plan may write.
    pub const NAMES: [&'static str; 11] = [
        "line",
        "step",
        "points",
        "open-circle",
        "filled-circle",
        "plus",
        "cross",
        "triangle",
        "open-square",
        "diamond",
        "bar",
    ];

    /// The style of that name.
    pub fn by_name(name: &str) -> Option<Style> {
        Some(match name {
            "line" => Style::Line,
            "step" => Style::Step,
            "points" => Style::Points,
            "open-circle" => Style::Marks(Mark::OpenCircle),
            "filled-circle" => Style::Marks(Mark::FilledCircle),
            "plus" => Style::Marks(Mark::Plus),
            "cross" => Style::Marks(Mark::Cross),
            "triangle" => Style::Marks(Mark::Triangle),
            "open-square" => Style::Marks(Mark::OpenSquare),
            "diamond" => Style::Marks(Mark::Diamond),
            "bar" => Style::Marks(Mark::Bar),
            _ => return None,
        })
    }

    /// Whether neighbouring points are joined.
    pub fn is_joined(self) -> bool {
        matches!(self, Style::Line | Style::Step | Style::Curve(_))
    }
}

/// A colour of Okabe and Ito's palette. Their yellow is missing: on white it cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // the colours of the Okabe-Ito palette
pub enum Ink {
    Black,
    Orange,
    SkyBlue,
    Green,
    Blue,
    Vermillion,
    Purple,
}

impl Ink {
    /// The colours of a figure's layers, in this order.
    pub const FOR_LAYERS: [Ink; 7] =
        [Ink::Blue, Ink::Vermillion, Ink::Green, Ink::Orange, Ink::Purple, Ink::SkyBlue, Ink::Black];

    /// The colour that means `kind` on every figure.
    pub fn of(kind: EventKind) -> Ink {
        match kind {
            EventKind::Drop | EventKind::Timeout => Ink::Vermillion,
            EventKind::DuplicateAck => Ink::Orange,
            EventKind::EcnReduction => Ink::Green,
            EventKind::FastRetransmit | EventKind::Mark => Ink::Purple,
            EventKind::Retransmission | EventKind::Established | EventKind::Finished => Ink::Black,
        }
    }

    /// Red, green, blue, on white.
    pub fn rgb(self) -> (u8, u8, u8) {
        match self {
            Ink::Black => (0x1a, 0x1a, 0x1a),
            Ink::Orange => (0xe6, 0x9f, 0x00),
            Ink::SkyBlue => (0x56, 0xb4, 0xe9),
            Ink::Green => (0x00, 0x9e, 0x73),
            Ink::Blue => (0x00, 0x72, 0xb2),
            Ink::Vermillion => (0xd5, 0x5e, 0x00),
            Ink::Purple => (0xcc, 0x79, 0xa7),
        }
    }
}

/// A shaded interval of x.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
    /// Written at its top; may be empty.
    pub label: String,
    /// A time in which nothing moved, drawn in a warmer shade.
    pub stall: bool,
}

/// Which run a figure was drawn from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RunKey {
    /// The scenario's name.
    pub name: String,
    /// What moved the packets.
    pub host: String,
    /// The sweep point, as written: `flow.window = 220kB`; empty without one.
    pub point: String,
    /// The seed.
    pub seed: u64,
}

impl RunKey {
    /// The key of `run`.
    pub fn of(run: &narrows_lab::Outcome) -> RunKey {
        RunKey { name: run.name.clone(), host: run.host.clone(), point: point(run), seed: run.seed }
    }
}

/// The sweep point of a run as one line: `flow.bulk.controller = becc, flow.bulk.window = 220kB`.
pub fn point(run: &narrows_lab::Outcome) -> String {
    let pairs: Vec<String> = run.given.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    pairs.join(", ")
}

/// A figure and where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shown {
    /// What is drawn.
    pub figure: Figure,
    /// The runs that are in it.
    pub runs: Vec<RunKey>,
    /// The command that repeats them; empty if the page's own command does.
    pub command: String,
}

impl Axis {
    /// The range to draw `values` in: the given one, or one that holds them all with a little air.
    pub fn span(&self, values: impl Iterator<Item = f64>) -> (f64, f64) {
        if let Some(range) = self.range {
            return range;
        }
        let drawable = values.filter(|v| v.is_finite() && !(self.log && *v <= 0.0));
        let (low, high) = drawable.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        match (low, high) {
            (low, high) if low > high => (if self.log { 0.1 } else { 0.0 }, 1.0),
            (low, high) if self.log => (low / 1.1, high * 1.1),
            // A range that begins near zero begins at zero: heights can then be compared.
            (low, high) if low >= 0.0 && low <= 0.3 * high => {
                (0.0, if high > 0.0 { high * 1.05 } else { 1.0 })
            }
            (low, high) if low == high => (low - 0.5 * low.abs(), high + 0.5 * high.abs()),
            (low, high) => (low - 0.05 * (high - low), high + 0.05 * (high - low)),
        }
    }
}

impl Figure {
    /// Per layer which dash its line has: 0 is solid. Those of the right axis begin with dashes, so that a figure with one line
    /// per axis tells them apart.
    pub fn dashes(&self) -> Vec<usize> {
        let mut next = [0, 1];
        let dash = |layer: &Layer| match layer.style {
            Style::Line | Style::Step => {
                let next = &mut next[usize::from(layer.right_axis)];
                *next += 1;
                *next - 1
            }
            _ => 0,
        };
        self.layers.iter().map(dash).collect()
    }

    /// From where to where the x axis reaches. Without a given range, exactly as far as the data (times begin at an edge).
    pub fn x_span(&self) -> (f64, f64) {
        if self.x.range.is_some()
            || self.x.log
            || self.layers.iter().any(|l| matches!(l.style, Style::Curve(_)))
        {
            return self.x.span(self.layers.iter().flat_map(|l| l.points.iter().map(|p| p.0)));
        }
        let ends = self.layers.iter().flat_map(|l| l.points.first().into_iter().chain(l.points.last()));
        let (low, high) = ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p.0), h.max(p.0)));
        let low = if low >= 0.0 && low < 0.3 * high { 0.0 } else { low };
        if low < high { (low, high) } else { (0.0, 1.0) }
    }

    /// From where to where the left (or right) axis reaches for what lies within `x`.
    pub fn y_span(&self, right: bool, x: (f64, f64)) -> (f64, f64) {
        let axis = if right { self.right.as_ref().unwrap_or(&self.y) } else { &self.y };
        let layers = self.layers.iter().filter(|l| l.right_axis == right);
        axis.span(layers.flat_map(|l| {
            let inside = move |at: &f64| *at >= x.0 && *at <= x.1;
            let values = l.points.iter().filter(move |p| inside(&p.0)).map(|p| p.1);
            let ends = l.points.iter().zip(l.spread.iter().flatten()).filter(move |(p, _)| inside(&p.0));
            values.chain(ends.flat_map(|(_, &(low, high))| [low, high]))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_style_a_plan_may_name_exists() {
        assert!(Style::NAMES.iter().all(|n| Style::by_name(n).is_some()));
        assert_eq!(Style::by_name("open circle"), None);
    }

    #[test]
    fn an_axis_begins_at_zero_only_if_the_data_does_nearly() {
        let axis = Axis::default();
        assert_eq!(axis.span([2.0, 10.0].into_iter()), (0.0, 10.5));
        assert_eq!(axis.span([90.0, 100.0].into_iter()), (89.5, 100.5));
        assert_eq!(axis.span(std::iter::empty()), (0.0, 1.0));
        assert_eq!(Axis { log: true, ..Axis::default() }.span([0.0, 10.0, 100.0].into_iter()).0, 10.0 / 1.1);
        let (low, high) = axis.span([5.0, 5.0].into_iter());
        assert!(low < 5.0 && high > 5.0);
    }
}
