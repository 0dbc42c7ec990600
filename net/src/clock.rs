//! The real clock, how late we are by it, and how to be less so.
//!
//! A gateway is as exact as the scheduler lets it be: measured on one machine, pacing errors at the 99th percentile are 14 us
//! in class SCHED_FIFO with a timer slack of 1 ns, and 3.4 ms in the ordinary class. So we ask for the first, say when we did
//! not get it, and measure in any case.

use narrows_core::Time;
use narrows_lab::outcome::{Distribution, Quantiles};
use std::time::{Duration, Instant};

/// Time since the gateway started, from CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Starts now.
    pub fn start() -> Clock {
        Clock { started: Instant::now() }
    }

    /// Starts `lead` from now: until then, it is the start.
    pub fn start_in(lead: Duration) -> Clock {
        Clock { started: Instant::now() + lead }
    }

    /// How long it takes until `then`.
    pub fn until(&self, then: Time) -> Duration {
        (self.started + then.since(Time::ZERO)).saturating_duration_since(Instant::now())
    }

    /// Whether it is `then`, or later; `Time::ZERO` has not come before the start.
    pub fn reaches(&self, then: Time) -> bool {
        self.until(then).is_zero()
    }

    /// What time it is.
    #[inline]
    pub fn now(&self) -> Time {
        Time::from_nanos(self.started.elapsed().as_nanos() as u64)
    }
}

/// How late packets left, against the instant at which the emulated network delivers them.
#[derive(Clone, Debug, Default)]
pub struct Lateness(Distribution);

/// Above this 99th percentile a run says that the machine spoilt it: a tenth of a 10 ms round trip.
pub const SPOILT: Duration = Duration::from_millis(1);

impl Lateness {
    /// A packet that was due at `due` leaves at `now`.
    #[inline]
    pub fn record(&mut self, due: Time, now: Time) {
        self.0.record(now.since(due));
    }

    /// All of it.
    pub fn distribution(&self) -> &Distribution {
        &self.0
    }

    /// In seconds.
    pub fn quantiles(&self) -> Quantiles {
        self.0.quantiles()
    }

    /// What an experimenter must be told, if anything.
    pub fn verdict(&self) -> Option<String> {
        let q = self.quantiles();
        (q.p99 > SPOILT.as_secs_f64()).then(|| {
            format!(
                "this run was spoilt: packets left up to {:.1} ms late (p99 {:.2} ms, median {:.0} us); run it on a quieter machine, or as root for real-time scheduling",
                q.max * 1e3, q.p99 * 1e3, q.p50 * 1e6
            )
        })
    }
}

/// Goes off early by what waking takes, as it has measured, so that who sleeps by it is awake in time: it then looks on, without
/// sleep, for the rest. That costs processor time, of which it takes at most half of what was slept: a gateway with much to do
/// does not watch for more.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alarm {
    /// By this much timers were late, nine times of ten at most, in nanoseconds.
    late: f64,
    /// So long it may still look on, in nanoseconds.
    allowance: f64,
}

impl Alarm {
    /// How late a timer may be, to be believed.
    const LATEST: f64 = 300e3;
    /// The most that is saved up for looking on.
    const SAVED: f64 = 2e6;
    /// How quickly the measure follows: a hundred wakings.
    const STEP: f64 = 1e3;

    /// How long to sleep if something is to be done in `until`; zero: look on.
    #[inline]
    pub fn nap(&self, until: Duration) -> Duration {
        if self.allowance < self.late {
            until
        } else {
            until.saturating_sub(Duration::from_nanos(self.late as u64))
        }
    }

    /// A sleep that was to last `nap` took `slept`; whether until its end, or something came in between.
    #[inline]
    pub fn rang(&mut self, nap: Duration, slept: Duration, at_end: bool) {
        let took = slept.as_nanos() as f64;
        if nap.is_zero() {
            self.allowance -= took;
            return;
        }
        self.allowance = (self.allowance + took / 2.0).min(Alarm::SAVED);
        if at_end {
            let late = took - nap.as_nanos() as f64;
            self.late += Alarm::STEP * if late > self.late { 0.9 } else { -0.1 };
            self.late = self.late.clamp(0.0, Alarm::LATEST);
        }
    }
}

/// What the scheduler granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// SCHED_FIFO: before every ordinary process.
    RealTime,
    /// The ordinary class, with the smallest timer slack.
    Ordinary,
}

impl Scheduling {
    /// What an experimenter must be told, if anything.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Scheduling::RealTime => None,
            Scheduling::Ordinary => Some(
                "no real-time scheduling (needs root or CAP_SYS_NICE): expect errors of milliseconds when the machine is busy",
            ),
        }
    }
}

/// Asks for real-time scheduling and exact timers for the calling thread. A real-time thread must sleep: the kernel takes
/// 5 % of each second away from one that does not, in one piece. Threads that it starts are ordinary ones.
pub fn hurry() -> Scheduling {
    let _ = nix::sys::prctl::set_timerslack(1); // Linux has it always; without it only the exactness suffers
    if schedule(libc::SCHED_FIFO, 10) { Scheduling::RealTime } else { Scheduling::Ordinary }
}

/// While this lives no processor sleeps so deeply that waking it takes time; the kernel forgets the wish when the process ends,
/// however it ends. Idle processors then burn power, so it is for experiments, which are over soon.
#[derive(Debug)]
pub struct Awake(#[allow(dead_code)] Option<std::fs::File>); // held open: that is the wish

impl Awake {
    /// Asks for it (`cpu_dma_latency`, the kernel's PM QoS interface). Not being root only costs exactness.
    pub fn ask() -> Awake {
        let wish = || {
            let mut file = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency")?;
            std::io::Write::write_all(&mut file, &0i32.to_ne_bytes())?;
            std::io::Result::Ok(file)
        };
        Awake(wish().ok())
    }

    /// Whether it was granted.
    pub fn is_granted(&self) -> bool {
        self.0.is_some()
    }
}

/// The calling thread is in a [`hurry`] until this is dropped.
pub struct Hurried(Scheduling);

/// [`hurry`], for a thread that has other things to do afterwards.
pub fn hurried() -> Hurried {
    Hurried(hurry())
}

impl Hurried {
    /// What the scheduler granted.
    pub fn scheduling(&self) -> Scheduling {
        self.0
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        schedule(libc::SCHED_OTHER, 0);
        let _ = nix::sys::prctl::set_timerslack(0); // the default
    }
}

/// Whether the kernel put the calling thread into this class.
fn schedule(class: libc::c_int, priority: libc::c_int) -> bool {
    let priority = libc::sched_param { sched_priority: priority };
    // SAFETY: `priority` outlives the call, which reads it; 0 is the calling thread.
    #[allow(unsafe_code)] // no safe wrapper has it
    let done = unsafe { libc::sched_setscheduler(0, class | libc::SCHED_RESET_ON_FORK, &priority) };
    done == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn an_alarm_learns_how_late_timers_are_and_looks_on_for_no_more_than_half_of_what_was_slept() {
        let mut alarm = Alarm::default();
        let (mut slept, mut looked, mut missed) = (Duration::ZERO, Duration::ZERO, 0);
        for round in 0..20_000u64 {
            let mut until = US(200);
            while !until.is_zero() {
                let nap = alarm.nap(until);
                // A timer is 40 to 49 us late; looking costs a microsecond.
                let took = if nap.is_zero() { US(1) } else { nap + US(40 + round % 10) };
                *if nap.is_zero() { &mut looked } else { &mut slept } += took;
                alarm.rang(nap, took, true);
                missed += (took > until + US(2) && round > 1000) as u32;
                until = until.saturating_sub(took);
            }
        }
        assert!(missed <= 19_000 / 8, "late {missed} times of 19000");
        assert!(looked * 2 <= slept && looked > slept / 100, "{looked:?} of {slept:?}");
    }

    #[test]
    fn who_has_no_time_to_sleep_does_not_look_on() {
        let mut alarm = Alarm { late: 50e3, allowance: 10e3 };
        assert_eq!(alarm.nap(US(12)), US(12));
        alarm.rang(US(12), US(13), false);
        assert_eq!(alarm.nap(US(12)), US(12));
    }
}
