//! Our TCP speaks with the kernel's, and with itself, over paths that lose, reorder and close windows: every byte arrives.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod lab;

use lab::{Lab, NET2, Path, RFC, Ran, Side, both};
use std::collections::BTreeMap;

const LOSS: &str = r#"{ kind = "loss", probability = 0.01, inner = "fifo:200p" }"#;
const RARE_LOSS: &str = r#"{ kind = "loss", probability = 0.0001, inner = "fifo:300p" }"#;
const REORDER: &str = r#"{ kind = "reorder", probability = 0.01, by = "3ms", inner = "fifo:200p" }"#;

/// Whole, and to the byte.
fn whole(ran: &Ran) {
    assert_eq!(ran.failure, None);
    assert!(ran.completed, "it did not complete: {ran:?}");
}

#[test]
fn net2_sends_100_mb_to_the_kernel_under_rare_loss() {
    let path = Path { rate: "1Gbit/s", delay: "250us", queue: RARE_LOSS, ..Path::default() };
    let Some(ran) = both(NET2, Side::Kernel, 100_000_000, path) else { return };
    whole(&ran);
    assert!(ran.retransmissions > 0, "some were lost");
}

#[test]
fn the_kernel_sends_100_mb_to_our_receiver_under_rare_loss() {
    let path = Path { rate: "1Gbit/s", delay: "250us", queue: RARE_LOSS, ..Path::default() };
    let Some(ran) = both(Side::Kernel, RFC, 100_000_000, path) else { return };
    whole(&ran);
    assert!(ran.retransmissions > 0, "some were lost");
}

#[test]
fn every_pair_of_ends_gets_through_random_loss_both_ways() {
    let path = Path { rate: "200Mbit/s", delay: "1ms", queue: LOSS, ..Path::default() };
    for (from, to) in
        [(NET2, Side::Kernel), (RFC, Side::Kernel), (Side::Kernel, NET2), (Side::Kernel, RFC), (NET2, RFC)]
    {
        let Some(ran) = both(from, to, 500_000, path) else { return };
        whole(&ran);
    }
}

#[test]
fn every_pair_of_ends_gets_through_reordering() {
    let path = Path { rate: "200Mbit/s", delay: "1ms", queue: REORDER, ..Path::default() };
    for (from, to) in
        [(NET2, Side::Kernel), (RFC, Side::Kernel), (Side::Kernel, NET2), (Side::Kernel, RFC), (RFC, NET2)]
    {
        let Some(ran) = both(from, to, 4_000_000, path) else { return };
        whole(&ran);
    }
}

#[test]
fn a_window_that_closes_opens_again() {
    // Sixty segments, so that the window closes to nothing and not to something silly.
    let window = "86880B";
    let path = Path { rate: "200Mbit/s", delay: "1ms", pause: Some((50, 450)), window, ..Path::default() };
    for (from, to) in [(NET2, Side::Kernel), (RFC, Side::Kernel), (Side::Kernel, NET2), (Side::Kernel, RFC)] {
        let Some(ran) = both(from, to, 5_000_000, path) else { return };
        whole(&ran);
        assert!(ran.finished > 0.45, "the pause was seen: {}", ran.finished);
        assert!(ran.zero_windows > 0, "the window was closed");
        assert!(lab::bounded(ran.window, 86_880), "the window was {}", ran.window);
    }
}

#[test]
fn an_mtu_of_4352_is_used() {
    let path = Path { mtu: 4352, ..Path::default() };
    for (from, to) in [(NET2, Side::Kernel), (Side::Kernel, NET2)] {
        let Some(ran) = both(from, to, 5_000_000, path) else { return };
        whole(&ran);
        assert_eq!(ran.largest, 4352);
    }
}

#[test]
#[ignore = "a measurement, of a release build"]
fn our_tcp_and_the_gateway_take_less_than_a_core_per_gbit_s() {
    let path = Path { rate: "100Gbit/s", delay: "10us", window: "512KiB", ..Path::default() };
    for (from, to) in [(RFC, Side::Kernel), (Side::Kernel, RFC), (RFC, RFC), (Side::Kernel, Side::Kernel)] {
        for mtu in [1500, 4352] {
            let Some(ran) = both(from, to, 300_000_000, Path { mtu, ..path }) else { return };
            whole(&ran);
            assert!(ran.cpu < 2.4, "300 MB at 1 Gbit/s take 2.4 s; of a core they took {}", ran.cpu);
        }
    }
}

#[test]
fn wireshark_finds_nothing_wrong_with_our_segments() {
    let flags = |from, to, path| {
        let ran = Lab::new(Path { capture: true, ..path }, from, to)?.transfer(1_000_000);
        whole(&ran);
        lab::tshark(&ran.packets)
    };
    let pause = Some((30, 150));
    let hard = Path { queue: LOSS, pause, window: "86880B", ..Path::default() };
    for (from, to) in [(NET2, Side::Kernel), (RFC, Side::Kernel), (Side::Kernel, NET2), (Side::Kernel, RFC)] {
        let Some(flags_of_clean) = flags(from, to, Path::default()) else { return };
        // That a sender fills the window, and a receiver opens it, is no fault.
        let known = ["tcp.analysis.window_full", "tcp.analysis.window_update"];
        assert_eq!(unknown(flags_of_clean, &known), Vec::<String>::new());
        // What loss brings to any TCP.
        let known = [
            &known[..],
            &[
                "tcp.analysis.duplicate_ack",
                "tcp.analysis.duplicate_ack_num",
                "tcp.analysis.duplicate_ack_frame",
            ],
            &[
                "tcp.analysis.retransmission",
                "tcp.analysis.fast_retransmission",
                "tcp.analysis.spurious_retransmission",
            ],
            &["tcp.analysis.rto", "tcp.analysis.rto_frame", "tcp.analysis.out_of_order"],
            &[
                "tcp.analysis.zero_window",
                "tcp.analysis.zero_window_probe",
                "tcp.analysis.zero_window_probe_ack",
            ],
        ]
        .concat();
        let Some(flags_of_hard) = flags(from, to, hard) else { return };
        println!("{from:?} to {to:?}: {flags_of_hard:?}");
        assert_eq!(unknown(flags_of_hard, &known), Vec::<String>::new());
    }
}

fn unknown(flags: BTreeMap<String, u64>, known: &[&str]) -> Vec<String> {
    flags.into_iter().filter(|(f, _)| !known.contains(&&**f)).map(|(f, n)| format!("{n} x {f}")).collect()
}
