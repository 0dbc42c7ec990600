//! Reports of routers: who may add them, and who is told.

use super::net::{Fate, Net};
use super::*;
use crate::congestion::{Ack, Congestion};
use crate::wire::tcp::{Flags, Options, RouterState, RouterStates};
use std::cell::RefCell;
use std::rc::Rc;

fn states(stack: Stack) -> Stack {
    Stack { router_states: true, ..stack }
}

/// A window of two segments, and what routers have said.
#[derive(Default)]
struct Listener {
    told: usize,
    last: RouterStates,
    heard_before_ack: usize,
}

impl Controller for Listener {
    fn on_start(&mut self, _start: &Start) {}
    fn on_ack(&mut self, _ack: &Ack) {
        self.heard_before_ack = self.told;
    }
    fn on_router_states(&mut self, _now: Time, states: &RouterStates) {
        self.told += 1;
        self.last = *states;
    }
    fn on_congestion(&mut self, _event: &Congestion) {}
    fn set_congestion_window(&mut self, _window: Bytes) {}
    fn congestion_window(&self) -> Bytes {
        Bytes(2 * u64::from(MSS))
    }
    fn ssthresh(&self) -> Bytes {
        Bytes(0)
    }
    fn inspect(&self, probe: &mut dyn FnMut(&'static str, f64)) {
        probe("told", self.told as f64);
        probe("before_ack", self.heard_before_ack as f64);
        self.last.as_slice().iter().for_each(|s| probe("queue", f64::from(s.queue)));
    }
}

fn heard(tcp: &Tcp<Length>) -> Vec<(&'static str, f64)> {
    let mut heard = Vec::new();
    tcp.controller().inspect(&mut |name, value| heard.push((name, value)));
    heard
}

#[test]
fn acks_invite_routers_only_if_both_ends_said_so_and_data_never_do() {
    for (opener, listener) in [(false, false), (false, true), (true, false), (true, true)] {
        let side = |router_states| config(Stack { router_states, ..rfc() });
        let seen = Rc::new(RefCell::new(Vec::new()));
        let mut net = Net::<Length>::new(side(opener), side(listener));
        for from in 0..2 {
            let seen = seen.clone();
            net = net.fate(from, move |_, s| {
                seen.borrow_mut().push((from, s.clone()));
                Fate::Pass
            });
        }
        let mut net = net.transfer(30_000);
        net.apps[1].to_write = 5000;
        net.finish();
        let (seen, both) = (seen.borrow(), opener && listener);
        let syns: Vec<_> = seen
            .iter()
            .filter(|(_, s)| s.flags.has(Flags::SYN))
            .map(|(_, s)| s.options.states.is_some())
            .collect();
        assert_eq!(syns, [opener, both], "{opener} {listener}");
        for (from, s) in seen.iter().filter(|(_, s)| !s.flags.has(Flags::SYN)) {
            let invites = s.options.states.as_ref().map(|states| states.is_empty());
            assert_eq!(invites, (both && s.payload.0 == 0).then_some(true), "end {from}: {s:?}");
        }
        assert!([0, 1].iter().all(|end| seen.iter().any(|(from, s)| from == end && s.payload.0 > 0)));
    }
}

#[test]
fn the_controller_is_told_by_new_and_duplicate_acks_but_not_by_old_ones() {
    let stack = states(plain(rfc()));
    let mut tcp = Tcp::<Length>::connect(config(stack), Box::<Listener>::default());
    tcp.transmit(Time::ZERO).unwrap();
    let answer = |ack: u32, flags, queue: Option<u16>| {
        let mut options = Options { states: Some(Box::default()), ..Options::default() };
        if let Some(queue) = queue {
            assert!(options.add_state(RouterState { router: 1, queue, ..RouterState::default() }));
        }
        Segment { seq: Seq(9), ack: Seq(5001 + ack), flags, window: 9000, options, ..Segment::default() }
    };
    tcp.receive(Time::ZERO, answer(0, Flags::SYN | Flags::ACK, Some(1)));
    tcp.offer(100_000);
    while tcp.transmit(Time::ZERO).is_some() {}
    assert_eq!(
        (tcp.mss(), tcp.max()),
        (536, 3 * 536),
        "without an MSS option 536; three in a window of 2000"
    );
    let mut says = |ack, queue| {
        tcp.receive(Time::from_millis(1), Segment { seq: Seq(10), ..answer(ack, Flags::ACK, queue) });
        heard(&tcp)
    };
    assert_eq!(says(536, None), [("told", 0.0), ("before_ack", 0.0)], "an invitation that nobody took");
    assert_eq!(says(2 * 536, Some(7)), [("told", 1.0), ("before_ack", 1.0), ("queue", 7.0)]);
    assert_eq!(says(2 * 536, Some(8)), [("told", 2.0), ("before_ack", 1.0), ("queue", 8.0)], "a duplicate");
    assert_eq!(says(536, Some(9))[0], ("told", 2.0), "overtaken by the one before");
    assert_eq!(says(100 * 536, Some(9))[0], ("told", 2.0), "it acknowledges what was never sent");
}

#[test]
fn who_did_not_offer_listens_to_no_router() {
    let mut tcp = Tcp::<Length>::connect(config(plain(rfc())), Box::<Listener>::default());
    tcp.transmit(Time::ZERO).unwrap();
    let mut options = Options { states: Some(Box::default()), ..Options::default() };
    assert!(options.add_state(RouterState::default()));
    let ack = Segment { seq: Seq(9), ack: Seq(5001), window: 9000, options, ..Segment::default() };
    tcp.receive(Time::ZERO, Segment { flags: Flags::SYN | Flags::ACK, ..ack.clone() });
    tcp.offer(1000);
    while tcp.transmit(Time::ZERO).is_some() {}
    tcp.receive(Time::ZERO, Segment { seq: Seq(10), ack: Seq(5537), flags: Flags::ACK, ..ack });
    assert_eq!((tcp.una(), heard(&tcp)[0]), (536, ("told", 0.0)));
}
