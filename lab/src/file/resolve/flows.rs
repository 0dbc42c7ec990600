//! The flows of a scenario, from what is written to what runs.

use super::*;
use crate::file::error::shortened;
use crate::file::text::Flow;
use crate::quantity::Amount;
use crate::scenario::{TcpFlow, Transport, UdpFlow};
use narrows_core::transport::tcp::stack;

pub(super) fn flows(
    file: &File,
    ways: &[Way],
    end: Duration,
    folder: &Path,
) -> Result<Vec<scenario::Flow>, Refusal> {
    let mut flows = Vec::new();
    let mut names = BTreeSet::new();
    for (number, (written, way)) in file.flow.iter().zip(ways).enumerate() {
        let base = match &written.name {
            Some(name) => check_name("flow", name).map(|()| name.value.clone())?,
            None => format!("flow-{}", number + 1),
        };
        let start = written.start.as_ref().map_or(Ok(Duration::ZERO), time)?;
        let stagger = written.stagger.as_ref().map_or(Ok(Duration::ZERO), time)?;
        let jitter = written.jitter.as_ref().map_or(Ok(Duration::ZERO), time)?;
        let stop = written.stop.as_ref().map(time).transpose()?;
        let count = copies(written, flows.len())?;
        let last = start + stagger * (count - 1) + jitter;
        if last >= end {
            let place =
                written.start.as_ref().or(written.stagger.as_ref()).map_or(&written.span, |w| &w.span);
            let message =
                format!("{base} starts at {}, when the run is over ({})", last.write(), end.write());
            return Err(
                Refusal::new(message, "write an earlier start or a longer duration under [run]").at(place)
            );
        }
        if let (Some(at), Some(place)) = (stop.filter(|s| *s <= last), &written.stop) {
            let message = format!("{base} stops at {}, before it starts at {}", at.write(), last.write());
            return Err(Refusal::new(message, format!("write a stop after {}", last.write())).at(&place.span));
        }
        let transport = transport(written, way, folder)?;
        for i in 0..count {
            let name = if written.count.is_some() { format!("{base}-{}", i + 1) } else { base.clone() };
            if !names.insert(name.clone()) {
                let span = written.name.as_ref().map_or(&written.span, |n| &n.span);
                return Err(twice("flow", &At { value: name, span: span.clone() }));
            }
            let (from, to, transport) = (way.from, way.to, transport.clone());
            flows.push(scenario::Flow {
                name,
                from,
                to,
                start: start + stagger * i,
                jitter,
                stop,
                transport,
            });
        }
    }
    Ok(flows)
}

fn copies(flow: &At<Flow>, so_far: usize) -> Result<u32, Refusal> {
    let span = flow.count.as_ref().map_or(&flow.span, |c| &c.span);
    let count = flow.count.as_ref().map_or(1, |c| c.value);
    match usize::try_from(count) {
        Ok(0) | Err(_) => {
            Err(Refusal::new(format!("{count} flows are none"), "write count = 1 or more").at(span))
        }
        Ok(n) if n.saturating_add(so_far) > MOST_FLOWS => {
            let message = format!("with this there would be {} flows", n.saturating_add(so_far));
            Err(Refusal::new(message, format!("the most is {MOST_FLOWS}: write a smaller count")).at(span))
        }
        Ok(n) => Ok(n as u32),
    }
}

fn transport(flow: &At<Flow>, way: &Way, folder: &Path) -> Result<Transport, Refusal> {
    let udp = match flow.transport.as_ref().map(|t| (t.as_str(), &t.span)) {
        None | Some(("tcp", _)) => false,
        Some(("udp", _)) => true,
        Some((other, span)) => return Err(Refusal::unknown("transport", other, ["tcp", "udp"]).at(span)),
    };
    let spans = |settings: [&Option<At<Setting>>; 3]| settings.map(|s| s.as_ref().map(|s| s.span.clone()));
    let [stack, receiver, controller] = spans([&flow.stack, &flow.receiver_stack, &flow.controller]);
    fn span<T>(w: &Option<At<T>>) -> Option<Range<usize>> {
        w.as_ref().map(|w| w.span.clone())
    }
    let (size, mss) = (span(&flow.size), span(&flow.mss));
    let (kernel, window) = (span(&flow.kernel_controller), span(&flow.window));
    let tcp_only = [size, stack, receiver, controller, kernel, window, span(&flow.send_buffer), mss];
    let on = flow.on.as_ref().map(|on| on.first().map_or(flow.span.clone(), |o| o.span.clone()));
    let udp_only = [span(&flow.rate), span(&flow.packet), on];
    let (foreign, keys, other) =
        if udp { (&tcp_only[..], &TCP_KEYS[..], "tcp") } else { (&udp_only[..], &UDP_KEYS[..], "udp") };
    if let Some((key, span)) = keys.iter().zip(foreign).find_map(|(key, span)| Some((key, span.as_ref()?))) {
        let message = format!("`{key}` belongs to transport = \"{other}\"");
        return Err(Refusal::new(message, format!("leave it out, or write transport = \"{other}\"")).at(span));
    }
    if udp {
        Ok(Transport::Udp(udp_flow(flow, way)?))
    } else {
        Ok(Transport::Tcp(Box::new(tcp_flow(flow, way, folder)?)))
    }
}

/// In a window, one BDP is the slowest rate on the way there times the round-trip propagation delay.
fn tcp_flow(flow: &At<Flow>, way: &Way, folder: &Path) -> Result<TcpFlow, Refusal> {
    let bdp = || Ok(way.slowest.bytes_in(way.base_rtt));
    let room = way.smallest_mtu.0 - TCP_HEADERS;
    let mss = match &flow.mss {
        Some(m) if m.0.0 == 0 || m.0.0 > room => {
            let message =
                format!("an MSS of {} does not fit the MTU of {}", m.0.write(), way.smallest_mtu.write());
            return Err(Refusal::new(message, format!("write 1B to {room}B, or leave it out")).at(&m.span));
        }
        Some(m) => Some(m.0.0 as u32),
        None => None,
    };
    let buffer = |w: &Written<Amount>| match part::resolve_bdp(w.0, &bdp).map_err(|r| r.at(&w.span))? {
        Amount::Bytes(b) => Ok(b),
        _ => Err(Refusal::new(
            "TCP's buffers count bytes, not packets",
            "write for example \"64KiB\" or \"2BDP\"",
        )
        .at(&w.span)),
    };
    let window = flow.window.as_ref().map_or(Ok(Bytes(1 << 20)), buffer)?;
    let window_span = flow.window.as_ref().map_or(&flow.span, |w| &w.span);
    if window.0 == 0 {
        let refusal = Refusal::new("a window of 0B lets nothing pass", "write for example \"64KiB\"");
        return Err(refusal.at(window_span));
    }
    if window > LARGEST_WINDOW {
        let message = format!("a window of {} is more than TCP can announce", window.write());
        return Err(Refusal::new(message, format!("the most is {LARGEST_WINDOW:?} (RFC 7323 section 2.3)"))
            .at(window_span));
    }
    let send_buffer = match &flow.send_buffer {
        Some(w) => {
            let send_buffer = buffer(w)?;
            if send_buffer < window {
                let message = format!(
                    "a send buffer of {} can never fill the window of {}",
                    send_buffer.write(),
                    window.write()
                );
                return Err(Refusal::new(
                    message,
                    format!("write at least \"{}\", or leave it out", window.write()),
                )
                .at(&w.span));
            }
            send_buffer
        }
        None => Bytes(2 * window.0),
    };
    if let Some(size) = flow.size.as_ref().filter(|s| s.0 == Bytes::ZERO) {
        return Err(Refusal::new(
            "a transfer of no bytes",
            "write for example size = \"1MB\", or leave it out to send without end",
        )
        .at(&size.span));
    }
    let no_bdp = || {
        Err(Refusal::new("a bandwidth-delay product has no meaning here", "write bytes, for example 64KiB"))
    };
    let stacks =
        part::Reader { family: Family::Stack, defaults: &[], site: Site::default(), bdp: &no_bdp, folder };
    let stack = stacks.part(flow.stack.as_ref(), &flow.span)?;
    let receiver_stack = match &flow.receiver_stack {
        Some(_) => stacks.part(flow.receiver_stack.as_ref(), &flow.span)?,
        None => stack.clone(),
    };
    let defaults = stack::REGISTRY.iter().find(|e| e.name == stack.name).map_or(&[][..], |e| e.controller);
    let controllers =
        part::Reader { family: Family::Controller, defaults, site: Site::default(), bdp: &bdp, folder };
    let controller = controllers.part(flow.controller.as_ref(), &flow.span)?;
    let size = flow.size.as_ref().map(|s| s.0);
    let kernel_controller = flow.kernel_controller.as_ref().map(kernel_controller).transpose()?;
    Ok(TcpFlow { size, stack, receiver_stack, controller, kernel_controller, window, send_buffer, mss })
}

/// The kernel's names are 15 characters at most (TCP_CA_NAME_MAX); which there are, only the kernel knows.
fn kernel_controller(name: &At<String>) -> Result<String, Refusal> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if (1..=15).contains(&name.len()) && name.chars().all(fits) {
        return Ok(name.value.clone());
    }
    let message = format!("\"{}\" cannot be the name of a kernel's controller", shortened(name));
    let advice = "write 1 to 15 letters, digits, _, - or ., for example \"cubic\" or \"bbr\"";
    Err(Refusal::new(message, advice).at(&name.span))
}

fn udp_flow(flow: &At<Flow>, way: &Way) -> Result<UdpFlow, Refusal> {
    let Some(rate) = &flow.rate else {
        let advice = "write for example rate = \"10Mbit/s\" (of whole IP packets)";
        return Err(Refusal::new("a UDP flow needs a rate", advice).at(&flow.span));
    };
    let packet = flow.packet.as_ref().map_or(way.smallest_mtu, |p| p.0);
    if packet.0 <= UDP_HEADERS || packet > way.smallest_mtu {
        let span = flow.packet.as_ref().map_or(&flow.span, |p| &p.span);
        let message = format!("a packet of {} does not fit the way", packet.write());
        let advice =
            format!("write {}B (headers and a byte) to {} (MTU)", UDP_HEADERS + 1, way.smallest_mtu.write());
        return Err(Refusal::new(message, advice).at(span));
    }
    let mut on: Vec<(Duration, Duration)> = Vec::new();
    for pair in flow.on.as_deref().unwrap_or_default() {
        let (from, until) = (time(&pair.0)?, time(&pair.1)?);
        if from >= until || on.last().is_some_and(|last| from < last.1) {
            let message = format!("from {} until {} is out of order", from.write(), until.write());
            let advice = "write pairs of from and until, each after the one before: [[\"0s\", \"10s\"], [\"20s\", \"40s\"]]";
            return Err(Refusal::new(message, advice).at(&pair.span));
        }
        on.push((from, until));
    }
    Ok(UdpFlow { rate: speed(rate)?, packet, on })
}
