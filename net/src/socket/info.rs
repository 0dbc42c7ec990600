//! Socket options that have no safe wrapper: TCP_INFO as far as this kernel fills it in, and numbers.

use narrows_core::Time;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// What TCP_INFO said.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// What.
    pub info: TcpInfo,
}

/// Linux's `struct tcp_info` (linux/tcp.h). Fields that the kernel does not know are zero. `rto`, `ato` and round-trip times are
/// in microseconds, as are the times spent busy and limited; the times since something was last sent or received are in
/// milliseconds; `snd_ssthresh` and `snd_cwnd`, like all of `unacked` to `retrans`, count segments; rates are in bytes per second.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // the kernel's own names, explained above
pub struct TcpInfo {
    pub state: u8,
    /// 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub ca_state: u8,
    pub retransmits: u8,
    pub probes: u8,
    pub backoff: u8,
    /// 1 timestamps, 2 SACK, 4 window scale, 8 ECN.
    pub options: u8,
    /// `snd_wscale` in the low four bits, `rcv_wscale` in the high ones.
    pub wscale: u8,
    /// Bit 0: delivery_rate is limited by the application.
    pub flags: u8,
    pub rto: u32,
    pub ato: u32,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    pub fackets: u32,
    pub last_data_sent: u32,
    pub last_ack_sent: u32,
    pub last_data_recv: u32,
    pub last_ack_recv: u32,
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    pub rcv_rtt: u32,
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub pacing_rate: u64,
    pub max_pacing_rate: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: u32,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    pub delivery_rate: u64,
    pub busy_time: u64,
    pub rwnd_limited: u64,
    pub sndbuf_limited: u64,
    pub delivered: u32,
    pub delivered_ce: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub rehash: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    pub total_rto_time: u32,
}

impl TcpInfo {
    /// Of a TCP socket, now.
    pub fn of(socket: &impl AsFd) -> io::Result<TcpInfo> {
        get(socket, libc::IPPROTO_TCP, libc::TCP_INFO)
    }
}

/// Values of socket options: any bytes are one.
pub trait Value: Default {}
impl Value for TcpInfo {}
impl Value for i32 {}

/// Reads an option; what the kernel does not fill in stays zero.
pub fn get<T: Value>(socket: &impl AsFd, level: i32, option: i32) -> io::Result<T> {
    let (mut value, mut len) = (T::default(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `value` is plain numbers and outlives the call, which writes at most `len` bytes to it.
    #[allow(unsafe_code)] // the wrappers know older structures only
    let done = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw mut value).cast(), &mut len)
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option that is a number.
pub fn set(socket: &impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` outlives the call, which reads `len` bytes of it.
    #[allow(unsafe_code)] // these options have no safe wrapper
    let done = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), len)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
