//! One layer of emulation: a namespace inside, where a program runs, and the two TUN devices that join it to the namespace
//! outside. Layers nest, and need no address translation, since every layer takes its addresses from the one around it:
//!
//! ```text
//!   100.64.0.0/10         (RFC 6598: for use between others' networks)
//!     100.64.128.0/17     an outermost layer, of 128 that can stand side by side
//!       100.64.128.1        the host side: $NARROWS_HOST, for all layers in it
//!       100.64.128.2        inside
//!       100.64.144.0/20     a layer in it, one of 7; then /23, /26, /29
//!         100.64.144.2        inside that
//! ```
//! IPv6 has the same plan: the IPv4 address follows a fixed prefix. Who is inside knows its piece from the address of its device,
//! `narrows`; a slot is taken while the device `narrowsN` of the namespace outside exists, so the kernel settles who gets it.
//! What is routed inside is the outermost layer's addresses and nothing else: no packet strays into other networks.

use crate::namespace::Namespace;
use crate::netlink::{Netlink, Prefix};
use crate::port::tun::Tun;
use nix::ifaddrs::getifaddrs;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All of it: 100.64.0.0/10.
const ALL: Piece = Piece { base: 0x6440_0000, length: 10 };
/// An outermost layer's.
const OUTERMOST: u8 = 17;
/// Each layer takes an eighth of what the one around it has.
const STEP: u8 = 3;
/// The smallest piece that has room for its own addresses.
const DEEPEST: u8 = 29;
/// A prefix of unique local addresses (RFC 4193), drawn once.
const PREFIX: Ipv6Addr = Ipv6Addr::new(0xfd6e, 0x6172, 0x726f, 0x7773, 0, 0, 0, 0);
/// IPv6 wants at least this MTU (RFC 8200 section 5).
const IPV6_MTU: u32 = 1280;
/// The device inside.
const DEVICE: &str = "narrows";

/// Where a program runs, behind a path that begins and ends at two devices.
pub struct Layer {
    /// The namespace of the program.
    pub inside: Namespace,
    /// The namespace that this was made in.
    pub outside: Namespace,
    /// Where the outermost host is reached.
    pub host: Ipv4Addr,
    /// The same by IPv6, unless the machine or the MTU has none.
    pub host6: Option<Ipv6Addr>,
    /// What programs inside send comes in here.
    pub near: Tun,
    /// What those outside send comes in here.
    pub far: Tun,
    /// The name of the device outside.
    pub far_name: String,
}

impl Layer {
    /// A new layer around the namespace this thread is in. MTUs: of what leaves the inside, and of what comes back.
    ///
    /// # Errors
    /// No right to make namespaces or TUN devices; too many layers, in one another or side by side.
    pub fn new(mtus: [u32; 2]) -> io::Result<Layer> {
        let outside = Namespace::current()?;
        let around = own()?;
        let six = mtus.iter().all(|mtu| *mtu >= IPV6_MTU) && has_ipv6();
        let inside = Namespace::new()?;
        let foreign = if around.is_none() { Netlink::open()?.routes()? } else { Vec::new() };
        for (slot, piece) in around.unwrap_or(ALL).pieces()? {
            if foreign.iter().any(|route| piece.overlaps(*route)) {
                continue;
            }
            let host = piece.outermost().address(1);
            let ours = if around.is_none() { piece.prefixes(host, six) } else { Vec::new() };
            let far_name = format!("{DEVICE}{slot}");
            let far = match Tun::open(&outside, &far_name, mtus[1], &ours) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let near = Tun::open(&inside, DEVICE, mtus[0], &piece.prefixes(piece.address(2), six))?;
            if around.is_some() {
                let outermost = piece.outermost();
                for (theirs, all) in piece
                    .prefixes(piece.address(0), six)
                    .iter()
                    .zip(outermost.prefixes(outermost.address(0), six))
                {
                    outside.route(*theirs, &far_name)?;
                    inside.route(all, DEVICE)?;
                }
                outside.forward()?;
            }
            return Ok(Layer {
                inside,
                outside,
                host,
                host6: six.then(|| mapped(host)),
                near,
                far,
                far_name,
            });
        }
        Err(io::Error::other("there are too many emulated paths side by side here: end one of them"))
    }
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    base: u32,
    length: u8,
}

impl Piece {
    fn new(address: Ipv4Addr, length: u8) -> Piece {
        Piece { base: address.to_bits() & mask(length), length }
    }

    fn address(self, n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + n)
    }

    /// The outermost layer's that this is in.
    fn outermost(self) -> Piece {
        Piece::new(self.address(0), OUTERMOST)
    }

    /// What layers in this one may take, and their numbers. The first eighth is for the layer's own addresses.
    fn pieces(self) -> io::Result<impl Iterator<Item = (u32, Piece)>> {
        let (length, first) = if self == ALL { (OUTERMOST, 0) } else { (self.length + STEP, 1) };
        if length > DEEPEST {
            return Err(io::Error::other(
                "five emulated paths in one another are the most: put several flags on one",
            ));
        }
        let piece = move |n: u32| (n, Piece { base: self.base + (n << (32 - length)), length });
        Ok((first..1 << (length - self.length)).map(piece))
    }

    fn overlaps(self, (address, length): Prefix) -> bool {
        let IpAddr::V4(address) = address else { return false };
        let shorter = length.min(self.length);
        length > 0 && Piece::new(address, shorter) == Piece::new(self.address(0), shorter)
    }

    /// `address` with the length of this piece, in IPv4 and perhaps in IPv6.
    fn prefixes(self, address: Ipv4Addr, six: bool) -> Vec<Prefix> {
        let mut prefixes = vec![(address.into(), self.length)];
        if six {
            prefixes.push((mapped(address).into(), 96 + self.length));
        }
        prefixes
    }
}

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32 - length as u32).unwrap_or(0)
}

fn mapped(address: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(PREFIX.to_bits() | address.to_bits() as u128)
}

/// The piece of the layer this thread is in, if it is in one.
fn own() -> io::Result<Option<Piece>> {
    let piece = |device: nix::ifaddrs::InterfaceAddress| {
        let ipv4 = |a: Option<nix::sys::socket::SockaddrStorage>| Some(a?.as_sockaddr_in()?.ip());
        let (address, mask) = (ipv4(device.address)?, ipv4(device.netmask)?);
        let piece = Piece::new(address, mask.to_bits().count_ones() as u8);
        (device.interface_name == DEVICE && piece.length >= OUTERMOST).then_some(piece)
    };
    Ok(getifaddrs()?.find_map(piece))
}

fn has_ipv6() -> bool {
    fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6").is_ok_and(|off| off.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_in_one_another_and_beside_each_other() {
        let mut around = ALL;
        let mut depth = 0;
        while let Ok(pieces) = around.pieces() {
            let pieces: Vec<Piece> = pieces.map(|(_, p)| p).collect();
            assert_eq!(pieces.len(), if depth == 0 { 128 } else { 7 });
            for pair in pieces.windows(2) {
                assert_eq!(pair[0].base + (1 << (32 - pair[0].length)), pair[1].base);
            }
            let last = pieces[pieces.len() - 1];
            assert_eq!(Piece::new(last.address(2), around.length), around);
            if depth > 0 {
                assert_eq!(last.outermost(), around.outermost());
                assert!(
                    !pieces.contains(&Piece::new(around.address(2), last.length)),
                    "its own address is its own"
                );
            }
            (around, depth) = (last, depth + 1);
        }
        assert_eq!((depth, around.length), (5, DEEPEST));
    }

    #[test]
    fn a_foreign_route_is_stepped_around_and_a_default_route_is_not() {
        let (_, second) = ALL.pieces().unwrap().nth(1).unwrap();
        let route = |a: &str, n| (a.parse().unwrap(), n);
        assert!(second.overlaps(route("100.64.0.0", 10)));
        assert!(second.overlaps(route("100.64.130.7", 32)));
        assert!(!second.overlaps(route("100.64.0.0", 17)));
        assert!(!second.overlaps(route("0.0.0.0", 0)));
        assert!(!second.overlaps(route("10.0.0.0", 8)));
    }

    #[test]
    fn ipv6_addresses_end_in_the_ipv4_address() {
        assert_eq!(mapped(Ipv4Addr::new(100, 64, 0, 1)).to_string(), "fd6e:6172:726f:7773::6440:1");
    }
}
