use super::net::{Fate, Net};
use super::*;
use crate::wire::tcp::{Flags, Options, Timestamps};
use std::cell::RefCell;
use std::rc::Rc;

fn both(a: Config, b: Config) -> Net<Vec<u8>> {
    let mut net = Net::new(a, b).transfer(30_000);
    net.run(Time::from_millis(250));
    net
}

#[test]
fn three_segments_establish_a_connection_and_the_mss_is_the_smaller() {
    let (a, b) = (config(plain(rfc())), Config { mss: 700, ..config(plain(rfc())) });
    let mut net = both(a, b);
    assert_eq!(net.ends.each_ref().map(|e| (e.state(), e.mss())), [(State::Established, 700); 2]);
    net.finish();
    assert_eq!(net.ends[0].counters().segments_sent, 30_000u64.div_ceil(700));
}

#[test]
fn each_option_is_used_only_if_both_offer_it() {
    for bits in 0..16u32 {
        let has = |bit: u32| bits >> bit & 1 == 1;
        let side = |ts: bool, scale: bool| {
            let stack = Stack { timestamps: ts, window_scale: scale, ..rfc() };
            Config { receive_buffer: Bytes(1 << 20), ..config(stack) }
        };
        let net = both(side(has(0), has(1)), side(has(2), has(3)));
        for end in &net.ends {
            let (ts, scale) = (has(0) && has(2), has(1) && has(3));
            assert_eq!(end.timestamps, ts, "{bits:04b}");
            assert_eq!(end.mss(), if ts { 988 } else { 1000 }, "{bits:04b}");
            // 1 MiB needs a shift of 5: 65535 << 4 is 16 bytes short.
            assert_eq!((end.snd_scale, end.rcv_scale), if scale { (5, 5) } else { (0, 0) }, "{bits:04b}");
        }
        let want = if has(1) && has(3) { 1 << 20 } else { 65_535 };
        assert_eq!(
            net.ends[0].peer_window(),
            Bytes(want),
            "{bits:04b}: the server's ACKs count in the agreed units"
        );
    }
}

#[test]
fn without_an_mss_option_536_bytes_are_sent() {
    let mut tcp = Tcp::<Length>::connect(config(plain(rfc())), reno(&rfc()));
    let syn = tcp.transmit(Time::ZERO).unwrap();
    assert_eq!((syn.options.mss, syn.options.window_scale, syn.window), (Some(1000), Some(0), 60_000));
    let answer = Segment {
        seq: Seq(77),
        ack: Seq(5001),
        flags: Flags::SYN | Flags::ACK,
        window: 8000,
        ..Default::default()
    };
    tcp.receive(Time::from_millis(10), answer);
    assert_eq!((tcp.mss(), tcp.state()), (536, State::Established), "RFC 9293 section 3.7.1");
}

#[test]
fn windows_of_syns_are_not_scaled() {
    let side = Config { receive_buffer: Bytes(1 << 20), ..config(rfc()) };
    let seen = Rc::new(RefCell::new(Vec::new()));
    let mut net = Net::<Vec<u8>>::new(side.clone(), side);
    for from in 0..2 {
        let seen = seen.clone();
        net = net.fate(from, move |n, s| {
            if n <= 2 {
                seen.borrow_mut().push((s.flags.has(Flags::SYN), s.window));
            }
            Fate::Pass
        });
    }
    net.transfer(10).finish();
    assert_eq!(seen.borrow()[..3], [(true, 65_535), (true, 65_535), (false, (1 << 20 >> 5) as u16)]);
}

#[test]
fn the_timestamp_of_a_syn_echoes_nothing_and_the_answer_echoes_it() {
    let mut net = Net::<Length>::new(config(rfc()), config(rfc())).fate(0, |n, s| {
        let ts = s.options.timestamps.unwrap();
        match n {
            1 => assert!(s.flags.has(Flags::SYN) && ts.echo == 0),
            _ => assert!(ts.echo != 0),
        }
        Fate::Pass
    });
    net = net.fate(1, |_, s| (assert!(s.options.timestamps.unwrap().echo != 0), Fate::Pass).1);
    net.run(Time::from_millis(500));
    assert_eq!(net.ends[1].state(), State::Established);
}

#[test]
fn two_ends_that_open_at_once_meet() {
    for stack in [net2(), rfc()] {
        let side = |iss| Config { iss, ..config(stack) };
        let ends = [1, 2_000_000].map(|iss| Tcp::<Vec<u8>>::connect(side(iss), reno(&stack)));
        let mut net = Net::of(ends).transfer(20_000);
        net.apps[1].to_write = 3000;
        net.run(Time::from_millis(160));
        assert_eq!(net.ends.each_ref().map(|e| e.state()), [State::Established; 2], "RFC 9293 figure 7");
        net.finish();
    }
}

/// When the first `lost` SYNs of a lonely opener leave, in ms, and when it gives up.
fn syn_times(stack: Stack, phase: Duration) -> (Vec<u64>, u64) {
    let mut tcp = Tcp::<Length>::connect(Config { timer_phase: phase, ..config(stack) }, reno(&stack));
    let (mut now, mut times) = (Time::ZERO, Vec::new());
    loop {
        while let Some(s) = tcp.transmit(now) {
            assert!(s.flags.has(Flags::SYN) && !s.flags.has(Flags::ACK) && s.seq == Seq(5000));
            times.push(now.as_nanos() / 1_000_000);
        }
        match tcp.wake_at() {
            Some(at) => now = at,
            None => break,
        }
    }
    assert_eq!(tcp.state(), State::Closed);
    (times, now.as_nanos() / 1_000_000)
}

#[test]
fn a_lost_syn_is_repeated_after_3_s_by_bsd_and_1_s_by_rfc_6298_doubling() {
    let (times, end) = syn_times(Stack { max_retransmits: 5, ..net2() }, Duration::ZERO);
    assert_eq!(
        (&times[..], end),
        (&[0, 3000, 9000, 21_000, 45_000, 93_000][..], 93_000 + 64_000),
        "64 s at most"
    );
    let (times, _) = syn_times(Stack { max_retransmits: 2, ..net2() }, ms(120));
    assert_eq!(times, [0, 2620, 8620], "the sixth tick at this phase comes at 120 + 5 x 500");
    let (times, end) = syn_times(Stack { max_retransmits: 7, ..rfc() }, Duration::ZERO);
    assert_eq!(
        (&times[..], end),
        (&[0, 1000, 3000, 7000, 15_000, 31_000, 63_000, 123_000][..], 183_000),
        "60 s at most"
    );
}

#[test]
fn any_of_the_three_segments_may_be_lost() {
    for stack in [net2(), rfc()] {
        for (from, number) in [(0, 1), (1, 1), (0, 2)] {
            let mut net = Net::<Vec<u8>>::new(config(stack), config(stack)).transfer(5000);
            net.apps[1].to_write = 2500;
            net = net.fate(from, move |n, _| if n == number { Fate::Lose } else { Fate::Pass });
            net.finish();
        }
    }
}

#[test]
fn a_lost_final_ack_is_made_good_by_the_repeated_syn_ack() {
    // Nobody writes, so nothing but the SYN-ACK's timer can help.
    let mut net = Net::<Length>::new(config(rfc()), config(rfc()));
    net = net.fate(0, |n, _| if n == 2 { Fate::Lose } else { Fate::Pass });
    net.run(Time::from_millis(1000));
    assert_eq!(net.ends[1].state(), State::SynReceived);
    net.run(Time::from_millis(1200));
    assert_eq!(net.ends[1].state(), State::Established, "the SYN-ACK left again at 50 + 1000 ms");
}

#[test]
fn a_syn_sent_twice_is_not_timed() {
    let slow = |stack| {
        let mut net = Net::<Length>::new(config(stack), config(stack));
        net = net.fate(0, |n, _| if n == 1 { Fate::Lose } else { Fate::Pass });
        net.run(Time::from_millis(3100));
        net
    };
    let net = slow(plain(rfc()));
    assert_eq!(net.ends[0].rto.timeout(), ms(3000), "RFC 6298 (5.7), not timed");
    let first = net.ends[0].controller().congestion_window();
    assert_eq!(first, Bytes(net.ends[0].mss() as u64), "RFC 5681 section 3.1: one segment after a lost SYN");
    let net = slow(plain(net2()));
    assert_eq!(net.ends[0].state(), State::Established);
    assert_eq!(net.ends[0].rto.timeout(), ms(6000), "still the initial 3 s, backed off once (Karn)");
}

#[test]
fn a_syn_to_a_closed_end_is_refused_with_a_reset_that_the_opener_believes() {
    let mut net = Net::<Length>::new(config(rfc()), config(rfc()));
    net.ends[1].abort();
    net.run(Time::from_millis(1000));
    assert_eq!(net.ends[0].state(), State::Closed, "RFC 9293 section 3.10.7.1: ACK = SEG.SEQ + SEG.LEN");
}

#[test]
fn a_wrong_ack_in_the_handshake_is_answered_with_a_reset() {
    for state in [State::Listen, State::SynSent, State::SynReceived] {
        let config = config(plain(rfc()));
        let mut tcp = match state {
            State::SynSent => Tcp::<Length>::connect(config.clone(), reno(&config.stack)),
            _ => Tcp::<Length>::listen(config.clone(), reno(&config.stack)),
        };
        if state == State::SynReceived {
            tcp.receive(
                Time::ZERO,
                Segment { seq: Seq(9), flags: Flags::SYN, window: 1000, ..Default::default() },
            );
        }
        while tcp.transmit(Time::ZERO).is_some() {}
        assert_eq!(tcp.state(), state);
        let wrong =
            Segment { seq: Seq(10), ack: Seq(4000), flags: Flags::ACK, window: 1000, ..Default::default() };
        tcp.receive(Time::ZERO, wrong);
        let reset = tcp.transmit(Time::ZERO).unwrap_or_else(|| panic!("{state:?}: nothing sent"));
        assert!(reset.flags.has(Flags::RST) && !reset.flags.has(Flags::ACK), "{state:?}");
        assert_eq!((reset.seq, tcp.state()), (Seq(4000), state));
    }
}

#[test]
fn the_peer_may_repeat_its_syn_and_data_may_come_with_the_last_ack() {
    let mut tcp = Tcp::<Vec<u8>>::listen(config(rfc()), reno(&rfc()));
    let stamp = |value| Options {
        timestamps: Some(Timestamps { value, echo: 0 }),
        mss: Some(1000),
        ..Default::default()
    };
    for t in [0, 3000] {
        let syn =
            Segment { seq: Seq(9), flags: Flags::SYN, window: 1000, options: stamp(1), ..Default::default() };
        tcp.receive(Time::from_millis(t), syn);
        let answers: Vec<_> = core::iter::from_fn(|| tcp.transmit(Time::from_millis(t))).collect();
        let last = answers.last().unwrap();
        assert!(last.flags.has(Flags::SYN | Flags::ACK) && last.ack == Seq(10) && last.payload.is_empty());
    }
    let payload = Vec::piece(0, 300);
    let data = Segment {
        seq: Seq(10),
        ack: Seq(5001),
        flags: Flags::ACK,
        window: 9000,
        options: stamp(2),
        payload,
        ..Default::default()
    };
    tcp.receive(Time::from_millis(3100), data);
    assert_eq!((tcp.state(), tcp.readable()), (State::Established, 300));
}
