//! The system calls of a packet socket with a ring, behind a safe face: everything in the gateway that is `unsafe` because the
//! kernel writes into our memory is here. See `packet(7)` and the kernel's `packet_mmap.rst`.
//!
//! The ring is of version 2: the kernel gives a packet to us when it comes (version 3 gives a block when it is full or a
//! millisecond old). A slot holds the largest super-packet, since what does not fit is cut off.

use crate::port::segment::{Offload, Tag};
use std::ffi::{c_int, c_ulong};
use std::io::{self, Error, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

/// The kernel allocates blocks of a power of two pages.
const BLOCK: usize = 1 << 20;
/// Room for 64 KiB behind the kernel's own header; 15 to a block.
const SLOT: usize = 69_904;
const SLOTS_PER_BLOCK: usize = BLOCK / SLOT;
const BLOCKS: usize = 32;
const SLOTS: usize = BLOCKS * SLOTS_PER_BLOCK;
/// Messages that one system call sends.
pub const BATCH: usize = 64;
/// Bytes under way to the card, at most.
const SEND_BUFFER: c_int = 8 << 20;

/// A packet as it lies in the ring.
pub struct Received<'a> {
    /// From the Ethernet header on.
    pub bytes: &'a [u8],
    /// Whether these are all of its bytes.
    pub whole: bool,
    /// What the kernel left to do.
    pub offload: Offload,
    /// The VLAN tag that the kernel took out.
    pub tag: Option<Tag>,
}

/// An AF_PACKET socket with a ring to receive into.
pub struct PacketSocket {
    fd: OwnedFd,
    ring: *mut u8,
    /// The slot that the kernel fills next.
    next: usize,
}

// SAFETY: the mapping belongs to this value alone and is used through `&mut self` only.
#[allow(unsafe_code)] // the pointer takes the automatic Send away
unsafe impl Send for PacketSocket {}

#[allow(unsafe_code)] // system calls on packet sockets have no safe wrapper anywhere
impl PacketSocket {
    /// A socket that hears nothing yet.
    pub fn open() -> io::Result<PacketSocket> {
        // SAFETY: no pointers.
        let fd = check(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: a descriptor just made, and ours alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&fd, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as c_int))?;
        set(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1)?; // before the ring: it moves the packets in their slots
        set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set(&fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let _ = set(&fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER); // without the right, the default must do
        let (access, size) = (libc::PROT_READ | libc::PROT_WRITE, BLOCKS * BLOCK);
        // SAFETY: a fresh mapping of the socket's whole ring.
        let ring = unsafe { libc::mmap(null_mut(), size, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if ring == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        Ok(PacketSocket { fd, ring: ring.cast(), next: 0 })
    }

    /// Hears everything that comes in at interface number `index` from now on, whomever it is for. Needs no privilege.
    pub fn bind(&self, index: c_int) -> io::Result<()> {
        // SAFETY: of integers, for which zero is a value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index;
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is as long as said and outlives the call.
        check(unsafe { libc::bind(self.fd.as_raw_fd(), (&raw const address).cast(), size) })?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&self.fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)
    }

    /// The number of the interface called `name` in the socket's namespace.
    pub fn index(&self, name: &str) -> io::Result<c_int> {
        let request = self.interface(name, libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel has filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex })
    }

    /// Whether the interface called `name` is up.
    pub fn is_up(&self, name: &str) -> io::Result<bool> {
        let request = self.interface(name, libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel has filled in this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(c_int::from(flags) & libc::IFF_UP != 0)
    }

    /// The largest packet of the interface called `name`.
    pub fn mtu(&self, name: &str) -> io::Result<c_int> {
        let request = self.interface(name, libc::SIOCGIFMTU)?;
        // SAFETY: the kernel has filled in this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu })
    }

    /// Whether the interface called `name` carries Ethernet frames.
    pub fn is_ethernet(&self, name: &str) -> io::Result<bool> {
        let request = self.interface(name, libc::SIOCGIFHWADDR)?;
        // SAFETY: the kernel has filled in this member.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        Ok(kind == libc::ARPHRD_ETHER)
    }

    fn interface(&self, name: &str, what: c_ulong) -> io::Result<libc::ifreq> {
        // SAFETY: of integers, for which zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let fits = name.len() < request.ifr_name.len();
        if !fits || name.is_empty() {
            return Err(Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: `request` outlives the call, which reads its name and fills the rest.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), what as _, &raw mut request) })?;
        Ok(request)
    }

    /// Shows `look` the packet that came first, and gives its slot back. `false` if none waits.
    pub fn take(&mut self, look: impl FnOnce(Received<'_>)) -> bool {
        let (block, slot) = (self.next / SLOTS_PER_BLOCK, self.next % SLOTS_PER_BLOCK);
        // SAFETY: within the mapping, for `next` is less than SLOTS; slots are aligned to 16 bytes, as the kernel demands.
        let base = unsafe { self.ring.add(block * BLOCK + slot * SLOT) };
        let header: *mut libc::tpacket2_hdr = base.cast();
        // SAFETY: the first word of a slot is read and written by both sides, atomically.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
        let given = status.load(Ordering::Acquire);
        if given & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel has given us the slot and does not touch it until its status is reset below.
        let (header, slot) = unsafe { (&*header, std::slice::from_raw_parts(base, SLOT)) };
        let (start, length) = (header.tp_mac as usize, header.tp_snaplen as usize);
        let whole = length == header.tp_len as usize;
        let described = |at: usize| slot.get(at..)?.first_chunk().map(Offload::read);
        let tagged = libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID;
        let tag = || {
            let ([a, b], [c, d]) = (header.tp_vlan_tpid.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        };
        look(Received {
            bytes: slot.get(start..start + length).unwrap_or_default(),
            whole,
            // What was cut off is not described.
            offload: if whole { described(start - Offload::SIZE) } else { None }.unwrap_or_default(),
            tag: (given & tagged == tagged).then(tag),
        });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % SLOTS;
        true
    }

    /// How many packets found the ring full since the last call.
    pub fn missed(&self) -> u32 {
        let mut counted = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let asked = get(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counted);
        asked.map_or(0, |()| counted.tp_drops)
    }

    /// What has happened to the socket since the last call, if anything: an error number.
    pub fn error(&self) -> Option<i32> {
        let mut error: c_int = 0;
        get(&self.fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error).ok()?;
        (error != 0).then_some(error)
    }

    /// Sends messages, at most [`BATCH`], each of the parts before its end in `ends`; how many of them the kernel took before it
    /// stopped, if it took any. A message begins with what the kernel is told of it, an [`Offload`].
    pub fn send(&self, parts: &[IoSlice<'_>], ends: &[usize]) -> io::Result<usize> {
        let n = ends.len().min(BATCH);
        // SAFETY: of integers and pointers, for which zero is a value.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut from = 0;
        for (message, to) in messages.iter_mut().zip(ends) {
            let parts = &parts[from..*to];
            // An `IoSlice` is an `iovec`; sending only reads what it points to.
            message.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast::<libc::iovec>();
            message.msg_hdr.msg_iovlen = parts.len() as _;
            from = *to;
        }
        // SAFETY: the first `n` messages point to parts, and these to bytes, that outlive the call, which only reads them.
        let sent = unsafe {
            libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr(), n as u32, libc::MSG_DONTWAIT as _)
        };
        check(sent).map(|sent| sent as usize)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for PacketSocket {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, which nothing uses any more.
        #[allow(unsafe_code)] // as above
        let _ = unsafe { libc::munmap(self.ring.cast(), BLOCKS * BLOCK) };
    }
}

fn check(answer: c_int) -> io::Result<c_int> {
    if answer < 0 { Err(Error::last_os_error()) } else { Ok(answer) }
}

/// Sets a socket option.
fn set<T>(fd: &OwnedFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is as long as said and outlives the call, which reads it.
    #[allow(unsafe_code)] // as above
    let answer = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), size_of::<T>() as u32)
    };
    check(answer).map(drop)
}

/// Reads a socket option of integers.
fn get<T>(fd: &OwnedFd, level: c_int, name: c_int, value: &mut T) -> io::Result<()> {
    let mut size = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is as long as said and outlives the call, which writes integers into it.
    #[allow(unsafe_code)] // as above
    let answer =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut *value).cast(), &raw mut size) };
    check(answer).map(drop)
}
