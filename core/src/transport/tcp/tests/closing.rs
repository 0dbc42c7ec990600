use super::net::{Close, Fate, Net};
use super::puppet::Puppet;
use super::*;
use crate::wire::tcp::Flags;

fn puppet() -> Puppet {
    Puppet::new(config(plain(rfc())))
}

fn fin(p: &mut Puppet) {
    p.says(p.segment(Flags::FIN | Flags::ACK, 0));
}

#[test]
fn the_side_that_closes_first_goes_through_fin_wait_to_time_wait() {
    let mut p = puppet();
    p.tcp.close();
    p.flush();
    assert_eq!((p.sent(), p.tcp.state()), (std::vec!["F 0".into()], State::FinWait1));
    p.ack(1);
    assert_eq!(p.tcp.state(), State::FinWait2);
    p.data(0, 2000);
    assert_eq!(
        (p.sent(), p.tcp.readable()),
        (std::vec![". 2000".into()], 2000),
        "half closed: the peer still sends"
    );
    fin(&mut p);
    assert_eq!((p.sent(), p.tcp.state()), (std::vec![". 2001".into()], State::TimeWait));
    p.at(59_999);
    assert_eq!(p.tcp.state(), State::TimeWait);
    p.at(60_000);
    assert_eq!((p.tcp.state(), p.tcp.wake_at()), (State::Closed, None), "2 MSL");
    assert!(p.sent().is_empty());
}

#[test]
fn the_side_that_closes_second_goes_through_close_wait_to_last_ack() {
    let mut p = puppet();
    fin(&mut p);
    assert_eq!((p.sent(), p.tcp.state(), p.tcp.at_end()), (std::vec![". 1".into()], State::CloseWait, true));
    p.write(1500);
    p.seq = 1;
    assert_eq!(p.sent(), ["0:1000"], "it may still send");
    p.tcp.close();
    p.flush();
    assert_eq!((p.sent(), p.tcp.state()), (std::vec!["F1000:1500".into()], State::LastAck));
    p.ack(1500);
    assert_eq!(p.tcp.state(), State::LastAck, "the data, not the FIN");
    p.ack(1501);
    assert_eq!((p.tcp.state(), p.tcp.wake_at()), (State::Closed, None));
}

#[test]
fn both_sides_may_close_at_once() {
    let mut p = puppet();
    p.tcp.close();
    p.flush();
    p.sent();
    fin(&mut p);
    assert_eq!((p.sent(), p.tcp.state()), (std::vec![". 1".into()], State::Closing), "RFC 9293 figure 13");
    p.seq = 1;
    p.ack(1);
    assert_eq!(p.tcp.state(), State::TimeWait);
}

#[test]
fn a_fin_that_acknowledges_ours_leads_to_time_wait_at_once() {
    let mut p = puppet();
    p.tcp.close();
    p.flush();
    p.ack = 1;
    fin(&mut p);
    assert_eq!(p.tcp.state(), State::TimeWait);
}

#[test]
fn a_repeated_fin_is_acknowledged_again_in_every_state_and_restarts_time_wait() {
    let repeated = |p: &mut Puppet| {
        p.sent();
        p.seq = 0;
        fin(p);
        p.seq = 1;
        p.sent()
    };
    let mut p = puppet();
    fin(&mut p);
    assert_eq!(repeated(&mut p), [". 1"], "CLOSE-WAIT");
    p.tcp.close();
    p.flush();
    assert_eq!(repeated(&mut p), [". 1"], "LAST-ACK");

    let mut p = puppet();
    p.tcp.close();
    p.flush();
    fin(&mut p);
    assert_eq!(repeated(&mut p), [". 1"], "CLOSING");
    p.ack(1).at(40_000);
    assert_eq!(p.tcp.state(), State::TimeWait);
    assert_eq!(repeated(&mut p), [". 1"], "TIME-WAIT");
    p.at(99_999);
    assert_eq!(p.tcp.state(), State::TimeWait, "RFC 9293 section 3.10.7.4: restart the 2 MSL timeout");
    p.at(100_000);
    assert_eq!(p.tcp.state(), State::Closed);
}

#[test]
fn a_fin_that_comes_early_is_answered_at_once_and_taken_when_its_turn_comes() {
    let mut p = puppet();
    p.seq = 1000;
    fin(&mut p);
    assert_eq!((p.sent(), p.tcp.state()), (std::vec![". 0".into()], State::Established));
    p.data(0, 1000);
    assert_eq!((p.sent(), p.tcp.state()), (std::vec![". 1001".into()], State::CloseWait));
    assert_eq!((p.tcp.delivered(), p.tcp.at_end()), (1000, false));
    p.tcp.read(1000);
    assert!(p.tcp.at_end());
}

#[test]
fn a_lost_fin_is_sent_again_with_the_data_before_it() {
    let mut p = puppet();
    p.write(1500).tcp.close();
    p.flush();
    assert_eq!(p.sent(), ["0:1000", "F1000:1500"]);
    p.at(1000);
    assert_eq!(p.sent(), ["0:1000"], "one segment after the timeout");
    p.ack(1000);
    assert_eq!(p.sent(), ["F1000:1500"]);
    p.at(1010).ack(1500);
    p.at(60_000);
    assert_eq!(p.sent()[0], "F 1500", "and alone");
}

#[test]
fn every_single_loss_around_the_close_is_survived() {
    for stack in [net2(), rfc()] {
        for (first, second) in [
            (Close::WhenWritten, Close::AtPeersEnd),
            (Close::AtPeersEnd, Close::WhenWritten),
            (Close::WhenWritten, Close::WhenWritten),
        ] {
            for bytes in [0, 1, 2500] {
                for lost in 1..10 {
                    for from in 0..2 {
                        let mut net = Net::<Vec<u8>>::new(config(stack), config(stack));
                        (net.apps[0].to_write, net.apps[0].close) = (bytes, first);
                        (net.apps[1].to_write, net.apps[1].close) = (500, second);
                        net = net.fate(from, move |n, _| if n == lost { Fate::Lose } else { Fate::Pass });
                        net.finish();
                        assert!(
                            net.now < Time::from_millis(200_000),
                            "the last end closed only at {:?}",
                            net.now
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_reset_counts_exactly_in_place_and_is_challenged_elsewhere_in_the_window() {
    for (at, state, answer) in [
        (2000, State::Closed, None),
        (2001, State::Established, Some(". 2000")),
        (1999, State::Established, None),
        (99_000, State::Established, None),
    ] {
        let mut p = puppet();
        p.data(0, 2000);
        p.sent();
        p.seq = at;
        p.says(p.segment(Flags::RST, 0));
        assert_eq!(
            (p.tcp.state(), p.sent().first().map(|s| s.as_str())),
            (state, answer),
            "RFC 5961 section 3.2, at {at}"
        );
    }
}

#[test]
fn a_syn_in_a_connection_is_challenged() {
    let mut p = puppet();
    p.data(0, 2000);
    p.sent();
    for at in [500, 2000, 3000] {
        p.seq = at;
        p.says(p.segment(Flags::SYN, 0));
        assert_eq!(
            (p.sent(), p.tcp.state()),
            (std::vec![". 2000".into()], State::Established),
            "RFC 5961 section 4.2"
        );
    }
}

#[test]
fn an_aborted_connection_resets_its_peer() {
    let mut net = Net::<Length>::new(config(rfc()), config(rfc())).transfer(1 << 20);
    net.run(Time::from_millis(500));
    net.ends[0].abort();
    assert!(net.step());
    net.run(Time::from_millis(1000));
    assert_eq!(net.ends.each_ref().map(|e| e.state()), [State::Closed; 2]);
}

#[test]
fn an_abort_after_a_timeout_reaches_a_peer_that_had_all_the_data() {
    // Every ACK was lost: the sender has gone back, the peer is ahead of it. A RST from before its window would be ignored.
    let net = Net::<Length>::new(config(plain(rfc())), config(plain(rfc())));
    let mut net = net.fate(1, |n, _| if n > 1 { Fate::Lose } else { Fate::Pass });
    net.ends[0].offer(5000);
    net.run(Time::from_millis(1150));
    assert_eq!((net.ends[0].counters().timeouts, net.ends[1].delivered()), (1, 5000));
    net.ends[0].abort();
    net.run(Time::from_millis(1300));
    assert_eq!(net.ends[1].state(), State::Closed);
}

#[test]
fn a_closed_end_answers_everything_but_a_reset_with_a_reset() {
    let mut p = puppet();
    p.tcp.abort();
    p.flush();
    assert_eq!(p.sent(), ["R 0"]);
    p.ack = 700;
    p.data(0, 10);
    assert_eq!((p.sent(), p.tcp.wake_at()), (std::vec!["R 700".into()], None));
    p.says(p.segment(Flags::RST | Flags::ACK, 0));
    assert!(p.sent().is_empty());
}

#[test]
fn nothing_is_taken_from_an_application_that_has_closed() {
    let mut p = puppet();
    p.tcp.close();
    assert_eq!(p.tcp.write(&std::vec![0; 10]), 0);
}

#[test]
fn a_stopped_source_delivers_what_was_buffered_and_closes() {
    let side = Config { send_buffer: Bytes(20_000), ..config(rfc()) };
    let mut net = Net::<Length>::new(side.clone(), side);
    net.apps[1].close = Close::AtPeersEnd;
    net.ends[0].offer(u64::MAX / 2);
    net.run(Time::from_millis(5000));
    let (una, max) = (net.ends[0].una(), net.ends[0].max());
    net.ends[0].stop();
    net.run(Time::from_millis(6000));
    let got = net.ends[1].delivered();
    assert!((max..=una + 20_000).contains(&got), "{una} {max} {got}");
    assert_eq!(net.ends[0].state(), State::TimeWait);
}
