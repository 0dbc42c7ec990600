//! A thread with a bell: it waits for a socket, a time or an order, and is over when its handle is.

use super::{Failure, Progress, call};
use crate::clock::Clock;
use narrows_core::Time;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a worker is told. A later one outranks an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Order {
    /// Nothing.
    GoOn,
    /// What has been written is to be delivered, no more.
    StopWriting,
    /// At once.
    End,
}

/// What thread and handle share.
pub struct Shared {
    order: AtomicU8,
    bell: EventFd,
    bytes: AtomicU64,
    over: AtomicBool,
}

/// The longest sleep, where no time is given.
const LONGEST: Duration = Duration::from_secs(3600);

impl Shared {
    /// What has been ordered so far.
    pub fn ordered(&self) -> Order {
        [Order::GoOn, Order::StopWriting, Order::End][self.order.load(Ordering::Acquire) as usize]
    }

    /// Counts bytes for who asks how far it is.
    pub fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Until a descriptor is ready, something is ordered, or it is `until`; what is ordered.
    pub fn wait(
        &self,
        clock: Clock,
        ready: Option<(&dyn AsFd, PollFlags)>,
        until: Time,
    ) -> Result<Order, Failure> {
        let nap = clock.until(until).min(LONGEST);
        let mut fds = vec![PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
        fds.extend(ready.as_ref().map(|(fd, flags)| PollFd::new(fd.as_fd(), *flags)));
        match ppoll(&mut fds, Some(TimeSpec::from_duration(nap)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(call("poll")(e.into())),
        }
        if fds[0].any() == Some(true) {
            let _ = self.bell.read(); // it has been heard
        }
        Ok(self.ordered())
    }
}

/// The handle of a thread, which is over when this is.
pub struct Worker<R> {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<R>>,
}

impl<R: Send + 'static> Worker<R> {
    /// Begins `work` on a thread called `name`.
    pub fn spawn(name: &str, work: impl FnOnce(&Shared) -> R + Send + 'static) -> Result<Worker<R>, Failure> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let shared = Arc::new(Shared {
            order: AtomicU8::new(0),
            bell: bell.map_err(|e| call("eventfd")(e.into()))?,
            bytes: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let inside = shared.clone();
        let work = move || {
            let result = work(&inside);
            inside.over.store(true, Ordering::Release);
            result
        };
        let thread = thread::Builder::new().name(name.into()).spawn(work).map_err(call("thread"))?;
        Ok(Worker { shared, thread: Some(thread) })
    }

    /// Ends the thread; what it has to say.
    pub fn finish(mut self) -> R {
        self.end().expect("a worker ends once").unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<R> Worker<R> {
    /// Tells it something.
    pub fn order(&self, order: Order) {
        self.shared.order.fetch_max(order as u8, Ordering::AcqRel);
        let _ = self.shared.bell.write(1);
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let over = self.shared.over.load(Ordering::Acquire);
        Progress { bytes: self.shared.bytes.load(Ordering::Relaxed), over }
    }

    fn end(&mut self) -> Option<thread::Result<R>> {
        self.order(Order::End);
        self.thread.take().map(JoinHandle::join)
    }
}

impl<R> Drop for Worker<R> {
    fn drop(&mut self) {
        self.end();
    }
}
