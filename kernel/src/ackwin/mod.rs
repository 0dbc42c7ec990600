//! `ackwin` at a device (`bpf/ackwin.bpf.c`): its egress queue is taken for the bottleneck, and what that queue can accept is
//! written into the windows of the ACKs that come back. The second text of `narrows_core::ackwin`, held to it packet by packet.

mod pins;
#[cfg(test)]
mod tests;

pub use pins::{AtDevice, attached, detach};

use crate::Error;
use crate::load::{complained, constant, overhear, unreadable};
use crate::need::Facts;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, libbpf_sys};
use narrows_core::ackwin::count::{BITS, estimate};
use narrows_core::{Bytes, Rate};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nameindex;
use std::ptr::NonNull;
use std::time::Duration;

/// The queue that is spoken for: policy `share`, which divides what it can accept among the flows alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Of the line behind it.
    pub rate: Rate,
    /// What it has room for.
    pub limit: Bytes,
    /// The round trip without queues; zero: of each connection, as its handshake shows it.
    pub rtt: Duration,
}

/// What was done to the ACKs that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Window fields looked at.
    pub passed: u64,
    /// Window fields that were made smaller.
    pub rewritten: u64,
    /// Left alone because the connection's SYNs were not seen.
    pub unknown: u64,
    /// Grants raised to one segment.
    pub floored: u64,
}

/// Bounds within which no product in the program exceeds 64 bits.
const RATES: [u64; 2] = [1_000, 100_000_000_000];
const MOST_BYTES: u64 = 1 << 30;
const LONGEST: Duration = Duration::from_secs(60);

impl Queue {
    fn check(&self) -> Result<(), Error> {
        let refuse = |message: String, advice: &str| Err(Error::new(message, advice));
        if !(RATES[0]..=RATES[1]).contains(&self.rate.0) {
            let message = format!("the rate, {} bit/s, is outside 1 kbit/s to 100 Gbit/s", self.rate.0);
            return refuse(message, "write the rate of the bottleneck, for example --rate 45Mbit/s");
        }
        if !(1..=MOST_BYTES).contains(&self.limit.0) {
            let message = format!("the limit, {} bytes, is outside 1 B to 1 GiB", self.limit.0);
            return refuse(message, "write what the queue has room for, for example --limit 128KiB");
        }
        if self.rtt > LONGEST || !self.rtt.subsec_nanos().is_multiple_of(1000) {
            let message =
                format!("the round trip, {:?}, is not in whole microseconds up to a minute", self.rtt);
            return refuse(message, "write for example --rtt 40ms, or leave it out: the handshakes tell it");
        }
        Ok(())
    }
}

/// A device of this network namespace, of a kind whose packets the program can read.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Device {
    name: String,
    index: u32,
    link_header: u32,
}

/// if_arp.h: what precedes the IP header, by the device's type; a device without a link address has no link header either.
fn link_header(hatype: Option<u16>) -> Option<u32> {
    match hatype {
        Some(1 | 772) => Some(14),                  // Ethernet, loopback
        None | Some(512 | 519 | 65_534) => Some(0), // PPP, raw IP, TUN and its like
        _ => None,
    }
}

impl Device {
    fn find(name: &str) -> Result<Device, Error> {
        let unread = |e: nix::Error| Error::new(format!("the devices cannot be listed ({e})"), "run as root");
        let indexes = if_nameindex().map_err(unread)?;
        let Some(interface) = indexes.iter().find(|i| i.name().to_str() == Ok(name)) else {
            let names: Vec<_> = indexes.iter().map(|i| i.name().to_string_lossy()).collect();
            let message = format!("there is no device `{name}` in this network namespace");
            return Err(Error::new(message, format!("write --dev with one of {}", names.join(", "))));
        };
        let mut of_it = getifaddrs().map_err(unread)?.filter(|a| a.interface_name == name);
        let hatype = of_it.find_map(|a| Some(a.address?.as_link_addr()?.hatype()));
        let link_header = link_header(hatype).ok_or_else(|| {
            let message = format!("{name} is neither Ethernet nor a device of bare IP packets");
            Error::new(message, "attach to the Ethernet, PPP or TUN device that the packets go through")
        })?;
        Ok(Device { name: name.to_string(), index: interface.index(), link_header })
    }
}

/// In the kernel, attached nowhere yet.
struct Loaded {
    object: Object,
    about: MapHandle,
    counts: MapHandle,
}

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ackwin.o"));

impl Loaded {
    fn new(queue: &Queue, link_header: u32) -> Result<Loaded, Error> {
        queue.check()?;
        if let Some(missing) = Facts::cheap().missing() {
            return Err(missing);
        }
        overhear();
        let object = Self::into_kernel(queue, link_header).map_err(complained)?;
        let map = |name: &str| {
            let found = object.maps().find(|m| m.name().to_string_lossy().ends_with(name));
            MapHandle::try_from(&found.expect("the program has it")).map_err(unreadable)
        };
        let (about, counts) = (map("about")?, map(".data.counts")?);
        Ok(Loaded { about, counts, object })
    }

    fn into_kernel(queue: &Queue, link_header: u32) -> Result<Object, libbpf_rs::Error> {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        let btf = Btf::from_raw("program", OBJECT).ok().flatten().expect("clang -g writes the types");
        let mut maps = open.maps_mut();
        let mut rodata = maps.find(|m| m.name().to_string_lossy().ends_with(".rodata")).expect("constants");
        let image = rodata.initial_value_mut().expect("it has contents");
        let mut set = |name, bytes: &[u8]| constant(&btf, image, name).copy_from_slice(bytes);
        set("rate", &queue.rate.0.to_ne_bytes());
        set("limit", &queue.limit.0.to_ne_bytes());
        set("rtt_us", &(queue.rtt.as_micros() as u64).to_ne_bytes());
        set("link_header", &link_header.to_ne_bytes());
        // By how many bits are set: at most 34,070 flows.
        let flows = (0..=BITS as u32).flat_map(|set| (estimate(BITS as u32 - set) as u16).to_ne_bytes());
        set("estimates", &flows.collect::<Vec<u8>>());
        drop(maps);
        open.load()
    }

    fn attach(&self, program: &str, device: &Device) -> Result<Link, Error> {
        let program = self.object.progs_mut().find(|p| p.name() == program).expect("the object has it");
        let raw = program.as_libbpf_object().as_ptr();
        #[allow(unsafe_code)] // libbpf-rs has no wrapper of tcx
        // SAFETY: the program is loaded and outlives the call; no options means NULL. What comes back is a link of our own,
        // or NULL with errno set.
        let link = unsafe {
            let link = libbpf_sys::bpf_program__attach_tcx(raw, device.index as i32, std::ptr::null());
            NonNull::new(link).map(|l| Link::from_ptr(l)).ok_or_else(std::io::Error::last_os_error)
        };
        link.map_err(|e| match knows_tcx() {
            false => Error::new(
                format!("this kernel takes no programs at a device by links of their own (tcx: {e})"),
                "use Linux 6.6 or later",
            ),
            true => complained(e.into()),
        })
    }
}

/// By the kernel's own types; yes if it does not describe them.
fn knows_tcx() -> bool {
    let Ok(btf) = Btf::from_vmlinux() else { return true };
    let kinds = btf.type_by_name::<types::Enum<'_>>("bpf_attach_type");
    kinds.is_none_or(|k| k.iter().any(|v| v.name.is_some_and(|n| n == "BPF_TCX_EGRESS")))
}

impl Counts {
    fn read(map: &MapHandle) -> Result<Counts, Error> {
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
        let value =
            value.ok_or_else(|| Error::new("the counts are gone", "detach it and attach it again"))?;
        let word = |i: usize| u64::from_ne_bytes(value[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        Ok(Counts { passed: word(0), rewritten: word(1), unknown: word(2), floored: word(3) })
    }
}

/// Attaches it to the device called `name`, to stay until [`detach`].
///
/// # Errors
/// If there is no such device, it has one already, a number does not fit, the right or a part of the kernel is missing, or there
/// is no BPF file system to keep it in; nothing is attached then.
pub fn attach(name: &str, queue: &Queue) -> Result<(), Error> {
    queue.check()?;
    let device = Device::find(name)?;
    let loaded = Loaded::new(queue, device.link_header)?;
    pins::keep(&device, queue, loaded)
}
