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
