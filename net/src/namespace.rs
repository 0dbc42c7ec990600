//! Network namespaces of our own. They have no name in the file system: a namespace lives as long as a descriptor, a thread or a
//! process holds it, so nothing outlives this process, however it ends. (`nsenter --net=/proc/PID/fd/N` still finds it.)

use crate::netlink::{Netlink, Prefix};
use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// A network namespace.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new one, empty but for a loopback device, which is up. One connection in it does not teach the next: TCP's metrics
    /// cache is off.
    ///
    /// # Errors
    /// Who may not make a network namespace is told so: it takes root, or a user namespace of one's own.
    pub fn new() -> io::Result<Namespace> {
        on_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(refused)?;
            Netlink::open()?.up("lo", None, None)?;
            // Where /proc/sys is read-only (some containers), runs after the first may begin with the first one's ssthresh.
            let _ = set("net/ipv4/tcp_no_metrics_save", "1");
            Namespace::current()
        })
    }

    /// The one this thread is in.
    pub fn current() -> io::Result<Namespace> {
        Ok(Namespace(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// Runs `f` on a thread of its own inside. Sockets and devices opened there stay there.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET).map_err(refused)?;
            f()
        })
    }

    /// Makes `command` run inside.
    pub fn confine(&self, command: &mut Command) -> io::Result<()> {
        let inside = self.0.try_clone()?;
        let enter = move || Ok(setns(&inside, CloneFlags::CLONE_NEWNET)?);
        // SAFETY: between fork and exec only async-signal-safe calls are allowed; setns is one system call.
        #[allow(unsafe_code)] // the standard library cannot know that
        unsafe {
            command.pre_exec(enter);
        }
        Ok(())
    }

    /// Sends what goes to `destination` out at `device`.
    pub fn route(&self, destination: Prefix, device: &str) -> io::Result<()> {
        self.enter(|| Netlink::open()?.route(destination, device))
    }

    /// Lets packets through that are for others.
    pub fn forward(&self) -> io::Result<()> {
        self.enter(|| {
            set("net/ipv4/ip_forward", "1")?;
            match set("net/ipv6/conf/all/forwarding", "1") {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()), // a kernel without IPv6
                done => done,
            }
        })
    }

    /// Whether its TCP connections offer and accept explicit congestion notification. A namespace comes with "accept only".
    pub fn ecn(&self, on: bool) -> io::Result<()> {
        self.enter(|| set("net/ipv4/tcp_ecn", if on { "1" } else { "0" }))
    }

    /// Whether both are the same namespace.
    pub fn is(&self, other: &Namespace) -> bool {
        let id = |n: &Namespace| nix::sys::stat::fstat(&n.0).map(|s| (s.st_dev, s.st_ino));
        matches!((id(self), id(other)), (Ok(a), Ok(b)) if a == b)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sets a kernel parameter of the namespace this thread is in, e.g. `net/ipv4/ip_forward`.
pub(crate) fn set(parameter: &str, value: &str) -> io::Result<()> {
    fs::write(format!("/proc/sys/{parameter}"), value)
        .map_err(|e| io::Error::new(e.kind(), format!("/proc/sys/{parameter} cannot be set to {value}: {e}")))
}

/// A thread's namespace is its own: what it changes there ends with it.
fn on_a_thread<T: Send>(f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, f)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn refused(e: Errno) -> io::Error {
    match e {
        Errno::EPERM => io::Error::new(
            io::ErrorKind::PermissionDenied,
            "network namespaces need root, or a user namespace of one's own (`unshare --user --map-root-user`)",
        ),
        Errno::ENOSPC => {
            io::Error::other("no more network namespaces are allowed: raise user.max_net_namespaces")
        }
        Errno::EINVAL | Errno::ENOSYS => {
            io::Error::other("this kernel has no network namespaces (CONFIG_NET_NS)")
        }
        other => other.into(),
    }
}
