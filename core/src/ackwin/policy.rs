//! What a router can accept: the paper's *b*, which it does not define. In segments, of a queue with room for L of them in which
//! q wait, behind it a line of rate C; R is the round trip, n how many flows are alive.
//!
//! | policy | b | what it is |
//! |---|---|---|
//! | `none` | | windows pass as they are |
//! | `report` | | so they do, but the queue's state is added ([`super::report`]); all below do so with `report` |
//! | `free` | L - q | the room there is |
//! | `avg_free` | L - average of q | the same, as slow as RED |
//! | `bdp_free` | (L - q) + C R | and what the path holds: one flow fills it without a drop |
//! | `share` | ((L - q) + C R) / n | the same for each of n flows |
//! | `coordinate` | (min(t L, L - q) + C R) / n | a part t of the room, whoever uses it now; less while more than the rest waits |
//!
//! With the first three each flow is granted everything, and when one shrinks, q falls and the grants of all others grow: the
//! failure that the paper reports with several flows. `share` divides, but its grants still grow as the queue falls. `coordinate` grants
//! in sum what the path holds and the buffer is meant to hold, however it is used: when a neighbour shrinks, nobody's grant grows. While
//! the queue is longer than meant, because newcomers' first windows cannot be told anything, all grants give way. They fall at
//! once when a flow comes, and grow by `growth` segments per round trip when one has gone.

use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::units::Rate;
use core::time::Duration;

/// The kinds of *b*.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the table above
pub enum Policy {
    None,
    Report,
    Free,
    AvgFree,
    BdpFree,
    Share,
    Coordinate,
}

/// A policy of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Which.
    pub policy: Policy,
}

const RTT: Parameter = Parameter {
    name: "rtt",
    kind: Kind::Time,
    default: "0s",
    meaning: "round trip without queues; 0s: of each connection, as its handshake shows it",
};
const ALIVE: Parameter = Parameter {
    name: "alive",
    kind: Kind::Time,
    default: "1s",
    meaning: "a flow counts until it has been silent for this long, or twice this",
};
const HOLD: Parameter = Parameter {
    name: "hold",
    kind: Kind::Flag,
    default: "false",
    meaning: "hold ACKs back where a fair share is less than one segment, which no window can say",
};
const FLOWS: Parameter = Parameter {
    name: "connections",
    kind: Kind::Count,
    default: "65536",
    meaning: "connections that are remembered; others pass unchanged",
};
const TARGET: Parameter = Parameter {
    name: "target",
    kind: Kind::Ratio,
    default: "0.5",
    meaning: "part of the buffer that is granted beside what the path holds",
};
const GROWTH: Parameter = Parameter {
    name: "growth",
    kind: Kind::Ratio,
    default: "1",
    meaning: "segments by which a grant may grow per round trip",
};
const REPORT: Parameter = Parameter {
    name: "report",
    kind: Kind::Flag,
    default: "false",
    meaning: "add the queue's state to ACKs that invite to it (stack parameter router_states)",
};
const LOAD_OVER: Parameter = Parameter {
    name: "load_over",
    kind: Kind::Time,
    default: "50ms",
    meaning: "time constant of the load that is reported; as long as a report is late: half a round trip",
};

/// Every policy.
pub const REGISTRY: &[Entry] = &[
    Entry { name: "none", summary: "windows pass as they are", parameters: &[], policy: Policy::None },
    Entry {
        name: "report",
        summary: "windows pass as they are; the queue's state is added to ACKs that invite to it",
        parameters: &[LOAD_OVER],
        policy: Policy::Report,
    },
    Entry {
        name: "free",
        summary: "the room in the queue",
        parameters: &[RTT, ALIVE, FLOWS, REPORT, LOAD_OVER],
        policy: Policy::Free,
    },
    Entry {
        name: "avg_free",
        summary: "the room in the queue on average, as RED averages",
        parameters: &[RTT, ALIVE, FLOWS, REPORT, LOAD_OVER],
        policy: Policy::AvgFree,
    },
    Entry {
        name: "bdp_free",
        summary: "the room in the queue and what the path holds",
        parameters: &[RTT, ALIVE, FLOWS, REPORT, LOAD_OVER],
        policy: Policy::BdpFree,
    },
    Entry {
        name: "share",
        summary: "bdp_free divided by the number of flows alive",
        parameters: &[RTT, ALIVE, HOLD, FLOWS, REPORT, LOAD_OVER],
        policy: Policy::Share,
    },
    Entry {
        name: "coordinate",
        summary: "a part of the buffer and what the path holds, divided; grants do not grow when a neighbour shrinks",
        parameters: &[TARGET, GROWTH, RTT, ALIVE, HOLD, FLOWS, REPORT, LOAD_OVER],
        policy: Policy::Coordinate,
    },
];

/// The entry called `name`.
pub fn by_name(name: &str) -> Option<&'static Entry> {
    REGISTRY.iter().find(|e| e.name == name)
}

/// A policy with its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chosen {
    pub(super) policy: Policy,
    pub(super) rtt: Option<Duration>,
    pub(super) alive: Duration,
    pub(super) hold: bool,
    pub(super) connections: usize,
    /// The time constant of the load, if the queue's state is reported.
    pub(super) report: Option<Duration>,
    target: f64,
    growth: f64,
}

/// The most connections that may be asked for: 64 MiB.
const MOST_CONNECTIONS: u64 = 1 << 20;

impl Chosen {
    /// Writes nothing.
    const SILENT: Chosen = Chosen {
        policy: Policy::None,
        rtt: None,
        alive: Duration::from_secs(1),
        hold: false,
        connections: 1,
        report: None,
        target: 1.0,
        growth: f64::INFINITY,
    };

    /// Whether windows are looked at.
    pub(super) fn writes(&self) -> bool {
        !matches!(self.policy, Policy::None | Policy::Report)
    }

    /// Reads the parameters that the policy has; there is nothing to be done by policy `none`.
    pub fn new(entry: &Entry, settings: &Settings) -> Result<Option<Chosen>, Unfit> {
        if entry.policy == Policy::None {
            return Ok(None);
        }
        let load_over = crate::registry::positive_time(settings, "load_over")?;
        if entry.policy == Policy::Report {
            return Ok(Some(Chosen { policy: Policy::Report, report: Some(load_over), ..Chosen::SILENT }));
        }
        let has = |name: &str| entry.parameters.iter().any(|p| p.name == name);
        let rtt = settings.time("rtt");
        let connections = settings.count("connections");
        let (target, growth) = match has("target") {
            true => (settings.ratio("target"), settings.ratio("growth")),
            false => (1.0, f64::INFINITY),
        };
        let refuse = |name, advice: &str| Err(Unfit::new(name, advice));
        if !(1..=MOST_CONNECTIONS).contains(&connections) {
            return refuse("connections", "connections is outside 1 to 1048576: write a number in between");
        }
        if !(target > 0.0 && target <= 1.0) {
            return refuse("target", "target is a part of the buffer: write more than 0 and at most 1");
        }
        if growth <= 0.0 {
            return refuse(
                "growth",
                "a grant that never grows again starves: write more than 0, for example 1",
            );
        }
        Ok(Some(Chosen {
            policy: entry.policy,
            rtt: (!rtt.is_zero()).then_some(rtt),
            alive: crate::registry::positive_time(settings, "alive")?,
            hold: has("hold") && settings.flag("hold"),
            connections: connections as usize,
            report: settings.flag("report").then_some(load_over),
            target,
            growth,
        }))
    }

    /// *b*, in segments; not rounded, and possibly less than one.
    pub(super) fn acceptable(&self, sight: &Sight, flows: f64, rtt: Duration) -> f64 {
        let path = sight.rate.0 as f64 * rtt.as_secs_f64() / 8.0 / sight.segment;
        let free = (sight.room - sight.waiting).max(0.0);
        match self.policy {
            Policy::None | Policy::Report => f64::INFINITY,
            Policy::Free => free,
            Policy::AvgFree => (sight.room - sight.average).max(0.0),
            Policy::BdpFree => free + path,
            Policy::Share => (free + path) / flows,
            Policy::Coordinate => ((self.target * sight.room).min(free) + path) / flows,
        }
    }

    /// How many segments a grant may be larger than the one `ago`.
    pub(super) fn growth(&self, ago: Duration, rtt: Duration) -> f64 {
        self.growth * ago.as_secs_f64() / rtt.as_secs_f64().max(1e-6)
    }
}

/// What a router sees of the queue that the acknowledged data take, in segments.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sight {
    /// What the queue has room for: L.
    pub room: f64,
    /// What waits: q.
    pub waiting: f64,
    /// The average of what waits.
    pub average: f64,
    /// The line behind it: C.
    pub rate: Rate,
    /// Bytes of one segment at the IP level.
    pub segment: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(policy: Policy) -> Chosen {
        Chosen { policy, target: 0.5, growth: 1.0, ..Chosen::SILENT }
    }

    /// The paper's router: 32 segments of 1024 bytes, 1.5 Mbit/s; here 12 wait, 8 on average, and the round trip is 72 ms.
    #[test]
    fn the_policies_worked_for_the_papers_router() {
        let sight = Sight { room: 32.0, waiting: 12.0, average: 8.0, rate: Rate(1_500_000), segment: 1024.0 };
        let b = |policy, flows| {
            let b = chosen(policy).acceptable(&sight, flows, Duration::from_millis(72));
            libm::round(b * 100.0) / 100.0
        };
        // C R = 1.5e6 * 0.072 / 8 / 1024 = 13.18 segments.
        assert_eq!((b(Policy::Free, 4.0), b(Policy::AvgFree, 4.0)), (20.0, 24.0));
        assert_eq!((b(Policy::BdpFree, 4.0), b(Policy::Share, 4.0)), (33.18, 8.3));
        assert_eq!((b(Policy::Coordinate, 1.0), b(Policy::Coordinate, 4.0)), (29.18, 7.3));
    }

    #[test]
    fn a_full_queue_has_no_room_and_never_less() {
        let sight = Sight { room: 10.0, waiting: 12.0, average: 11.0, rate: Rate(1), segment: 1500.0 };
        for entry in REGISTRY {
            assert!(chosen(entry.policy).acceptable(&sight, 1.0, Duration::ZERO) >= 0.0, "{}", entry.name);
        }
    }

    #[test]
    fn a_grant_grows_by_one_segment_per_round_trip() {
        let rtt = Duration::from_millis(100);
        assert_eq!(chosen(Policy::Coordinate).growth(Duration::from_millis(250), rtt), 2.5);
    }
}
