//! Reno's window (V. Jacobson 1988, 1990; RFC 5681): slow start up to `ssthresh`, then one segment per round trip; half of it
//! on congestion. What happens *between* congestion and its repair (inflation, deflation, partial ACKs) is the recovery's
//! business: see [`crate::transport::tcp::recovery`].
//!
//! ```text
//!   slow start: cwnd += mss per ACK ──(cwnd > ssthresh)──> avoidance: cwnd += mss²/cwnd [+ mss/8] per ACK
//!        ^                                                        │
//!        └── timeout: ssthresh = flight/2, cwnd = 1 mss ──────────┴── loss: ssthresh = cwnd = flight/2
//! ```
//!
//! The defaults are today's standards; stack `net2` asks for BSD's way, on which the papers of the 1990s stand:
//! * `extra = 8`: Net/2 and 4.4BSD-Lite add `mss/8` per ACK in avoidance "to help larger windows open quickly enough"; Lite2
//!   removed it.
//! * `validate = false`: cwnd grows on every ACK, whether or not the window was the limit (RFC 7661 came later).
//! * `count_bytes = false`: growth counts ACKs, so a delayed ACK halves it (RFC 3465 came later).
//!
//! Deviation from RFC 5681: halving counts in whole segments, at least two, as BSD does: `max(2, flight/2/mss) * mss`.

use super::{Ack, Congestion, Controller, Entry, Signal, Start};
use crate::registry::{Kind, Parameter, Settings, Unfit};
use crate::units::Bytes;
use alloc::boxed::Box;

/// The registry's line for `reno`.
pub const ENTRY: Entry = Entry {
    name: "reno",
    summary: "slow start and congestion avoidance (Jacobson 1988; RFC 5681)",
    parameters: &[
        Parameter {
            name: "extra",
            kind: Kind::Count,
            default: "0",
            meaning: "in avoidance add mss/extra per ACK as Net/2 and 4.4BSD-Lite do; 0 adds nothing (RFC 5681)",
        },
        Parameter {
            name: "validate",
            kind: Kind::Flag,
            default: "true",
            meaning: "grow only while the window is what limits sending (RFC 7661)",
        },
        Parameter {
            name: "count_bytes",
            kind: Kind::Flag,
            default: "true",
            meaning: "grow by bytes acknowledged (RFC 3465, at most 2 mss per ACK) instead of per ACK",
        },
    ],
    decorates: None,
    build: |settings, _| Ok(Box::new(Reno::new(settings)?)),
};

/// Reno's congestion window.
#[derive(Clone, Debug)]
pub struct Reno {
    extra: u64,
    validate: bool,
    count_bytes: bool,
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    max_window: u64,
    /// Bytes acknowledged in avoidance that have not yet been worth a whole segment (`count_bytes` only).
    credit: u64,
}

impl Reno {
    /// Reads `extra`, `validate`, `count_bytes`.
    pub fn new(settings: &Settings) -> Result<Self, Unfit> {
        Ok(Reno {
            extra: settings.count("extra"),
            validate: settings.flag("validate"),
            count_bytes: settings.flag("count_bytes"),
            mss: 1,
            cwnd: 1,
            ssthresh: u64::MAX,
            max_window: u64::MAX,
            credit: 0,
        })
    }
}

impl Reno {
    /// One segment per window: by bytes, or by ACKs as BSD counts.
    fn linear(&mut self, acked: u64) -> u64 {
        if !self.count_bytes {
            return (self.mss * self.mss / self.cwnd).max(1);
        }
        self.credit += acked;
        if self.credit < self.cwnd {
            return 0;
        }
        self.credit -= self.cwnd;
        self.mss
    }
}

impl Controller for Reno {
    fn on_start(&mut self, start: &Start) {
        self.mss = start.mss as u64;
        self.cwnd = start.initial_window.0;
        self.max_window = start.max_window.0;
        self.ssthresh = self.max_window;
    }

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        if ack.in_recovery || ack.ce || (self.validate && !ack.window_limited) {
            return;
        }
        // BSD compares `cw > ssthresh`: at equality it is still slow start.
        let increment = if self.cwnd <= self.ssthresh {
            if self.count_bytes { ack.acked.0.min(2 * self.mss) } else { self.mss }
        } else {
            self.linear(ack.acked.0) + self.mss.checked_div(self.extra).unwrap_or(0)
        };
        self.cwnd = (self.cwnd + increment).min(self.max_window.max(self.mss));
    }

    fn on_congestion(&mut self, event: &Congestion) {
        if event.signal == Signal::Spurious {
            return;
        }
        self.ssthresh = (event.flight.0 / 2 / self.mss).max(2) * self.mss;
        self.credit = 0;
        self.cwnd = match event.signal {
            Signal::Timeout => self.mss,
            // RFC 3168 section 6.1.2 halves down to one segment; nothing has been lost that three duplicates would be needed for.
            Signal::Ecn => self.cwnd.min((event.flight.0 / 2 / self.mss).max(1) * self.mss),
            _ => self.ssthresh,
        };
    }

    fn set_congestion_window(&mut self, window: Bytes) {
        self.cwnd = window.0.max(self.mss);
    }
    #[inline]
    fn congestion_window(&self) -> Bytes {
        Bytes(self.cwnd)
    }
    fn ssthresh(&self) -> Bytes {
        Bytes(self.ssthresh)
    }
    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        probe("cwnd", self.cwnd as f64);
        probe("ssthresh", self.ssthresh as f64);
    }
}
