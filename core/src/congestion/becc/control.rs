//! The paper's variables and the functions it adds to the kernel, in its own integers and in its order. [`super::Becc`] calls
//! them at the places where the paper puts them into `tcp_input`, `tcp_output` and two callouts.
//!
//! They are generic over the machine word so that the same text can be run with a counting word: section 4.2 of the paper
//! states what they cost, and [`cost`] counts what ours do.

use core::cell::Cell;

/// The integer the control block is made of.
pub trait Word: Copy + PartialOrd {
    /// A constant.
    fn of(value: u32) -> Self;
    /// Sum.
    fn plus(self, other: Self) -> Self;
    /// `self * by / over`: multiplied first, in 64 bits, so that nothing is lost.
    fn times_over(self, by: Self, over: Self) -> Self;
    /// `self + self * fraction / 65536`: a multiplication, a shift and an addition; the paper needs no multiplication.
    fn grown(self, fraction: u32) -> Self;
    /// `self + (target - self) * fraction / 65536`: a subtraction, a multiplication, a shift and an addition.
    fn toward(self, target: Self, fraction: u32) -> Self;
    /// Stores a value in a variable of the control block.
    fn store(&mut self, value: Self);
    /// A variable that is no word was stored beside this one.
    fn stored_beside(&self) {}
}

impl Word for u32 {
    #[inline]
    fn of(value: u32) -> u32 {
        value
    }
    #[inline]
    fn plus(self, other: u32) -> u32 {
        self.saturating_add(other)
    }
    #[inline]
    fn times_over(self, by: u32, over: u32) -> u32 {
        (self as u64 * by as u64 / over.max(1) as u64).min(u32::MAX as u64) as u32
    }
    #[inline]
    fn grown(self, fraction: u32) -> u32 {
        self.saturating_add(((self as u64 * fraction as u64) >> 16).min(u32::MAX as u64) as u32)
    }
    #[inline]
    fn toward(self, target: u32, fraction: u32) -> u32 {
        (self as i64 + (((target as i64 - self as i64) * fraction as i64) >> 16)) as u32
    }
    #[inline]
    fn store(&mut self, value: u32) {
        *self = value;
    }
}

/// The three modes of `swnd_update()` (section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Mode {
    /// The bandwidth window may be enlarged.
    UpdateStart,
    /// It has been enlarged, to see whether the rate follows.
    Updating,
    /// It must not be updated: a loss has just set it, or the congestion window is the smaller one.
    NotUpdate,
}

/// "Unlimited": no window of RFC 1323 is larger. Until the first loss BECC bounds nothing.
pub const UNLIMITED: u32 = 65_535 << 14;

/// 1.25 = x + (x >> 2) (section 3.4 (1)): below about 1.2 the authors could not see the rate change.
pub const WINDOW_GAIN: u32 = 1 << 14;
/// 1.125 = x + (x >> 3): the rate that is expected of a window 1.25 times as large.
pub const EXPECTED_GAIN: u32 = 1 << 13;

/// What BECC adds to the TCP control block: six `unsigned long` and four `int`, 40 bytes where both have 4 (section 4.2.1).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ControlBlock<W = u32> {
    /// The bandwidth window, bytes.
    pub snd_swnd: W,
    /// What it was before it was last enlarged.
    pub pre_snd_swnd: W,
    /// Bytes acknowledged in the current period.
    pub t_acked: W,
    /// The most of any period since the last loss.
    pub t_maxacked: W,
    /// The smoothed actual transfer rate, bytes per second.
    pub t_msrd_th: W,
    /// The rate expected of the enlarged window, bytes per second.
    pub expct_th: W,
    /// The smallest RTT, ms; 0 while there is none.
    pub t_minrtt: W,
    /// The last RTT, ms.
    pub t_rtt: W,
    /// The period of `swnd_timer`, ms.
    pub ms_period: W,
    /// The mode of `swnd_update`.
    pub mode: Mode,
}

/// How the open points of the text are read; the defaults of the registry are the literal readings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reading {
    /// The weight of the new sample in eq. (1), in 65536ths: 1 - alpha as printed, alpha if the sentence after it is right.
    pub sample_weight: u32,
    /// Growth of the window at each update, in 65536ths.
    pub window_gain: u32,
    /// Growth of the expected rate, in 65536ths.
    pub expected_gain: u32,
    /// In `Updating`, raise the expectation from the measured rate instead of from the last expectation.
    pub expect_from_measured: bool,
}

impl<W: Word> ControlBlock<W> {
    /// A new connection's.
    pub fn new(ms_period: u32) -> Self {
        let zero = W::of(0);
        ControlBlock {
            snd_swnd: W::of(UNLIMITED),
            pre_snd_swnd: W::of(UNLIMITED),
            t_acked: zero,
            t_maxacked: zero,
            t_msrd_th: zero,
            expct_th: zero,
            t_minrtt: zero,
            t_rtt: zero,
            ms_period: W::of(ms_period),
            mode: Mode::UpdateStart,
        }
    }

    /// `tcp_input`, on an ACK that advances: section 3.2 (1).
    #[inline]
    pub fn acked(&mut self, bytes: W) {
        self.t_acked.store(self.t_acked.plus(bytes));
    }

    /// `tcp_input`, on a timestamp echo: section 3.3. An RTT under the clock's resolution counts as 1 ms.
    #[inline]
    pub fn rtt(&mut self, ms: W) {
        let ms = if ms < W::of(1) { W::of(1) } else { ms };
        self.t_rtt.store(ms);
        if self.t_minrtt == W::of(0) || ms < self.t_minrtt {
            self.t_minrtt.store(ms);
        }
    }

    /// `swnd_timer`, every `ms_period`: section 3.2 (2) and eq. (1).
    #[inline]
    pub fn swnd_timer(&mut self, reading: &Reading) {
        if self.t_acked > self.t_maxacked {
            self.t_maxacked.store(self.t_acked);
        }
        let rate = self.t_acked.times_over(W::of(1000), self.ms_period);
        self.t_msrd_th.store(self.t_msrd_th.toward(rate, reading.sample_weight));
        self.t_acked.store(W::of(0));
    }

    /// `tcp_input`, when the duplicate ACKs have told of a loss: section 3.4. If the first period has not ended yet, what it
    /// holds so far counts.
    pub fn loss(&mut self, floor: W) {
        let most = if self.t_acked > self.t_maxacked { self.t_acked } else { self.t_maxacked };
        let window = bandwidth_window(most, self.t_minrtt, self.ms_period);
        self.snd_swnd.store(if window < floor { floor } else { window });
        self.t_maxacked.store(W::of(0));
        self.set_mode(Mode::NotUpdate);
    }

    fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
        self.snd_swnd.stored_beside();
    }

    /// `tcp_output`: while the congestion window is the smaller one, an update would show nothing.
    #[inline]
    pub fn bounded_by(&mut self, snd_cwnd: W) {
        if self.snd_swnd > snd_cwnd {
            self.set_mode(Mode::NotUpdate);
        }
    }

    /// `swnd_update`, every 1.5 s: section 3.4.
    pub fn swnd_update(&mut self, reading: &Reading) {
        match self.mode {
            Mode::UpdateStart => {
                self.enlarge(reading);
                self.expct_th.store(self.t_msrd_th.grown(reading.expected_gain));
                self.set_mode(Mode::Updating);
            }
            Mode::Updating if self.t_msrd_th > self.expct_th => {
                self.enlarge(reading);
                let basis = if reading.expect_from_measured { self.t_msrd_th } else { self.expct_th };
                self.expct_th.store(basis.grown(reading.expected_gain));
            }
            Mode::Updating => {
                self.snd_swnd.store(self.pre_snd_swnd);
                self.set_mode(Mode::UpdateStart);
            }
            Mode::NotUpdate => self.set_mode(Mode::UpdateStart),
        }
    }

    fn enlarge(&mut self, reading: &Reading) {
        self.pre_snd_swnd.store(self.snd_swnd);
        let grown = self.snd_swnd.grown(reading.window_gain);
        self.snd_swnd.store(if grown > W::of(UNLIMITED) { W::of(UNLIMITED) } else { grown });
    }
}

/// The bandwidth window: available bandwidth times smallest RTT, `t_maxacked * t_minrtt / ms_period` (section 3.4).
pub fn bandwidth_window<W: Word>(t_maxacked: W, t_minrtt: W, ms_period: W) -> W {
    t_maxacked.times_over(t_minrtt, ms_period)
}

/// Operations, as the paper counts them in section 4.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // counts of what their names say
pub struct Operations {
    pub assignments: u32,
    pub branches: u32,
    pub multiplications: u32,
    pub divisions: u32,
    pub additions: u32,
    pub shifts: u32,
}

/// A word that counts what is done with it.
#[derive(Clone, Copy, Debug)]
struct Counted<'m> {
    value: u32,
    meter: Option<&'m Cell<Operations>>,
}

impl<'m> Counted<'m> {
    fn note(self, other: Self, add: impl Fn(&mut Operations)) -> Option<&'m Cell<Operations>> {
        let meter = self.meter.or(other.meter);
        if let Some(cell) = meter {
            let mut operations = cell.get();
            add(&mut operations);
            cell.set(operations);
        }
        meter
    }
}

impl PartialEq for Counted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.note(*other, |o| o.branches += 1);
        self.value == other.value
    }
}

impl PartialOrd for Counted<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.note(*other, |o| o.branches += 1);
        self.value.partial_cmp(&other.value)
    }
}

impl Word for Counted<'_> {
    fn of(value: u32) -> Self {
        Counted { value, meter: None }
    }
    fn plus(self, other: Self) -> Self {
        let meter = self.note(other, |o| o.additions += 1);
        Counted { value: self.value.plus(other.value), meter }
    }
    fn times_over(self, by: Self, over: Self) -> Self {
        let meter =
            self.note(over, |o| (o.multiplications, o.divisions) = (o.multiplications + 1, o.divisions + 1));
        Counted { value: self.value.times_over(by.value, over.value), meter }
    }
    fn grown(self, fraction: u32) -> Self {
        let meter = self.note(self, |o| {
            (o.multiplications, o.shifts, o.additions) =
                (o.multiplications + 1, o.shifts + 1, o.additions + 1);
        });
        Counted { value: self.value.grown(fraction), meter }
    }
    fn toward(self, target: Self, fraction: u32) -> Self {
        let meter = self.note(target, |o| {
            (o.multiplications, o.shifts, o.additions) =
                (o.multiplications + 1, o.shifts + 1, o.additions + 2);
        });
        Counted { value: self.value.toward(target.value, fraction), meter }
    }
    fn store(&mut self, value: Self) {
        self.note(value, |o| o.assignments += 1);
        self.value = value.value;
    }
    fn stored_beside(&self) {
        self.note(*self, |o| o.assignments += 1);
    }
}

/// A place of the code whose cost section 4.2 states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// `tcp_input`, taking the RTT (clock reading apart).
    InputRtt,
    /// `tcp_input`, setting the window on loss.
    InputLoss,
    /// `tcp_output`, choosing the window.
    Output,
    /// `swnd_timer`.
    Timer,
}

/// What our code does at `place`, on its longest way, counted by running it. Guards against overflow and division by zero
/// inside a [`Word`]'s operations are not counted. For [`Place::Output`] the minimum of three is written out here: the host takes
/// it in two places ([`super::Becc`]'s window, and the peer's).
pub fn cost(place: Place) -> Operations {
    let meter = Cell::new(Operations::default());
    let word = |value| Counted { value, meter: Some(&meter) };
    let mut block = ControlBlock::<Counted<'_>>::new(30);
    for variable in [
        &mut block.snd_swnd,
        &mut block.pre_snd_swnd,
        &mut block.t_acked,
        &mut block.t_maxacked,
        &mut block.t_msrd_th,
        &mut block.expct_th,
        &mut block.t_minrtt,
        &mut block.t_rtt,
        &mut block.ms_period,
    ] {
        variable.meter = Some(&meter);
    }
    (block.t_acked.value, block.t_minrtt.value) = (153_750, 16);
    match place {
        Place::InputRtt => block.rtt(word(14)),
        Place::InputLoss => block.loss(word(8600)),
        Place::Output => {
            let (snd_wnd, snd_cwnd) = (word(1 << 20), word(1 << 19));
            block.bounded_by(snd_cwnd);
            let bound = if block.snd_swnd < snd_cwnd { block.snd_swnd } else { snd_cwnd };
            let mut win = word(0);
            win.store(if bound < snd_wnd { bound } else { snd_wnd });
        }
        Place::Timer => block.swnd_timer(&super::LITERAL),
    }
    meter.get()
}
