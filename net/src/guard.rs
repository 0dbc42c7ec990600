//! Between us and a program we start stands a guard: a process that outlives neither of them, and takes with it what the program
//! has started, if we end before it, `kill -9` included. A program's children become the guard's when the program ends
//! (`PR_SET_CHILD_SUBREAPER`), so it finds them all, whatever they have done to their sessions and groups.

use nix::errno::Errno;
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What tells a guard to end everything; also what the kernel sends it when its parent ends.
pub const END: Signal = Signal::SIGUSR2;
/// What is meant for the program, and passed on.
pub const PASSED_ON: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// Runs `command` and ends as it ends; with `all`, not before everything it has started has ended as well. Returns the exit
/// code: that of the program, or as a shell says that it could not begin.
///
/// # Errors
/// The kernel refuses what a guard needs.
pub fn guard(command: &[OsString], all: bool) -> io::Result<u8> {
    let mut heard: SigSet = PASSED_ON.into_iter().collect();
    heard.add(Signal::SIGCHLD);
    heard.add(END);
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&heard), Some(&mut before))?;
    set_child_subreaper(true)?;
    before.remove(END); // we were started with it blocked, lest it came too early
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]);
    let begin = move || {
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
        Ok(set_pdeathsig(Signal::SIGKILL)?)
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; these are two system calls.
    #[allow(unsafe_code)] // the standard library cannot know that
    unsafe {
        program.pre_exec(begin);
    }
    let child = match program.spawn() {
        Ok(child) => Pid::from_raw(child.id() as i32),
        Err(e) => {
            eprintln!("narrows: {} cannot be run: {e}", command[0].display());
            return Ok(crate::child::code_of_failure(&e));
        }
    };
    let mut ended = None;
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(status) if status.pid() == Some(child) => ended = Some(status),
                Ok(_) => {}
                Err(Errno::ECHILD) if ended.is_some() => return Ok(end_as(ended)),
                Err(Errno::ECHILD | Errno::EINTR) => break,
                Err(e) => return Err(e.into()),
            }
        }
        if ended.is_some() && !all {
            return Ok(end_as(ended));
        }
        match heard.wait() {
            Ok(END) => {
                end_everything();
                return Ok(end_as(ended));
            }
            // From the terminal its whole foreground gets it; a second one of the same kind is no harm.
            Ok(signal) if PASSED_ON.contains(&signal) && ended.is_none() => {
                let _ = kill(child, signal); // it may just have ended
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// As the program ended: by the same signal, or with its code.
fn end_as(status: Option<WaitStatus>) -> u8 {
    match status {
        Some(WaitStatus::Exited(_, code)) => code as u8,
        Some(WaitStatus::Signaled(_, signal, _)) => {
            let one: SigSet = [signal].into_iter().collect();
            let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&one), None);
            let _ = raise(signal);
            128 + signal as u8
        }
        _ => 128 + Signal::SIGKILL as u8,
    }
}

/// Kills our children until there are none: those of a killed one become ours.
fn end_everything() {
    loop {
        for child in children() {
            let _ = kill(child, Signal::SIGKILL); // it may just have ended
        }
        match waitpid(None, None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let parent = getpid().to_string();
    let of = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        let pid: i32 = name.to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // "PID (NAME) STATE PARENT ...": a name may have brackets of its own.
        let (_, behind) = stat.rsplit_once(')')?;
        (behind.split_whitespace().nth(1)? == parent).then(|| Pid::from_raw(pid))
    };
    std::fs::read_dir("/proc").map(|all| all.filter_map(of).collect()).unwrap_or_default()
}
