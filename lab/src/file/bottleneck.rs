//! Reading the configuration of a standing bottleneck: one link of a scenario without its nodes, and what a service needs
//! beside it.
//! ```toml
//! rate = "45Mbit/s"          # of whole IP packets; forward is from the first interface to the second
//! delay = "5ms"              # one-way
//! mtu = "1500B"
//! queue = "fifo:128KiB"      # default fifo:1000p
//! ack_window = "share"       # default none: what is written into ACKs that pass
//! class = [{ name = "voice", match = { dscp = 46 }, rate = "1Mbit/s" }]   # default none: each flow is one
//! backward = { rate = "10Mbit/s", queue = "fifo:2BDP" }
//! rtt = "40ms"               # of the traffic that passes; only queues in BDP need it
//! metrics = "127.0.0.1:9464" # default: none
//! user = "nobody"            # whom to become after opening; the default
//! ```

use super::class::{self, Known};
use super::error::Refusal;
use super::text::{At, Backward, Change, Class, Setting, Written};
use super::{Document, Error, part, resolve};
use crate::class::Matched;
use crate::quantity::Quantity;
use crate::scenario::Line;
use narrows_core::units::{Bytes, Rate};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// From the first interface to the second.
    pub forward: Line,
    /// From the second interface to the first.
    pub backward: Line,
    /// Where to serve metrics.
    pub metrics: Option<SocketAddr>,
    /// Whom to become.
    pub user: String,
}

/// The configuration as written: a link's keys, and a service's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    rate: Written<Rate>,
    delay: Written<Duration>,
    mtu: Option<Written<Bytes>>,
    queue: Option<At<Setting>>,
    #[serde(alias = "ack-window")]
    ack_window: Option<At<Setting>>,
    class: Option<Vec<At<Class>>>,
    change: Option<Vec<At<Change>>>,
    backward: Option<Backward>,
    rtt: Option<Written<Duration>>,
    metrics: Option<At<String>>,
    user: Option<At<String>>,
}

impl Document {
    /// The bottleneck it configures.
    pub fn bottleneck(&self) -> Result<Bottleneck, Error> {
        let read = || {
            toml::from_str::<Text>(&self.text)
                .map_err(Refusal::from)
                .and_then(|t| resolved(&t, self.folder()))
        };
        // `change` is read only to say why it cannot be.
        let known = |r: Refusal| Refusal { advice: r.advice.replace(" change,", ""), ..r };
        read().map_err(|r| known(r).within(&self.name, &self.text))
    }
}

fn resolved(text: &Text, folder: &Path) -> Result<Bottleneck, Refusal> {
    let none = Backward::default();
    let back = text.backward.as_ref().unwrap_or(&none);
    let changes = [&text.change, &back.change].into_iter().flatten().flatten();
    if let Some(change) = changes.into_iter().next() {
        let advice =
            "leave `change` out; write the new values here when the time has come, and reload (SIGHUP)";
        return Err(Refusal::new("a standing bottleneck has no timetable", advice).at(&change.span));
    }
    type Classes<'a> = Option<&'a [At<Class>]>;
    let line = |rate: &_,
                delay: &_,
                mtu: Option<&_>,
                queue: Option<&_>,
                words: Option<&_>,
                classes: Classes<'_>,
                mirrored: bool| {
        let mut line = resolve::line(rate, delay, mtu, None)?;
        let bdp = || match &text.rtt {
            Some(rtt) => Ok(line.rate.bytes_in(resolve::time(rtt)?)),
            None => Err(Refusal::new(
                "a bandwidth-delay product needs a round-trip time",
                "add for example rtt = \"40ms\", that of the traffic that passes; or write bytes",
            )),
        };
        line.classes = class::classes(classes, &Known::Headers, &bdp)?;
        if mirrored {
            line.classes.iter_mut().for_each(Matched::mirror);
        }
        line.queue = resolve::queue(queue, &(0..0), &line, &bdp, folder)?;
        line.ack_window = part::ack_window(words, &(0..0), &line.queue)?;
        Ok::<Line, Refusal>(line)
    };
    let (mtu, queue, words) = (text.mtu.as_ref(), text.queue.as_ref(), text.ack_window.as_ref());
    let classes = text.class.as_deref();
    Ok(Bottleneck {
        forward: line(&text.rate, &text.delay, mtu, queue, words, classes, false)?,
        backward: line(
            back.rate.as_ref().unwrap_or(&text.rate),
            back.delay.as_ref().unwrap_or(&text.delay),
            back.mtu.as_ref().or(mtu),
            back.queue.as_ref().or(queue),
            back.ack_window.as_ref().or(words),
            back.class.as_deref().or(classes),
            back.class.is_none(),
        )?,
        metrics: text.metrics.as_ref().map(address).transpose()?,
        user: text.user.as_ref().map_or_else(|| "nobody".into(), |u| u.value.clone()),
    })
}

fn address(written: &At<String>) -> Result<SocketAddr, Refusal> {
    written.parse().map_err(|_| {
        let message = format!("\"{}\" is no address to serve metrics at", written.value);
        Refusal::new(message, "write an IP address and a port: metrics = \"127.0.0.1:9464\"")
            .at(&written.span)
    })
}

impl Bottleneck {
    /// The two lines in one line of text each.
    pub fn describe(&self) -> [String; 2] {
        [("forward", &self.forward), ("backward", &self.backward)].map(|(name, line)| {
            let queue = super::write::part(super::Family::Queue, &line.queue);
            let (rate, delay, mtu) = (line.rate.write(), line.delay.write(), line.mtu.write());
            let words = match &*line.ack_window.name {
                "none" => String::new(),
                policy => format!(", windows in ACKs: {policy}"),
            };
            let classes: String =
                line.classes.iter().map(|m| format!("; {}", line.promise(&m.class))).collect();
            format!("{name}: {rate}, {delay}, MTU {mtu}, queue {queue}{words}{classes}")
        })
    }
}
