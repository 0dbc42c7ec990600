//! Programs that run on the host side while another one is looked after.

use crate::guard::END;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to listen; others start then in any case.
const START: Duration = Duration::from_secs(2);
/// How long it may take to end when asked to.
const LAST_WORDS: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(5);

/// Guards of programs; these end, with what they started, when this is dropped.
#[derive(Default)]
pub struct Servers(Vec<Child>);

impl Servers {
    /// Starts one, and waits until it listens on something that was not listened on before.
    ///
    /// # Errors
    /// It cannot be started, or ends at once and not well.
    pub fn start(&mut self, mut command: Command) -> io::Result<()> {
        let before = sockets();
        let mut child = command.process_group(0).spawn()?;
        let until = Instant::now() + START;
        while Instant::now() < until && child.try_wait()?.is_none() && sockets().is_subset(&before) {
            sleep(STEP);
        }
        // What ends well at once was a preparation, or a server that went into the background.
        if let Some(status) = child.try_wait()?
            && !status.success()
        {
            return Err(io::Error::other(format!("it ended at once, with {status}")));
        }
        self.0.push(child);
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let all = |signal: Signal, servers: &[Child]| {
            for child in servers {
                let _ = kill(Pid::from_raw(child.id() as i32), signal); // it may have ended
            }
        };
        all(Signal::SIGTERM, &self.0);
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until && self.0.iter_mut().any(|c| matches!(c.try_wait(), Ok(None))) {
            sleep(STEP);
        }
        all(END, &self.0);
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Listening TCP sockets and bound UDP sockets of this network namespace: protocol and local address.
fn sockets() -> BTreeSet<String> {
    const LISTENING: &str = "0A";
    let mut found = BTreeSet::new();
    for protocol in ["tcp", "tcp6", "udp", "udp6"] {
        let table = std::fs::read_to_string(format!("/proc/self/net/{protocol}")).unwrap_or_default();
        for line in table.lines().skip(1) {
            let mut words = line.split_whitespace().skip(1);
            let (local, state) = (words.next().unwrap_or(""), words.nth(1).unwrap_or(""));
            if protocol.starts_with("udp") || state == LISTENING {
                found.insert(format!("{protocol} {local}"));
            }
        }
    }
    found
}
