//! `narrows reproduce`: a paper's scenarios are run, its claims measured, its figures drawn; verdicts stand beside what was
//! reported. `narrows claims` shows what is recorded.

use crate::work::{jobs, run_all, unwritable};
use crate::{Format, Stop, code, note, run, say, seeds};
use clap::Args as ClapArgs;
use narrows_lab::Outcome;
use narrows_lab::claim::{Claim, Judgement, Verdict};
use narrows_lab::paper::{self, Paper};
use narrows_report::figure::Shown;
use narrows_report::output;
use narrows_report::page::{self, ClaimRow, Entry, Index, Page, Run};
use narrows_report::plan::{self, Plan};
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// Which paper, by its short name or folder; all of them if not given
    paper: Option<String>,
    /// Write the reports into this folder
    #[arg(short, long, value_name = "DIR", default_value = "out/report")]
    output: PathBuf,
    /// Seeds instead of the paper's own: 7, or 1..20 (both included)
    #[arg(long, value_parser = seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Where the papers are
    #[arg(long, value_name = "DIR", default_value = "papers")]
    papers: PathBuf,
    /// How to print the verdicts
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(ClapArgs)]
pub struct ClaimsArgs {
    /// Which paper, by its short name or folder; all of them if not given
    paper: Option<String>,
    /// Where the papers are
    #[arg(long, value_name = "DIR", default_value = "papers")]
    papers: PathBuf,
    /// How to print them
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The host that `reproduce` measures on.
const HOST: &str = "sim";

fn papers(folder: &Path, name: Option<&str>) -> Result<Vec<Paper>, Stop> {
    Ok(match name {
        Some(name) => vec![paper::find(folder, name)?],
        None => paper::all(folder)?,
    })
}

pub fn reproduce(args: Args) -> Result<ExitCode, Stop> {
    let papers = papers(&args.papers, args.paper.as_deref())?;
    let mut judgements = Vec::new();
    let mut pages = Vec::new();
    for paper in &papers {
        let short = &paper.claims.paper.short;
        let seeds = args.seeds.clone().unwrap_or_else(|| paper.claims.paper.seeds.clone());
        let measured = measure(paper, seeds)?;
        let folder = args.output.join(short);
        run::write_figures(&folder, &measured.page.figures)?;
        for (name, bytes) in [
            ("index.html", measured.page.render().into_bytes()),
            (
                "claims.json",
                serde_json::to_vec_pretty(&json!({ "claims": measured.judgements })).expect("plain data"),
            ),
        ] {
            let path = folder.join(name);
            output::write(&path, &bytes).map_err(|e| unwritable(&path, e))?;
        }
        if args.format == Format::Text {
            say(text(paper, &measured.judgements))?;
        }
        judgements.extend(measured.judgements);
        pages.push((paper, measured.page));
    }
    let index = args.output.join("index.html");
    output::write(&index, overview(&pages).render().as_bytes()).map_err(|e| unwritable(&index, e))?;
    match args.format {
        Format::Json => say(format_args!("{:#}\n", json!({ "claims": judgements })))?,
        Format::Text => say(format_args!("\nreport: {}\n", index.display()))?,
    }
    let changed: Vec<&Judgement> = judgements.iter().filter(|j| j.changed()).collect();
    for j in &changed {
        let recorded = j.recorded.map_or("nothing", word);
        note(format_args!(
            "verdict changed: {} on {} is {}, recorded {recorded}",
            j.id,
            j.host,
            word(j.verdict)
        ));
    }
    Ok(if changed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

struct Measured {
    judgements: Vec<Judgement>,
    page: Page,
}

fn measure(paper: &Paper, seeds: RangeInclusive<u64>) -> Result<Measured, Stop> {
    let plans = plans(paper)?;
    let mut observations = Vec::new();
    let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    // All runs of all scenarios are one pool of work: short ones fill the gaps between long ones.
    let mut pool = Vec::new();
    let mut owners = Vec::new();
    for (name, document) in &paper.scenarios {
        let more = jobs(document, &[], seeds.clone())?;
        owners.extend(std::iter::repeat_n(name.as_str(), more.len()));
        pool.extend(more);
    }
    let kept = run_all(&pool, None, |_, mut outcome| {
        let name = outcome.name.clone();
        let seen: Vec<_> =
            owners_of(paper, &name).map(|scenario| paper.claims.observe(scenario, &outcome)).collect();
        // Figures over time draw the first seed or the one they ask for; the others are in the numbers.
        let drawn = outcome.seed == *seeds.start() || plans.iter().any(|p| p.seed() == Some(outcome.seed));
        if !drawn {
            (outcome.series, outcome.events) = (Vec::new(), Vec::new());
        }
        (seen, outcome)
    })?;
    for ((seen, outcome), owner) in kept.into_iter().zip(owners) {
        observations.extend(seen);
        outcomes.entry(owner).or_default().push(outcome);
    }
    let judgements = paper.claims.judge(HOST, &observations, &code::ask);
    let figures: Vec<Shown> = plans
        .iter()
        .map(|plan| {
            plan.draw(&outcomes[plan.scenario.as_str()])
                .map_err(|e| Stop::Refused(miette::miette!("{}: {e}", paper.folder.display())))
        })
        .collect::<Result<_, _>>()?;
    let header = &paper.claims.paper;
    let rows = paper.claims.claims.iter().zip(&judgements).map(|(claim, j)| row(claim, j)).collect();
    let runs: Vec<Run> = outcomes.values().flatten().map(Run::of).collect();
    let page = Page {
        title: header.title.clone(),
        intro: format!(
            "{}, {}. {}\n\n{} runs of {} scenarios, seeds {} to {}.",
            header.authors.join(", "),
            header.year,
            header.published,
            runs.len(),
            paper.scenarios.len(),
            seeds.start(),
            seeds.end()
        ),
        command: format!("narrows reproduce {}", header.short),
        version: env!("CARGO_PKG_VERSION").into(),
        up: "../index.html".into(),
        claims: rows,
        figures,
        runs,
    };
    Ok(Measured { judgements, page })
}

/// The scenario files a run's name stands for: a run is named after its file.
fn owners_of<'a>(paper: &'a Paper, run: &'a str) -> impl Iterator<Item = &'a str> {
    paper.scenarios.keys().map(String::as_str).filter(move |file| file.strip_suffix(".toml") == Some(run))
}

fn plans(paper: &Paper) -> Result<Vec<Plan>, Stop> {
    let path = paper.folder.join("figures.toml");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let unreadable = |e| Stop::Refused(miette::miette!("{} cannot be read: {e}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(unreadable)?;
    plan::parse(&text, &path.display().to_string()).map_err(|e| Stop::Refused(miette::miette!("{e}")))
}

fn row(claim: &Claim, j: &Judgement) -> ClaimRow {
    ClaimRow {
        id: claim.id.clone(),
        source: claim.source.clone(),
        text: claim.text.clone(),
        host: j.host.clone(),
        reported: j.reported.clone(),
        accept: j.accept.clone(),
        measured: j.measured.clone().unwrap_or_default(),
        verdict: match j.verdict {
            Verdict::Reproduced => page::Verdict::Reproduced,
            Verdict::Differs => page::Verdict::Differs,
            Verdict::NotRun => page::Verdict::NotRun,
        },
        reason: j.reason.clone(),
    }
}

fn overview(pages: &[(&Paper, Page)]) -> Index {
    let entry = |(paper, page): &(&Paper, Page)| {
        let header = &paper.claims.paper;
        let about = format!("{}, {}", header.authors.join(", "), header.year);
        Entry {
            href: format!("{}/index.html", header.short),
            title: header.title.clone(),
            about,
            claims: page.claims.clone(),
        }
    };
    Index {
        title: "Narrows: papers reproduced".into(),
        intro: "Every claim of every paper, measured, beside what was reported.".into(),
        command: "narrows reproduce".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        reports: pages.iter().map(entry).collect(),
    }
}

fn word(v: Verdict) -> &'static str {
    match v {
        Verdict::Reproduced => "reproduced",
        Verdict::Differs => "differs",
        Verdict::NotRun => "not run",
    }
}

fn text(paper: &Paper, judgements: &[Judgement]) -> String {
    let header = &paper.claims.paper;
    let mut out = format!("{} ({}, {})\n", header.title, header.authors.join(", "), header.year);
    for j in judgements {
        let measured = j.measured.as_deref().unwrap_or("-");
        out += &format!(
            "  {:<11} {:<26} reported {}; measured {measured}; accepted {}\n",
            word(j.verdict),
            j.id,
            j.reported,
            j.accept
        );
        if j.verdict != Verdict::Reproduced && !j.reason.is_empty() {
            out += &format!("              {}\n", j.reason);
        }
    }
    out
}

pub fn claims(args: ClaimsArgs) -> Result<ExitCode, Stop> {
    let papers = papers(&args.papers, args.paper.as_deref())?;
    let (mut all, mut lines) = (Vec::new(), String::new());
    for paper in &papers {
        for claim in &paper.claims.claims {
            match args.format {
                Format::Json => all.push(json!({
                    "id": claim.id, "source": claim.source, "text": claim.text, "reported": claim.reported,
                    "hosts": claim.hosts, "recorded": claim.recorded, "reason": claim.reasons,
                })),
                Format::Text => {
                    let recorded: Vec<String> =
                        claim.recorded.iter().map(|(host, v)| format!("{host}: {}", word(*v))).collect();
                    lines += &format!(
                        "{:<26} {:<22} {} [{}]\n",
                        claim.id,
                        recorded.join(", "),
                        claim.text,
                        claim.source
                    );
                }
            }
        }
    }
    match args.format {
        Format::Json => say(format_args!("{:#}\n", json!({ "claims": all })))?,
        Format::Text => say(lines)?,
    }
    Ok(ExitCode::SUCCESS)
}
