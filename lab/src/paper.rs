//! A paper is a folder: scenario files, `claims.toml`, `figures.toml`, `README.md`. This module finds it by the folder's or
//! its short name, lists the scenarios that claims and figures need, and checks that claims ask only for what those have.

use crate::claim::{Claims, Measurement, Quantity};
use crate::file::{Document, Error, Refusal};
use crate::metric::Subject;
use crate::scenario::Scenario;
use crate::sweep::Point;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A paper's folder, read and checked.
#[derive(Debug)]
pub struct Paper {
    /// Where it is.
    pub folder: PathBuf,
    /// Its claims.
    pub claims: Claims,
    /// Its `figures.toml`, if it has one.
    pub figures: Option<Document>,
    /// The scenario files that claims or figures need, by the names these use.
    pub scenarios: BTreeMap<String, Document>,
}

/// Every paper in `papers`, by folder name.
pub fn all(papers: &Path) -> Result<Vec<Paper>, Error> {
    folders(papers)?.iter().map(|folder| Paper::open(folder)).collect()
}

/// The paper in `papers` whose folder or short name is `name`; a paper's folder itself may be given too.
pub fn find(papers: &Path, name: &str) -> Result<Paper, Error> {
    let given = Path::new(name);
    if given.join("claims.toml").is_file() {
        return Paper::open(given);
    }
    let mut known = Vec::new();
    for folder in folders(papers)? {
        let short = short_name(&folder)?;
        if folder.file_name().is_some_and(|f| f == name) || short == name {
            return Paper::open(&folder);
        }
        known.push(short);
    }
    Err(Refusal::unknown("paper", name, known.iter().map(String::as_str))
        .within(&papers.display().to_string(), ""))
}

impl Paper {
    /// Reads and checks the folder.
    pub fn open(folder: &Path) -> Result<Paper, Error> {
        let claims = Claims::read(Document::read(folder.join("claims.toml"))?)?;
        let figures = folder.join("figures.toml");
        let figures = figures.is_file().then(|| Document::read(figures)).transpose()?;
        let mut names: BTreeSet<String> = claims.scenarios().into_iter().map(str::to_owned).collect();
        if let Some(figures) = &figures {
            names.extend(drawn_scenarios(figures)?);
        }
        let read = |name: String| Document::read(folder.join(&name)).map(|document| (name, document));
        let scenarios = names.into_iter().map(read).collect::<Result<_, _>>()?;
        let paper = Paper { folder: folder.into(), claims, figures, scenarios };
        paper.check()?;
        Ok(paper)
    }

    /// Every claim asks only for swept keys, points, flows and queues that its scenario has.
    fn check(&self) -> Result<(), Error> {
        let mut offers = BTreeMap::new();
        for (name, document) in &self.scenarios {
            offers
                .insert(name.as_str(), Offer { points: document.points()?, scenario: document.scenario()? });
        }
        for (claim, m) in self.claims.measurements() {
            let Some(scenario) = m.scenario.as_deref() else { continue };
            if let Some((message, advice)) = offers.get(scenario).and_then(|offer| offer.refusal(m)) {
                return Err(self.claims.refuse(claim, format!("{scenario} {message}"), advice));
            }
        }
        Ok(())
    }
}

/// What a scenario file has that a claim can ask for.
struct Offer {
    points: Vec<Point>,
    scenario: Scenario,
}

impl Offer {
    /// What the measurement asks for in vain, and what there is.
    fn refusal(&self, m: &Measurement) -> Option<(String, String)> {
        let swept: Vec<&str> =
            self.points.first().map_or(Vec::new(), |p| p.given.iter().map(|(key, _)| key.as_str()).collect());
        if let Some(key) = m.filter.keys().chain(&m.x).find(|k| !swept.contains(&k.as_str())) {
            return Some((format!("does not sweep {key}"), format!("it sweeps {}", listed(&swept))));
        }
        let admitted =
            |p: &Point| p.given.iter().all(|(key, value)| m.filter.get(key).is_none_or(|c| c.admits(value)));
        if !self.points.iter().any(admitted) {
            return Some((
                "has no point that satisfies `where`".into(),
                "widen it, or add values to the sweep".into(),
            ));
        }
        let Quantity::Run(metric, ask) = &m.quantity else { return None };
        let flows: Vec<&str> = self.scenario.flows.iter().map(|f| f.name.as_str()).collect();
        let queues: Vec<String> = self.scenario.links.iter().flat_map(|link| self.both_ways(link)).collect();
        match (metric.subject, &ask.flow, &ask.queue) {
            (Subject::Queue | Subject::Series | Subject::FlowAtQueue, _, Some(queue))
                if !queues.contains(queue) =>
            {
                Some((format!("has no queue {queue}"), format!("it has {}", queues.join(", "))))
            }
            (Subject::Flow | Subject::FlowAtQueue, Some(flow), _) | (Subject::Series, Some(flow), None)
                if !flows.contains(&flow.as_str()) =>
            {
                Some((format!("has no flow {flow}"), format!("it has {}", listed(&flows))))
            }
            (Subject::Flows, Some(prefix), _) if !flows.iter().any(|f| f.starts_with(prefix.as_str())) => {
                Some((format!("has no flow that begins with {prefix}"), format!("it has {}", listed(&flows))))
            }
            _ => None,
        }
    }

    /// The names of a link's two queues.
    fn both_ways(&self, link: &crate::scenario::Link) -> [String; 2] {
        let (from, to) = (&self.scenario.nodes[link.from].name, &self.scenario.nodes[link.to].name);
        [format!("{from}>{to}"), format!("{to}>{from}")]
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

/// Folders that hold a `claims.toml`, in order of name: papers, and within a paper's folder what goes beyond it.
fn folders(papers: &Path) -> Result<Vec<PathBuf>, Error> {
    let name = papers.display().to_string();
    let refuse = |e| {
        Refusal::new(
            format!("{name} cannot be read: {e}"),
            "run it where the folder `papers` is, or name that with --papers DIR",
        )
        .within(&name, "")
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(papers).map_err(refuse)? {
        let path = entry.map_err(refuse)?.path();
        if path.join("claims.toml").is_file() {
            found.extend(folders(&path)?);
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads no more than the name, so that a mistake in one paper does not hide another.
fn short_name(folder: &Path) -> Result<String, Error> {
    let table = table(&Document::read(folder.join("claims.toml"))?)?;
    Ok(table
        .get("paper")
        .and_then(|p| p.get("short"))
        .and_then(toml::Value::as_str)
        .unwrap_or_default()
        .to_owned())
}

/// The scenarios that `figures.toml` draws from.
fn drawn_scenarios(figures: &Document) -> Result<BTreeSet<String>, Error> {
    let table = table(figures)?;
    let figures = table.get("figure").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    Ok(figures.iter().filter_map(|f| f.get("scenario")?.as_str()).map(str::to_owned).collect())
}

fn table(document: &Document) -> Result<toml::Table, Error> {
    toml::from_str(&document.text)
        .map_err(|e: toml::de::Error| Refusal::from(e).within(&document.name, &document.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n[[flow]]\nname = \"bulk\"\nfrom = \"a\"\nto = \"b\"\nsize = \"1MB\"\n[sweep]\n\"flow.bulk.window\" = [\"10kB\", \"20kB\"]\n";
    const CLAIM: &str = "[paper]\ntitle = \"T\"\nauthors = []\nyear = 1997\nshort = \"t\"\n[[claim]]\nid = \"t.1\"\nsource = \"\"\ntext = \"\"\nread_from = \"text\"\nreported = \"\"\nscenario = \"s.toml\"\n";

    fn document(name: &str, text: &str) -> Document {
        Document { name: name.into(), text: text.into() }
    }

    fn refusal(claim: &str) -> Option<String> {
        let claims = Claims::read(document("claims.toml", &format!("{CLAIM}{claim}"))).unwrap();
        let scenarios = [("s.toml".to_owned(), document("s.toml", SCENARIO))].into();
        let error = Paper { folder: PathBuf::new(), claims, figures: None, scenarios }.check().err()?;
        assert_eq!(error.line(), Some(7), "it points at the claim's id");
        Some(format!("{error}: {}", error.advice().unwrap_or_default()))
    }

    #[test]
    fn a_claim_may_ask_only_for_what_its_scenario_has() {
        let goodput = "metric = \"goodput\"\naccept = [\"1 bit/s\", \"-\"]\n";
        assert_eq!(
            refusal(&format!("{goodput}flow = \"bulk\"\nwhere = {{ \"flow.bulk.window\" = \"20 kB\" }}\n")),
            None
        );
        for (rest, says) in [
            (format!("{goodput}flow = \"bulk\"\nwhere = {{ \"flow.bulk.size\" = \"1kB\" }}\n"), "it sweeps flow.bulk.window"),
            (format!("{goodput}flow = \"bulk\"\nwhere = {{ \"flow.bulk.window\" = \"30kB\" }}\n"), "no point that satisfies"),
            (format!("{goodput}flow = \"bulk\"\nx = \"flow.bulk.size\"\n"), "it sweeps flow.bulk.window"),
            (format!("{goodput}flow = \"bilk\"\n"), "it has bulk"),
            ("metric = \"goodput\"\nflow = \"bulk\"\naccept = [1, 2]\nagainst = { as = \"ratio\", flow = \"bilk\" }\n".into(), "it has bulk"),
            ("metric = \"drops\"\nqueue = \"a>c\"\naccept = [1, 2]\n".into(), "it has a>b, b>a"),
        ] {
            let refusal = refusal(&rest).unwrap_or_else(|| panic!("accepted: {rest}"));
            assert!(refusal.contains(says), "`{refusal}` does not say `{says}`");
        }
    }

    #[test]
    fn every_paper_of_this_repository_is_found_asks_only_for_what_it_has_and_can_run() {
        let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../papers");
        for paper in all(&papers).map_err(miette::Report::new).unwrap() {
            let again = find(&papers, &paper.claims.paper.short).map_err(miette::Report::new).unwrap();
            assert_eq!(again.folder, paper.folder);
            for point in
                paper.scenarios.values().flat_map(|d| d.points().map_err(miette::Report::new).unwrap())
            {
                point.scenario().map_err(miette::Report::new).unwrap();
            }
            let prefix = format!("{}.", paper.claims.paper.short);
            assert!(
                paper.claims.claims.iter().all(|c| c.id.starts_with(&prefix)),
                "ids begin with the paper's short name"
            );
        }
        let unknown = find(&papers, "no-such-paper").unwrap_err();
        assert!(unknown.advice().is_some_and(|a| a.contains("becc")), "{unknown}");
    }
}
