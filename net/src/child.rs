//! Looking after a program: signals meant for it reach it, it ends with us, and its exit code becomes ours.

use crate::guard::{END, PASSED_ON};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{Pid, getpid, getppid};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

/// How often to look at other things than signals, in milliseconds.
const LOOK: u8 = 100;

/// Signals no longer act on this process by themselves. Threads made from now on leave them alone.
pub struct Signals {
    descriptor: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Takes them over; they stay so until the process ends.
    pub fn take_over() -> io::Result<Signals> {
        let mut taken: SigSet = PASSED_ON.into_iter().collect();
        taken.add(Signal::SIGCHLD);
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&taken), Some(&mut before))?;
        let descriptor = SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Signals { descriptor, before })
    }

    /// Makes `command`, a [`crate::guard`], begin with the signals we began with, and end with all it guards when this thread
    /// does, however it ends.
    pub fn tie(&self, command: &mut Command) {
        let (mut before, us) = (self.before, getpid());
        before.add(END); // until it can hear it
        let begin = move || {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
            set_pdeathsig(END)?;
            if getppid() == us { Ok(()) } else { Err(Errno::ESRCH.into()) } // we ended before it could know
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are three system calls.
        #[allow(unsafe_code)] // the standard library cannot know that
        unsafe {
            command.pre_exec(begin);
        }
    }

    /// Until `child`, a guard, ends, or `look`, asked ten times a second, says `Break`: then all it guards is killed.
    pub fn look_after(
        &self,
        child: &mut Child,
        mut look: impl FnMut() -> ControlFlow<()>,
    ) -> io::Result<ExitStatus> {
        let pid = Pid::from_raw(child.id() as i32);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if look().is_break() {
                let _ = kill(pid, END); // it may just have ended
                return child.wait();
            }
            match poll(&mut [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)], LOOK) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            while let Some(signal) = self.descriptor.read_signal()? {
                // From the terminal (SI_KERNEL) its whole foreground gets it, the child too.
                let from_terminal = signal.ssi_code == libc::SI_KERNEL;
                match Signal::try_from(signal.ssi_signo as i32) {
                    Ok(signal) if PASSED_ON.contains(&signal) && !from_terminal => {
                        let _ = kill(pid, signal); // it may just have ended
                    }
                    _ => {}
                }
            }
        }
    }
}

/// As a shell says how a program ended: its code, or 128 and the signal's number.
pub fn code(status: ExitStatus) -> u8 {
    status.code().or(status.signal().map(|n| 128 + n)).unwrap_or(1) as u8
}

/// As a shell says that a program could not begin.
pub fn code_of_failure(e: &io::Error) -> u8 {
    if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}
