use super::net::{Close, Fate, Net};
use super::puppet::Puppet;
use super::*;
use crate::wire::tcp::Payload;
use proptest::prelude::*;

const RECOVERIES: [Kind; 3] = [Kind::Tahoe, Kind::Reno, Kind::NewReno];

fn stacks() -> impl Iterator<Item = Stack> {
    let ecn = Stack { ecn: true, ..rfc() };
    [net2(), rfc(), ecn].into_iter().flat_map(|s| RECOVERIES.map(|recovery| Stack { recovery, ..s }))
}

#[test]
fn every_byte_arrives_once_and_in_order_over_a_clean_path() {
    for stack in stacks() {
        let mut net = Net::<Vec<u8>>::new(config(stack), config(stack)).transfer(100_000);
        net.finish();
        assert_eq!((net.ends[0].counters().retransmissions, net.ends[0].counters().timeouts), (0, 0));
    }
}

#[test]
fn every_byte_arrives_once_and_in_order_under_loss_repetition_and_reordering() {
    for stack in stacks() {
        for seed in 0..20 {
            let mut net = Net::<Vec<u8>>::new(config(stack), config(stack)).transfer(150_000);
            (net.apps[1].to_write, net.apps[1].close) = (20_000, Close::AtPeersEnd);
            net.storm(seed, 0.05, 0.03, 0.1).marking(seed, 0.1).finish();
        }
    }
}

#[test]
fn a_stream_whose_every_segment_is_lost_once_still_arrives() {
    // Without timestamps there is then never a sample (Karn): the back-off stays, but the connection makes progress and must not
    // be given up. With them the echo is one, and nothing waits longer than the first time (RFC 7323 section 4.1).
    let mut ended = std::vec::Vec::new();
    for stack in [plain(rfc()), rfc()].into_iter().chain(stacks().map(plain)) {
        let mut last = 0;
        let fate = move |n: u64, s: &Segment<Length>| {
            let end = s.seq.0.wrapping_add(s.span());
            let fresh = n > 2 && s.span() > 0 && end > last;
            last = last.max(end);
            if fresh { Fate::Lose } else { Fate::Pass }
        };
        let mut net = Net::<Length>::new(config(stack), config(stack)).transfer(30_000).fate(0, fate);
        net.finish();
        ended.push(net.now.since(Time::ZERO).as_secs() - 60); // TIME_WAIT
    }
    let [without, with, ..] = ended[..] else { unreachable!() };
    assert!(without > 5 * with, "{with} s, without timestamps {without} s");
}

#[test]
fn sequence_numbers_wrap_in_the_first_bytes() {
    for iss in [u32::MAX - 1, u32::MAX, u32::MAX - 5000, (1 << 31) - 3000] {
        for stack in stacks() {
            let side = |iss| Config { iss, ..config(stack) };
            let net = Net::<Vec<u8>>::new(side(iss), side(iss.wrapping_add(1))).transfer(60_000);
            let mut net = net.storm(7, 0.03, 0.02, 0.05).marking(7, 0.1);
            net.apps[1].to_write = 20_000;
            net.finish();
        }
    }
}

#[test]
fn more_than_4_gib_pass_in_one_connection() {
    let side = Config {
        mss: 65_495,
        receive_buffer: Bytes(1 << 24),
        send_buffer: Bytes(1 << 24),
        reads_at_once: true,
        ..config(rfc())
    };
    let bytes = (1 << 32) + 123_457;
    let mut net = Net::<Length>::new(side.clone(), side).transfer(bytes);
    net = net.fate(0, |n, _| if n % 5000 == 0 { Fate::Lose } else { Fate::Pass });
    net.finish();
    assert_eq!((net.ends[0].acknowledged(), net.ends[1].delivered()), (bytes, bytes));
    assert_eq!(net.ends[0].counters().timeouts, 0);
}

#[test]
fn a_segment_joined_of_two_lost_ones_gives_no_rtt() {
    // Two halves of a window of one segment are lost; one segment repeats both. Its ACK must not be timed from the first sending.
    for acked in [500, 1000] {
        let mut p = Puppet::new(config(plain(rfc())));
        p.window = 1000;
        p.ack(0);
        p.tcp.max_snd_wnd = 1000;
        p.write(500).write(500).at(1000);
        assert_eq!(p.sent(), ["0:500", "500:1000", "0:1000"]);
        p.at(1010).ack(acked);
        assert_eq!(p.tcp.take_rtt(), None, "Karn's rule for a segment cut anew");
    }
}

/// One of [`stacks`] that is not given up by chance.
fn patient(kind: usize) -> Stack {
    Stack { max_retransmits: 100, ..stacks().nth(kind).unwrap() }
}

fn arbitrary_side() -> impl Strategy<Value = Config> {
    (0..9usize, any::<u32>(), 50u32..1500, 1500u64..100_000, 1500u64..100_000, any::<[bool; 3]>(), 0u64..500)
        .prop_map(|(kind, iss, mss, receive, send, [timestamps, window_scale, ecn], phase)| Config {
            iss,
            mss,
            receive_buffer: Bytes(receive),
            send_buffer: Bytes(send),
            timer_phase: ms(phase),
            ..config(Stack { timestamps, window_scale, ecn, ..patient(kind) })
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the network does, all bytes arrive exactly once, both ends close, and neither falls asleep before.
    #[test]
    fn no_network_corrupts_or_stalls_a_connection(
        a in arbitrary_side(), b in arbitrary_side(), seed: u64, bytes in (0u64..60_000, 0u64..8000),
        rates in (0.0..0.12f64, 0.0..0.1f64, 0.0..0.3f64, 0.0..1.0f64), closes_at_once: bool, reads_from in 0u64..20_000,
        rate in proptest::option::of(200_000u64..5_000_000),
    ) {
        let mut net = Net::<Vec<u8>>::new(a, b).storm(seed, rates.0, rates.1, rates.2).marking(seed, rates.3);
        (net.apps[0].to_write, net.apps[0].close) = (bytes.0, Close::WhenWritten);
        net.apps[1].to_write = bytes.1;
        net.apps[1].close = if closes_at_once { Close::WhenWritten } else { Close::AtPeersEnd };
        net.apps[1].reads_from = Time::from_millis(reads_from);
        net.pipes[0].rate = rate.map(Rate);
        net.finish();
    }

    /// The same for any set of losses among the first segments of either direction.
    #[test]
    fn no_set_of_losses_stalls_a_connection(
        kind in 0..9usize, timestamps: bool, lost in (0u64..1 << 40, 0u64..1 << 40), thin in any::<(u64, u64)>(), bytes in 0u64..50_000,
    ) {
        let stack = Stack { timestamps, ..patient(kind) };
        let mut net = Net::<Vec<u8>>::new(config(stack), config(stack)).transfer(bytes);
        for (from, mask) in [(0, lost.0 & thin.0), (1, lost.1 & thin.1)] {
            net = net.fate(from, move |n, _| if n <= 40 && mask >> (n - 1) & 1 == 1 { Fate::Lose } else { Fate::Pass });
        }
        net.finish();
        prop_assert_eq!(net.ends[0].acknowledged(), bytes);
    }
}

#[test]
fn an_end_that_hears_nothing_gives_up_and_says_so() {
    for stack in [net2(), rfc()] {
        let net = Net::<Length>::new(config(stack), config(stack)).transfer(10_000);
        let mut net = net.fate(0, |n, s| if n > 2 && s.payload.len() > 0 { Fate::Lose } else { Fate::Pass });
        net.run(Time::from_millis(3_600_000));
        assert_eq!(net.ends[0].state(), State::Closed);
        assert_eq!(net.ends[0].counters().timeouts, 12, "max_retransmits");
        assert_eq!(net.ends[1].state(), State::Closed, "the RST reached it");
    }
}
