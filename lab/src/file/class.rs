//! Classes of a line as written: names, what belongs to them, and what is promised to them. Whether a promise can be kept only the
//! queue knows.

use super::error::{Refusal, nearest, shortened};
use super::part::quoted;
use super::resolve::{MOST_FLOWS, check_name, speed, time};
use super::text::{At, Class, Flow, Setting};
use crate::class::{HeaderPattern, Matched, Pattern};
use crate::quantity::{Amount, Quantity};
use narrows_core::ackwin::Room;
use narrows_core::qdisc::class::{self, HEAVIEST, LEVELS};
use narrows_core::units::Bytes;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What patterns may speak of.
pub(super) enum Known {
    /// The scenario's flows.
    Flows(BTreeSet<String>),
    /// Headers of real packets.
    Headers,
}

impl Known {
    /// The names of all flows of a scenario.
    pub fn flows(flows: &[At<Flow>]) -> Known {
        let names = flows.iter().enumerate().flat_map(|(i, flow)| {
            let base = flow.name.as_ref().map_or_else(|| format!("flow-{}", i + 1), |n| n.value.clone());
            let count = flow.count.as_ref().map(|c| c.value.clamp(0, MOST_FLOWS as i64));
            let own = count.is_none().then(|| base.clone());
            own.into_iter().chain((1..=count.unwrap_or(0)).map(move |i| format!("{base}-{i}")))
        });
        Known::Flows(names.take(MOST_FLOWS).collect())
    }
}

/// The classes as written, and one for the rest if none is. `amount` resolves bandwidth-delay products.
pub(super) fn classes(
    written: Option<&[At<Class>]>,
    known: &Known,
    bdp: &dyn Fn() -> Result<Bytes, Refusal>,
) -> Result<Vec<Matched>, Refusal> {
    let written = written.unwrap_or_default();
    let mut names = BTreeSet::new();
    let mut classes = Vec::with_capacity(written.len() + 1);
    for (i, one) in written.iter().enumerate() {
        check_name("class", &one.name)?;
        if !names.insert(one.name.as_str()) {
            let message = format!("there are two classes called {}", one.name.value);
            return Err(Refusal::new(message, "give each its own name").at(&one.name.span));
        }
        let patterns = match &one.pattern {
            Some(pattern) => patterns(pattern, known)?,
            None if i + 1 == written.len() => Vec::new(),
            None => {
                let message = format!("which packets belong to {}?", one.name.value);
                let advice =
                    "write a `match`; only the last class has none, and gets what belongs to no other";
                return Err(Refusal::new(message, advice).at(&one.span));
            }
        };
        classes.push(Matched { class: promised(one, bdp)?, patterns });
    }
    if classes.last().is_some_and(|last| !last.patterns.is_empty()) {
        if let Some(rest) = written.iter().find(|one| one.name.as_str() == "rest") {
            let advice = "call it something else, or write it last and without `match`";
            return Err(Refusal::new("`rest` is what belongs to no other class", advice).at(&rest.name.span));
        }
        classes.push(Matched { class: class::Class::plain("rest"), patterns: Vec::new() });
    }
    Ok(classes)
}

fn promised(one: &At<Class>, bdp: &dyn Fn() -> Result<Bytes, Refusal>) -> Result<class::Class, Refusal> {
    let number = |key: &str, written: &Option<At<i64>>, default: i64, most: i64| match written {
        Some(n) if !(1..=most).contains(&n.value) => {
            let message = format!("{key} = {} of class {} is outside 1 to {most}", n.value, one.name.value);
            let advice = match key {
                "priority" => format!("write 1 (goes first) to {most}"),
                _ => format!("write 1 to {most}; a class that is to get nothing needs a low priority"),
            };
            Err(Refusal::new(message, advice).at(&n.span))
        }
        n => Ok(n.as_ref().map_or(default, |n| n.value)),
    };
    let limit = match &one.limit {
        None => None,
        Some(limit) => {
            let amount = super::part::resolve_bdp(limit.0, bdp).map_err(|r| r.at(&limit.span))?;
            match amount {
                Amount::Packets(0) | Amount::Bytes(Bytes(0)) => {
                    let message = format!("class {} has no room and would lose everything", one.name.value);
                    return Err(Refusal::new(message, "write for example limit = \"64kB\" or \"100p\"")
                        .at(&limit.span));
                }
                Amount::Packets(n) => Some(Room::Packets(n)),
                Amount::Bytes(b) => Some(Room::Bytes(b.0)),
                Amount::Bdp(_) => unreachable!("`resolve_bdp` has resolved it"),
            }
        }
    };
    Ok(class::Class {
        name: one.name.value.clone(),
        rate: one.rate.as_ref().map(speed).transpose()?,
        ahead: one.ahead.as_ref().map_or(Bytes::ZERO, |a| a.0),
        delay: one.delay.as_ref().map(time).transpose()?,
        priority: number("priority", &one.priority, LEVELS as i64, LEVELS as i64)? as u8,
        weight: number("weight", &one.weight, 1, HEAVIEST as i64)? as u32,
        limit,
        surplus: one.surplus.unwrap_or(true),
    })
}

/// One pattern or a list of them.
fn patterns(written: &At<Setting>, known: &Known) -> Result<Vec<Pattern>, Refusal> {
    let all = match &written.value {
        Setting::List(all) if all.is_empty() => {
            let advice = "write what does, or leave `match` out in the last class";
            return Err(Refusal::new("nothing belongs to this class", advice).at(&written.span));
        }
        Setting::List(all) => &all[..],
        _ => std::slice::from_ref(written),
    };
    all.iter().map(|one| pattern(one, known)).collect()
}

fn pattern(written: &At<Setting>, known: &Known) -> Result<Pattern, Refusal> {
    match (&written.value, known) {
        (Setting::Text(name), Known::Flows(flows)) => {
            let start = name.strip_suffix('*');
            let found = match start {
                None => flows.contains(name),
                Some(start) => {
                    flows.range(start.to_string()..).next().is_some_and(|flow| flow.starts_with(start))
                }
            };
            if found {
                return Ok(Pattern::Flow(name.clone()));
            }
            let near = nearest(start.unwrap_or(name), flows.iter().take(1000).map(String::as_str));
            let advice = match near {
                Some(near) => {
                    format!("did you mean \"{near}\"? With * at its end, a name stands for all that begin so")
                }
                None => "write the name of a [[flow]], with * at its end for all that begin so".into(),
            };
            Err(Refusal::new(format!("there is no flow \"{}\"", shortened(name)), advice).at(&written.span))
        }
        (Setting::Table(entries), Known::Headers) => {
            let mut pattern = HeaderPattern::default();
            for (key, value) in entries {
                match key.as_str() {
                    "source" => pattern.source = Some(net(value)?),
                    "destination" => pattern.destination = Some(net(value)?),
                    "protocol" => pattern.protocol = Some(protocol(value)?),
                    "source_port" => pattern.source_port = Some(ports(value)?),
                    "destination_port" => pattern.destination_port = Some(ports(value)?),
                    "dscp" => pattern.dscp = Some(small(value, 63, "a DSCP")? as u8),
                    unknown => {
                        let keys =
                            ["source", "destination", "protocol", "source_port", "destination_port", "dscp"];
                        return Err(Refusal::unknown("part of a header", unknown, keys).at(&key.span));
                    }
                }
            }
            if pattern == HeaderPattern::default() {
                let advice = "write for example { protocol = \"udp\", destination_port = \"5060-5070\" }";
                return Err(Refusal::new("this says nothing of a packet", advice).at(&written.span));
            }
            Ok(Pattern::Header(pattern))
        }
        (other, Known::Flows(_)) => {
            let message = format!(
                "a scenario's packets are known by their flow, on every host, not by {}",
                other.noun()
            );
            Err(Refusal::new(message, "write the name of a flow: match = \"voice*\"").at(&written.span))
        }
        (other, Known::Headers) => {
            let message = format!("real packets are known by their headers, not by {}", other.noun());
            let advice = "write for example match = { protocol = \"udp\", destination_port = \"5060-5070\" }";
            Err(Refusal::new(message, advice).at(&written.span))
        }
    }
}

/// `10.0.0.0/8`, `10.1.2.3`, `fd00::/8`
fn net(written: &At<Setting>) -> Result<(IpAddr, u8), Refusal> {
    let refuse = |message: String| {
        Refusal::new(message, "write an address, or one with the length of its prefix: \"10.0.0.0/8\"")
            .at(&written.span)
    };
    let Setting::Text(text) = &written.value else {
        return Err(refuse(format!("an address is a text, not {}", written.value.noun())));
    };
    let (address, length) = text.split_once('/').map_or((text.as_str(), None), |(a, n)| (a, Some(n)));
    let unknown = || refuse(format!("\"{}\" is no address", shortened(text)));
    let address: IpAddr = address.parse().map_err(|_| unknown())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = length.map_or(Ok(most), str::parse).map_err(|_| unknown())?;
    if length > most {
        return Err(refuse(format!("a prefix of {length} is longer than the address ({most})")));
    }
    Ok((address, length))
}

const PROTOCOLS: [(&str, u8); 4] = [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58)];

fn protocol(written: &At<Setting>) -> Result<u8, Refusal> {
    match &written.value {
        Setting::Text(name) => {
            let found = PROTOCOLS.iter().find(|(known, _)| known == name);
            let names = PROTOCOLS.iter().map(|(known, _)| *known);
            found.map(|(_, n)| *n).ok_or_else(|| Refusal::unknown("protocol", name, names).at(&written.span))
        }
        _ => Ok(small(written, 255, "a protocol")? as u8),
    }
}

/// `5060`, `"5060"`, `"5060-5070"`
fn ports(written: &At<Setting>) -> Result<(u16, u16), Refusal> {
    let refuse =
        || Refusal::new("this is no port", "write 0 to 65535, or a range: \"5060-5070\"").at(&written.span);
    match &written.value {
        Setting::Text(text) => {
            let (from, to) = text.split_once('-').unwrap_or((text, text));
            let port = |text: &str| text.trim().parse::<u16>().map_err(|_| refuse());
            let (from, to) = (port(from)?, port(to)?);
            if from > to {
                let advice = format!("write \"{to}-{from}\"");
                return Err(Refusal::new("this range ends before it begins", advice).at(&written.span));
            }
            Ok((from, to))
        }
        _ => small(written, 65_535, "a port").map(|n| (n as u16, n as u16)),
    }
}

fn small(written: &At<Setting>, most: i64, noun: &str) -> Result<i64, Refusal> {
    match written.value {
        Setting::Whole(n) if (0..=most).contains(&n) => Ok(n),
        _ => Err(Refusal::new(format!("{noun} is a number"), format!("write 0 to {most}")).at(&written.span)),
    }
}

/// Classes in TOML.
pub(super) fn write(classes: &[Matched]) -> String {
    let one = |m: &Matched| {
        let class::Class { name, rate, ahead, delay, priority, weight, limit, surplus } = &m.class;
        let mut keys = vec![format!("name = {}", quoted(name))];
        if !m.patterns.is_empty() {
            let all: Vec<_> = m.patterns.iter().map(write_pattern).collect();
            keys.push(format!("match = [{}]", all.join(", ")));
        }
        let mut text = |key: &str, value: String| keys.push(format!("{key} = {}", quoted(&value)));
        if let Some(rate) = rate {
            text("rate", rate.write());
        }
        if *ahead > Bytes::ZERO {
            text("ahead", ahead.write());
        }
        if let Some(delay) = delay {
            text("delay", delay.write());
        }
        match limit {
            Some(Room::Packets(n)) => text("limit", Amount::Packets(*n).write()),
            Some(Room::Bytes(n)) => text("limit", Bytes(*n).write()),
            None => {}
        }
        keys.push(format!("priority = {priority}, weight = {weight}, surplus = {surplus}"));
        format!("{{ {} }}", keys.join(", "))
    };
    format!("[{}]", classes.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn write_pattern(pattern: &Pattern) -> String {
    let p = match pattern {
        Pattern::Flow(name) => return quoted(name),
        Pattern::Header(p) => p,
    };
    let net = |(address, length): (IpAddr, u8)| quoted(&format!("{address}/{length}"));
    let ports = |(from, to): (u16, u16)| quoted(&format!("{from}-{to}"));
    let keys = [
        ("source", p.source.map(net)),
        ("destination", p.destination.map(net)),
        ("protocol", p.protocol.map(|n| n.to_string())),
        ("source_port", p.source_port.map(ports)),
        ("destination_port", p.destination_port.map(ports)),
        ("dscp", p.dscp.map(|n| n.to_string())),
    ];
    let keys: Vec<_> =
        keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", value?))).collect();
    format!("{{ {} }}", keys.join(", "))
}
