//! Metrics that read a run's series and events: flat stretches, loss episodes, rates in bins.

use super::{Ask, Change, Measured, Run, Undefined};
use crate::outcome::{Event, EventKind, Series};
use std::collections::BTreeMap;

/// Shorter pauses are not the silence before a coarse timeout: the BSD clock waits 500 ms at least.
const FLAT_SECONDS: f64 = 0.5;
/// The averaging time of BECC section 3.2, and of its Fig. 6.
const BIN_SECONDS: f64 = 0.03;

/// Lengths of the stretches between two advances of `ack_received` that lie within the band.
pub(super) fn flats(run: &Run<'_>) -> Measured<Vec<f64>> {
    let (shortest, longest) =
        (run.ask.band.0.unwrap_or(FLAT_SECONDS), run.ask.band.1.unwrap_or(f64::INFINITY));
    let points = run.points("ack_received")?;
    let (mut since, mut highest) = points[0];
    let mut flats = Vec::new();
    for &(t, value) in &points[1..] {
        if value > highest {
            if (shortest..=longest).contains(&(t - since)) {
                flats.push(t - since);
            }
            (since, highest) = (t, value);
        }
    }
    Ok(flats)
}

/// The mean over time of a quantity that holds each value until the next. A value set before the window holds into it; a
/// window open at the end ends with the last value's time.
pub(super) fn series_mean(run: &Run<'_>) -> Measured {
    let series = run.series("")?;
    let end = run.ask.window.1.unwrap_or_else(|| series.points.last().map_or(0.0, |p| p.0));
    let start = run.ask.window.0.unwrap_or_else(|| series.points.first().map_or(0.0, |p| p.0));
    let (mut area, mut covered) = (0.0, 0.0);
    for (i, &(t, value)) in series.points.iter().enumerate() {
        let until = series.points.get(i + 1).map_or(end, |next| next.0).min(end);
        let from = t.max(start);
        if until > from {
            area += value * (until - from);
            covered += until - from;
        }
    }
    if covered > 0.0 {
        Ok(area / covered)
    } else {
        Err(Undefined(format!("series {} has no value within the window", series.quantity)))
    }
}

/// The largest advance of the highest value in one bin, in bit/s. Bins are counted from the window's start.
pub(super) fn rate_peak(run: &Run<'_>) -> Measured {
    let (points, bin) = (run.points("ack_received")?, run.ask.bin.unwrap_or(BIN_SECONDS));
    let start = run.ask.window.0.unwrap_or(points[0].0);
    let mut advanced: BTreeMap<u64, f64> = BTreeMap::new();
    let mut highest = points[0].1;
    for &(t, value) in &points[1..] {
        *advanced.entry(((t - start) / bin) as u64).or_default() += (value - highest).max(0.0);
        highest = highest.max(value);
    }
    let peak = advanced.into_values().reduce(f64::max);
    peak.map(|bytes| bytes * 8.0 / bin)
        .ok_or_else(|| Undefined::new("the series has a single value within the window"))
}

/// From the arrival of each packet that was marked to the reduction on its echo, for each reduction: the ACK that brought it
/// acknowledges the marked packet last. An echo that goes on after that of an earlier window reports an older mark, for which the
/// time is taken as too short.
pub(super) fn mark_notices(run: &Run<'_>) -> Measured<Vec<f64>> {
    let marks: Vec<_> = run.kept(EventKind::Mark).collect();
    let cause = |reduction: &Event| {
        let of = |m: &&&Event| m.value < reduction.value && m.time_s < reduction.time_s;
        let last = marks.iter().filter(of).max_by(|a, b| a.value.total_cmp(&b.value))?;
        Some(reduction.time_s - last.time_s)
    };
    let notices: Vec<f64> = run.all_events(EventKind::EcnReduction)?.filter_map(cause).collect();
    if notices.is_empty() { Err(Undefined::new("no reduction followed a mark")) } else { Ok(notices) }
}

/// The part of the window of time, from the first written window on, in which the flow's last one was written for the queue.
pub(super) fn bottleneck_share(run: &Run<'_>) -> Measured {
    let (queue, points) = (run.queue_number()? as f64, writers(run)?);
    let end = run.ask.window.1.unwrap_or(run.outcome.ended_at_s);
    let (mut of_queue, mut all) = (0.0, 0.0);
    for (i, &(t, line)) in points.iter().enumerate() {
        let held = points.get(i + 1).map_or(end, |next| next.0) - t;
        all += held;
        of_queue += if line == queue { held } else { 0.0 };
    }
    if all > 0.0 {
        Ok(of_queue / all)
    } else {
        Err(Undefined::new("no window was written within the window of time"))
    }
}

pub(super) fn bottleneck_found(run: &Run<'_>) -> Measured {
    let (queue, points) = (run.queue_number()? as f64, writers(run)?);
    let at = points.iter().find(|p| p.1 == queue).map(|p| p.0);
    let from = run.ask.window.0.unwrap_or(0.0);
    at.map(|t| t - from)
        .ok_or_else(|| Undefined::new("no window was written for this queue within the window of time"))
}

fn writers(run: &Run<'_>) -> Measured<Vec<(f64, f64)>> {
    let series = run.outcome.series(run.flow_name()?, "window_from");
    if series.is_some_and(|s| s.stride > 1) {
        return Err(Undefined::new("window_from was thinned out: run shorter"));
    }
    let ask = Ask { queue: None, ..run.ask.clone() };
    Run { outcome: run.outcome, ask: &ask }.points("window_from")
}

/// The largest sum within the window of time, from the instant at which all have a value.
pub(super) fn sum_series_max(run: &Run<'_>) -> Measured {
    let flows = run.flows()?;
    let mut changes = Vec::new();
    for (i, flow) in flows.iter().enumerate() {
        let ask = Ask { flow: Some(flow.name.clone()), ..run.ask.clone() };
        let points = Run { outcome: run.outcome, ask: &ask }.points("")?;
        changes.extend(points.into_iter().map(|(t, value)| (t, i, value)));
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut values = vec![None; flows.len()];
    let mut largest = f64::NEG_INFINITY;
    for (_, i, value) in changes {
        values[i] = Some(value);
        largest = largest.max(values.iter().copied().sum::<Option<f64>>().unwrap_or(f64::NEG_INFINITY));
    }
    Ok(largest)
}

/// When a series changes as asked, within the window of time.
fn changes<'a>(run: &Run<'a>, series: &'a Series) -> impl Iterator<Item = f64> + use<'a> {
    let (ask, (from, until)) = (run.ask.change, run.ask.window);
    let changed = move |old: f64, new: f64| match ask {
        Change::Any => new != old,
        Change::Rise => new > old,
        Change::Fall => new < old,
    };
    let within = move |t: &f64| *t > from.unwrap_or(0.0) && until.is_none_or(|until| *t <= until);
    series.points.windows(2).filter(move |w| changed(w[0].1, w[1].1)).map(|w| w[1].0).filter(within)
}

pub(super) fn change_interval(run: &Run<'_>) -> Measured {
    let series = run.series("")?;
    if series.stride > 1 {
        return Err(Undefined(format!("series {} was thinned out: run shorter", series.quantity)));
    }
    let at: Vec<f64> = changes(run, series).collect();
    let gaps: Vec<f64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    super::set::Reduce::Median.of(&gaps).map_err(|_| {
        Undefined(format!("series {} did not change so twice within the window", series.quantity))
    })
}

pub(super) fn set_again_within(run: &Run<'_>) -> Measured {
    let series = run.series("")?;
    let from = run.ask.window.0.unwrap_or(0.0);
    let at = changes(run, series).next();
    at.map(|t| t - from)
        .ok_or_else(|| Undefined(format!("series {} did not change so within the window", series.quantity)))
}

pub(super) fn fast_retransmits_before_first_rto(run: &Run<'_>) -> Measured {
    let first = run.first_event(EventKind::Timeout)?.time_s;
    Ok(run.all_events(EventKind::FastRetransmit)?.filter(|e| e.time_s < first).count() as f64)
}

/// From the last segment sent, new or again, to the first timeout.
pub(super) fn silence_before_first_rto(run: &Run<'_>) -> Measured {
    let first = run.first_event(EventKind::Timeout)?.time_s;
    silence_before(&sent_at(run)?, first)
}

pub(super) fn silence_before_rto_max(run: &Run<'_>) -> Measured {
    run.first_event(EventKind::Timeout)?;
    let sent = sent_at(run)?;
    let silences = run.all_events(EventKind::Timeout)?.map(|e| silence_before(&sent, e.time_s));
    super::set::Reduce::Max.of(&silences.collect::<Measured<Vec<f64>>>()?)
}

/// When segments were sent, new or again, in order.
fn sent_at(run: &Run<'_>) -> Measured<Vec<f64>> {
    let sent = run
        .outcome
        .series(run.flow_name()?, "seq_sent")
        .ok_or_else(|| Undefined::new("seq_sent was not recorded"))?;
    let again = run.all_events(EventKind::Retransmission)?.map(|e| e.time_s);
    let mut all: Vec<f64> = sent.points.iter().map(|p| p.0).chain(again).collect();
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn silence_before(sent: &[f64], at: f64) -> Measured {
    let before = sent.partition_point(|t| *t < at);
    let last = before.checked_sub(1).map(|i| at - sent[i]);
    last.ok_or_else(|| Undefined::new("nothing was sent before it"))
}

/// A segment lost twice (its retransmission too) counts once: it is the holes side by side that defeat fast retransmit.
pub(super) fn lost_consecutive_max(run: &Run<'_>) -> Measured {
    let end = run.first_event(EventKind::Timeout).map_or(f64::INFINITY, |e| e.time_s);
    run.first_event(EventKind::Drop)?;
    let mut lost: Vec<u64> =
        run.all_events(EventKind::Drop)?.filter(|e| e.time_s < end).map(|e| e.value as u64).collect();
    lost.sort_unstable();
    lost.dedup();
    let mss = segment_size(run)?;
    let (mut longest, mut length) = (0, 0);
    for (i, &offset) in lost.iter().enumerate() {
        length = if i > 0 && offset - lost[i - 1] == mss { length + 1 } else { 1 };
        longest = longest.max(length);
    }
    if longest > 0 {
        Ok(f64::from(longest))
    } else {
        Err(Undefined::new("nothing was lost before the first timeout"))
    }
}

/// A full segment's payload: the step of `seq_sent` seen most often.
fn segment_size(run: &Run<'_>) -> Measured<u64> {
    let sent = run
        .outcome
        .series(run.flow_name()?, "seq_sent")
        .ok_or_else(|| Undefined::new("seq_sent was not recorded"))?;
    if sent.stride > 1 {
        return Err(Undefined::new("seq_sent was thinned out, so the segment size is not seen: run shorter"));
    }
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    for w in sent.points.windows(2).filter(|w| w[1].1 > w[0].1) {
        *steps.entry((w[1].1 - w[0].1) as u64).or_default() += 1;
    }
    steps
        .into_iter()
        .max_by_key(|&(_, n)| n)
        .map(|(step, _)| step)
        .ok_or_else(|| Undefined::new("fewer than two segments were sent"))
}
