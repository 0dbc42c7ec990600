//! The controllers that exist as programs for the kernel. A further one is one more `bpf/NAME.bpf.c` and one line in
//! [`PROGRAMS`].

use narrows_core::congestion::{self, Entry, becc};
use narrows_core::registry::{Parameter, Settings, Unfit};
use std::time::Duration;

/// A program's constants by name.
type Constants = Vec<(&'static str, u64)>;

/// A controller that can be loaded into the kernel.
#[derive(Clone, Copy)]
pub struct Program {
    /// The same algorithm in `narrows-core`: name, summary, parameters.
    pub entry: &'static Entry,
    /// Those of its parameters that the program has; the others are as their defaults say.
    taken: &'static [&'static str],
    /// What they become in the program: its constants by name.
    constants: fn(&Settings) -> Result<Constants, Unfit>,
    /// The compiled program.
    pub(crate) object: &'static [u8],
}

/// Every controller for the kernel.
pub const PROGRAMS: &[Program] = &[
    Program {
        entry: &becc::ENTRY,
        taken: &[
            "trigger",
            "ms_period",
            "update_period",
            "alpha",
            "alpha_weighs",
            "window_gain",
            "expected_gain",
            "expect_from",
            "guard",
        ],
        constants: becc_constants,
        object: include_bytes!(concat!(env!("OUT_DIR"), "/becc.o")),
    },
    Program {
        entry: &becc::MODERN,
        taken: &["trigger", "ms_period", "alpha", "guard", "rate_rounds", "rtt_window", "headroom", "pacing"],
        constants: modern_constants,
        object: include_bytes!(concat!(env!("OUT_DIR"), "/becc_modern.o")),
    },
];

/// The program of the controller called `name`.
pub fn by_name(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|p| p.entry.name == name)
}

impl Program {
    /// What it is called here.
    pub fn name(&self) -> &'static str {
        self.entry.name
    }

    /// The name to load it under if no other is asked for: the kernel takes no `-`.
    pub fn kernel_name(&self) -> String {
        self.name().replace('-', "_")
    }

    /// The parameters it takes.
    pub fn parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        self.entry.parameters.iter().filter(|p| self.taken.contains(&p.name))
    }

    /// Its constants for these settings, which must be complete. Whatever the algorithm in `narrows-core` refuses is refused
    /// here with the same words.
    pub(crate) fn constants(&self, settings: &Settings) -> Result<Constants, Unfit> {
        let inner = self.entry.decorates.map(|_| Box::new(Unused) as Box<dyn congestion::Controller>);
        (self.entry.build)(settings, congestion::Context { inner, rng: narrows_core::Rng::new(0, 0) })?;
        (self.constants)(settings)
    }
}

/// Whole microseconds, the resolution of the kernel's clock; at most a minute, so that a connection that was silent for days
/// needs only a bounded number of callouts to catch up.
fn micros(settings: &Settings, name: &'static str, most: Duration) -> Result<u64, Unfit> {
    let time = settings.time(name);
    if !time.subsec_nanos().is_multiple_of(1000) || time < Duration::from_millis(1) || time > most {
        let advice = format!(
            "in the kernel {name} counts whole microseconds from 1ms to {most:?}: write for example 30ms"
        );
        return Err(Unfit::new(name, advice));
    }
    Ok(time.as_micros() as u64)
}

const MINUTE: Duration = Duration::from_secs(60);

/// A gain above 1, or a weight, in 65536ths.
fn fraction(ratio: f64) -> u64 {
    (ratio * 65_536.0).round() as u64
}

fn becc_constants(settings: &Settings) -> Result<Constants, Unfit> {
    let alpha = settings.ratio("alpha");
    let weight = if settings.word("alpha_weighs") == "old" { 1.0 - alpha } else { alpha };
    if fraction(weight) == 0 {
        return Err(Unfit::new(
            "alpha",
            "a rate that never takes a new sample says nothing: write for example 0.75",
        ));
    }
    Ok(vec![
        ("trigger", settings.count("trigger")),
        ("guard", settings.flag("guard").into()),
        ("ms_period", settings.time("ms_period").as_millis() as u64),
        ("period_us", micros(settings, "ms_period", MINUTE)?),
        ("update_us", micros(settings, "update_period", MINUTE)?),
        ("sample_weight", fraction(weight)),
        ("window_gain", fraction(settings.ratio("window_gain") - 1.0)),
        ("expected_gain", fraction(settings.ratio("expected_gain") - 1.0)),
        ("expect_from_measured", (settings.word("expect_from") == "measurement").into()),
    ])
}

/// Slots for rates by round in the program, the current one included.
const ROUNDS: u64 = 16;

fn modern_constants(settings: &Settings) -> Result<Constants, Unfit> {
    let rounds = settings.count("rate_rounds").max(1);
    if rounds >= ROUNDS {
        return Err(Unfit::new(
            "rate_rounds",
            "the kernel has room for 1 to 15 rounds: write for example 10",
        ));
    }
    if settings.count("headroom") > 10_000 {
        return Err(Unfit::new(
            "headroom",
            "headroom counts segments, at most 10000 in the kernel: write for example 4",
        ));
    }
    let mut all = becc_constants(settings)?;
    all.extend([
        ("rate_rounds", rounds),
        ("rtt_window_us", micros(settings, "rtt_window", 60 * MINUTE)?),
        ("headroom", settings.count("headroom")),
        ("pacing", settings.flag("pacing").into()),
    ]);
    Ok(all)
}

/// Stands in for what a decorator decorates: in the kernel that is part of the program.
struct Unused;

impl congestion::Controller for Unused {
    fn on_start(&mut self, _: &congestion::Start) {}
    fn on_ack(&mut self, _: &congestion::Ack) {}
    fn on_congestion(&mut self, _: &congestion::Congestion) {}
    fn set_congestion_window(&mut self, _: narrows_core::Bytes) {}
    fn congestion_window(&self) -> narrows_core::Bytes {
        narrows_core::Bytes(0)
    }
    fn ssthresh(&self) -> narrows_core::Bytes {
        narrows_core::Bytes(0)
    }
}
