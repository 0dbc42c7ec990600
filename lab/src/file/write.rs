//! A scenario back as TOML with every default filled in; [`super::parse`] reads it as an equal [`Scenario`].

use super::part::{Family, quoted, write};
use crate::quantity::Quantity;
use crate::scenario::{Change, Flow, Line, Link, Node, Part, Scenario, Transport};
use narrows_core::wire::framing::Framing;
use std::fmt::Write;
use std::time::Duration;

impl Scenario {
    /// The scenario as TOML, every default written out.
    pub fn to_toml(&self) -> String {
        let mut out = Toml(String::new());
        out.header("[run]");
        out.text("name", &self.name);
        if !self.title.is_empty() {
            out.text("title", &self.title);
        }
        out.quantity("duration", &self.duration);
        out.header("\n[record]");
        out.line("flows", self.record.flows);
        out.line("queues", self.record.queues);
        out.quantity("rate_interval", &self.record.rate_interval);
        self.nodes.iter().for_each(|n| out.node(n));
        self.links.iter().for_each(|l| out.link(l, &self.nodes));
        self.flows.iter().for_each(|f| out.flow(f, &self.nodes));
        out.0
    }
}

/// TOML under way.
struct Toml(String);

impl Toml {
    fn header(&mut self, header: &str) {
        self.0.push_str(header);
        self.0.push('\n');
    }

    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        writeln!(self.0, "{key} = {value}").expect("a String takes everything");
    }

    fn text(&mut self, key: &str, value: &str) {
        self.line(key, quoted(value));
    }

    fn quantity(&mut self, key: &str, value: &impl Quantity) {
        self.text(key, &value.write());
    }

    fn node(&mut self, node: &Node) {
        self.header(if node.router { "\n[[router]]" } else { "\n[[host]]" });
        self.text("name", &node.name);
        if let Some(phase) = &node.timer_phase {
            self.quantity("timer_phase", phase);
        }
    }

    fn link(&mut self, link: &Link, nodes: &[Node]) {
        let (from, to) = (&nodes[link.from].name, &nodes[link.to].name);
        self.header("\n[[link]]");
        if link.name != format!("{from}>{to}") {
            self.text("name", &link.name);
        }
        self.text("from", from);
        self.text("to", to);
        // Where no window is written, nobody need read of it.
        let speaks = link.forward.ack_window.name != "none";
        let classed = !link.forward.classes.is_empty();
        for (key, value) in line(&link.forward, speaks, classed) {
            self.line(key, value);
        }
        if link.forward.framing != Framing::None {
            self.text("framing", link.forward.framing.name());
        }
        if link.forward.back_pressure {
            self.line("back_pressure", true);
        }
        if link.backward != link.forward {
            let speaks = speaks || link.backward.ack_window.name != "none";
            let entries: Vec<String> =
                line(&link.backward, speaks, classed || !link.backward.classes.is_empty())
                    .iter()
                    .map(|(k, v)| format!("{k} = {v}"))
                    .collect();
            self.line("backward", format!("{{ {} }}", entries.join(", ")));
        }
    }

    fn flow(&mut self, flow: &Flow, nodes: &[Node]) {
        self.header("\n[[flow]]");
        self.text("name", &flow.name);
        self.text("from", &nodes[flow.from].name);
        self.text("to", &nodes[flow.to].name);
        self.quantity("start", &flow.start);
        if !flow.jitter.is_zero() {
            self.quantity("jitter", &flow.jitter);
        }
        if let Some(stop) = &flow.stop {
            self.quantity("stop", stop);
        }
        match &flow.transport {
            Transport::Tcp(tcp) => {
                self.text("transport", "tcp");
                if let Some(size) = &tcp.size {
                    self.quantity("size", size);
                }
                self.line("stack", part(Family::Stack, &tcp.stack));
                self.line("receiver_stack", part(Family::Stack, &tcp.receiver_stack));
                self.line("controller", part(Family::Controller, &tcp.controller));
                if let Some(name) = &tcp.kernel_controller {
                    self.text("kernel_controller", name);
                }
                self.quantity("window", &tcp.window);
                self.quantity("send_buffer", &tcp.send_buffer);
                if let Some(mss) = tcp.mss {
                    self.text("mss", &format!("{mss}B"));
                }
            }
            Transport::Udp(udp) => {
                self.text("transport", "udp");
                self.quantity("rate", &udp.rate);
                self.quantity("packet", &udp.packet);
                if !udp.on.is_empty() {
                    let pair = |(from, until): &(Duration, Duration)| {
                        format!("[{}, {}]", quoted(&from.write()), quoted(&until.write()))
                    };
                    self.line("on", list(udp.on.iter().map(pair)));
                }
            }
        }
    }
}

/// The keys of a line that a link's `backward` may repeat.
fn line(line: &Line, speaks: bool, classed: bool) -> Vec<(&'static str, String)> {
    let mut keys = vec![
        ("rate", quoted(&line.rate.write())),
        ("delay", quoted(&line.delay.write())),
        ("mtu", quoted(&line.mtu.write())),
        ("queue", part(Family::Queue, &line.queue)),
        ("change", list(line.changes.iter().map(change))),
    ];
    if classed {
        keys.push(("class", super::class::write(&line.classes)));
    }
    if speaks {
        keys.push(("ack_window", part(Family::AckWindow, &line.ack_window)));
    }
    keys
}

fn change(change: &Change) -> String {
    let mut text = format!("{{ at = {}", quoted(&change.at.write()));
    if let Some(rate) = &change.rate {
        text += &format!(", rate = {}", quoted(&rate.write()));
    }
    if let Some(delay) = &change.delay {
        text += &format!(", delay = {}", quoted(&delay.write()));
    }
    text + " }"
}

pub(super) fn part(family: Family, part_: &Part) -> String {
    let Part { name, settings, inner } = part_;
    let mut text = format!("{{ {} = {}", family.key(), quoted(name));
    for (key, value) in &settings.0 {
        text += &format!(", {key} = {}", write(value));
    }
    if let Some(inner) = inner {
        text += &format!(", inner = {}", part(family, inner));
    }
    text + " }"
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}
