//! Loss recovery by duplicate acknowledgments: Tahoe, Reno as in BSD, NewReno (RFC 6582); or none. It decides what to send again and
//! how the congestion window is bent meanwhile; by how much the window is cut is the controller's decision.
//!
//! ```text
//!            3rd duplicate: cut, resend the first                new ACK
//!   open ─────────────────────────────────────────> recovering ─────────────> open
//!    (Tahoe: cwnd = 1 mss, back to open at once)      │   ^  Reno: any new ACK; NewReno: beyond `recover`
//!                                 duplicate: +1 mss   └───┘  NewReno, partial ACK: resend the next, deflate
//! ```
//!
//! BSD details kept: a window inflated by exactly three duplicates is not deflated (`t_dupacks > tcprexmtthresh`), and a
//! window that has grown past `ssthresh` only is.

use crate::congestion::{Congestion, Controller, Signal};
use crate::time::Time;
use crate::units::Bytes;

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 4.2BSD and the first 4.3BSD: duplicates mean nothing, only the timer repairs.
    Timeouts,
    /// 4.3BSD-Tahoe: resend the first, slow start from one segment.
    Tahoe,
    /// 4.3BSD-Reno and 4.4BSD: over at the first new ACK.
    Reno,
    /// RFC 6582: over when everything sent before it began is acknowledged.
    NewReno,
}

/// What the sender must do now, beside sending what the window allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing.
    None,
    /// Send the first unacknowledged segment again, whatever the window.
    ResendFirst,
}

/// The state of recovery.
#[derive(Clone, Debug)]
pub struct Recovery {
    kind: Kind,
    threshold: u32,
    duplicates: u32,
    recovering: bool,
    /// RFC 6582: `recover`, the end of what had been sent when loss was last noticed; `None` before any.
    recover: Option<u64>,
    /// RFC 6582 section 3.2: whether this recovery has seen a partial ACK (the first restarts the timer).
    partial_seen: bool,
}

/// What recovery needs to know of the connection.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Now.
    pub now: Time,
    /// First unacknowledged offset (before the ACK in question is applied).
    pub una: u64,
    /// End of what was ever sent.
    pub max: u64,
    /// What the stack calls the flight: min(snd_wnd, cwnd) or bytes outstanding.
    pub flight: Bytes,
    /// Payload of a full segment.
    pub mss: u64,
}

impl Recovery {
    /// A fresh connection's.
    pub fn new(kind: Kind, threshold: u32) -> Recovery {
        Recovery { kind, threshold, duplicates: 0, recovering: false, recover: None, partial_seen: false }
    }

    /// Duplicates in a row so far.
    #[inline]
    pub fn duplicates(&self) -> u32 {
        self.duplicates
    }

    /// Whether recovery is going on.
    #[inline]
    pub fn recovering(&self) -> bool {
        self.recovering
    }

    /// A duplicate ACK arrived. What is lost is sent again, and the window cut unless it has been `reduced` already for what is in
    /// flight.
    pub fn on_duplicate(&mut self, view: View, reduced: bool, controller: &mut dyn Controller) -> Action {
        self.duplicates += 1;
        let mss = view.mss;
        if self.kind == Kind::Timeouts {
            return Action::None;
        }
        if self.duplicates == self.threshold && !self.recovering {
            // RFC 6582 section 3.2 step 2: after a timeout, duplicates of old data must not start another recovery.
            if self.kind == Kind::NewReno && self.recover.is_some_and(|recover| view.una <= recover) {
                return Action::None;
            }
            if !reduced {
                controller.on_congestion(&Congestion {
                    now: view.now,
                    signal: Signal::Loss,
                    flight: view.flight,
                });
            }
            match self.kind {
                Kind::Timeouts | Kind::Tahoe => controller.set_congestion_window(Bytes(mss)),
                Kind::Reno | Kind::NewReno => {
                    self.recovering = true;
                    self.partial_seen = false;
                    self.recover = Some(view.max);
                    let inflated = controller.ssthresh() + Bytes(mss * self.threshold as u64);
                    controller.set_congestion_window(inflated);
                }
            }
            return Action::ResendFirst;
        }
        if self.recovering {
            controller.set_congestion_window(controller.congestion_window() + Bytes(mss));
        }
        Action::None
    }

    /// An ACK for `ack` arrived, which acknowledges something new. Returns what to do, and whether the retransmission timer
    /// should be restarted.
    #[inline]
    pub fn on_ack(&mut self, view: View, ack: u64, controller: &mut dyn Controller) -> (Action, bool) {
        let duplicates = core::mem::take(&mut self.duplicates);
        if !self.recovering {
            return (Action::None, true);
        }
        if self.kind == Kind::NewReno && self.recover.is_some_and(|recover| ack < recover) {
            // Partial ACK: deflate by what it acknowledges, add back one segment, resend the next (section 3.2 step 3).
            let acked = ack - view.una;
            let back = if acked >= view.mss { view.mss } else { 0 };
            let window = controller.congestion_window().0.saturating_sub(acked) + back;
            controller.set_congestion_window(Bytes(window));
            return (Action::ResendFirst, !core::mem::replace(&mut self.partial_seen, true));
        }
        self.recovering = false;
        let ssthresh = controller.ssthresh();
        match self.kind {
            Kind::NewReno => {
                // Step 3, full ACK, first option: no burst if little is left in flight.
                let left = Bytes((view.max - ack).max(view.mss) + view.mss);
                controller.set_congestion_window(ssthresh.min(left));
            }
            _ if duplicates > self.threshold && controller.congestion_window() > ssthresh => {
                controller.set_congestion_window(ssthresh);
            }
            _ => {}
        }
        (Action::None, true)
    }

    /// A segment that is neither a duplicate ACK nor new: BSD starts counting afresh, and has no other state of recovery.
    #[inline]
    pub fn on_other(&mut self) {
        self.duplicates = 0;
        self.recovering &= self.kind == Kind::NewReno;
    }

    /// The retransmission timer fired.
    pub fn on_timeout(&mut self, view: View, controller: &mut dyn Controller) {
        self.duplicates = 0;
        self.recovering = false;
        self.recover = Some(view.max);
        controller.on_congestion(&Congestion { now: view.now, signal: Signal::Timeout, flight: view.flight });
    }
}
