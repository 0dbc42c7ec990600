//! `narrows reproduce`: a paper's scenarios are run, its claims measured, its figures drawn; verdicts stand beside what was
//! reported. On real packets only what claims for that host need is run, and the simulator's curves are drawn beside it.
//! `narrows claims` shows what is recorded.

use crate::guests::Guests;
use crate::on::{Making, On};
use crate::work::{Job, jobs, run_all, unwritable};
use crate::{Format, Stop, code, note, run, say, seeds};
use clap::Args as ClapArgs;
use narrows_lab::Outcome;
use narrows_lab::claim::{Claim, Judgement, Verdict, need};
use narrows_lab::paper::{self, Paper};
use narrows_report::figure::Shown;
use narrows_report::output;
use narrows_report::page::{self, ClaimRow, Entry, Index, Page, Run};
use narrows_report::plan::{self, Plan};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// Which paper, by its short name or folder; all of them if not given
    paper: Option<String>,
    /// On which hosts to measure; a page for each
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sim", value_name = "HOST,...")]
    on: Vec<On>,
    #[command(flatten)]
    making: Making,
    /// Only claims whose ids begin like this, e.g. becc.fig10 (repeatable)
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Write the reports into this folder
    #[arg(short, long, value_name = "DIR", default_value = "out/report")]
    output: PathBuf,
    /// Seeds instead of the paper's own: 7, or 1..20 (both included); on real packets the default is the first alone
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
    for (paper, on) in papers.iter().flat_map(|p| args.on.iter().map(move |on| (p, *on))) {
        let asked = asked(paper, &args.only, on);
        // A paper may say nothing about a host, or nothing that was asked for.
        if asked.is_empty() {
            continue;
        }
        let measured = measure(paper, &args, on, &asked)?;
        let folder = args.output.join(place(paper, on));
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
            say(text(paper, on, &measured.judgements))?;
        }
        judgements.extend(measured.judgements);
        pages.push((paper, on, measured.page));
    }
    if pages.is_empty() {
        let hosts: Vec<&str> = args.on.iter().map(|on| on.name()).collect();
        return Err(Stop::Refused(miette::miette!(
            help =
                "`narrows claims` lists every claim, and with --format json the hosts it can be measured on",
            "no such claim can be measured on {}",
            hosts.join(" or ")
        )));
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

/// The paper's page on a host, below the output folder.
fn place(paper: &Paper, on: On) -> PathBuf {
    let short = PathBuf::from(&paper.claims.paper.short);
    if on.is_real() { short.join(on.name()) } else { short }
}

/// Which claims are to be measured on a host, by their places in the file.
fn asked(paper: &Paper, only: &[String], on: On) -> Vec<usize> {
    let wanted = |id: &str| only.is_empty() || only.iter().any(|start| id.starts_with(start.as_str()));
    // In virtual time those for other hosts are shown as well, as not run.
    let here = |hosts: &[String]| hosts.iter().any(|h| h == on.name()) || (!on.is_real() && only.is_empty());
    let claims = paper.claims.claims.iter().enumerate();
    claims.filter(|(_, c)| wanted(&c.id) && here(&c.hosts)).map(|(i, _)| i).collect()
}

struct Measured {
    judgements: Vec<Judgement>,
    page: Page,
}

/// The runs a host has to make, and which scenario each is of: in virtual time all that it can, for figures' sake; in real time
/// those that a claim needs, and what nothing but a kernel can show.
fn pool<'a>(
    paper: &'a Paper,
    claims: &[&Claim],
    seeds: &RangeInclusive<u64>,
    making: &Making,
    on: On,
) -> Result<(Vec<Job>, Vec<&'a str>, Guests), Stop> {
    // All runs of all scenarios are one pool of work: short ones fill the gaps between long ones.
    let mut pool = Vec::new();
    for (name, document) in &paper.scenarios {
        pool.extend(jobs(document, &[], seeds.clone())?.into_iter().map(|job| (job, name.as_str())));
    }
    let asked: BTreeSet<&str> = claims.iter().flat_map(|c| c.scenarios()).collect();
    pool.retain(|(job, scenario)| match (on, job.scenario.needs_no_kernel("sim").is_ok()) {
        (On::Sim, simulated) => simulated,
        (_, true) => need(claims, scenario, &job.given.iter().cloned().collect()),
        (_, false) => asked.contains(scenario),
    });
    let (mut jobs, owners): (Vec<Job>, Vec<&str>) = pool.into_iter().unzip();
    let guests = making.prepare(&mut jobs, on)?;
    Ok((jobs, owners, guests))
}

fn measure(paper: &Paper, args: &Args, on: On, asked: &[usize]) -> Result<Measured, Stop> {
    let header = &paper.claims.paper;
    let first = *header.seeds.start();
    let of_host = if on.is_real() { first..=first } else { header.seeds.clone() };
    let seeds = args.seeds.clone().unwrap_or(of_host);
    let claims: Vec<&Claim> = asked.iter().map(|i| &paper.claims.claims[*i]).collect();
    let plans = plans(paper)?;
    let mut observations = Vec::new();
    let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    let (jobs, owners, _guests) = pool(paper, &claims, &seeds, &args.making, on)?;
    let kept = run_all(&jobs, args.making.jobs, |_, mut outcome| {
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
    let (runs, scenarios) = (outcomes.values().map(Vec::len).sum::<usize>(), outcomes.len());
    if on.is_real() {
        // Beside them the simulator's runs of the same scenarios with the first seed.
        let (jobs, owners, _) =
            pool(paper, &claims, &(*seeds.start()..=*seeds.start()), &args.making, On::Sim)?;
        let simulated = run_all(&jobs, None, |_, outcome| outcome)?;
        for (outcome, owner) in simulated.into_iter().zip(owners) {
            if let Some(measured) = outcomes.get_mut(owner) {
                measured.push(outcome);
            }
        }
    }
    let judged = paper.claims.judge(on.name(), &observations, &code::ask);
    let judgements: Vec<Judgement> =
        judged.into_iter().enumerate().filter(|(i, _)| asked.contains(i)).map(|(_, j)| j).collect();
    let mut figures: Vec<Shown> = Vec::new();
    for plan in &plans {
        let Some(runs) = outcomes.get(plan.scenario.as_str()) else { continue };
        match plan.draw(runs) {
            Ok(shown) => figures.push(shown),
            // On real packets a figure may ask for runs that no claim needs.
            Err(_) if on.is_real() => {}
            Err(e) => return Err(Stop::Refused(miette::miette!("{}: {e}", paper.folder.display()))),
        }
    }
    let rows = claims.iter().zip(&judgements).map(|(claim, j)| row(claim, j)).collect();
    let page = Page {
        title: titled(&header.title, on),
        intro: format!(
            "{}, {}. {}\n\n{runs} runs of {scenarios} scenarios {}, seeds {} to {}.",
            header.authors.join(", "),
            header.year,
            header.published,
            on.means(),
            seeds.start(),
            seeds.end()
        ),
        command: run::repeat(),
        version: env!("CARGO_PKG_VERSION").into(),
        up: if on.is_real() { "../../index.html" } else { "../index.html" }.into(),
        claims: rows,
        figures,
        runs: outcomes.values().flatten().map(Run::of).collect(),
    };
    Ok(Measured { judgements, page })
}

fn titled(title: &str, on: On) -> String {
    if on.is_real() { format!("{title} ({})", on.means()) } else { title.into() }
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

fn overview(pages: &[(&Paper, On, Page)]) -> Index {
    let entry = |(paper, on, page): &(&Paper, On, Page)| {
        let header = &paper.claims.paper;
        let about = format!("{}, {}", header.authors.join(", "), header.year);
        Entry {
            href: format!("{}/index.html", place(paper, *on).display()),
            title: titled(&header.title, *on),
            about,
            claims: page.claims.clone(),
        }
    };
    Index {
        title: "Narrows: papers reproduced".into(),
        intro: "Every claim of every paper, measured, beside what was reported.".into(),
        command: run::repeat(),
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

fn text(paper: &Paper, on: On, judgements: &[Judgement]) -> String {
    let header = &paper.claims.paper;
    let mut out =
        format!("{} ({}, {}), {}\n", header.title, header.authors.join(", "), header.year, on.means());
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
