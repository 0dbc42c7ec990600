//! From the file as written to a [`Scenario`] that can run: names become indices, defaults are filled in, and what concerns
//! more than one value is checked (routes, buffers against MTUs, windows against segments).

mod flows;

use super::class;
use super::error::Refusal;
use super::part::{self, Family};
use super::text::{At, Backward, Change, File, Link, Setting, Written};
use crate::quantity::Quantity;
use crate::route::{Hop, Routes};
use crate::scenario::{self, Line, Node, Part, Record, Scenario};
use narrows_core::qdisc;
use narrows_core::qdisc::class::Site;
use narrows_core::registry::Value;
use narrows_core::units::{Bytes, Rate};
use narrows_core::wire::framing::Framing;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// Most flows of one scenario.
pub const MOST_FLOWS: usize = 100_000;
/// Longest run, delay or other time.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// Fastest line or source.
pub const FASTEST: Rate = Rate(10_000_000_000_000);
/// Duration of a run that ends by itself when every flow has sent what it had to.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(3600);
/// Every IPv4 path carries packets of this size (RFC 791 section 3.2).
const SMALLEST_MTU: Bytes = Bytes(68);
/// Largest IPv4 packet: its length is a 16-bit field.
const LARGEST_MTU: Bytes = Bytes(65_535);
/// IPv4 and TCP headers without options.
const TCP_HEADERS: u64 = 40;
/// IPv4 and UDP headers.
const UDP_HEADERS: u64 = 28;
/// Largest window the window scale option can express: 65535 shifted by 14 (RFC 7323 section 2.3).
const LARGEST_WINDOW: Bytes = Bytes(65_535 << 14);

/// Keys that only TCP flows have.
pub(crate) const TCP_KEYS: [&str; 8] =
    ["size", "stack", "receiver_stack", "controller", "kernel_controller", "window", "send_buffer", "mss"];
/// Keys that only UDP flows have.
pub(crate) const UDP_KEYS: [&str; 3] = ["rate", "packet", "on"];

/// The scenario `file` describes; `name` is what it is called if it does not say, and files that it names are relative to
/// `folder`.
pub(crate) fn scenario(file: &File, name: &str, folder: &Path) -> Result<Scenario, Refusal> {
    if file.flow.is_empty() {
        let advice = "add [[flow]] with from, to and whatever differs from the defaults";
        return Err(Refusal::new("nothing is sent: there is no flow", advice));
    }
    let nodes = nodes(file)?;
    let index: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(i, n)| (n.name.as_str(), i)).collect();
    let mut links = links(file, &index)?;
    every_node_has_a_link(file, &index, &links)?;
    let ways = ways(file, &nodes, &index, &links)?;
    fill_queues(file, &mut links, &ways, folder)?;
    let run = file.run.as_ref();
    let duration = duration(file)?;
    let flows = flows::flows(file, &ways, duration, folder)?;
    let interval = file.record.as_ref().and_then(|r| r.rate_interval.as_ref());
    let rate_interval = match interval {
        Some(i) if i.0.is_zero() => {
            let advice = "write for example rate_interval = \"30ms\"";
            return Err(Refusal::new("rates cannot be averaged over no time", advice).at(&i.span));
        }
        Some(i) => time(i)?,
        None => Duration::from_millis(30),
    };
    let recorded = |which: fn(&super::text::Record) -> bool| file.record.as_ref().is_some_and(which);
    if let Some(name) = run.and_then(|r| r.name.as_ref()) {
        check_name("scenario", name)?;
    }
    Ok(Scenario {
        name: run.and_then(|r| r.name.as_ref()).map_or_else(|| name.to_string(), |n| n.value.clone()),
        title: run.and_then(|r| r.title.clone()).unwrap_or_default(),
        duration,
        nodes,
        links,
        flows,
        record: Record { flows: recorded(|r| r.flows), queues: recorded(|r| r.queues), rate_interval },
    })
}

fn nodes(file: &File) -> Result<Vec<Node>, Refusal> {
    let hosts = file.host.iter().map(|h| (&h.name, false, h.timer_phase.as_ref()));
    let routers = file.router.iter().map(|r| (&r.name, true, None));
    let mut names = BTreeSet::new();
    let mut nodes = Vec::with_capacity(file.host.len() + file.router.len());
    for (name, router, phase) in hosts.chain(routers) {
        check_name(if router { "router" } else { "host" }, name)?;
        if !names.insert(name.as_str()) {
            return Err(twice("node", name));
        }
        nodes.push(Node { name: name.value.clone(), router, timer_phase: phase.map(time).transpose()? });
    }
    Ok(nodes)
}

/// The links, their queues still to be filled in: a queue may be written in bandwidth-delay products, and those depend on
/// the flows' routes.
fn links(file: &File, index: &BTreeMap<&str, usize>) -> Result<Vec<scenario::Link>, Refusal> {
    let node = |name: &At<String>| {
        let unknown = || Refusal::unknown("node", name, index.keys().copied()).at(&name.span);
        index.get(name.as_str()).copied().ok_or_else(unknown)
    };
    let mut taken = BTreeSet::new();
    let mut links = Vec::with_capacity(file.link.len());
    for written in &file.link {
        let (from, to) = (node(&written.from)?, node(&written.to)?);
        if from == to {
            let advice = "name another node as `to`";
            return Err(Refusal::new(format!("this link joins {} to itself", written.from.value), advice)
                .at(&written.to.span));
        }
        let name = link_name(written);
        if let Some(name) = &written.name {
            check_name("link", name)?;
        }
        let mirrored = format!("{}>{}", written.to.value, written.from.value);
        if !taken.insert(name.clone()) || written.name.is_none() && taken.contains(&mirrored) {
            let message = format!("{} and {} are already linked", written.from.value, written.to.value);
            let advice = "a link carries both directions: say under `backward` what differs, or give a parallel link its own `name`";
            return Err(match &written.name {
                Some(name) => twice("link", name),
                None => Refusal::new(message, advice).at(&written.from.span),
            });
        }
        let (mut forward, mut backward) = (forward(written)?, backward(written)?);
        for line in [&mut forward, &mut backward] {
            line.framing = framing(written.framing.as_ref())?;
        }
        links.push(scenario::Link { name, from, to, forward, backward });
    }
    Ok(links)
}

/// A link's own name, or `from>to`.
pub(crate) fn link_name(link: &Link) -> String {
    link.name.as_ref().map_or_else(|| format!("{}>{}", link.from.value, link.to.value), |n| n.value.clone())
}

fn forward(link: &Link) -> Result<Line, Refusal> {
    line(&link.rate, &link.delay, link.mtu.as_ref(), link.change.as_deref())
}

fn backward(link: &Link) -> Result<Line, Refusal> {
    let Some(Backward { rate, delay, mtu, change, .. }) = &link.backward else { return forward(link) };
    line(
        rate.as_ref().unwrap_or(&link.rate),
        delay.as_ref().unwrap_or(&link.delay),
        mtu.as_ref().or(link.mtu.as_ref()),
        change.as_deref().or(link.change.as_deref()),
    )
}

pub(super) fn line(
    rate: &Written<Rate>,
    delay: &Written<Duration>,
    mtu: Option<&Written<Bytes>>,
    change: Option<&[At<Change>]>,
) -> Result<Line, Refusal> {
    let mtu = match mtu {
        Some(m) if !(SMALLEST_MTU..=LARGEST_MTU).contains(&m.0) => {
            let message = format!("an MTU of {} is outside {SMALLEST_MTU:?} to {LARGEST_MTU:?}", m.0.write());
            return Err(Refusal::new(message, "write for example mtu = \"1500B\"").at(&m.span));
        }
        Some(m) => m.0,
        None => Bytes(1500),
    };
    let mut changes = Vec::new();
    for c in change.unwrap_or_default() {
        if c.rate.is_none() && c.delay.is_none() {
            let advice = "write for example { at = \"10s\", delay = \"20ms\" }";
            return Err(Refusal::new("this change changes nothing", advice).at(&c.span));
        }
        changes.push(scenario::Change {
            at: time(&c.at)?,
            rate: c.rate.as_ref().map(speed).transpose()?,
            delay: c.delay.as_ref().map(time).transpose()?,
        });
    }
    changes.sort_by_key(|c| c.at);
    let none = Part { name: String::new(), settings: Default::default(), inner: None };
    Ok(Line {
        rate: speed(rate)?,
        delay: time(delay)?,
        mtu,
        framing: Framing::None,
        back_pressure: false,
        classes: Vec::new(),
        queue: none.clone(),
        ack_window: none,
        changes,
    })
}

/// How packets are framed.
pub(super) fn framing(written: Option<&At<String>>) -> Result<Framing, Refusal> {
    let Some(name) = written else { return Ok(Framing::None) };
    let unknown = || Refusal::unknown("framing", name, Framing::ALL.map(Framing::name)).at(&name.span);
    Framing::ALL.into_iter().find(|f| f.name() == name.as_str()).ok_or_else(unknown)
}

/// Whether who sends is held back: only where the queue tells when it has room.
fn back_pressure(written: Option<&At<bool>>, queue: &Part) -> Result<bool, Refusal> {
    match written {
        Some(on) if on.value && !qdisc::tells_room(&queue.name) => {
            let message = format!("a queue of kind {} does not tell when it has room", queue.name);
            Err(Refusal::new(message, "use fifo or rate_control, or leave back_pressure out").at(&on.span))
        }
        on => Ok(on.is_some_and(|on| on.value)),
    }
}

fn every_node_has_a_link(
    file: &File,
    index: &BTreeMap<&str, usize>,
    links: &[scenario::Link],
) -> Result<(), Refusal> {
    let linked: BTreeSet<usize> = links.iter().flat_map(|l| [l.from, l.to]).collect();
    let names = file.host.iter().map(|h| &h.name).chain(file.router.iter().map(|r| &r.name));
    for name in names {
        if !linked.contains(&index[name.as_str()]) {
            let advice = format!("add a [[link]] with from = \"{}\", or remove the node", name.value);
            return Err(Refusal::new(format!("{} has no link", name.value), advice).at(&name.span));
        }
    }
    Ok(())
}

/// Between which hosts a `[[flow]]` runs, and what its route offers.
struct Way {
    from: usize,
    to: usize,
    hops: Vec<Hop>,
    /// Propagation delay there and back.
    base_rtt: Duration,
    /// Of the lines on the way there.
    slowest: Rate,
    smallest_mtu: Bytes,
}

fn ways(
    file: &File,
    nodes: &[Node],
    index: &BTreeMap<&str, usize>,
    links: &[scenario::Link],
) -> Result<Vec<Way>, Refusal> {
    let host = |name: &At<String>| match index.get(name.as_str()) {
        Some(&i) if !nodes[i].router => Ok(i),
        Some(_) => {
            let message = format!("{} is a router, and flows run between hosts", name.value);
            Err(Refusal::new(message, "name a host; add one beside the router if there is none")
                .at(&name.span))
        }
        None => {
            let hosts = nodes.iter().filter(|n| !n.router).map(|n| n.name.as_str());
            Err(Refusal::unknown("host", name, hosts).at(&name.span))
        }
    };
    let mut routes = Routes::new(nodes, links);
    let mut ways = Vec::with_capacity(file.flow.len());
    for flow in &file.flow {
        let (from, to) = (host(&flow.from)?, host(&flow.to)?);
        if from == to {
            let message = format!("this flow runs from {} to itself", flow.from.value);
            return Err(Refusal::new(message, "name another host as `to`").at(&flow.to.span));
        }
        let hops = routes.between(from, to).ok_or_else(|| {
            let message = format!("there is no route from {} to {}", flow.from.value, flow.to.value);
            Refusal::new(message, "join them by links; only routers forward, hosts do not").at(&flow.to.span)
        })?;
        let there = || hops.iter().map(|h| links[h.link].line(h.forward));
        ways.push(Way {
            from,
            to,
            base_rtt: hops.iter().map(|h| links[h.link].forward.delay + links[h.link].backward.delay).sum(),
            slowest: there().map(|l| l.rate).min().unwrap_or(FASTEST),
            smallest_mtu: there().map(|l| l.mtu).min().unwrap_or(LARGEST_MTU),
            hops,
        });
    }
    Ok(ways)
}

/// In a queue, one BDP is the line's rate times the longest round-trip propagation delay among the flows that use the link,
/// in whichever direction.
fn fill_queues(
    file: &File,
    links: &mut [scenario::Link],
    ways: &[Way],
    folder: &Path,
) -> Result<(), Refusal> {
    let mut longest: Vec<Option<Duration>> = vec![None; links.len()];
    for way in ways {
        for hop in &way.hops {
            longest[hop.link] = longest[hop.link].max(Some(way.base_rtt));
        }
    }
    let some = |l: &At<Link>| l.class.is_some() || l.backward.as_ref().is_some_and(|b| b.class.is_some());
    let known = class::Known::flows(if file.link.iter().any(some) { &file.flow } else { &[] });
    for ((written, link), base_rtt) in file.link.iter().zip(links).zip(longest) {
        let classes = written.class.as_deref();
        let back_classes = written.backward.as_ref().and_then(|b| b.class.as_deref()).or(classes);
        let both = written.queue.as_ref();
        let back = written.backward.as_ref().and_then(|b| b.queue.as_ref()).or(both);
        for (queue, classes, line) in
            [(both, classes, &mut link.forward), (back, back_classes, &mut link.backward)]
        {
            let bdp = || match base_rtt {
                Some(rtt) => Ok(line.rate.bytes_in(rtt)),
                None => Err(Refusal::new(
                    "no flow uses this link, so it has no bandwidth-delay product",
                    "write bytes, for example 64KiB",
                )),
            };
            line.classes = class::classes(classes, &known, &bdp)?;
            line.queue = self::queue(queue, &written.span, line, &bdp, folder)?;
            line.back_pressure = back_pressure(written.back_pressure.as_ref(), &line.queue)?;
        }
        let both = written.ack_window.as_ref();
        let back = written.backward.as_ref().and_then(|b| b.ack_window.as_ref()).or(both);
        for (words, line) in [(both, &mut link.forward), (back, &mut link.backward)] {
            line.ack_window = part::ack_window(words, &written.span, &line.queue)?;
        }
    }
    Ok(())
}

/// The queue as written, or the default one, before this line with its classes. `span` is what to point at if nothing is written.
pub(super) fn queue(
    written: Option<&At<Setting>>,
    span: &Range<usize>,
    line: &Line,
    bdp: &dyn Fn() -> Result<Bytes, Refusal>,
    folder: &Path,
) -> Result<Part, Refusal> {
    let site = line.site();
    let part =
        part::Reader { family: Family::Queue, defaults: &[], site, bdp, folder }.part(written, span)?;
    holds_a_packet(&part, Bytes(line.framing.size(line.mtu.0)))
        .map_err(|r| r.at(written.map_or(span, |q| &q.span)))?;
    Ok(part)
}

fn holds_a_packet(queue: &Part, mtu: Bytes) -> Result<(), Refusal> {
    for name in ["limit", "class_limit", "burst", "input", "output"] {
        if let Some(Value::Bytes(room)) = queue.settings.value(name)
            && *room < mtu
        {
            let message = format!(
                "{name} = {} of {} is smaller than one packet (MTU {})",
                room.write(),
                queue.name,
                mtu.write()
            );
            return Err(Refusal::new(
                message,
                format!("write at least {name} = \"{}\", or a smaller mtu", mtu.write()),
            ));
        }
    }
    queue.inner.as_deref().map_or(Ok(()), |inner| holds_a_packet(inner, mtu))
}

/// How long the run lasts at the most.
fn duration(file: &File) -> Result<Duration, Refusal> {
    let given = file.run.as_ref().and_then(|r| r.duration.as_ref());
    match given {
        Some(d) if d.0.is_zero() => {
            Err(Refusal::new("a run of no time shows nothing", "write for example duration = \"60s\"")
                .at(&d.span))
        }
        Some(d) => time(d),
        None => match file.flow.iter().find(|f| f.size.is_none()) {
            None => Ok(DEFAULT_DURATION),
            Some(endless) => {
                let advice = "write duration = \"60s\" under [run], or give every flow a size";
                let span = file.run.as_ref().map_or(&endless.span, |r| &r.span);
                Err(Refusal::new("this run would never end", advice).at(span))
            }
        },
    }
}

pub(super) fn time(written: &Written<Duration>) -> Result<Duration, Refusal> {
    if written.0 > LONGEST {
        let advice = format!("the most is {}", LONGEST.write());
        return Err(Refusal::new(format!("{} is too long", written.0.write()), advice).at(&written.span));
    }
    Ok(written.0)
}

pub(super) fn speed(written: &Written<Rate>) -> Result<Rate, Refusal> {
    let rate = written.0;
    if rate.0 == 0 {
        let advice = "write for example \"10Mbit/s\"; a line that is down for a while is a very slow one";
        return Err(Refusal::new("nothing passes at rate zero", advice).at(&written.span));
    }
    if rate > FASTEST {
        let advice = format!("the most is {}", FASTEST.write());
        return Err(Refusal::new(format!("{} is too fast", rate.write()), advice).at(&written.span));
    }
    Ok(rate)
}

fn twice(noun: &str, name: &At<String>) -> Refusal {
    let advice = "give each its own name";
    Refusal::new(format!("there are two {noun}s called {}", name.value), advice).at(&name.span)
}

/// Names stand in key paths (`flow.bulk.window`), in link names (`r1>r2`) and in file names.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "-_+#@".contains(c);
    !text.is_empty() && text.chars().count() <= 64 && text.chars().all(allowed)
}

pub(super) fn check_name(noun: &str, name: &At<String>) -> Result<(), Refusal> {
    if is_name(name) || noun == "link" && name.split('>').all(is_name) {
        return Ok(());
    }
    let message = format!("this cannot name a {noun}");
    Err(Refusal::new(message, "write 1 to 64 letters, digits, -, _, +, # or @").at(&name.span))
}
