//! `narrows run`: scenario files in, what was seen out.

use crate::on::{Making, On};
use crate::work::{self, Capture, Job, Place, jobs, line_names, run_all, unwritable};
use crate::{Format, Stop, json, note, say, seeds};
use clap::Args as ClapArgs;
use narrows_lab::file::Document;
use narrows_lab::{Outcome, Scenario};
use narrows_report::output;
use narrows_report::page::{Page, Run};
use narrows_report::table::Table;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// Scenario files
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Set a key of the file, e.g. flow.bulk.window=220kB (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// What makes the run
    #[arg(long, value_enum, default_value = "sim", value_name = "HOST")]
    on: On,
    #[command(flatten)]
    making: Making,
    /// Seeds, each a run of its own: 7, or 1..20 (both included)
    #[arg(long, default_value = "1", value_parser = seeds)]
    seeds: RangeInclusive<u64>,
    /// Write report, figures and tables into this folder; records series and events of every flow and queue
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Capture a line (r1>r2), a host or router (sender), or all lines, as pcapng into the output folder (repeatable)
    #[arg(long, value_name = "WHERE", requires = "output")]
    pcap: Vec<String>,
    /// How to print what was seen
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub fn key_value(text: &str) -> Result<(String, String), String> {
    // Link names hold a `>`, never a `=`, so the first `=` ends the key.
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` has no `=`: write KEY=VALUE, e.g. flow.bulk.window=220kB"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

pub fn run(args: Args) -> Result<ExitCode, Stop> {
    let mut all = Vec::new();
    for file in &args.files {
        let document = Document::read(file)?;
        all.extend(jobs(&document, &args.set, args.seeds.clone())?);
    }
    let _guests = args.making.prepare(&mut all, args.on)?;
    let Some(folder) = &args.output else {
        return show(&args, &run_all(&all, args.making.jobs, |_, outcome| outcome)?)
            .map(|()| ExitCode::SUCCESS);
    };
    for job in &mut all {
        (job.scenario.record.flows, job.scenario.record.queues) = (true, true);
    }
    capture(&args, folder, &mut all)?;
    // Now, not after an hour's run; and taken away again if nothing came of it.
    let made = !folder.exists();
    std::fs::create_dir_all(folder).map_err(|e| unwritable(folder, e))?;
    let outcomes = run_all(&all, args.making.jobs, |_, outcome| outcome);
    let written = outcomes.and_then(|o| show(&args, &o).and_then(|()| write(folder, &o)));
    if written.is_err() && made {
        let _ = std::fs::remove_dir(folder); // only if it is empty
    }
    written?;
    note(format_args!("report: {}", folder.join("index.html").display()));
    Ok(ExitCode::SUCCESS)
}

fn show(args: &Args, outcomes: &[Outcome]) -> Result<(), Stop> {
    match args.format {
        Format::Json => say(format_args!("{:#}\n", json::runs(outcomes))),
        Format::Text => say(text(outcomes)),
    }
}

/// One capture per run, named after the scenario, and after point and seed where there are several.
fn capture(args: &Args, folder: &Path, jobs: &mut [Job]) -> Result<(), Stop> {
    if args.pcap.is_empty() {
        return Ok(());
    }
    let several = jobs.len() > 1;
    for (i, job) in jobs.iter_mut().enumerate() {
        let mut places = Vec::new();
        for wanted in &args.pcap {
            places.extend(self::places(&job.scenario, wanted)?);
        }
        let name = if several {
            format!("{}-{:04}.pcapng", job.scenario.name, i + 1)
        } else {
            format!("{}.pcapng", job.scenario.name)
        };
        job.capture = Some(Capture { places, path: folder.join(name) });
    }
    Ok(())
}

/// What a `--pcap` names: a line, a node with all its lines, or all lines.
fn places(scenario: &Scenario, wanted: &str) -> Result<Vec<Place>, Stop> {
    let names = line_names(scenario);
    let line = |i: usize| Place { name: names[i].clone(), departing: vec![i], arriving: Vec::new() };
    if wanted == "all" {
        return Ok((0..names.len()).map(line).collect());
    }
    if let Some(i) = names.iter().position(|n| n == wanted) {
        return Ok(vec![line(i)]);
    }
    let Some(node) = scenario.nodes.iter().position(|n| n.name == wanted) else {
        let nodes = scenario.nodes.iter().map(|n| n.name.clone());
        let known = names.iter().cloned().chain(nodes).collect::<Vec<_>>().join(", ");
        return Err(Stop::Refused(miette::miette!(
            "there is no line or node `{wanted}` to capture: write `all` or one of {known}"
        )));
    };
    let mut place = Place { name: wanted.to_string(), departing: Vec::new(), arriving: Vec::new() };
    for (i, link) in scenario.links.iter().enumerate() {
        for (out, back, at) in [(2 * i, 2 * i + 1, link.from), (2 * i + 1, 2 * i, link.to)] {
            if at == node {
                place.departing.push(out);
                place.arriving.push(back);
            }
        }
    }
    Ok(vec![place])
}

fn write(folder: &Path, outcomes: &[Outcome]) -> Result<(), Stop> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e: std::io::Error| work::unwritable(&path, e)
    };
    for table in Table::ALL {
        let csv = folder.join(format!("{}.csv", table.name()));
        output::write_with(&csv, |out| table.csv(outcomes, out)).map_err(failed(&csv))?;
        let parquet = folder.join(format!("{}.parquet", table.name()));
        output::write_with(&parquet, |out| table.parquet(outcomes, out)).map_err(failed(&parquet))?;
    }
    let figures = narrows_report::default_figures(outcomes);
    write_figures(folder, &figures)?;
    let names: std::collections::BTreeSet<&str> = outcomes.iter().map(|o| o.name.as_str()).collect();
    let page = Page {
        title: names.into_iter().collect::<Vec<_>>().join(", "),
        command: repeat(),
        version: env!("CARGO_PKG_VERSION").into(),
        figures,
        runs: outcomes.iter().map(Run::of).collect(),
        ..Page::default()
    };
    let index = folder.join("index.html");
    output::write(&index, page.render().as_bytes()).map_err(failed(&index))?;
    Ok(())
}

/// `figures/ID.svg` for each figure.
pub fn write_figures(folder: &Path, figures: &[narrows_report::figure::Shown]) -> Result<(), Stop> {
    for shown in figures {
        let path = folder.join("figures").join(format!("{}.svg", shown.figure.id));
        let svg = narrows_report::svg::render(&shown.figure)
            .map_err(|e| Stop::Refused(miette::miette!("figure {}: {e}", shown.figure.id)))?;
        output::write(&path, svg.as_bytes()).map_err(|e| unwritable(&path, e))?;
    }
    Ok(())
}

/// The command line that repeats this run.
pub fn repeat() -> String {
    let word = |w: String| {
        if w.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=:,+".contains(c)) {
            w
        } else {
            format!("'{w}'")
        }
    };
    std::iter::once("narrows".to_string())
        .chain(std::env::args().skip(1))
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

fn text(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for o in outcomes {
        let virtual_time = o.lateness.is_none();
        let given: Vec<String> = o.given.iter().map(|(k, v)| format!("{k}={v}")).collect();
        out += &format!(
            "{} seed {}{}{}: {:.3} s {}, {} packets delivered{}\n",
            o.name,
            o.seed,
            if given.is_empty() { "" } else { "  " },
            given.join(" "),
            o.ended_at_s,
            if virtual_time { "simulated".into() } else { format!("in real time on {}", o.host) },
            o.delivered_packets,
            if virtual_time { format!(", trace {:016x}", o.trace_hash) } else { String::new() }
        );
        for f in &o.flows {
            out += &format!(
                "  {:<14} {:<12} {:>9.3} Mbit/s  {:>9} sent  {:>6.3} % resent  {:>3} timeouts  rtt {:.1}/{:.1} ms  {} stalls, {:.2} s  {}\n",
                f.name,
                f.controller,
                f.goodput_bps * 1e-6,
                f.segments_sent,
                f.retransmit_ratio * 100.0,
                f.rto_count,
                f.rtt.p50 * 1e3,
                f.rtt.p95 * 1e3,
                f.stalls,
                f.stall_time_s,
                if f.completed { format!("done at {:.3} s", f.finished_at_s) } else { String::new() }
            );
            if f.windows_from.len() > 1 {
                let writers: Vec<String> =
                    f.windows_from.iter().map(|(q, n)| format!("{n} for {q}")).collect();
                out += &format!("  {:<14} windows written by routers: {}\n", "", writers.join(", "));
            }
        }
        for q in o.queues.iter().filter(|q| q.delay.max > 0.0 || q.drops > 0) {
            let reasons: Vec<String> = q.drops_by_reason.iter().map(|(r, n)| format!("{n} {r}")).collect();
            out += &format!(
                "  {:<14} {:<12} {:>8.1} % used    waits {:.2}/{:.2} ms (p50/p95)  at most {} B  drops {}\n",
                q.name,
                "",
                q.utilisation * 100.0,
                q.delay.p50 * 1e3,
                q.delay.p95 * 1e3,
                q.backlog_max_bytes,
                if reasons.is_empty() { "none".into() } else { reasons.join(", ") }
            );
            for c in &q.classes {
                let took =
                    c.delay.map_or_else(String::new, |d| format!("{:.2}/{:.2}/", d.p50 * 1e3, d.p95 * 1e3));
                let bound =
                    c.bound_s.map_or_else(String::new, |b| format!(" (at most {:.2} promised)", b * 1e3));
                out += &format!(
                    "  {:<14} {:<12} {:>9.3} Mbit/s  took {took}{:.2} ms (p50/p95/max, sent){bound}  drops {}\n",
                    "",
                    c.name,
                    c.departed_bytes as f64 * 8e-6 / o.ended_at_s.max(1e-9),
                    c.delay_max_s * 1e3,
                    c.drops
                );
            }
            if q.acks_passed > 0 {
                out += &format!(
                    "  {:<14} windows of {} ACKs: {} made smaller, {} of unknown connections; {} ACKs held back\n",
                    "", q.acks_passed, q.windows_written, q.windows_unknown, q.acks_held
                );
            }
            if q.states_added > 0 {
                out += &format!("  {:<14} its state was added to {} ACKs\n", "", q.states_added);
            }
        }
        if let Some(late) = &o.lateness {
            let [p50, p99, max] = [late.p50, late.p99, late.max].map(|s| s * 1e6);
            out +=
                &format!("  what was due was late by {p50:.0}/{p99:.0} us (p50/p99), at most {max:.0} us\n");
        }
        for note in &o.notes {
            out += &format!("  note: {note}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_lab::outcome::Quantiles;

    #[test]
    fn a_run_in_real_time_says_how_late_it_was_and_what_to_know_of_it() {
        let late = Quantiles { count: 9, p50: 4e-6, p99: 14e-6, max: 0.035, ..Quantiles::default() };
        let real = Outcome {
            host: "wire".into(),
            lateness: Some(late),
            notes: vec!["no real-time scheduling".into()],
            ..Outcome::default()
        };
        let said = text(std::slice::from_ref(&real));
        for words in [
            "s in real time on wire",
            "late by 4/14 us (p50/p99), at most 35000 us",
            "note: no real-time scheduling",
        ] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!said.contains("trace") && !said.contains("simulated"), "{said}");
        let json = json::runs(&[real, Outcome::default()]);
        assert_eq!(json["runs"][0]["lateness_p99_s"], 14e-6);
        assert_eq!(json["runs"][0]["notes"][0], "no real-time scheduling");
        assert!(json["runs"][1].get("lateness_p99_s").is_none());
        assert!(text(&[Outcome::default()]).contains("s simulated, 0 packets delivered, trace 0000"));
    }
}
