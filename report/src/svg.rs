//! A [`Figure`] as SVG, for print and for readers without JavaScript.
//!
//! plotters draws the axes; layers are mapped and clipped here, since plotters lets lines run out of the plot. Its backend
//! rounds to whole pixels, so the drawing is made a few times too large and scaled back by the `viewBox`. What would fall
//! on the same spot is drawn once: a file's size is bounded by the picture, not by the run.

use crate::figure::{Axis, Figure, Ink, Layer, Mark, Style};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::BTreeSet;

/// Width of the picture, in CSS pixels.
pub const WIDTH: u32 = 880;
/// Height without title and legend.
const PLOT_HEIGHT: u32 = 420;
/// Units of the drawing per CSS pixel.
const FINE: i32 = 4;

type Root<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), String>;

/// Draws `figure`; the text stays text. Fails only if the drawing library does.
pub fn render(figure: &Figure) -> Result<String, String> {
    let legend = Legend::new(figure);
    let top = 34 + legend.rows() * 22;
    let (width, height) = (WIDTH as i32 * FINE, (PLOT_HEIGHT as i32 + top) * FINE);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE).map_err(|e| e.to_string())?;
        text(&root, &figure.title, (14, 12), 15.0, FontStyle::Bold, Pos::new(HPos::Left, VPos::Top))?;
        legend.draw(&root, 34)?;
        Plot::new(figure).draw(&root, top)?;
        root.present().map_err(|e| e.to_string())?;
    }
    let large = format!("width=\"{width}\" height=\"{height}\"");
    let real = format!("width=\"{WIDTH}\" height=\"{}\" role=\"img\"", height / FINE);
    Ok(svg.replacen(&large, &real, 1))
}

/// Where data lies: from data to drawing units.
struct Scale {
    axis: Axis,
    span: (f64, f64),
    pixels: (f64, f64),
}

impl Scale {
    fn new(axis: &Axis, (low, high): (f64, f64)) -> Scale {
        let flat = |v: f64| if axis.log { v.log10() } else { v };
        Scale { axis: axis.clone(), span: (flat(low), flat(high)), pixels: (0.0, 1.0) }
    }

    /// Position of `v`; not finite if it has none on a logarithmic axis.
    fn at(&self, v: f64) -> f64 {
        let flat = if self.axis.log { v.log10() } else { v };
        let (low, high) = self.span;
        self.pixels.0 + (flat - low) / (high - low) * (self.pixels.1 - self.pixels.0)
    }

    /// Where the axis has numbers, in its own (flattened) units.
    fn ticks(&self, about: usize) -> Vec<f64> {
        let (low, high) = self.span;
        if !self.axis.log {
            return nice(low, high, about);
        }
        let multiples: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let decades = (low.floor() as i32)..=(high.ceil() as i32);
        let all = decades.flat_map(|d| multiples.iter().map(move |m| m.log10() + f64::from(d)));
        all.filter(|v| *v >= low - 1e-9 && *v <= high + 1e-9).collect()
    }

    fn label(&self, flat: f64, ticks: &[f64]) -> String {
        if self.axis.log {
            let value = 10f64.powi(flat.floor() as i32) * 10f64.powf(flat - flat.floor());
            return tick_text(value, if value < 1.0 { value / 10.0 } else { 1.0 });
        }
        tick_text(flat, ticks.windows(2).next().map_or(1.0, |w| w[1] - w[0]))
    }
}

/// Multiples of 1, 2 or 5 times a power of ten, about as many as asked for.
fn nice(low: f64, high: f64, about: usize) -> Vec<f64> {
    let raw = (high - low) / about as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= raw * 0.999).unwrap_or(raw);
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|k| k as f64 * step).collect()
}

/// A number with as many decimals as a `step` between neighbours needs.
fn tick_text(value: f64, step: f64) -> String {
    let decimals = (-(step.abs() * 1.001).log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.trim_start_matches('-').trim_matches(|c| c == '0' || c == '.').is_empty() {
        "0".into()
    } else {
        text
    }
}

/// An axis of plotters with the ticks of [`Scale::ticks`].
struct Ruled {
    span: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Ruled {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let part = (value - self.span.0) / (self.span.1 - self.span.0);
        from + (part * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.span.0..self.span.1
    }
}

struct Plot<'a> {
    figure: &'a Figure,
    x: Scale,
    y: Scale,
    right: Option<Scale>,
}

impl<'a> Plot<'a> {
    fn new(figure: &'a Figure) -> Plot<'a> {
        let span = figure.x_span();
        Plot {
            figure,
            x: Scale::new(&figure.x, span),
            y: Scale::new(&figure.y, figure.y_span(false, span)),
            right: figure.right.as_ref().map(|axis| Scale::new(axis, figure.y_span(true, span))),
        }
    }

    fn draw(mut self, root: &Root, top: i32) -> Drawn {
        let area =
            root.margin(top * FINE, 8 * FINE, 8 * FINE, if self.right.is_some() { 8 } else { 22 } * FINE);
        self.axes(&area)?;
        for band in &self.figure.bands {
            self.band(root, band)?;
        }
        let layers = self.figure.layers.iter().zip(self.figure.dashes());
        layers.into_iter().try_for_each(|(layer, dash)| self.layer(root, layer, dash))
    }

    /// Axes and grid by plotters; notes where the plot lies.
    fn axes(&mut self, area: &Root) -> Drawn {
        let fine = |n: i32| n * FINE;
        let (xs, ys) = (self.x.ticks(9), self.y.ticks(7));
        let rights = self.right.as_ref().map_or(vec![0.0, 1.0], |r| r.ticks(7));
        let mut chart = ChartBuilder::on(area);
        chart.x_label_area_size(fine(46)).y_label_area_size(fine(66));
        if self.right.is_some() {
            chart.right_y_label_area_size(fine(66));
        }
        let ruled = |scale: &Scale, ticks: &[f64]| Ruled { span: scale.span, ticks: ticks.to_vec() };
        let right = self.right.as_ref().unwrap_or(&self.y);
        let mut chart = chart
            .build_cartesian_2d(ruled(&self.x, &xs), ruled(&self.y, &ys))
            .map_err(|e| e.to_string())?
            .set_secondary_coord(ruled(&self.x, &xs), ruled(right, &rights));
        let ink = RGBColor(0x33, 0x33, 0x33);
        let numbers = || ("sans-serif", fine(12)).into_font().color(&ink);
        let names = || ("sans-serif", fine(13)).into_font().color(&ink);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(0xe4, 0xe4, 0xe4).stroke_width(3))
            .axis_style(ink.stroke_width(FINE as u32))
            .x_labels(xs.len().max(2))
            .y_labels(ys.len().max(2))
            .x_label_formatter(&|v| self.x.label(*v, &xs))
            .y_label_formatter(&|v| self.y.label(*v, &ys))
            .x_label_style(numbers())
            .y_label_style(numbers())
            .axis_desc_style(names())
            .x_desc(&self.x.axis.label)
            .y_desc(&self.y.axis.label)
            .set_all_tick_mark_size(fine(4))
            .draw()
            .map_err(|e| e.to_string())?;
        if let Some(right) = &self.right {
            chart
                .configure_secondary_axes()
                .axis_style(ink.stroke_width(FINE as u32))
                .y_labels(rights.len().max(2))
                .y_label_formatter(&|v| right.label(*v, &rights))
                .label_style(numbers())
                .axis_desc_style(names())
                .y_desc(&right.axis.label)
                .set_all_tick_mark_size(fine(4))
                .draw()
                .map_err(|e| e.to_string())?;
        }
        let (across, down) = chart.plotting_area().get_pixel_range();
        self.x.pixels = (f64::from(across.start), f64::from(across.end - 1));
        self.y.pixels = (f64::from(down.end - 1), f64::from(down.start));
        if let Some(right) = &mut self.right {
            right.pixels = self.y.pixels;
        }
        Ok(())
    }

    fn band(&self, root: &Root, band: &crate::figure::Band) -> Drawn {
        let (left, right) = self.x.pixels;
        let (from, to) = (self.x.at(band.from).clamp(left, right), self.x.at(band.to).clamp(left, right));
        if (to - from).is_nan() || to - from < 1.0 {
            return Ok(());
        }
        let (top, bottom) = (self.y.pixels.1 as i32, self.y.pixels.0 as i32);
        let shade =
            if band.stall { RGBAColor(0xe6, 0x9f, 0x00, 0.16) } else { RGBAColor(0x56, 0x80, 0xb0, 0.13) };
        let area = Rectangle::new([(from as i32, top), (to as i32, bottom)], shade.filled());
        root.draw(&area).map_err(|e| e.to_string())?;
        let (room, length) = ((to - from) as i32 / FINE, text_width(&band.label, 11.0));
        let middle = ((from + to) / 2.0) as i32 / FINE;
        let center = Pos::new(HPos::Center, VPos::Top);
        if room > length + 4 {
            return text(root, &band.label, (middle, top / FINE + 5), 11.0, FontStyle::Normal, center);
        }
        // Stalls can be many, and the legend names them.
        if room < 14 || band.stall {
            return Ok(());
        }
        let style = ("sans-serif", 11 * FINE).into_font().transform(FontTransform::Rotate90).color(&TEXT);
        let at = (middle * FINE + 6 * FINE, top + 6 * FINE);
        root.draw_text(&band.label, &style.pos(Pos::new(HPos::Left, VPos::Top)), at)
            .map_err(|e| e.to_string())
    }

    fn layer(&self, root: &Root, layer: &Layer, dash: usize) -> Drawn {
        let y = if layer.right_axis { self.right.as_ref().unwrap_or(&self.y) } else { &self.y };
        let at = |&(px, py): &(f64, f64)| (self.x.at(px), y.at(py));
        let positions = layer.points.iter().map(at).filter(|p| p.0.is_finite() && p.1.is_finite());
        let positions: Vec<(f64, f64)> = positions.collect();
        let color = color(layer.ink);
        let stroke = color.stroke_width(FINE as u32 * 3 / 2);
        if layer.style.is_joined() {
            let corners = if layer.style == Style::Step { stairs(&positions) } else { positions.clone() };
            for path in self.clipped(&corners) {
                draw_path(root, path, dash, stroke)?;
            }
        }
        for ((px, _), &(low, high)) in layer.points.iter().zip(layer.spread.iter().flatten()) {
            self.spread(root, self.x.at(*px), (y.at(low), y.at(high)), color)?;
        }
        let inside = |p: &&(f64, f64)| self.holds(**p);
        // Marks closer than half a pixel look like one.
        let spots: BTreeSet<(i32, i32)> = positions
            .iter()
            .filter(inside)
            .map(|p| (p.0.round() as i32 / 2 * 2, p.1.round() as i32 / 2 * 2))
            .collect();
        match layer.style {
            Style::Points => spots.into_iter().try_for_each(|(x, y)| {
                let dot = Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], color.filled());
                root.draw(&dot).map_err(|e| e.to_string())
            }),
            Style::Marks(mark) | Style::Curve(mark) => {
                let r = if spots.len() > 80 { 3 * FINE } else { 4 * FINE };
                spots.into_iter().try_for_each(|at| draw_mark(root, mark, at, r, color))
            }
            Style::Line | Style::Step => Ok(()),
        }
    }

    fn spread(&self, root: &Root, x: f64, (low, high): (f64, f64), color: RGBColor) -> Drawn {
        let (bottom, top) = self.y.pixels;
        if !(x >= self.x.pixels.0 && x <= self.x.pixels.1 && low - high >= 2.0) {
            return Ok(());
        }
        let (x, low, high) = (x as i32, low.clamp(top, bottom) as i32, high.clamp(top, bottom) as i32);
        let stroke = color.stroke_width(FINE as u32);
        let cap = 3 * FINE;
        let lines = [
            vec![(x, low), (x, high)],
            vec![(x - cap, low), (x + cap, low)],
            vec![(x - cap, high), (x + cap, high)],
        ];
        lines
            .into_iter()
            .try_for_each(|line| root.draw(&PathElement::new(line, stroke)).map_err(|e| e.to_string()))
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        let (left, right) = self.x.pixels;
        let (bottom, top) = self.y.pixels;
        x >= left - 1.0 && x <= right + 1.0 && y >= top - 1.0 && y <= bottom + 1.0
    }

    /// The parts of a line within the plot; of what falls into one column, the first, lowest, highest and last stay.
    fn clipped(&self, line: &[(f64, f64)]) -> Vec<Vec<(i32, i32)>> {
        let mut paths: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut end = None;
        for pair in line.windows(2) {
            let Some((a, b)) = self.clip(pair[0], pair[1]) else { continue };
            match paths.last_mut() {
                Some(path) if end == Some(pair[0]) && path.last() == Some(&a) => path.push(b),
                _ => paths.push(vec![a, b]),
            }
            end = (b == pair[1]).then_some(b);
        }
        paths.into_iter().map(|path| thinned(&path)).collect()
    }

    /// Liang and Barsky: the part of a segment within the plot.
    fn clip(&self, a: (f64, f64), b: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
        let (left, right) = self.x.pixels;
        let (bottom, top) = self.y.pixels;
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let (mut enter, mut leave) = (0.0f64, 1.0f64);
        for (p, q) in [(-dx, a.0 - left), (dx, right - a.0), (-dy, a.1 - top), (dy, bottom - a.1)] {
            if p == 0.0 {
                if q < 0.0 {
                    return None;
                }
            } else if p < 0.0 {
                enter = enter.max(q / p);
            } else {
                leave = leave.min(q / p);
            }
        }
        let at = |t: f64| {
            if t == 0.0 {
                a
            } else if t == 1.0 {
                b
            } else {
                (a.0 + t * dx, a.1 + t * dy)
            }
        };
        (enter <= leave).then(|| (at(enter), at(leave)))
    }
}

/// Whole drawing units; of a run of points in one column the first, the extremes and the last.
fn thinned(path: &[(f64, f64)]) -> Vec<(i32, i32)> {
    let mut kept: Vec<(i32, i32)> = Vec::new();
    let whole = path.iter().map(|p| (p.0.round() as i32, p.1.round() as i32)).collect::<Vec<_>>();
    for column in whole.chunk_by(|a, b| a.0 == b.0) {
        let (first, last) = (column[0], column[column.len() - 1]);
        let low = column.iter().copied().min_by_key(|p| p.1).unwrap_or(first);
        let high = column.iter().copied().max_by_key(|p| p.1).unwrap_or(first);
        let few = if column.len() > 4 { &[first, low, high, last] } else { column };
        for &p in few {
            if kept.last() != Some(&p) {
                kept.push(p);
            }
        }
    }
    kept
}

fn stairs(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let corners = points.windows(2).flat_map(|w| [w[0], (w[1].0, w[0].1)]);
    corners.chain(points.last().copied()).collect()
}

fn draw_path(root: &Root, path: Vec<(i32, i32)>, dash: usize, stroke: ShapeStyle) -> Drawn {
    // Long dashes, dots, short dashes; the first line is solid.
    let drawn = match [(0, 0), (9, 4), (2, 3), (5, 3)][dash % 4] {
        (0, _) => root.draw(&PathElement::new(path, stroke)),
        (on, off) => root.draw(&DashedPathElement::new(path, on * FINE, off * FINE, stroke)),
    };
    drawn.map_err(|e| e.to_string())
}

fn draw_mark(root: &Root, mark: Mark, (x, y): (i32, i32), r: i32, color: RGBColor) -> Drawn {
    let stroke = color.stroke_width(FINE as u32 * 3 / 2);
    let line = |from: (i32, i32), to: (i32, i32)| {
        let path = vec![(x + from.0, y + from.1), (x + to.0, y + to.1)];
        root.draw(&PathElement::new(path, stroke))
    };
    let filled = |corners: &[(i32, i32)]| {
        root.draw(&Polygon::new(
            corners.iter().map(|c| (x + c.0, y + c.1)).collect::<Vec<_>>(),
            color.filled(),
        ))
    };
    match mark {
        Mark::OpenCircle => root.draw(&Circle::new((x, y), r * 5 / 4, stroke)),
        Mark::FilledCircle => root.draw(&Circle::new((x, y), r * 4 / 5, color.filled())),
        Mark::Plus => line((-r, 0), (r, 0)).and_then(|()| line((0, -r), (0, r))),
        Mark::Cross => line((-r, -r), (r, r)).and_then(|()| line((-r, r), (r, -r))),
        Mark::Triangle => filled(&[(0, -r), (r, r * 3 / 4), (-r, r * 3 / 4)]),
        Mark::OpenSquare => {
            let corners = [(-r, -r), (r, -r), (r, r), (-r, r), (-r, -r)].map(|c| (x + c.0, y + c.1));
            root.draw(&PathElement::new(corners, stroke))
        }
        Mark::Diamond => filled(&[(0, -r - FINE), (r + FINE, 0), (0, r + FINE), (-r - FINE, 0)]),
        Mark::Bar => line((0, -r), (0, r)),
    }
    .map_err(|e| e.to_string())
}

/// Who is who, in rows above the plot.
struct Legend<'a> {
    entries: Vec<LegendEntry<'a>>,
}

struct LegendEntry<'a> {
    row: i32,
    x: i32,
    /// A layer and its dash, or else the shade of stalls.
    what: Option<(&'a Layer, usize)>,
}

impl<'a> Legend<'a> {
    fn new(figure: &'a Figure) -> Legend<'a> {
        let layers = figure.layers.iter().zip(figure.dashes()).map(Some);
        let stalls = figure.bands.iter().any(|b| b.stall).then_some(None);
        let (mut row, mut x) = (0, 14);
        let place = |what: Option<(&'a Layer, usize)>| {
            let width = 34 + text_width(what.map_or("stall", |(layer, _)| &layer.label), 13.0) + 18;
            if x + width > WIDTH as i32 && x > 14 {
                (row, x) = (row + 1, 14);
            }
            x += width;
            LegendEntry { row, x: x - width, what }
        };
        let entries =
            layers.filter(|l| l.is_none_or(|(l, _)| !l.label.is_empty())).chain(stalls).map(place).collect();
        Legend { entries }
    }

    fn rows(&self) -> i32 {
        self.entries.last().map_or(0, |entry| entry.row + 1)
    }

    fn draw(&self, root: &Root, top: i32) -> Drawn {
        for &LegendEntry { row, x, what } in &self.entries {
            let y = top + row * 22 + 9;
            let (left, right, middle) = (x * FINE, (x + 28) * FINE, y * FINE);
            let label = match what {
                Some((layer, dash)) => {
                    let color = color(layer.ink);
                    if layer.style.is_joined() {
                        let stroke = color.stroke_width(FINE as u32 * 3 / 2);
                        draw_path(root, vec![(left, middle), (right, middle)], dash, stroke)?;
                    }
                    let center = ((left + right) / 2, middle);
                    match layer.style {
                        Style::Marks(mark) | Style::Curve(mark) => {
                            draw_mark(root, mark, center, 4 * FINE, color)?
                        }
                        Style::Points => {
                            for dx in [-2, 0, 2] {
                                let (x, y) = (center.0 + dx * 3 * FINE, middle - dx * FINE);
                                let dot = Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], color.filled());
                                root.draw(&dot).map_err(|e| e.to_string())?;
                            }
                        }
                        Style::Line | Style::Step => {}
                    }
                    layer.label.as_str()
                }
                None => {
                    let shade = RGBAColor(0xe6, 0x9f, 0x00, 0.25).filled();
                    let sample =
                        Rectangle::new([(left, middle - 6 * FINE), (right, middle + 6 * FINE)], shade);
                    root.draw(&sample).map_err(|e| e.to_string())?;
                    "stall"
                }
            };
            text(root, label, (x + 34, y), 13.0, FontStyle::Normal, Pos::new(HPos::Left, VPos::Center))?;
        }
        Ok(())
    }
}

const TEXT: RGBColor = RGBColor(0x22, 0x22, 0x22);

fn text(root: &Root, words: &str, at: (i32, i32), size: f64, weight: FontStyle, pos: Pos) -> Drawn {
    let font = FontDesc::new(FontFamily::SansSerif, size * f64::from(FINE), weight);
    let style = font.color(&TEXT).pos(pos);
    root.draw_text(words, &style, (at.0 * FINE, at.1 * FINE)).map_err(|e| e.to_string())
}

/// About how wide a text is, in CSS pixels: a sans-serif letter is a little over half as wide as its size.
fn text_width(words: &str, size: f64) -> i32 {
    (words.chars().count() as f64 * size * 0.56) as i32
}

fn color(ink: Ink) -> RGBColor {
    let (r, g, b) = ink.rgb();
    RGBColor(r, g, b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Band;

    fn figure(style: Style, points: Vec<(f64, f64)>) -> Figure {
        let layer =
            Layer { label: "a < b".into(), style, ink: Ink::Blue, right_axis: false, points, spread: None };
        let axis = |label: &str| Axis { label: label.into(), range: Some((0.0, 10.0)), log: false };
        Figure {
            title: "T & U".into(),
            x: axis("Time (s)"),
            y: axis("Rate"),
            layers: vec![layer],
            ..Figure::default()
        }
    }

    #[test]
    fn text_stays_text_and_is_escaped() {
        let svg = render(&figure(Style::Line, vec![(0.0, 0.0), (10.0, 10.0)])).unwrap();
        for words in ["T &amp; U", "a &lt; b", "Time (s)", "sans-serif"] {
            assert!(svg.contains(words), "{words}");
        }
        assert!(svg.contains("viewBox=\"0 0 3520 ") && svg.contains("width=\"880\""));
    }

    #[test]
    fn a_line_is_cut_where_it_leaves_the_plot() {
        let figure = figure(Style::Line, Vec::new());
        let mut plot = Plot::new(&figure);
        (plot.x.pixels, plot.y.pixels) = ((0.0, 100.0), (100.0, 0.0));
        let inside = vec![(10.0, 10.0), (20.0, 90.0), (30.0, 10.0)];
        assert_eq!(
            plot.clipped(&inside),
            [[(10, 10), (20, 90), (30, 10)]],
            "what lies inside stays one line"
        );
        let through = [(-50.0, 50.0), (50.0, 50.0), (50.0, 200.0), (60.0, 200.0), (60.0, 50.0)];
        assert_eq!(plot.clipped(&through), [vec![(0, 50), (50, 50), (50, 100)], vec![(60, 100), (60, 50)]]);
        assert!(plot.clipped(&[(-60.0, 20.0), (20.0, -60.0)]).is_empty(), "past the corner");
        assert!(!plot.holds((50.0, 120.0)) && !plot.holds((-20.0, 50.0)) && plot.holds((50.0, 100.0)));
    }

    #[test]
    fn a_file_is_as_large_as_its_picture_not_as_its_run() {
        let many = |n: u32| {
            (0..n)
                .map(|i| (f64::from(i) / f64::from(n) * 10.0, f64::from(i % 100) / 10.0))
                .collect::<Vec<_>>()
        };
        let spike = |mut points: Vec<(f64, f64)>| {
            points.iter_mut().for_each(|p| p.1 *= 0.5);
            let middle = points.len() / 2;
            points[middle].1 = 9.9;
            points
        };
        let size = |points| render(&figure(Style::Line, points)).unwrap().len();
        assert!(size(many(2_000_000)) < 200_000, "{}", size(many(2_000_000)));
        let (with, without) =
            (spike(many(200_000)), many(200_000).into_iter().map(|p| (p.0, p.1 * 0.5)).collect());
        assert_ne!(
            render(&figure(Style::Line, with)),
            render(&figure(Style::Line, without)),
            "a lone spike survives"
        );
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            nice(0.24, 0.33, 9).iter().map(|v| tick_text(*v, 0.01)).collect::<Vec<_>>()[..2],
            ["0.24", "0.25"]
        );
        assert_eq!(nice(0.0, 350.0, 7), [0.0, 50.0, 100.0, 150.0, 200.0, 250.0, 300.0, 350.0]);
        assert_eq!(tick_text(-0.0, 1.0), "0");
        let log = Scale::new(&Axis { log: true, ..Axis::default() }, (1536.0, 524e3));
        let ticks = log.ticks(9);
        assert_eq!(ticks.iter().map(|t| log.label(*t, &ticks)).collect::<Vec<_>>(), ["10000", "100000"]);
    }

    #[test]
    fn bands_and_empty_figures_are_drawn() {
        let mut empty = figure(Style::Line, Vec::new());
        empty.bands = vec![Band { from: 2.0, to: 4.0, label: "UDP 20 Mbit/s".into(), stall: false }];
        assert!(render(&empty).unwrap().contains("UDP 20 Mbit/s"));
        render(&Figure::default()).unwrap();
    }
}
