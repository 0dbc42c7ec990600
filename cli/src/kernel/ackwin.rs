//! `narrows kernel attach` and `detach`: what works at a device rather than in a socket.

use super::{Stop, refused, say};
use clap::{Args, Subcommand, ValueEnum};
use narrows_core::{Bytes, Rate};
use narrows_kernel::ackwin::{AtDevice, Counts, Queue};
use narrows_lab::quantity::Quantity;
use serde_json::{Value, json};
use std::time::Duration;

#[derive(Subcommand)]
pub enum Attach {
    /// Write what the device's egress queue can accept into the windows of the ACKs that come back through the device
    ///
    /// Its queue is reckoned, not read: what leaves through the device joins a queue with room for --limit bytes, which a line of
    /// --rate drains. Both must be those of the bottleneck. Of each window the smaller of what it says and
    /// ((limit - backlog) + rate * rtt) / flows is left, in whole segments and at least one.
    Ackwin(AttachArgs),
}

#[derive(Args)]
pub struct AttachArgs {
    /// The device whose egress queue is the bottleneck
    #[arg(long, value_name = "IF")]
    dev: String,
    /// The rate of the line behind the queue, for example 45Mbit/s
    #[arg(long, value_parser = quantity::<Rate>)]
    rate: Rate,
    /// What the queue has room for, for example 128KiB
    #[arg(long, value_parser = quantity::<Bytes>)]
    limit: Bytes,
    /// The round trip without queues, for example 40ms [default: of each connection, as its handshake shows it]
    #[arg(long, value_parser = quantity::<Duration>)]
    rtt: Option<Duration>,
    /// What is granted
    #[arg(long, value_enum, default_value = "share")]
    policy: Policy,
}

#[derive(Clone, Copy, ValueEnum)]
enum Policy {
    /// The room in the queue and what the path holds, divided by the number of flows alive
    Share,
}

#[derive(Subcommand)]
pub enum Detach {
    /// Let windows pass this device as they are again
    Ackwin {
        /// The device it was attached to
        #[arg(long, value_name = "IF")]
        dev: String,
    },
}

fn quantity<Q: Quantity>(text: &str) -> Result<Q, String> {
    Q::read(text).map_err(|e| e.to_string())
}

pub fn attach(Attach::Ackwin(args): Attach) -> Result<(), Stop> {
    let Policy::Share = args.policy;
    let queue = Queue { rate: args.rate, limit: args.limit, rtt: args.rtt.unwrap_or_default() };
    narrows_kernel::ackwin::attach(&args.dev, &queue).map_err(refused)?;
    let dev = args.dev;
    say(format_args!(
        "ackwin is at {dev}: connections whose handshakes pass from now on are granted what the queue can accept.\n\
         See what it does with `narrows kernel list`, take it away with `narrows kernel detach ackwin --dev {dev}`.\n"
    ))
}

pub fn detach(Detach::Ackwin { dev }: Detach) -> Result<(), Stop> {
    let counts = narrows_kernel::ackwin::detach(&dev).map_err(refused)?;
    say(format_args!("ackwin is detached from {dev}; of {}\n", words(&counts)))
}

fn words(counts: &Counts) -> String {
    let Counts { passed, rewritten, unknown, floored } = counts;
    format!("{passed} ACKs {rewritten} were rewritten, {unknown} unknown, {floored} floored")
}

fn rtt(queue: &Queue) -> Option<String> {
    (!queue.rtt.is_zero()).then(|| queue.rtt.write())
}

pub fn line(at: &AtDevice) -> String {
    let place = if at.here { String::new() } else { format!(" (network namespace {})", at.netns) };
    let rtt = rtt(&at.queue).map(|t| format!(" --rtt {t}")).unwrap_or_default();
    format!(
        "{:<15} ackwin{place}, of {}\n                --rate {} --limit {}{rtt} --policy share\n",
        at.device,
        words(&at.counts),
        at.queue.rate.write(),
        at.queue.limit.write(),
    )
}

pub fn object(at: &AtDevice) -> Value {
    let Counts { passed, rewritten, unknown, floored } = at.counts;
    json!({
        "device": at.device,
        "netns": at.netns,
        "here": at.here,
        "program": "ackwin",
        "parameters": {
            "rate": at.queue.rate.write(), "limit": at.queue.limit.write(), "rtt": rtt(&at.queue), "policy": "share",
        },
        "passed": passed,
        "rewritten": rewritten,
        "unknown": unknown,
        "floored": floored,
    })
}
