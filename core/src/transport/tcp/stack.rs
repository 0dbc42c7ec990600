//! A TCP stack is data that selects parts, not a branch in the code: one list of [`PARAMETERS`], and per stack the values it
//! chooses. Any of them can be set apart in a scenario: `stack = { name = "net2", recovery = "newreno" }`.

use super::recovery::Kind as Recovery;
use super::rto::Bounds;
use crate::registry::{Kind, Parameter, Settings, Unfit, positive_time};
use core::time::Duration;

/// What a stack is made of. The defaults are the standards' (stack `rfc`).
pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "recovery",
        kind: Kind::Word(&["timeouts", "tahoe", "reno", "newreno"]),
        default: "newreno",
        meaning: "repair of losses: timeouts (nothing else), tahoe, reno (BSD classic: one fast retransmit, over at the first new ACK), newreno (RFC 6582)",
    },
    Parameter {
        name: "initial_window",
        kind: Kind::Count,
        default: "10",
        meaning: "congestion window at the start, in segments (RFC 6928: 10; BSD: 1)",
    },
    Parameter {
        name: "duplicate_threshold",
        kind: Kind::Count,
        default: "3",
        meaning: "duplicate ACKs that mean loss (RFC 5681 section 3.2)",
    },
    Parameter {
        name: "rto",
        kind: Kind::Word(&["ticks", "rfc6298"]),
        default: "rfc6298",
        meaning: "RTT estimator and retransmission clock: ticks (4.4BSD's 500 ms slow timer) or rfc6298",
    },
    Parameter {
        name: "rto_min",
        kind: Kind::Time,
        default: "1s",
        meaning: "smallest RTO (RFC 6298 section 2.4: 1 s; BSD: 2 ticks)",
    },
    Parameter {
        name: "rto_max",
        kind: Kind::Time,
        default: "60s",
        meaning: "largest RTO, back-off included (BSD: 64 s)",
    },
    Parameter {
        name: "rto_initial",
        kind: Kind::Time,
        default: "1s",
        meaning: "RTO before the first sample (RFC 6298: 1 s; BSD: 3 s)",
    },
    Parameter {
        name: "persist_min",
        kind: Kind::Time,
        default: "0s",
        meaning: "shortest wait before a closed window is probed, at most 60s (RFC 9293 section 3.8.6.1: the RTO; BSD: 5 s)",
    },
    Parameter {
        name: "slow_tick",
        kind: Kind::Time,
        default: "500ms",
        meaning: "period of BSD's slow timer (rto = ticks)",
    },
    Parameter {
        name: "delayed_ack",
        kind: Kind::Word(&["fast_ticks", "after", "none"]),
        default: "after",
        meaning: "lone segments are acknowledged at BSD's next fast tick, a time after they came, or at once",
    },
    Parameter {
        name: "delayed_ack_time",
        kind: Kind::Time,
        default: "40ms",
        meaning: "the fast tick's period, or the time (RFC 1122: under 500 ms)",
    },
    Parameter {
        name: "ack_every",
        kind: Kind::Count,
        default: "2",
        meaning: "full segments that bring an ACK at once (RFC 5681 section 4.2)",
    },
    Parameter {
        name: "timestamps",
        kind: Kind::Flag,
        default: "true",
        meaning: "offer the timestamps option, and PAWS with it (RFC 7323)",
    },
    Parameter {
        name: "timestamp_clock",
        kind: Kind::Time,
        default: "1ms",
        meaning: "resolution of TSval (BSD: one slow tick)",
    },
    Parameter {
        name: "window_scale",
        kind: Kind::Flag,
        default: "true",
        meaning: "offer the window scale option (RFC 7323)",
    },
    Parameter {
        name: "ecn",
        kind: Kind::Flag,
        default: "false",
        meaning: "offer and accept explicit congestion notification: marks reduce the window as losses do (RFC 3168)",
    },
    Parameter {
        name: "router_states",
        kind: Kind::Flag,
        default: "false",
        meaning: "offer ACKs in which routers report their queues to the sender (an experiment of RFC 6994, ExID 0x4E57)",
    },
    Parameter {
        name: "halve",
        kind: Kind::Word(&["flight", "window"]),
        default: "flight",
        meaning: "on loss ssthresh is half of what is in flight (RFC 5681), or of min(snd_wnd, snd_cwnd) (BSD)",
    },
    Parameter {
        name: "max_retransmits",
        kind: Kind::Count,
        default: "12",
        meaning: "timeouts in a row before the connection is given up",
    },
];

/// One stack of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// Where it differs from the defaults of [`PARAMETERS`]; in scenario notation.
    pub values: &'static [(&'static str, &'static str)],
    /// Which defaults it gives to its controllers' parameters, where they have them.
    pub controller: &'static [(&'static str, &'static str)],
}

/// Every stack.
pub const REGISTRY: &[Entry] = &[
    Entry {
        name: "net2",
        summary: "BSD Net/2 and 4.4BSD-Lite with RFC 1323: classic Reno, 500 ms ticks, mss/8 growth",
        values: &[
            ("recovery", "reno"),
            ("initial_window", "1"),
            ("rto", "ticks"),
            ("rto_max", "64s"),
            ("rto_initial", "3s"),
            ("persist_min", "5s"),
            ("delayed_ack", "fast_ticks"),
            ("delayed_ack_time", "200ms"),
            ("timestamp_clock", "500ms"),
            ("halve", "window"),
        ],
        controller: &[("extra", "8"), ("validate", "false"), ("count_bytes", "false")],
    },
    // ns-2's one-way agents with their defaults of 2002 (tcl/lib/ns-default.tcl notes when each changed): `windowInit_` 2 since 26
    // May 2001, `rfc2988_` since 7 March 2002 (so its timeout is RFC 6298's predecessor, on a clock of 10 ms and not BSD's slow
    // timer), `minrto_` 1 s until 2004, `rtxcur_init_` 6 s until 2006, `maxrto_` out of reach until 2007 (the back-off ends at 64),
    // TCPSink without delay, packets of payload and 40 bytes. `ecn_` is 0 there and set by who compares routers that mark.
    //
    // What it has and this has not: `bugFix_`, one fast retransmit per window of data and a timeout for further holes, where this
    // recovery, BSD's, may start another; `singledup_` (RFC 3042); one segment timed at a time; a window that is always deflated
    // when recovery ends. What this has and it has not: a listener's half of the handshake, a FIN, a window in bytes.
    Entry {
        name: "ns2",
        summary: "ns-2's one-way TCP Reno of 2002 with ECN: no delayed ACKs, no timestamps, initial window 2",
        values: &[
            ("recovery", "reno"),
            ("initial_window", "2"),
            ("rto_max", "100000s"),
            ("rto_initial", "6s"),
            ("delayed_ack", "none"),
            ("ack_every", "1"),
            ("timestamps", "false"),
            ("ecn", "true"),
            ("halve", "window"),
            ("max_retransmits", "100"),
        ],
        controller: &[("extra", "0"), ("validate", "false"), ("count_bytes", "false")],
    },
    // SunOS 4.1.3 as Y. Hisada and S. Ono saw it (about 1997): the whole window right after the handshake, a timer that doubles. It is of
    // 4.3BSD; whether it had fast retransmit (Tahoe) they do not say: `recovery = "timeouts"` is the stack without.
    Entry {
        name: "sunos4",
        summary: "SunOS 4.1.3: no slow start at first, Tahoe, 500 ms ticks, neither timestamps nor scaled windows",
        values: &[
            ("recovery", "tahoe"),
            ("initial_window", "1000"),
            ("rto", "ticks"),
            ("rto_max", "64s"),
            ("rto_initial", "3s"),
            ("persist_min", "5s"),
            ("delayed_ack", "fast_ticks"),
            ("delayed_ack_time", "200ms"),
            ("timestamps", "false"),
            ("window_scale", "false"),
            ("halve", "window"),
        ],
        controller: &[("extra", "0"), ("validate", "false"), ("count_bytes", "false")],
    },
    Entry {
        name: "rfc",
        summary: "the standards: NewReno (RFC 5681, 6582), RTO by RFC 6298, timestamps (RFC 7323), initial window 10",
        values: &[],
        controller: &[],
    },
];

/// How lone segments are acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DelayedAck {
    /// At once.
    None,
    /// This long after the segment came.
    After(Duration),
    /// At the next tick of a machine-wide timer with this period.
    FastTicks(Duration),
}

/// A stack's parts, checked.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs)] // each field is the parameter of the same name
pub struct Stack {
    pub recovery: Recovery,
    pub initial_window: u32,
    pub duplicate_threshold: u32,
    pub rto_in_ticks: bool,
    pub rto_bounds: Bounds,
    pub persist_min: Duration,
    pub slow_tick: Duration,
    pub delayed_ack: DelayedAck,
    pub ack_every: u32,
    pub timestamps: bool,
    pub timestamp_clock: Duration,
    pub window_scale: bool,
    pub ecn: bool,
    pub router_states: bool,
    pub halve_window: bool,
    pub max_retransmits: u32,
}

impl Stack {
    /// Reads all [`PARAMETERS`].
    pub fn new(settings: &Settings) -> Result<Stack, Unfit> {
        let count = |name: &'static str, low: u64, high: u64| {
            let n = settings.count(name);
            if (low..=high).contains(&n) {
                return Ok(n as u32);
            }
            Err(Unfit::new(
                name,
                alloc::format!("{name} = {n} is outside {low} to {high}: write a number in between"),
            ))
        };
        let rto_bounds = Bounds {
            min: positive_time(settings, "rto_min")?,
            max: positive_time(settings, "rto_max")?,
            initial: positive_time(settings, "rto_initial")?,
        };
        if rto_bounds.max < rto_bounds.min {
            return Err(Unfit::new(
                "rto_max",
                "rto_max is below rto_min: write at least as much, for example 60s",
            ));
        }
        let persist_min = settings.time("persist_min");
        if persist_min > super::output::PERSIST_MAX {
            return Err(Unfit::new("persist_min", "persist_min is above 60 s: write at most 60s"));
        }
        Ok(Stack {
            recovery: match settings.word("recovery").as_str() {
                "timeouts" => Recovery::Timeouts,
                "tahoe" => Recovery::Tahoe,
                "reno" => Recovery::Reno,
                _ => Recovery::NewReno,
            },
            initial_window: count("initial_window", 1, 1000)?,
            duplicate_threshold: count("duplicate_threshold", 1, 1000)?,
            rto_in_ticks: settings.word("rto") == "ticks",
            rto_bounds,
            persist_min,
            slow_tick: positive_time(settings, "slow_tick")?,
            delayed_ack: match settings.word("delayed_ack").as_str() {
                "none" => DelayedAck::None,
                "after" => DelayedAck::After(positive_time(settings, "delayed_ack_time")?),
                _ => DelayedAck::FastTicks(positive_time(settings, "delayed_ack_time")?),
            },
            ack_every: count("ack_every", 1, 1000)?,
            timestamps: settings.flag("timestamps"),
            timestamp_clock: positive_time(settings, "timestamp_clock")?,
            window_scale: settings.flag("window_scale"),
            ecn: settings.flag("ecn"),
            router_states: settings.flag("router_states"),
            halve_window: settings.word("halve") == "window",
            max_retransmits: count("max_retransmits", 1, 100)?,
        })
    }
}
