//! Network namespaces of our own. They have no name in the file system: a namespace lives as long as a descriptor, a thread or a
//! process holds it, so nothing outlives this process, however it ends. (`nsenter --net=/proc/PID/fd/N` still finds it.)

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A network namespace.
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new one, empty but for a loopback device, which is up.
    pub fn new() -> io::Result<Namespace> {
        todo!()
    }
    /// The one this thread is in.
    pub fn current() -> io::Result<Namespace> {
        todo!()
    }
    /// Runs `f` on a thread of its own inside. Sockets and devices opened there stay there.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let _ = f;
        todo!()
    }
    /// Makes `command` run inside.
    pub fn confine(&self, command: &mut std::process::Command) -> io::Result<()> {
        let _ = command;
        todo!()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
