//! Which class a packet belongs to. A scenario's packets are known by their flow on every host: a table, one look. Real packets are
//! known by their headers, in tuple space (V. Srinivasan, S. Suri, G. Varghese, "Packet Classification using Tuple Space Search",
//! SIGCOMM 1999): patterns that look at the same bits are one ordered map of those bits, so a packet costs O(log patterns) for each
//! such shape, of which a configuration has few however many patterns it has. A range of ports is the prefixes it is made of.
//!
//! The class declared first wins. Shapes are tried in the order of the first class they could give, and no further than that.

use crate::outcome::{ClassSummary, Distribution};
use narrows_core::ackwin::{Header, Passing};
use narrows_core::qdisc::class::Class;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// A class, and which packets belong to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Matched {
    /// What is promised to it.
    pub class: Class,
    /// Its packets; none for the last class, which has whatever belongs to no other.
    pub patterns: Vec<Pattern>,
}

impl Matched {
    /// The same class for the other direction: source and destination change places.
    pub fn mirror(&mut self) {
        for pattern in &mut self.patterns {
            if let Pattern::Header(p) = pattern {
                std::mem::swap(&mut p.source, &mut p.destination);
                std::mem::swap(&mut p.source_port, &mut p.destination_port);
            }
        }
    }
}

/// Some packets.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Those of a scenario's flow, or with `*` at the end of all flows whose name begins so.
    Flow(String),
    /// Real packets by their headers.
    Header(HeaderPattern),
}

/// Some real packets: those to which all of this applies.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct HeaderPattern {
    /// Source address and how many of its bits count.
    pub source: Option<(IpAddr, u8)>,
    /// Destination address and how many of its bits count.
    pub destination: Option<(IpAddr, u8)>,
    /// The transport's number.
    pub protocol: Option<u8>,
    /// From which port, to which. Fragments have none, and are in no range.
    pub source_port: Option<(u16, u16)>,
    /// From which port, to which.
    pub destination_port: Option<(u16, u16)>,
    /// The differentiated services codepoint (RFC 2474).
    pub dscp: Option<u8>,
}

/// Most classes of a line whose delays are kept as a distribution; of others only the longest.
const DISTRIBUTIONS: usize = 64;

/// A line's classes at work: who tells them apart, and what was seen of each.
pub struct Classes {
    classifier: Classifier,
    seen: Vec<Seen>,
}

/// What was seen of a class, and what it was promised.
#[derive(Default)]
struct Seen {
    name: String,
    bound: Option<Duration>,
    departed: u64,
    bytes: u64,
    drops: u64,
    took: Option<Distribution>,
    longest: Duration,
}

impl Classes {
    /// Told apart like this, with these names and bounds.
    pub fn new(
        classifier: Classifier,
        promised: impl Iterator<Item = (String, Option<Duration>)>,
    ) -> Classes {
        let seen = |(i, (name, bound))| {
            let took = (i < DISTRIBUTIONS).then(Distribution::default);
            Seen { name, bound, took, ..Seen::default() }
        };
        Classes { classifier, seen: promised.enumerate().map(seen).collect() }
    }

    /// The number of a packet's class.
    #[inline]
    pub fn of(&self, packet: &impl Passing) -> u32 {
        self.classifier.class(packet)
    }

    /// A packet of a class is through, so long after it came.
    #[inline]
    pub fn sent(&mut self, class: u32, bytes: u64, took: Duration) {
        let Some(seen) = self.seen.get_mut(class as usize) else { return };
        (seen.departed, seen.bytes) = (seen.departed + 1, seen.bytes + bytes);
        seen.longest = seen.longest.max(took);
        if let Some(all) = &mut seen.took {
            all.record(took);
        }
    }

    /// A packet of a class was dropped.
    pub fn dropped(&mut self, class: u32) {
        if let Some(seen) = self.seen.get_mut(class as usize) {
            seen.drops += 1;
        }
    }

    /// Each class in numbers.
    pub fn summaries(&self) -> Vec<ClassSummary> {
        let one = |seen: &Seen| ClassSummary {
            name: seen.name.clone(),
            bound_s: seen.bound.map(|bound| bound.as_secs_f64()),
            departed: seen.departed,
            departed_bytes: seen.bytes,
            drops: seen.drops,
            delay: seen.took.as_ref().map(Distribution::quantiles),
            delay_max_s: seen.longest.as_secs_f64(),
        };
        self.seen.iter().map(one).collect()
    }
}

/// Tells the class of a packet, by its number.
#[derive(Clone, Debug)]
pub enum Classifier {
    /// Of each flow of a scenario, and of any other.
    Flows(Vec<u32>, u32),
    /// Of real packets.
    Headers(Shapes),
}

impl Classifier {
    /// For these classes and flows, by their numbers. `None` if there are no classes.
    pub fn new<'a>(classes: &[Matched], flows: impl Iterator<Item = &'a str>) -> Option<Classifier> {
        let rest = classes.len().checked_sub(1)? as u32;
        let by_header = |p: &Pattern| matches!(p, Pattern::Header(_));
        if classes.iter().flat_map(|c| &c.patterns).any(by_header) {
            return Some(Classifier::Headers(Shapes::new(classes, rest)));
        }
        let (mut exact, mut starts) = (BTreeMap::new(), Vec::new());
        for (number, class) in classes.iter().enumerate() {
            for pattern in &class.patterns {
                let Pattern::Flow(name) = pattern else { continue };
                match name.strip_suffix('*') {
                    Some(start) => starts.push((start, number as u32)),
                    None => drop(exact.entry(name.as_str()).or_insert(number as u32)),
                }
            }
        }
        let of = |flow: &str| {
            let start = starts.iter().find(|(start, _)| flow.starts_with(start)).map(|(_, number)| *number);
            start.into_iter().chain(exact.get(flow).copied()).min().unwrap_or(rest)
        };
        Some(Classifier::Flows(flows.map(of).collect(), rest))
    }

    /// The number of a packet's class.
    #[inline]
    pub fn class(&self, packet: &impl Passing) -> u32 {
        match self {
            Classifier::Flows(table, rest) => table.get(packet.flow().0 as usize).copied().unwrap_or(*rest),
            Classifier::Headers(shapes) => packet.header().map_or(shapes.rest, |h| shapes.class(&h)),
        }
    }
}

/// What of a header is looked at, and what it is there. IPv4 addresses are IPv6 addresses (RFC 4291 section 2.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Bits {
    source: u128,
    destination: u128,
    /// Protocol, both ports and DSCP; a bit each for whether there are ports, and whether the address is looked at.
    rest: u64,
}

/// In `Bits::rest`: whether there are ports.
const PORTS: u64 = 1 << 48;

impl Bits {
    fn of(header: &Header) -> Bits {
        let ports = header.ports.map_or(0, |(from, to)| PORTS | (from as u64) << 32 | (to as u64) << 16);
        let rest = ports | (header.protocol as u64) << 8 | header.dscp as u64;
        Bits { source: wide(header.source), destination: wide(header.destination), rest }
    }

    fn masked(self, mask: Bits) -> Bits {
        Bits {
            source: self.source & mask.source,
            destination: self.destination & mask.destination,
            rest: self.rest & mask.rest,
        }
    }
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The mask of an address's first bits.
fn prefix((address, length): (IpAddr, u8)) -> u128 {
    let length = length as u32 + if address.is_ipv4() { 96 } else { 0 };
    u128::MAX.checked_shl(128 - length.min(128)).unwrap_or(0)
}

/// The prefixes that a range of ports is made of: each a value and its mask.
fn prefixes((from, to): (u16, u16)) -> Vec<(u16, u16)> {
    let (mut at, end, mut all) = (from as u32, to as u32 + 1, Vec::new());
    while at < end {
        let most = if at == 0 { 16 } else { at.trailing_zeros() };
        let size = (0..=most).rev().map(|bits| 1u32 << bits).find(|size| at + size <= end).unwrap_or(1);
        all.push((at as u16, !(size - 1) as u16));
        at += size;
    }
    all
}

/// Patterns over headers, those that look at the same bits together.
#[derive(Clone, Debug)]
pub struct Shapes {
    shapes: Vec<Shape>,
    rest: u32,
}

#[derive(Clone, Debug)]
struct Shape {
    /// The lowest class there is in it.
    first: u32,
    mask: Bits,
    classes: BTreeMap<Bits, u32>,
}

impl Shapes {
    fn new(classes: &[Matched], rest: u32) -> Shapes {
        let mut shapes: BTreeMap<Bits, BTreeMap<Bits, u32>> = BTreeMap::new();
        for (number, class) in classes.iter().enumerate() {
            for pattern in &class.patterns {
                let Pattern::Header(pattern) = pattern else { continue };
                for (mask, bits) in pattern.tuples() {
                    shapes.entry(mask).or_default().entry(bits.masked(mask)).or_insert(number as u32);
                }
            }
        }
        let shape = |(mask, classes): (Bits, BTreeMap<Bits, u32>)| Shape {
            first: classes.values().copied().min().unwrap_or(rest),
            mask,
            classes,
        };
        let mut shapes: Vec<_> = shapes.into_iter().map(shape).collect();
        shapes.sort_by_key(|shape| shape.first);
        Shapes { shapes, rest }
    }

    fn class(&self, header: &Header) -> u32 {
        let bits = Bits::of(header);
        let mut best = self.rest;
        for shape in self.shapes.iter().take_while(|shape| shape.first <= self.rest) {
            if shape.first >= best {
                break;
            }
            if let Some(class) = shape.classes.get(&bits.masked(shape.mask)) {
                best = best.min(*class);
            }
        }
        best
    }
}

impl HeaderPattern {
    /// The bits it looks at and what they must be: one for each pair of prefixes of its ranges of ports.
    fn tuples(&self) -> Vec<(Bits, Bits)> {
        let end = |end: Option<(IpAddr, u8)>| end.map_or((0, 0), |e| (prefix(e), wide(e.0)));
        let ((source_mask, source), (destination_mask, destination)) =
            (end(self.source), end(self.destination));
        let ports = |range: Option<(u16, u16)>| range.map_or_else(|| vec![(0, 0)], prefixes);
        let any = if self.source_port.or(self.destination_port).is_some() { PORTS } else { 0 };
        let (mut mask, mut bits) = (any, any);
        if let Some(protocol) = self.protocol {
            (mask, bits) = (mask | 0xFF << 8, bits | (protocol as u64) << 8);
        }
        if let Some(dscp) = self.dscp {
            (mask, bits) = (mask | 0xFF, bits | dscp as u64);
        }
        let mut all = Vec::new();
        for (from, from_mask) in ports(self.source_port) {
            for (to, to_mask) in ports(self.destination_port) {
                let place = |from: u16, to: u16| (from as u64) << 32 | (to as u64) << 16;
                all.push((
                    Bits {
                        source: source_mask,
                        destination: destination_mask,
                        rest: mask | place(from_mask, to_mask),
                    },
                    Bits { source, destination, rest: bits | place(from, to) },
                ));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matched(name: &str, patterns: Vec<Pattern>) -> Matched {
        Matched { class: Class::plain(name), patterns }
    }

    #[test]
    fn flows_by_name_and_by_how_they_begin_the_class_declared_first() {
        let flow = |name: &str| Pattern::Flow(name.into());
        let classes = [
            matched("a", vec![flow("voice-1"), flow("web*")]),
            matched("b", vec![flow("voice*"), flow("web-2")]),
            matched("rest", vec![]),
        ];
        let flows = ["bulk", "voice-1", "voice-2", "web-2", "we"];
        let Some(Classifier::Flows(table, rest)) = Classifier::new(&classes, flows.into_iter()) else {
            panic!("they are flows")
        };
        assert_eq!((table, rest), (vec![2, 0, 1, 0, 2], 2));
        assert!(Classifier::new(&[], flows.into_iter()).is_none());
    }

    #[test]
    fn a_range_is_its_prefixes() {
        assert_eq!(prefixes((80, 80)), [(80, 0xFFFF)]);
        assert_eq!(prefixes((0, 65_535)), [(0, 0)]);
        assert_eq!(prefixes((5060, 5063)), [(5060, 0xFFFC)]);
        assert_eq!(prefixes((1, 65_534)).len(), 30, "the most there can be");
    }

    fn address() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0u8..4, 0u8..4).prop_map(|(a, b)| IpAddr::from([10, a, 0, b])),
            (0u16..3, 0u16..3).prop_map(|(a, b)| IpAddr::from([0xFD00, a, 0, 0, 0, 0, 0, b])),
        ]
    }

    fn header() -> impl Strategy<Value = Header> {
        let ports = prop::option::of((0u16..40, 0u16..40));
        (address(), address(), prop_oneof![Just(6u8), Just(17)], ports, 0u8..4).prop_map(
            |(source, destination, protocol, ports, dscp)| Header {
                source,
                destination,
                protocol,
                ports,
                dscp,
            },
        )
    }

    fn pattern() -> impl Strategy<Value = HeaderPattern> {
        let end = || {
            let net = (address(), 0u8..=128).prop_map(|(a, n)| (a, if a.is_ipv4() { n.min(32) } else { n }));
            prop::option::weighted(0.4, net)
        };
        let range = || prop::option::weighted(0.4, (0u16..40, 0u16..20).prop_map(|(a, n)| (a, a + n)));
        let protocol = prop::option::weighted(0.4, prop_oneof![Just(6u8), Just(17)]);
        (end(), end(), protocol, range(), range(), prop::option::weighted(0.3, 0u8..4)).prop_map(
            |(source, destination, protocol, source_port, destination_port, dscp)| HeaderPattern {
                source,
                destination,
                protocol,
                source_port,
                destination_port,
                dscp,
            },
        )
    }

    /// Rule by rule, as one would write it without any table.
    fn applies(p: &HeaderPattern, h: &Header) -> bool {
        let within = |net: Option<(IpAddr, u8)>, address: IpAddr| {
            net.is_none_or(|(start, length)| match (start, address) {
                (IpAddr::V4(a), IpAddr::V4(b)) => {
                    (a.to_bits() ^ b.to_bits()).checked_shr(32 - length as u32).unwrap_or(0) == 0
                }
                (IpAddr::V6(a), IpAddr::V6(b)) => {
                    (a.to_bits() ^ b.to_bits()).checked_shr(128 - length as u32).unwrap_or(0) == 0
                }
                (IpAddr::V6(_), IpAddr::V4(_)) => length == 0,
                (IpAddr::V4(_), IpAddr::V6(_)) => false,
            })
        };
        let in_range = |range: Option<(u16, u16)>, port: Option<u16>| {
            range.is_none_or(|(from, to)| port.is_some_and(|port| (from..=to).contains(&port)))
        };
        within(p.source, h.source)
            && within(p.destination, h.destination)
            && p.protocol.is_none_or(|n| n == h.protocol)
            && p.dscp.is_none_or(|n| n == h.dscp)
            && in_range(p.source_port, h.ports.map(|(from, _)| from))
            && in_range(p.destination_port, h.ports.map(|(_, to)| to))
    }

    proptest! {
        #[test]
        fn tables_say_what_the_rules_say_one_by_one(
            classes in prop::collection::vec(prop::collection::vec(pattern(), 1..4), 1..6),
            headers in prop::collection::vec(header(), 1..40),
        ) {
            let mut all: Vec<_> = classes
                .iter()
                .map(|patterns| matched("c", patterns.iter().cloned().map(Pattern::Header).collect()))
                .collect();
            all.push(matched("rest", vec![]));
            let Some(Classifier::Headers(shapes)) = Classifier::new(&all, [].into_iter()) else {
                panic!("they are headers")
            };
            for h in headers {
                let first = classes.iter().position(|patterns| patterns.iter().any(|p| applies(p, &h)));
                prop_assert_eq!(shapes.class(&h) as usize, first.unwrap_or(classes.len()), "{:?}", h);
            }
        }
    }
}
