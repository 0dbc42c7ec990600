//! `narrows emulate`: a program behind an emulated path.

use crate::work::unwritable;
use crate::{Stop, note};
use clap::Args as ClapArgs;
use narrows_lab::file::{self, FASTEST};
use narrows_lab::host::Seen;
use narrows_lab::quantity::Quantity;
use narrows_net::child::{Signals, code};
use narrows_net::emulate::{Account, Direction, Emulation, Error, Path, Watch};
use narrows_net::rootless;
use narrows_net::servers::Servers;
use narrows_report::output;
use narrows_report::pcapng::Pcapng;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(ClapArgs)]
#[command(after_help = "\
Example: narrows emulate --rate 45Mbit/s --delay 5ms --queue fifo:128KiB -- ping -c 3 '$NARROWS_HOST'
CMD finds the host side at $NARROWS_HOST ($NARROWS_HOST6). Write `sh -c '...'` to use it within a command line.")]
pub struct Args {
    /// Rate of whole IP packets, both ways, e.g. 45Mbit/s; without limit if left out
    #[arg(long, value_name = "RATE", conflicts_with = "trace")]
    rate: Option<String>,
    /// One-way delay, e.g. 5ms: a round trip takes twice as long
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Queue before the link, as in scenario files: fifo:128KiB, fifo:1BDP, '{ kind = "loss", packets = [3] }'
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Chance of each packet to be lost before the queue: 0 to 1
    #[arg(long, value_name = "RATIO")]
    loss: Option<String>,
    /// Recorded capacity in place of a rate: a file in mahimahi's format
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Largest IP packet, e.g. 1500B
    #[arg(long, value_name = "SIZE")]
    mtu: Option<String>,
    /// What differs from CMD to the host side: rate=2Mbit/s,delay=10ms,queue=...,loss=...,trace=...,mtu=...
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = settings)]
    up: Option<Settings>,
    /// What differs from the host side to CMD
    #[arg(long, value_name = "KEY=VALUE,...", value_parser = settings)]
    down: Option<Settings>,
    /// Draws random losses
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run a shell command on the host side first, a server for instance; it ends after CMD (repeatable)
    #[arg(long, value_name = "COMMAND")]
    serve: Vec<String>,
    /// Write the account of what passed as JSON
    #[arg(long, value_name = "FILE")]
    account: Option<PathBuf>,
    /// Capture what enters and leaves at both ends, as pcapng: interface `inside` is CMD's, `outside` the host side's
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Say nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// What to run
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

const KEYS: [&str; 6] = ["rate", "delay", "queue", "loss", "trace", "mtu"];

/// What is said of a direction, by key.
#[derive(Clone, Default)]
struct Settings(BTreeMap<&'static str, String>);

/// `rate=2Mbit/s,queue=fifo:10p`. Values may have commas of their own: only what begins with a key is the next setting.
fn settings(text: &str) -> Result<Settings, String> {
    let mut settings = Settings::default();
    let mut last: Option<&'static str> = None;
    for piece in text.split(',') {
        let pair = piece.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let known = pair.and_then(|(key, value)| Some((KEYS.into_iter().find(|k| *k == key)?, value)));
        match (known, last.and_then(|key| settings.0.get_mut(key))) {
            (Some((key, value)), _) => {
                if settings.0.insert(key, value.to_string()).is_some() {
                    return Err(format!("`{key}` is given twice: leave one out"));
                }
                last = Some(key);
            }
            (None, Some(value)) if value.contains('{') => *value += &format!(",{piece}"),
            _ => {
                return Err(format!(
                    "`{piece}` is no setting: write KEY=VALUE, with a KEY of {}",
                    KEYS.join(", ")
                ));
            }
        }
    }
    Ok(settings)
}

pub fn emulate(args: Args) -> Result<ExitCode, Stop> {
    let mut path = path(&args)?;
    let capture = args.pcap.as_ref().map(Capture::create).transpose()?;
    path.watch = capture.as_ref().map(Capture::watch);
    let rootless = !rootless::may_already();
    if rootless {
        rootless::enter().map_err(machine)?; // before any thread is made
    }
    let signals = Signals::take_over().map_err(machine)?;
    let emulation = Emulation::start(path).map_err(|e| match e {
        Error::Machine(e) => machine(e),
        refused => Stop::Refused(miette::miette!("{refused}")),
    })?;
    let (host, host6) = emulation.host;
    let address = |command: &mut Command| {
        command.env("NARROWS_HOST", host.to_string());
        match host6 {
            Some(host6) => command.env("NARROWS_HOST6", host6.to_string()),
            None => command.env_remove("NARROWS_HOST6"),
        };
    };
    if rootless && !args.quiet {
        note(
            "narrows: not root, so the host side is an empty network of its own, not this machine's: start servers in it with --serve",
        );
    }
    let mut servers = Servers::default();
    for line in &args.serve {
        let mut server =
            guarded(&["--all".as_ref(), "--".as_ref(), "sh".as_ref(), "-c".as_ref(), line.as_ref()]);
        address(&mut server);
        signals.tie(&mut server);
        server.stdin(Stdio::null()).stdout(io::stderr().as_fd().try_clone_to_owned().map_err(machine)?);
        servers.start(server).map_err(|e| {
            Stop::Refused(miette::miette!(help = "try it by itself first", "--serve '{line}': {e}"))
        })?;
    }
    let mut command = guarded(&["--".as_ref()]);
    address(command.args(&args.command));
    signals.tie(&mut command);
    emulation.inside.confine(&mut command).map_err(machine)?;
    let ended = match command.spawn() {
        Ok(mut child) => {
            let look =
                || if emulation.is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            code(signals.look_after(&mut child, look).map_err(machine)?)
        }
        Err(e) => return Err(machine(e)),
    };
    drop(servers);
    let account =
        emulation.end().map_err(|e| machine(io::Error::new(e.kind(), format!("the path is gone: {e}"))))?;
    if !args.quiet {
        note(text(&account).trim_end());
    }
    if let Some(capture) = capture {
        capture.finish()?;
    }
    if let Some(file) = &args.account {
        let json = serde_json::to_string_pretty(&account).map_err(|e| machine(e.into()))? + "\n";
        output::write(file, json.as_bytes()).map_err(|e| unwritable(file, e))?;
    }
    Ok(ExitCode::from(ended))
}

/// A guard, with the first of its arguments: see `narrows_net::guard`.
fn guarded(arguments: &[&std::ffi::OsStr]) -> Command {
    let mut guard = Command::new("/proc/self/exe");
    guard.arg("guard").args(arguments);
    guard
}

/// A capture that the gateway's thread writes.
struct Capture {
    path: PathBuf,
    /// The file, until something went wrong with it: then that.
    file: Arc<Mutex<io::Result<Pcapng>>>,
}

impl Capture {
    fn create(path: &PathBuf) -> Result<Capture, Stop> {
        let file =
            Pcapng::create(path, &["inside".into(), "outside".into()]).map_err(|e| unwritable(path, e))?;
        Ok(Capture { path: path.clone(), file: Arc::new(Mutex::new(Ok(file))) })
    }

    fn watch(&self) -> Watch {
        let file = self.file.clone();
        Box::new(move |port, now, packet| {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if let Ok(Err(e)) = file.as_mut().map(|file| file.packet(port, now, Seen::Bytes(packet))) {
                *file = Err(e);
            }
        })
    }

    /// After the gateway's end.
    fn finish(self) -> Result<(), Stop> {
        let ended = io::Error::other("it has ended");
        let file =
            std::mem::replace(&mut *self.file.lock().unwrap_or_else(PoisonError::into_inner), Err(ended));
        file.and_then(Pcapng::finish).map_err(|e| unwritable(&self.path, e))
    }
}

fn machine(e: io::Error) -> Stop {
    Stop::Refused(miette::miette!("{e}"))
}

/// The flags as a scenario of one link, so that units, queues and complaints are those of scenario files.
fn path(args: &Args) -> Result<Path, Stop> {
    let common = [&args.rate, &args.delay, &args.queue, &args.loss, &args.trace, &args.mtu];
    let common: BTreeMap<_, _> =
        KEYS.into_iter().zip(common).filter_map(|(key, value)| Some((key, value.clone()?))).collect();
    let direction = |own: &Option<Settings>| {
        let mut all = common.clone();
        let own = own.clone().unwrap_or_default().0;
        for (one, other) in [("rate", "trace"), ("trace", "rate")] {
            if own.contains_key(one) {
                all.remove(other);
            }
        }
        all.extend(own);
        all
    };
    let ways = [direction(&args.up), direction(&args.down)];
    let [up, down] = [line(&ways[0])?, line(&ways[1])?];
    let text = format!(
        "host = [{{ name = \"inside\" }}, {{ name = \"outside\" }}]
[[link]]
from = \"inside\"
to = \"outside\"
{up}
[link.backward]
{down}
[[flow]]
from = \"inside\"
to = \"outside\"
transport = \"udp\"
rate = \"1bit/s\"
[run]
duration = \"1s\"
"
    );
    let scenario = file::parse("--rate, --delay, ... as a scenario file", &text)?;
    Ok(Path { scenario, seed: args.seed, watch: None })
}

/// One direction in TOML.
fn line(settings: &BTreeMap<&str, String>) -> Result<String, Stop> {
    if settings.contains_key("rate") && settings.contains_key("trace") {
        return Err(Stop::Refused(miette::miette!(
            "a direction has a rate or a trace, not both: leave one out"
        )));
    }
    let quoted = |text: &str| format!("{text:?}");
    let fastest = FASTEST.write();
    let or = |key: &str, default: &str| quoted(settings.get(key).map_or(default, |s| s));
    let mut lines = format!(
        "rate = {}\ndelay = {}\nmtu = {}\n",
        or("rate", &fastest),
        or("delay", "0ms"),
        or("mtu", "1500B")
    );
    let queue = match settings.get("queue").map_or("fifo:1000p", |q| q.trim()) {
        table if table.starts_with('{') => table.to_string(),
        text => quoted(text),
    };
    let queue = match settings.get("trace") {
        Some(file) => format!("{{ kind = \"trace\", at = {}, inner = {queue} }}", quoted(file)),
        None => queue,
    };
    let queue = match settings.get("loss") {
        Some(loss) => match loss.trim().parse::<f64>() {
            Ok(chance) => format!("{{ kind = \"loss\", probability = {chance:?}, inner = {queue} }}"),
            Err(_) => {
                return Err(Stop::Refused(miette::miette!(
                    help = "write for example --loss 0.01",
                    "`{loss}` is no chance of loss between 0 and 1"
                )));
            }
        },
        None => queue,
    };
    let _ = writeln!(lines, "queue = {queue}");
    Ok(lines)
}

fn text(a: &Account) -> String {
    let mut out = format!("narrows: {:.1} s", a.duration_s);
    let counted = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(name, n)| format!(", {n} {name}")).collect::<String>()
    };
    let _ = writeln!(out, "{}{}", counted(&a.refused), counted(&a.kinds));
    for (name, d) in ["up", "down"].iter().zip(&a.directions) {
        let _ = writeln!(out, "  {name:<5} {}", direction(d, a.duration_s));
    }
    if a.unsent > 0 {
        let _ = writeln!(out, "  {} packets were not taken by the device they were for", a.unsent);
    }
    let us = |s: f64| s * 1e6;
    let _ = writeln!(
        out,
        "  gateway: packets left {:.0}/{:.0}/{:.0} us late (p50/p99/max), {}; {:.1} % of a core",
        us(a.lateness.p50),
        us(a.lateness.p99),
        us(a.lateness.max),
        if a.real_time { "real-time scheduling" } else { "ordinary scheduling" },
        100.0 * a.cpu_s / a.duration_s.max(1e-9)
    );
    if let Some(verdict) = &a.verdict {
        let _ = writeln!(out, "  {verdict}");
    }
    out
}

fn direction(d: &Direction, seconds: f64) -> String {
    let q = &d.queue;
    let mut out = format!(
        "{} packets, {:.3} MB, {:.3} Mbit/s; waited {:.2}/{:.2} ms (p50/p95); dropped ",
        d.sent,
        d.sent_bytes as f64 * 1e-6,
        d.sent_bytes as f64 * 8e-6 / seconds.max(1e-9),
        q.delay.p50 * 1e3,
        q.delay.p95 * 1e3
    );
    let mut reasons: Vec<String> = q.drops_by_reason.iter().map(|(name, n)| format!("{n} {name}")).collect();
    if d.dropped_before > 0 {
        reasons.push(format!("{} before the gateway read them", d.dropped_before));
    }
    out += &if reasons.is_empty() { "none".to_string() } else { reasons.join(", ") };
    out
}
