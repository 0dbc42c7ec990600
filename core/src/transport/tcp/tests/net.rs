//! Two ends and what lies between them: two pipes with a delay, perhaps a rate, and a fate for every segment.

use super::*;
use crate::packet::Ecn;
use crate::rng::Rng;
use alloc::collections::BTreeMap;

/// What becomes of a segment.
pub enum Fate {
    Pass,
    Lose,
    Twice,
    Late(Duration),
    /// Marked congestion experienced, if it may be.
    Mark,
}

type Judge<P> = Box<dyn FnMut(u64, &Segment<P>) -> Fate>;

/// One direction.
pub struct Pipe<P> {
    pub delay: Duration,
    pub rate: Option<Rate>,
    /// Told the number of the segment, from 1, and the segment.
    pub fate: Judge<P>,
    free_at: Time,
    count: u64,
}

/// What a router does that would drop the segment otherwise; it stays one segment.
fn mark<P>(segment: &mut Segment<P>) -> u32 {
    if segment.ecn != Ecn::NotEct {
        segment.ecn = Ecn::Ce;
    }
    1
}

/// When an application closes its side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    Never,
    WhenWritten,
    AtPeersEnd,
}

/// An application: writes what it has, reads what comes, checks every byte.
#[derive(Clone, Copy, Debug)]
pub struct App {
    pub to_write: u64,
    pub close: Close,
    pub written: u64,
    pub read: u64,
    /// Nothing is read before.
    pub reads_from: Time,
}

/// The whole.
pub struct Net<P: Load> {
    pub now: Time,
    pub ends: [Tcp<P>; 2],
    pub pipes: [Pipe<P>; 2],
    pub apps: [App; 2],
    marks: [Option<(Rng, f64)>; 2],
    transit: BTreeMap<(Time, u64), (usize, Segment<P>)>,
    order: u64,
}

impl<P: Load> Net<P> {
    /// `a` connects to `b`, 50 ms away.
    pub fn new(a: Config, b: Config) -> Net<P> {
        let ends = [Tcp::connect(a.clone(), reno(&a.stack)), Tcp::listen(b.clone(), reno(&b.stack))];
        Net::of(ends)
    }

    pub fn of(ends: [Tcp<P>; 2]) -> Net<P> {
        let pipe = || Pipe {
            delay: ms(50),
            rate: None,
            fate: Box::new(|_, _: &Segment<P>| Fate::Pass),
            free_at: Time::ZERO,
            count: 0,
        };
        let app = App { to_write: 0, close: Close::Never, written: 0, read: 0, reads_from: Time::ZERO };
        Net {
            now: Time::ZERO,
            ends,
            pipes: [pipe(), pipe()],
            apps: [app; 2],
            marks: [None, None],
            transit: BTreeMap::new(),
            order: 0,
        }
    }

    /// The first end writes `bytes`, then both close.
    pub fn transfer(mut self, bytes: u64) -> Self {
        (self.apps[0].to_write, self.apps[0].close) = (bytes, Close::WhenWritten);
        self.apps[1].close = Close::AtPeersEnd;
        self
    }

    /// Sets the fate of what end `from` sends.
    pub fn fate(mut self, from: usize, fate: impl FnMut(u64, &Segment<P>) -> Fate + 'static) -> Self {
        self.pipes[from].fate = Box::new(fate);
        self
    }

    /// Loses, from end `from`, the first transmission of the data segments with these numbers (from 0, in full segments).
    pub fn lose_segments(self, from: usize, numbers: &'static [u64]) -> Self {
        let (iss, mut left) = (self.ends[from].config.iss, numbers.to_vec());
        self.fate(from, move |_, s| {
            let number = s.seq.0.wrapping_sub(iss).wrapping_sub(1) as u64 / MSS as u64;
            let hit = left.iter().position(|n| *n == number).filter(|_| s.payload.len() > 0);
            hit.map_or(Fate::Pass, |i| (left.remove(i), Fate::Lose).1)
        })
    }

    /// Both directions mark this share of what may be marked, at random.
    pub fn marking(mut self, seed: u64, share: f64) -> Self {
        self.marks = [2, 3].map(|stream| Some((Rng::new(seed, stream), share)));
        self
    }

    /// Both directions lose, repeat and delay at random.
    pub fn storm(mut self, seed: u64, lose: f64, twice: f64, late: f64) -> Self {
        for from in 0..2 {
            let mut rng = Rng::new(seed, from);
            self = self.fate(from as usize, move |_, _| match rng.unit() {
                u if u < lose => Fate::Lose,
                u if u < lose + twice => Fate::Twice,
                u if u < lose + twice + late => Fate::Late(ms(1 + rng.below(120))),
                _ => Fate::Pass,
            });
        }
        self
    }

    fn serve(&mut self, i: usize) {
        let (app, tcp) = (&mut self.apps[i], &mut self.ends[i]);
        while app.written < app.to_write {
            let n = (app.to_write - app.written).min(1 << 16) as u32;
            let taken = tcp.write(&P::piece(app.written, n));
            app.written += taken as u64;
            if taken < n {
                break;
            }
        }
        if tcp.config.reads_at_once {
            app.read = tcp.delivered();
        } else if self.now >= app.reads_from {
            while tcp.readable() > 0 {
                let data = tcp.read(4096);
                assert!(data.is_piece(app.read), "end {i}: wrong bytes at {}", app.read);
                app.read += data.len() as u64;
            }
        }
        let closes = match app.close {
            Close::Never => false,
            Close::WhenWritten => app.written == app.to_write,
            Close::AtPeersEnd => app.written == app.to_write && tcp.at_end(),
        };
        if closes {
            tcp.close();
        }
    }

    fn carry(&mut self, from: usize, mut segment: Segment<P>) {
        let pipe = &mut self.pipes[from];
        pipe.count += 1;
        let (copies, late) = match (pipe.fate)(pipe.count, &segment) {
            Fate::Lose => return,
            Fate::Pass => (1, Duration::ZERO),
            Fate::Twice => (2, Duration::ZERO),
            Fate::Late(d) => (1, d),
            Fate::Mark => (mark(&mut segment), Duration::ZERO),
        };
        if self.marks[from].as_mut().is_some_and(|(rng, share)| rng.unit() < *share) {
            mark(&mut segment);
        }
        for _ in 0..copies {
            let busy = pipe.rate.map_or(Duration::ZERO, |r| r.time_for(Bytes(segment.size() as u64 + 20)));
            pipe.free_at = pipe.free_at.max(self.now) + busy;
            self.order += 1;
            self.transit.insert((pipe.free_at + pipe.delay + late, self.order), (1 - from, segment.clone()));
        }
    }

    /// Applications and ends do all they can do now.
    pub fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1000, "the ends never come to rest at {:?}", self.now);
            let before = self.order + self.pipes[0].count + self.pipes[1].count;
            for i in 0..2 {
                self.serve(i);
                while let Some(segment) = self.ends[i].transmit(self.now) {
                    self.carry(i, segment);
                }
            }
            if before == self.order + self.pipes[0].count + self.pipes[1].count {
                return;
            }
        }
    }

    /// When something happens next.
    pub fn next(&self) -> Option<Time> {
        let wakes = self.ends.iter().filter_map(|end| end.wake_at());
        wakes
            .inspect(|at| assert!(*at > self.now, "a timer due at {at:?} was not run at {:?}", self.now))
            .chain(self.transit.keys().next().map(|(at, _)| *at))
            .chain(self.apps.iter().map(|a| a.reads_from).filter(|at| *at > self.now))
            .min()
    }

    /// On to the next event; `false` if there is none.
    pub fn step(&mut self) -> bool {
        self.settle();
        let Some(at) = self.next() else { return false };
        self.now = at;
        if let Some(entry) = self.transit.first_entry().filter(|e| e.key().0 == at) {
            let (to, segment) = entry.remove();
            self.ends[to].receive(at, segment);
        }
        self.settle();
        true
    }

    /// On until `until`, or until nothing more happens.
    pub fn run(&mut self, until: Time) {
        self.settle();
        while self.next().is_some_and(|at| at <= until) {
            self.step();
        }
    }

    /// Until both ends are closed. Fails if they fall asleep before, or never come to it.
    pub fn finish(&mut self) -> &mut Self {
        self.settle();
        for step in 0.. {
            if self.ends.iter().all(|end| end.state() == State::Closed) {
                break;
            }
            let states = self.ends.each_ref().map(|end| end.state());
            assert!(
                self.step(),
                "no wake-up at {:?} though work remains: {states:?} {:?}",
                self.now,
                self.apps
            );
            assert!(step < 3_000_000, "no end in sight at {:?}: {states:?} {:?}", self.now, self.apps);
        }
        self.now = self.now.max(self.apps[0].reads_from).max(self.apps[1].reads_from);
        self.settle();
        for i in 0..2 {
            let (sent, got) = (self.apps[i].to_write, self.apps[1 - i].read);
            assert_eq!(got, sent, "what end {i} wrote against what the other read");
        }
        self
    }
}
