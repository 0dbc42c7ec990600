//! ECN on real packets: our TCP and the kernel's agree on it, and each hears the other's echoes (RFC 3168). They need root.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod lab;

use lab::{Path, Ran, Side, both};
use narrows_core::Ecn;
use narrows_core::wire::ipv4;
use narrows_core::wire::tcp::{Flags, View};

/// Ours, with ECN.
const ECN: Side = Side::Ours(r#"{ name = "rfc", ecn = true }"#);

/// Two bursts of marks, each within a window of data: 40 ms are some 70 full segments at 20 Mbit/s.
const BURSTS: &[u64] = &[300, 301, 303, 305, 310, 900, 901, 905];

fn path() -> Path {
    Path {
        rate: "20Mbit/s",
        delay: "20ms",
        queue: "\"fifo:400p\"",
        ecn: true,
        mark: BURSTS,
        capture: true,
        ..Path::default()
    }
}

/// What passes the sender's cable, of interest here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// Bits of the SYN and of the SYN-ACK.
    syns: Vec<u8>,
    /// Data segments that are ECN-capable, and other packets that are.
    capable: u64,
    wrong: u64,
    /// Data segments with CWR, and ACKs with ECE.
    cwr: u64,
    ece: u64,
}

fn told(ran: &Ran) -> Told {
    let mut told = Told::default();
    for (_, packet) in &ran.packets {
        let ip = ipv4::View::new(packet).unwrap();
        let tcp = View::new(ip.payload()).unwrap();
        let bits = tcp.flags().0 & (Flags::ECE.0 | Flags::CWR.0);
        if tcp.flags().has(Flags::SYN) {
            told.syns.push(bits);
            told.wrong += (ip.ecn() != Ecn::NotEct) as u64;
            continue;
        }
        let data = !tcp.payload().is_empty();
        told.capable += (data && ip.ecn() == Ecn::Ect0) as u64;
        told.wrong += (!data && ip.ecn() != Ecn::NotEct) as u64;
        told.cwr += tcp.flags().has(Flags::CWR) as u64;
        told.ece += tcp.flags().has(Flags::ECE) as u64;
    }
    told
}

#[test]
fn each_burst_of_marks_costs_one_reduction_and_no_retransmission_whoever_sends_and_receives() {
    for (from, to) in [(ECN, ECN), (ECN, Side::Kernel), (Side::Kernel, ECN), (Side::Kernel, Side::Kernel)] {
        let Some(ran) = both(from, to, 3_000_000, path()) else { return };
        assert!(ran.completed && ran.failure.is_none(), "{ran:?}");
        let told = told(&ran);
        assert_eq!(told.syns, [0xC0, 0x40], "{from:?} {to:?}: RFC 3168 section 6.1.1");
        assert!(told.capable > 1500, "{from:?} {to:?}: {told:?}");
        assert_eq!((told.wrong, ran.retransmissions), (0, 0), "{from:?} {to:?}: {told:?}");
        assert_eq!(told.cwr, 2, "{from:?} {to:?}: one per window: {told:?}");
        assert!(told.ece > 20, "{from:?} {to:?}: echoed until CWR comes, a round trip later: {told:?}");
        if from == Side::Kernel {
            assert!(ran.info.delivered_ce > 0, "{:?}", ran.info);
            halved_twice(&ran);
        } else {
            assert_eq!(ran.ecn_reductions, 2, "{from:?} {to:?}");
        }
    }
}

/// Each new threshold of the kernel's Reno is half of the largest window before it.
fn halved_twice(ran: &Ran) {
    let (mut largest, mut cuts, mut ssthresh) = (0, 0, i32::MAX as u32);
    for sample in &ran.samples {
        let info = sample.info;
        if info.snd_ssthresh != ssthresh {
            assert!(
                info.snd_ssthresh.abs_diff(largest / 2) <= largest / 8,
                "{largest} to {}",
                info.snd_ssthresh
            );
            (ssthresh, largest, cuts) = (info.snd_ssthresh, 0, cuts + 1);
        }
        largest = largest.max(info.snd_cwnd);
    }
    assert_eq!(cuts, 2);
}

#[test]
fn an_end_without_ecn_gets_none_from_the_kernel() {
    for (from, to) in [(lab::RFC, Side::Kernel), (Side::Kernel, lab::RFC)] {
        let Some(ran) = both(from, to, 300_000, path()) else { return };
        let told = told(&ran);
        let offer = if from == Side::Kernel { 0xC0 } else { 0 };
        assert_eq!(
            (told.syns, told.capable, told.cwr, told.ece),
            (vec![offer, 0], 0, 0, 0),
            "{from:?} {to:?}"
        );
    }
}
