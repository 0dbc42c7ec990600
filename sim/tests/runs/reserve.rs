//! A reserved line: the paper's rate controller in a host, and senders that are held back instead of losing what they send.

use crate::run;

/// SunOS 4 over a frame relay line of 1.536 Mbit/s with 128 kbit/s reserved, as Hisada and Ono had it.
fn paper(more: &str, flows: usize) -> String {
    format!(
        r#"
        run = {{ duration = "200s" }}
        record = {{ flows = true, queues = true }}
        host = [{{ name = "a" }}, {{ name = "b" }}]
        [[link]]
        from = "a"
        to = "b"
        rate = "1.536Mbit/s"
        delay = "4ms"
        mtu = "504B"
        framing = "frame-relay"
        queue = {{ kind = "rate_control", rate = "128kbit/s" }}
        {more}
        backward = {{ queue = "fifo:64KiB" }}
        [[flow]]
        name = "bulk"
        from = "a"
        to = "b"
        size = "64kB"
        stack = {{ name = "sunos4", recovery = "timeouts" }}
        window = "16KiB"
        count = {flows}
        "#
    )
}

#[test]
fn the_first_window_loses_14_kbyte_at_once_in_a_queue_of_two() {
    let o = run(&paper("", 1), 1);
    let early: Vec<_> = o.events.iter().filter(|e| e.kind.name() == "drop" && e.time_s < 0.1).collect();
    // 36 segments in 16,384 bytes; six fit.
    let lost: usize = early.len() * 464;
    assert!((13_000..=15_000).contains(&lost), "{lost} bytes in {} segments", early.len());
    assert!(o.flows[0].completed && o.flows[0].rto_count > 0);
}

#[test]
fn who_is_held_back_loses_nothing_and_has_what_is_reserved() {
    let o = run(&paper("back_pressure = true", 1), 1);
    let flow = &o.flows[0];
    assert_eq!((flow.lost, flow.retransmissions, flow.completed), (0, 0, true));
    // 464 of 512 bytes of 128 kbit/s.
    assert!((flow.goodput_bps / 116_000.0 - 1.0).abs() < 0.03, "{}", flow.goodput_bps);
}

#[test]
fn senders_that_are_held_back_take_turns() {
    let o = run(&paper("back_pressure = true", 4), 1);
    let ends: Vec<f64> = o.flows.iter().map(|f| f.finished_at_s).collect();
    assert!(o.flows.iter().all(|f| f.completed && f.lost == 0), "{ends:?}");
    let (first, last) =
        (ends.iter().copied().fold(f64::MAX, f64::min), ends.iter().copied().fold(0.0, f64::max));
    assert!(first > 0.8 * last, "none is served first: {ends:?}");
}
