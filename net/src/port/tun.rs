//! A TUN device: the kernel's end of a cable that carries IP packets, one per read and write.

use super::{Port, Take};
use crate::frame::Frame;
use crate::namespace::Namespace;
use narrows_core::Time;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A TUN device; it is gone when this is dropped.
pub struct Tun(OwnedFd);

impl Tun {
    /// Makes a device called `name` in `namespace`, up, with addresses and their prefix lengths; what lies within a prefix is
    /// routed to it.
    pub fn open(namespace: &Namespace, name: &str, mtu: u32, addresses: &[(IpAddr, u8)]) -> io::Result<Tun> {
        let _ = (namespace, name, mtu, addresses);
        todo!()
    }
}

impl Port for Tun {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
    fn receive(&mut self, _now: Time, _take: Take<'_>) -> io::Result<()> {
        todo!()
    }
    fn send(&mut self, _now: Time, _frame: Frame) -> bool {
        todo!()
    }
}
