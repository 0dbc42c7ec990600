//! `narrows list`, `schema`: what there is, and how it is written.

use crate::{Stop, say};
use clap::Args as ClapArgs;
use narrows_core::ackwin::policy;
use narrows_core::registry::{Kind, Parameter};
use narrows_core::transport::tcp::stack;
use narrows_core::{congestion, qdisc};
use narrows_lab::{metric, schema};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// Only what has this word in its name, with all its parameters
    name: Option<String>,
    /// Where the papers are
    #[arg(long, value_name = "DIR", default_value = "papers")]
    papers: PathBuf,
}

pub fn list(args: Args) -> Result<ExitCode, Stop> {
    let wanted = args.name.as_deref();
    let mut text = String::new();
    let mut section = |title: &str, entries: Vec<(&str, String, Vec<Parameter>)>| {
        let matching: Vec<_> =
            entries.into_iter().filter(|(name, ..)| wanted.is_none_or(|w| name.contains(w))).collect();
        if matching.is_empty() {
            return;
        }
        text += &format!("{title}\n");
        for (name, summary, parameters) in matching {
            text += &format!("  {name:<18} {summary}\n");
            if wanted.is_some() {
                text.extend(parameters.iter().map(parameter));
            }
        }
    };
    let inner =
        |d: Option<&str>| d.map_or(String::new(), |d| format!(" [around {d} if no `inner` is given]"));
    section(
        "Congestion control (flow.controller)",
        congestion::REGISTRY
            .iter()
            .map(|e| (e.name, format!("{}{}", e.summary, inner(e.decorates)), e.parameters.to_vec()))
            .collect(),
    );
    section(
        "Queue disciplines (link.queue)",
        qdisc::REGISTRY
            .iter()
            .map(|e| {
                (
                    e.name,
                    format!("{}{}", e.summary, if e.contains { " [takes `inner`]" } else { "" }),
                    e.parameters.to_vec(),
                )
            })
            .collect(),
    );
    section(
        "What is written into passing ACKs (link.ack_window)",
        policy::REGISTRY.iter().map(|e| (e.name, e.summary.to_string(), e.parameters.to_vec())).collect(),
    );
    section(
        "TCP stacks (flow.stack)",
        stack::REGISTRY
            .iter()
            .map(|e| {
                let with = |p: &Parameter| {
                    let own = e.values.iter().find(|(name, _)| *name == p.name).map(|(_, value)| *value);
                    Parameter { default: own.unwrap_or(p.default), ..*p }
                };
                (e.name, e.summary.to_string(), stack::PARAMETERS.iter().map(with).collect())
            })
            .collect(),
    );
    section(
        "Metrics of claims",
        metric::REGISTRY.iter().map(|m| (m.name, m.meaning.to_string(), Vec::new())).collect(),
    );
    let papers =
        if Path::new(&args.papers).is_dir() { narrows_lab::paper::all(&args.papers)? } else { Vec::new() };
    section(
        "Papers (narrows reproduce)",
        papers
            .iter()
            .map(|p| {
                (
                    p.claims.paper.short.as_str(),
                    format!("{} ({})", p.claims.paper.title, p.claims.paper.year),
                    Vec::new(),
                )
            })
            .collect(),
    );
    if let (Some(name), true) = (wanted, text.is_empty()) {
        return Err(Stop::Refused(miette::miette!(
            "nothing here has `{name}` in its name: `narrows list` shows everything"
        )));
    }
    say(text).map(|()| ExitCode::SUCCESS)
}

fn parameter(p: &Parameter) -> String {
    let example = match p.kind {
        Kind::Bytes => "64KiB",
        Kind::Limit => "64KiB or 32p",
        Kind::Rate => "45Mbit/s",
        Kind::Time => "30ms",
        Kind::Ratio => "0.25",
        Kind::Count => "4",
        Kind::Flag => "true",
        Kind::List => "[3, 4] or numbers.txt",
        Kind::Word(words) => words[0],
    };
    let value = match (p.kind, p.default) {
        (_, "") => format!("must be given, for example {example}"),
        (Kind::Word(words), default) => format!("default {default}, one of {}", words.join(", ")),
        (_, default) => format!("default {default}"),
    };
    format!("      {:<20} {value}\n      {:<20}   {}\n", p.name, "", p.meaning)
}

pub fn schema() -> Result<ExitCode, Stop> {
    let text = serde_json::to_string_pretty(&schema::json_schema()).expect("a schema is JSON");
    say(text + "\n").map(|()| ExitCode::SUCCESS)
}
