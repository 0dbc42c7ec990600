//! A TUN device: the kernel's end of a cable that carries IP packets. The kernel may leave checksums to us, and the cutting of
//! super-packets ([`segment`]): in the emulated network a packet is a packet, and yet 64 KiB cross the border to the kernel in
//! one system call each way. What the kernel cannot hand to us in time it keeps, up to 10,000 packets or super-packets, and then
//! drops silently: [`kernel_drops`] counts those.

use super::segment::joined::{self, Due, Message};
use super::segment::{self, Link, Offload};
use super::{Port, Take, Tell};
use crate::frame::{Frame, Malformed};
use crate::namespace::{Namespace, set};
use crate::netlink::{Netlink, Prefix};
use narrows_core::Time;
use nix::errno::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// The most packets taken in at once, so that what is due meanwhile leaves in time.
const BATCH: usize = 64;
/// The kernel's room for packets that we have not read yet.
const QUEUE: u32 = 10_000;
/// An IP packet is never longer: 40 bytes of IPv6 header before 65,535 of payload.
const LONGEST: usize = 65_575;

/// A TUN device; it is gone when this is dropped.
pub struct Tun {
    device: File,
    /// The packet being read.
    buffer: Box<[u8]>,
    /// Packets to be written at the next flush.
    out: Vec<Due>,
    /// What they go as.
    messages: Vec<Message>,
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
        let buffer = vec![0; Offload::SIZE + LONGEST].into();
        Ok(Tun { device, buffer, out: Vec::new(), messages: Vec::new() })
    }
}

/// Packets that the kernel dropped in `namespace` because we did not read them from `device` in time: its `tx_dropped`.
pub fn kernel_drops(namespace: &Namespace, device: &str) -> u64 {
    let read = || {
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        let counts = devices.lines().find_map(|l| l.trim_start().strip_prefix(device)?.strip_prefix(':'));
        Ok(counts.and_then(|c| c.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0))
    };
    namespace.enter(read).unwrap_or(0)
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
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the descriptor is open, and `request` is the structure that this call reads and writes.
    #[allow(unsafe_code)] // no safe wrapper has it
    let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, &mut request) };
    match Errno::result(done) {
        Ok(_) => {
            // What an older kernel does not know we do without: it then cuts by itself.
            let _ = leave_to_us(&device, OFFLOADS | UDP_OFFLOADS).or_else(|_| leave_to_us(&device, OFFLOADS));
            Ok(device)
        }
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

/// Checksums, and TCP's super-packets, also with CWR.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// UDP's, since Linux 6.2.
const UDP_OFFLOADS: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// Tells the kernel what it need not do itself.
fn leave_to_us(device: &File, offloads: libc::c_uint) -> nix::Result<libc::c_int> {
    // SAFETY: the descriptor is open; this call takes its argument by value.
    #[allow(unsafe_code)] // no safe wrapper has it
    let done = unsafe {
        libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD as libc::Ioctl, libc::c_ulong::from(offloads))
    };
    Errno::result(done)
}

/// The packets of what was read.
fn packets(told: Offload, packet: &[u8], take: Take<'_>) -> Result<(), Malformed> {
    // Whose checksum was unfinished, its checksum we make.
    let intact = |frame: Frame| if told.unfinished.is_some() { frame.known_intact() } else { frame };
    segment::restore(Link::Ip, packet, told, None, &mut |bytes| take(Frame::ip(bytes).map(intact)))
}

impl Port for Tun {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.device.as_fd())
    }

    fn receive(&mut self, _now: Time, take: Take<'_>) -> io::Result<()> {
        let mut taken = 0;
        while taken < BATCH {
            match self.device.read(&mut self.buffer) {
                Ok(n) => {
                    let mut each = |frame| {
                        taken += 1;
                        take(frame);
                    };
                    let done = match self.buffer[..n].split_first_chunk() {
                        Some((told, packet)) => packets(Offload::read(told), packet, &mut each),
                        None => Err(Malformed::Truncated),
                    };
                    if let Err(why) = done {
                        each(Err(why));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e), // EIO, ENODEV, EBADFD: it is gone
            }
        }
        Ok(())
    }

    fn send(&mut self, _now: Time, due: Time, frame: Frame, _tell: Tell<'_>) {
        self.out.push((due, frame));
    }

    fn flush(&mut self, tell: Tell<'_>) {
        joined::messages(Link::Ip, &self.out, &mut self.messages);
        let mut rest = &self.out[..];
        for message in &self.messages {
            let parts: Vec<IoSlice<'_>> = message.parts(rest).collect();
            let written = loop {
                match self.device.write_vectored(&parts) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    done => break done,
                }
            };
            let (these, others) = rest.split_at(message.packets);
            let went = written.is_ok(); // what is refused is lost, as at a card's full queue
            these.iter().for_each(|(_, frame)| tell(frame, went));
            rest = others;
        }
        self.out.clear();
    }
}
