//! From runs to verdicts. A run is observed once, right after it ended, and can be forgotten: an [`Observation`] keeps only
//! the numbers some claim asks for.
//!
//! Seeds: a number over many runs takes all of them. Curves and point-by-point comparisons average the seeds of a point
//! first. The confidence interval comes from evaluating the whole measurement once per seed.

use super::*;
use crate::metric::set::{half_width_95, mean};
use crate::metric::{Measured, Undefined};
use crate::outcome::Outcome;

/// What the claims need to know of one run.
#[derive(Clone, Debug)]
pub struct Observation {
    scenario: String,
    given: BTreeMap<String, String>,
    seed: u64,
    measured: Vec<(&'static str, Ask, Measured<Number>)>,
}

/// Answers questions to the code, by their name behind `code.` and their arguments; all numbers are in base units. `None`: it
/// knows no such question.
pub type Code<'a> = &'a dyn Fn(&str, &[f64]) -> Option<f64>;

/// A claim measured on a host. Serialises to the documented JSON: `id`, `host`, `reported`, `accept`, `measured` (text, or
/// null), `verdict`, `reason`; beside them what is recorded, and each check in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// The claim's id.
    pub id: String,
    /// On which host.
    pub host: String,
    /// The number as the paper puts it.
    pub reported: String,
    /// The accepted bands, `; ` between the checks.
    pub accept: String,
    /// What was measured, with the half-width of its 95 % confidence interval; `None` if nothing was.
    pub measured: Option<String>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why.
    pub reason: String,
    /// The verdict when it was last looked at.
    pub recorded: Option<Verdict>,
    /// Every check.
    pub checks: Vec<Checked>,
}

/// One check in numbers, all in the base unit `unit`.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// What was measured, in a few words.
    pub title: String,
    /// The accepted band; `None` is an open side.
    pub accept: [Option<f64>; 2],
    /// What was measured.
    pub value: Option<f64>,
    /// bit/s, s, B, or nothing.
    pub unit: &'static str,
    /// How many runs it was measured from.
    pub runs: usize,
    /// How many seeds those had.
    pub seeds: usize,
    /// Half-width of the 95 % confidence interval over the seeds.
    pub half_width: Option<f64>,
    /// The smallest and the largest value any one seed gives.
    pub spread: Option<[f64; 2]>,
    /// Whether it lies within.
    pub verdict: Verdict,
    /// Why there is no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<String>,
}

impl Judgement {
    /// Whether the verdict is another one than recorded.
    pub fn changed(&self) -> bool {
        self.recorded.is_some_and(|r| r != self.verdict)
    }
}

impl Claims {
    /// Keeps what the claims need of a run of `scenario`.
    pub fn observe(&self, scenario: &str, outcome: &Outcome) -> Observation {
        let mut measured: Vec<(&'static str, Ask, Measured<Number>)> = Vec::new();
        for (_, m) in self.measurements() {
            let Quantity::Run(metric, ask) = &m.quantity else { continue };
            let known = measured.iter().any(|(name, of, _)| *name == metric.name && of == ask);
            if m.scenario.as_deref() == Some(scenario) && !known {
                measured.push((metric.name, ask.clone(), metric.of(outcome, ask)));
            }
        }
        Observation { scenario: scenario.into(), given: outcome.given.clone(), seed: outcome.seed, measured }
    }

    /// The verdict on every claim from everything observed on `host`.
    pub fn judge(&self, host: &str, observations: &[Observation], code: Code<'_>) -> Vec<Judgement> {
        let evidence = Evidence { observations, code };
        self.claims.iter().map(|c| evidence.judge(c, host)).collect()
    }
}

/// A number and from how many runs.
struct Value {
    amount: Number,
    runs: usize,
    seeds: BTreeSet<u64>,
}

/// All runs at one point of a sweep.
struct Point<'a> {
    given: &'a BTreeMap<String, String>,
    values: Vec<f64>,
}

struct Evidence<'a> {
    observations: &'a [Observation],
    code: Code<'a>,
}

impl<'a> Evidence<'a> {
    fn judge(&self, claim: &Claim, host: &str) -> Judgement {
        let here = claim.hosts.iter().any(|h| h == host);
        let absent = || Undefined(format!("the claim is for {} only", claim.hosts.join(", ")));
        let results: Vec<(Checked, String)> =
            claim.checks.iter().map(|c| self.check(c, if here { None } else { Some(absent()) })).collect();
        let (checks, texts): (Vec<Checked>, Vec<String>) = results.into_iter().unzip();
        let any = |v| checks.iter().any(|c| c.verdict == v);
        let verdict = match () {
            () if any(Verdict::Differs) => Verdict::Differs,
            () if any(Verdict::NotRun) => Verdict::NotRun,
            () => Verdict::Reproduced,
        };
        let reason = match (verdict, claim.reasons.on(host)) {
            (Verdict::Reproduced, _) => "within the accepted band".into(),
            (Verdict::Differs, Some(reason)) => reason.to_owned(),
            (Verdict::Differs, None) => "outside the accepted band; why is not yet known".into(),
            (Verdict::NotRun, _) => {
                let mut why: Vec<_> = checks.iter().filter_map(|c| c.undefined.clone()).collect();
                why.dedup();
                why.join("; ")
            }
        };
        Judgement {
            id: claim.id.clone(),
            host: host.into(),
            reported: claim.reported.clone(),
            accept: claim.checks.iter().map(|c| c.accept.to_string()).collect::<Vec<_>>().join("; "),
            measured: checks.iter().any(|c| c.value.is_some()).then(|| texts.join("; ")),
            verdict,
            reason,
            recorded: claim.recorded.get(host).copied(),
            checks,
        }
    }

    /// One check, in numbers and as text.
    fn check(&self, check: &Check, absent: Option<Undefined>) -> (Checked, String) {
        let accept = [check.accept.low, check.accept.high].map(|side| side.map(|a| a.value));
        let title = check.measurement.title();
        let unit = check.accept.unit().unwrap_or(Unit::One);
        match absent.map_or_else(|| self.in_unit(&check.measurement, unit), Err) {
            Err(why) => (
                Checked {
                    title,
                    accept,
                    value: None,
                    unit: unit.sign(),
                    runs: 0,
                    seeds: 0,
                    half_width: None,
                    spread: None,
                    verdict: Verdict::NotRun,
                    undefined: Some(why.0),
                },
                "undefined".into(),
            ),
            Ok(value) => {
                let by_seed: Vec<f64> = match value.seeds.len() {
                    0 | 1 => Vec::new(),
                    _ => value
                        .seeds
                        .iter()
                        .filter_map(|&s| self.value(&check.measurement, Some(s)).ok())
                        .map(|v| v.amount.value)
                        .collect(),
                };
                let complete = by_seed.len() == value.seeds.len();
                let half_width =
                    half_width_95(&by_seed).filter(|_| complete && check.measurement.reduce.is_central());
                let spread =
                    by_seed.iter().copied().reduce(f64::min).zip(by_seed.iter().copied().reduce(f64::max));
                let inside = check.accept.contains(value.amount.value);
                let checked = Checked {
                    title,
                    accept,
                    value: Some(value.amount.value),
                    unit: unit.sign(),
                    runs: value.runs,
                    seeds: value.seeds.len(),
                    half_width,
                    spread: spread.map(|(low, high)| [low, high]),
                    verdict: if inside { Verdict::Reproduced } else { Verdict::Differs },
                    undefined: None,
                };
                let text = match half_width {
                    Some(h) if h > 0.0 => value.amount.with_half_width(h),
                    _ => value.amount.to_string(),
                };
                (checked, text)
            }
        }
    }

    fn in_unit(&self, m: &Measurement, unit: Unit) -> Measured<Value> {
        let mut value = self.value(m, None)?;
        // The code answers in base units, and a controller shows its state in them, without saying which.
        let silent = match &m.quantity {
            Quantity::Code(..) => true,
            Quantity::Run(metric, _) => metric.unit.is_none() && value.amount.unit == Unit::One,
        };
        if silent && m.unit().is_none() && !m.reduce.of_a_curve() {
            value.amount.unit = unit;
        }
        if value.amount.unit != unit {
            let (is, should) = (value.amount.unit.sign(), unit.sign());
            return Err(Undefined(format!("{} is in `{is}`, accept in `{should}`", m.title())));
        }
        Ok(value)
    }

    /// The measurement's number; of one seed only if asked.
    fn value(&self, m: &Measurement, seed: Option<u64>) -> Measured<Value> {
        let mut value = match &m.quantity {
            Quantity::Code(name, arguments) => {
                Value { amount: self.ask_code(name, arguments)?, runs: 0, seeds: BTreeSet::new() }
            }
            Quantity::Run(metric, ask) => self.of_runs(m, metric, ask, seed)?,
        };
        for against in m.against.iter().filter(|a| !a.each) {
            value.amount =
                compare(against.comparison, value.amount, self.value(&against.with, seed)?.amount)?;
        }
        Ok(value)
    }

    fn ask_code(&self, name: &str, arguments: &[f64]) -> Measured<Number> {
        let answer = (self.code)(name, arguments).map(|v| Number::new(v, Unit::One));
        answer.ok_or_else(|| Undefined(format!("the code has no answer to {name} {arguments:?}")))
    }

    fn of_runs(&self, m: &Measurement, metric: &Metric, ask: &Ask, seed: Option<u64>) -> Measured<Value> {
        let (mut points, mut unit, seeds) = self.select(m, metric, ask, seed)?;
        let runs = points.iter().map(|p| p.values.len()).sum();
        let mut averaged = m.reduce.of_a_curve();
        for against in m.against.iter().filter(|a| a.each) {
            unit = self.compare_each(m, &mut points, unit, against, seed)?;
            averaged = true;
        }
        let number = if m.reduce.of_a_curve() {
            let (curve, x_unit) = curve(m, &points)?;
            unit = match m.reduce {
                crate::metric::set::Reduce::Knee | crate::metric::set::Reduce::Cliff => x_unit,
                _ => Unit::One,
            };
            m.reduce.of_curve(&curve)?
        } else if averaged {
            m.reduce.of(&points.iter().map(|p| mean(&p.values)).collect::<Vec<_>>())?
        } else {
            m.reduce.of(&points.iter().flat_map(|p| p.values.iter().copied()).collect::<Vec<_>>())?
        };
        Ok(Value { amount: Number::new(number, unit), runs, seeds })
    }

    /// The runs a measurement speaks of, by point. Undefined if there are none, or if any of them has no such number.
    fn select(
        &self,
        m: &Measurement,
        metric: &Metric,
        ask: &Ask,
        seed: Option<u64>,
    ) -> Measured<(Vec<Point<'a>>, Unit, BTreeSet<u64>)> {
        let scenario = m.scenario.as_deref().unwrap_or_default();
        let of_scenario: Vec<_> = self.observations.iter().filter(|o| o.scenario == scenario).collect();
        if of_scenario.is_empty() {
            return Err(Undefined(format!("{scenario} was not run")));
        }
        let satisfies = |o: &&Observation| seed.is_none_or(|s| s == o.seed) && m.admits(&o.given);
        let chosen: Vec<_> = of_scenario.into_iter().filter(satisfies).collect();
        if chosen.is_empty() {
            let wanted: Vec<_> = m.filter.iter().map(|(key, c)| format!("{key} {c}")).collect();
            return Err(Undefined(format!("no run of {scenario} has {}", wanted.join(" and "))));
        }
        let (mut points, mut seeds) = (BTreeMap::<&BTreeMap<_, _>, Vec<f64>>::new(), BTreeSet::new());
        let (mut unit, mut undefined) = (None, Vec::new());
        for o in &chosen {
            seeds.insert(o.seed);
            match o.measured.iter().find(|(name, of, _)| *name == metric.name && of == ask) {
                Some((_, _, Ok(amount))) => {
                    unit = unit.or(Some(amount.unit));
                    points.entry(&o.given).or_default().push(amount.value);
                }
                Some((_, _, Err(why))) => undefined.push(why.0.as_str()),
                None => undefined.push("it was observed for other claims"),
            }
        }
        match (undefined.first(), unit) {
            (None, Some(unit)) => {
                Ok((points.into_iter().map(|(given, values)| Point { given, values }).collect(), unit, seeds))
            }
            (why, _) => {
                let (n, of) = (undefined.len(), chosen.len());
                Err(Undefined(format!(
                    "{} is undefined in {n} of {of} runs: {}",
                    metric.name,
                    why.unwrap_or(&"")
                )))
            }
        }
    }

    /// Replaces every point's values by their mean compared with the mean at the same point of the other selection.
    fn compare_each(
        &self,
        m: &Measurement,
        points: &mut [Point<'a>],
        unit: Unit,
        against: &Against,
        seed: Option<u64>,
    ) -> Measured<Unit> {
        let Quantity::Run(metric, ask) = &against.with.quantity else {
            return Err(Undefined("the code has no points to compare with one by one".into()));
        };
        let (others, other_unit, _) = self.select(&against.with, metric, ask, seed)?;
        let told_apart = |key: &str| against.with.filter.get(key) != m.filter.get(key);
        let place = |given: &BTreeMap<String, String>| -> Vec<(String, String)> {
            given.iter().filter(|(k, _)| !told_apart(k)).map(|(k, v)| (k.clone(), v.clone())).collect()
        };
        let mut result = unit;
        for point in points {
            let here = place(point.given);
            let other = others.iter().find(|o| place(o.given) == here).ok_or_else(|| {
                let here: Vec<_> = here.iter().map(|(k, v)| format!("{k} = {v}")).collect();
                Undefined(format!("there is nothing to compare with at {}", here.join(", ")))
            })?;
            let amounts =
                (Number::new(mean(&point.values), unit), Number::new(mean(&other.values), other_unit));
            let compared = compare(against.comparison, amounts.0, amounts.1)?;
            (point.values, result) = (vec![compared.value], compared.unit);
        }
        Ok(result)
    }
}

/// (x, mean over seeds), and the unit of x.
fn curve(m: &Measurement, points: &[Point<'_>]) -> Measured<(Vec<(f64, f64)>, Unit)> {
    let key = match &m.x {
        Some(key) => key.clone(),
        None => {
            let varies =
                |key: &&String| points.iter().any(|p| p.given.get(*key) != points[0].given.get(*key));
            let varying: Vec<&String> = points[0].given.keys().filter(varies).collect();
            match varying.as_slice() {
                [key] => (*key).clone(),
                [] => {
                    return Err(Undefined(format!("{} needs a sweep, and nothing varies", m.reduce.name())));
                }
                many => {
                    return Err(Undefined(format!(
                        "{many:?} vary: say which is x, and fix the others by where"
                    )));
                }
            }
        }
    };
    let mut curve: Vec<(f64, f64)> = Vec::new();
    let mut unit = Unit::One;
    for p in points {
        let written = p.given.get(&key).map(|v| v.trim_matches('"').parse::<Number>());
        let Some(Ok(x)) = written else {
            return Err(Undefined(format!("{key} is not a quantity at every point")));
        };
        if curve.iter().any(|q| q.0 == x.value) {
            return Err(Undefined(format!(
                "several points share {key} = {x}: fix what else varies by where"
            )));
        }
        unit = x.unit;
        curve.push((x.value, mean(&p.values)));
    }
    Ok((curve, unit))
}

fn compare(how: Comparison, a: Number, b: Number) -> Measured<Number> {
    if a.unit != b.unit {
        return Err(Undefined(format!("{a} and {b} have different units")));
    }
    let ratio = || {
        if b.value == 0.0 { Err(Undefined("it is compared with 0".into())) } else { Ok(a.value / b.value) }
    };
    Ok(match how {
        Comparison::Ratio => Number::new(ratio()?, Unit::One),
        Comparison::Relative => Number::new(ratio()? - 1.0, Unit::One),
        Comparison::Difference => Number::new(a.value - b.value, a.unit),
    })
}
