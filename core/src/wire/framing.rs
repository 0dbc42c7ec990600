//! What a link puts around an IP packet: how many bytes its line has to carry. A rate in these notes is the line's, so a link whose
//! rate is that of its bits needs its framing, and one whose rate is of IP packets (the default) none.

/// How packets are framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// Not at all: rates count IP packets.
    #[default]
    None,
    /// Ethernet (IEEE 802.3): preamble 8, addresses and type 14, at least 46 of payload, FCS 4, gap 12.
    Ethernet,
    /// Frame relay (ITU-T Q.922 annex A, RFC 2427): flag, address 2, control, NLPID, FCS 2, flag. See [`super::frame_relay`].
    FrameRelay,
    /// PPP on a serial line (RFC 1661, 1662): flag, address, control, protocol 2, FCS 2, flag.
    Ppp,
}

impl Framing {
    /// All of them.
    pub const ALL: [Framing; 4] = [Framing::None, Framing::Ethernet, Framing::FrameRelay, Framing::Ppp];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Framing::None => "none",
            Framing::Ethernet => "ethernet",
            Framing::FrameRelay => "frame-relay",
            Framing::Ppp => "ppp",
        }
    }

    /// Bytes on the line for an IP packet of that many. Bits stuffed into serial frames are not counted: they depend on the data.
    #[inline]
    pub const fn size(self, packet: u64) -> u64 {
        match self {
            Framing::None => packet,
            Framing::Ethernet => (if packet < 46 { 46 } else { packet }) + 38,
            Framing::FrameRelay | Framing::Ppp => packet + 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_standards_add_them_up() {
        let sizes = |packet| Framing::ALL.map(|f| f.size(packet));
        // 1538 bytes per full Ethernet frame: 81,274 a second at 1 Gbit/s.
        assert_eq!(sizes(1500), [1500, 1538, 1508, 1508]);
        // An ACK is padded on Ethernet: 84 bytes, 1.488 million a second at 1 Gbit/s.
        assert_eq!(sizes(40), [40, 84, 48, 48]);
        // 464 bytes of data in a frame of 512.
        assert_eq!(Framing::FrameRelay.size(464 + 40), 512);
    }
}
