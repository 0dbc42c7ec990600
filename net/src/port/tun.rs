//! A TUN device: the kernel's end of a cable that carries IP packets, one per read and write. Without a virtio header the kernel
//! segments and checksums before we see a packet, so a packet is a packet. What it cannot hand to us in time it keeps, up to
//! 10,000 of them, and then drops silently: `tx_dropped` of the device counts those.

use super::{Port, Take};
use crate::frame::{self, Frame};
use crate::namespace::{Namespace, set};
use crate::netlink::{Netlink, Prefix};
use narrows_core::Time;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The most packets taken in at once, so that what is due meanwhile leaves in time.
const BATCH: usize = 64;
/// The kernel's room for packets that we have not read yet.
const QUEUE: u32 = 10_000;
/// An IP packet is never longer.
const LONGEST: usize = 65_535;

/// A TUN device; it is gone when this is dropped.
pub struct Tun {
    device: File,
    /// The packet being read.
    buffer: Box<[u8]>,
}

impl Tun {
    /// Makes a device called `name` in `namespace`, up, with addresses and their prefix lengths; what lies within a prefix is
    /// routed to it.
    ///
    /// # Errors
    /// There is no `/dev/net/tun`, or it may not be used; the name is taken or no device's name.
    pub fn open(namespace: &Namespace, name: &str, mtu: u32, addresses: &[Prefix]) -> io::Result<Tun> {
        let device = namespace.enter(|| {
            let device = attach(name)?;
            quiet(name);
            let netlink = Netlink::open()?;
            netlink.up(name, Some(mtu), Some(QUEUE))?;
            addresses.iter().try_for_each(|address| netlink.address(name, *address))?;
            Ok(device)
        })?;
        Ok(Tun { device, buffer: vec![0; LONGEST].into() })
    }
}

/// The kernel's own IPv6 traffic has no business on the path: router solicitations, from an address that nobody gave, and
/// reports of the groups it listens to.
fn quiet(name: &str) {
    let long = "1000000000"; // milliseconds
    for (parameter, value) in [
        ("addr_gen_mode", "1"),
        ("router_solicitations", "0"),
        ("mldv1_unsolicited_report_interval", long),
        ("mldv2_unsolicited_report_interval", long),
    ] {
        let _ = set(&format!("net/ipv6/conf/{name}/{parameter}"), value); // there may be no IPv6
    }
}

/// A new device of the namespace this thread is in.
fn attach(name: &str) -> io::Result<File> {
    const PATH: &str = "/dev/net/tun";
    let refuse = |kind, why: &str| io::Error::new(kind, format!("no TUN device {name}: {why}"));
    let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(PATH);
    let device = open.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => refuse(
            e.kind(),
            "there is no /dev/net/tun; load the module (`modprobe tun`), or give the container the device",
        ),
        io::ErrorKind::PermissionDenied => refuse(
            e.kind(),
            "/dev/net/tun may not be opened; it takes root, or `chmod 0666 /dev/net/tun` by root",
        ),
        kind => refuse(kind, &format!("/dev/net/tun: {e}")),
    })?;
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.iter().any(|b| !b.is_ascii_graphic()) {
        return Err(refuse(io::ErrorKind::InvalidInput, "a device's name has 1 to 15 letters and digits"));
    }
    // SAFETY: `ifreq` is plain data, for which zeros are a value.
    #[allow(unsafe_code)] // no safe constructor exists
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: the descriptor is open, and `request` is the structure that this call reads and writes.
    #[allow(unsafe_code)] // no safe wrapper has it
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &mut request) };
    match Errno::result(done) {
        Ok(_) => Ok(device),
        Err(Errno::EBUSY | Errno::EEXIST) => Err(refuse(
            io::ErrorKind::AlreadyExists,
            "a device of that name exists here; choose another name",
        )),
        Err(Errno::EPERM) => Err(refuse(
            io::ErrorKind::PermissionDenied,
            "it takes CAP_NET_ADMIN in this network namespace: be root, or use a user namespace",
        )),
        Err(e) => Err(refuse(io::Error::from(e).kind(), e.desc())),
    }
}

impl Port for Tun {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn receive(&mut self, _now: Time, take: Take<'_>) -> io::Result<()> {
        for _ in 0..BATCH {
            match self.device.read(&mut self.buffer) {
                Ok(n) => take(Frame::ip(frame::copy(&self.buffer[..n]))),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e), // EIO, ENODEV, EBADFD: it is gone
            }
        }
        Ok(())
    }

    fn send(&mut self, _now: Time, frame: Frame) -> bool {
        loop {
            match self.device.write(frame.bytes()) {
                Ok(_) => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}
