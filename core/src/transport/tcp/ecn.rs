//! Explicit congestion notification in TCP (RFC 3168 section 6.1): routers mark instead of dropping, the receiver echoes the
//! mark until it is heard, the sender reduces as if a segment had been lost, once per window of data.
//!
//! ```text
//!   opener   SYN ECE CWR ───>            data ECT(0) ──(router)── CE ──>        ECE on every ACK
//!   listener       <─── SYN-ACK ECE                  <── ECE ─────      until data with CWR comes
//! ```
//!
//! The IP header's ECN field travels in [`Segment::ecn`](crate::wire::tcp::Segment::ecn): hosts fill it in on arrival and obey
//! it on departure. What is not new data is never ECN-capable: SYNs (section 6.1.1), pure ACKs (6.1.4), retransmissions (6.1.5),
//! window probes (6.1.6).
//!
//! Every reduction, whatever its cause, is told by CWR on the next new data (section 6.1.2), and what was sent before it brings no
//! second one: neither an echo after a loss, nor a loss after an echo.
//!
//! Deviations: a RST in answer to an ECN-setup SYN is believed, not retried without ECN (section 6.1.1.1: MAY). If a mark and
//! the CWR behind it share a delayed ACK, the mark is not echoed: it was set on data sent before that very reduction.

use crate::packet::Ecn;
use crate::wire::tcp::Flags;

/// Section 6.1.1.1: so many ECN-setup SYNs may be lost; the next goes without, in case something on the path drops them.
const SETUP_SYNS: u32 = 2;

/// The flags of an ECN-setup SYN, and of no ECN-setup SYN-ACK: that has ECE alone, so that a peer that sends reserved bits back
/// as they came is not taken for one.
const SETUP: Flags = Flags(Flags::ECE.0 | Flags::CWR.0);

/// A connection's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marking {
    /// The stack has it.
    wanted: bool,
    /// It may send ECN-capable data, and reacts to echoes.
    sends: bool,
    /// It echoes marks.
    echoes: bool,
    /// A mark came, and no CWR since.
    echo: bool,
    /// The next new data carry CWR.
    reduced: bool,
    /// The end of what had been sent when the window was last reduced.
    recover: u64,
    /// It was an echo that last reduced it.
    by_echo: bool,
}

impl Marking {
    /// Before the handshake.
    pub fn new(wanted: bool) -> Marking {
        Marking { wanted, ..Marking::default() }
    }

    /// What a SYN or SYN-ACK says of ECN (section 6.1.1); `lost` of them have timed out.
    pub fn setup(&self, answer: bool, lost: u32) -> Flags {
        match answer {
            true if self.echoes => Flags::ECE,
            false if self.wanted && lost < SETUP_SYNS => SETUP,
            _ => Flags::default(),
        }
    }

    /// The peer's SYN or SYN-ACK came, after `lost` timeouts of ours. Who has sent a SYN without ECN may find the peer to have gone
    /// by that one, and sends nothing ECN-capable.
    pub fn learn(&mut self, flags: Flags, lost: u32) {
        let expected = if flags.has(Flags::ACK) { Flags::ECE } else { SETUP };
        self.echoes = self.wanted && flags.0 & SETUP.0 == expected.0;
        self.sends = self.echoes && lost < SETUP_SYNS;
    }

    /// The peer repeats its SYN: without ECN, it has given it up.
    pub fn learn_again(&mut self, flags: Flags) {
        let expected = if flags.has(Flags::ACK) { Flags::ECE } else { SETUP };
        let still = flags.0 & SETUP.0 == expected.0;
        (self.sends, self.echoes) = (self.sends && still, self.echoes && still);
    }

    /// Data within the window came.
    #[inline]
    pub fn on_data(&mut self, flags: Flags, ecn: Ecn) {
        // In this order: a mark on the segment that carries CWR is a new one (section 6.1.3).
        self.echo = self.echoes && (ecn == Ecn::Ce || self.echo && !flags.has(Flags::CWR));
    }

    /// What every ACK carries.
    #[inline]
    pub fn echo(&self) -> Flags {
        if self.echo { Flags::ECE } else { Flags::default() }
    }

    /// Whether an ACK with these flags is one that echoes a mark of ours.
    #[inline]
    pub fn heard(&self, flags: Flags) -> bool {
        self.sends && flags.has(Flags::ECE)
    }

    /// Whether an echo on an ACK for `ack` tells of congestion since the last reduction (section 6.1.2).
    pub fn is_news(&self, ack: u64) -> bool {
        ack > self.recover
    }

    /// Whether the window has been reduced on an echo for what is in flight from `una` on: its loss is the same congestion.
    pub fn covers(&self, una: u64) -> bool {
        self.by_echo && una < self.recover
    }

    /// The window has been reduced, with data sent up to `max`.
    pub fn on_reduction(&mut self, max: u64, by_echo: bool) {
        (self.recover, self.by_echo, self.reduced) = (max, by_echo, self.sends);
    }

    /// What new data carry: their flags beside others, and the field of their IP header.
    #[inline]
    pub fn on_new_data(&mut self) -> (Flags, Ecn) {
        if !self.sends {
            return (Flags::default(), Ecn::NotEct);
        }
        let told = core::mem::take(&mut self.reduced);
        (if told { Flags::CWR } else { Flags::default() }, Ecn::Ect0)
    }
}
