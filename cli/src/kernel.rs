//! `narrows kernel`: controllers inside the Linux kernel, loaded, listed, watched and taken out again; and what works at a device.

mod ackwin;

use crate::{Format, Stop, say};
use clap::{Arg, ArgMatches, Args as ClapArgs, Command, FromArgMatches, Subcommand};
use narrows_kernel::{Event, Kept, Kind, Mode, PROGRAMS, Program};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Load a controller into the kernel, where sockets, routes and namespaces can choose it; it stays until `unload`
    Load(LoadArgs),
    /// List the controllers in the kernel, ours with parameters and connections, and what is attached to devices
    List {
        /// How to print them
        #[arg(long, value_enum, default_value = "text")]
        format: Format,
    },
    /// Take a controller out of the kernel; its connections go on with it to their ends
    Unload {
        /// The name it was loaded under
        name: String,
    },
    /// Attach a router's algorithm to a device; it stays until `detach`
    #[command(subcommand)]
    Attach(ackwin::Attach),
    /// Detach it from the device
    #[command(subcommand)]
    Detach(ackwin::Detach),
    /// Watch the connections of a loaded controller until Ctrl-C
    Watch(WatchArgs),
}

#[derive(ClapArgs)]
struct LoadArgs {
    #[command(subcommand)]
    program: Chosen,
}

/// A program and what was said of it. Its flags are those of the table of programs, so they are not derived.
struct Chosen {
    program: &'static Program,
    name: String,
    given: Vec<(String, String)>,
}

/// `ms_period` is `--ms-period`.
fn flag(parameter: &str) -> String {
    parameter.replace('_', "-")
}

impl Subcommand for Chosen {
    fn augment_subcommands(command: Command) -> Command {
        let programs = PROGRAMS.iter().map(|p| {
            let name = Arg::new("as")
                .long("as")
                .value_name("NAME")
                .help("Load it under this name (1 to 15 characters)");
            let flags = p.parameters().map(|x| {
                let help = format!("{} [default: {}]", x.meaning, x.default);
                // clap keeps flags as static texts; these few are made once.
                Arg::new(x.name).long(&*flag(x.name).leak()).value_name("VALUE").help(help)
            });
            Command::new(p.name()).about(p.entry.summary).arg(name).args(flags)
        });
        // Another name is taken as well, to be refused with those there are.
        command
            .subcommands(programs)
            .subcommand_required(true)
            .allow_external_subcommands(true)
            .subcommand_value_name("CONTROLLER")
    }
    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }
    fn has_subcommand(name: &str) -> bool {
        narrows_kernel::by_name(name).is_some()
    }
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (name, matches) = matches
            .subcommand()
            .ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        let Some(program) = narrows_kernel::by_name(name) else {
            let known: Vec<_> = PROGRAMS.iter().map(Program::name).collect();
            let message = format!("there is no controller `{name}` to load: write {}\n", known.join(" or "));
            return Err(clap::Error::raw(clap::error::ErrorKind::InvalidSubcommand, message));
        };
        let value = |name: &str| matches.get_one::<String>(name).cloned();
        let given = program.parameters().filter_map(|p| Some((p.name.to_string(), value(p.name)?))).collect();
        Ok(Chosen { program, name: value("as").unwrap_or_else(|| program.kernel_name()), given })
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(ClapArgs)]
struct WatchArgs {
    /// The name it was loaded under; may be left out if there is but one
    name: Option<String>,
    /// How often each connection is shown
    #[arg(long, default_value = "200ms", value_parser = interval)]
    every: Duration,
    /// How to print what is seen; `json` is one object per line
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

fn interval(text: &str) -> Result<Duration, String> {
    narrows_lab::quantity::Quantity::read(text).map_err(|e| e.to_string())
}

pub fn kernel(args: Args) -> Result<ExitCode, Stop> {
    match args.what {
        What::Load(load) => self::load(load.program),
        What::List { format } => list(format),
        What::Unload { name } => {
            let live = narrows_kernel::unload(&name).map_err(refused)?;
            let going_on = match live {
                0 => "no connection was using it".to_string(),
                1 => "1 connection goes on with it to its end".to_string(),
                n => format!("{n} connections go on with it to their ends"),
            };
            say(format_args!("{name} is unloaded; {going_on}\n"))
        }
        What::Attach(what) => ackwin::attach(what),
        What::Detach(what) => ackwin::detach(what),
        What::Watch(watch) => self::watch(watch),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn refused(e: narrows_kernel::Error) -> Stop {
    Stop::Refused(miette::miette!(help = e.advice, "{}", e.message))
}

fn load(Chosen { program, name, given }: Chosen) -> Result<(), Stop> {
    let part = narrows_lab::file::controller(program.name(), &given)
        .map_err(|e| Stop::Refused(miette::miette!(help = e.advice, "{}", e.message)))?;
    narrows_kernel::load(program, &name, &part.settings)
        .and_then(narrows_kernel::Loaded::keep)
        .map_err(refused)?;
    say(format_args!(
        "{name} is in the kernel. Choose it\n  \
         per socket     iperf3 -C {name} ..., or the socket option TCP_CONGESTION\n  \
         per route      ip route replace ... congctl {name}\n  \
         per namespace  sysctl net.ipv4.tcp_congestion_control={name}\n\
         See it work with `narrows kernel watch {name}`, take it out with `narrows kernel unload {name}`.\n"
    ))
}

fn list(format: Format) -> Result<(), Stop> {
    let ours = narrows_kernel::kept().map_err(refused)?;
    let devices = narrows_kernel::ackwin::attached().map_err(refused)?;
    let others: Vec<String> =
        narrows_kernel::available().into_iter().filter(|a| ours.iter().all(|k| k.name() != a)).collect();
    let counts = |k: &Kept| k.counts().map_err(refused);
    if format == Format::Json {
        let devices: Vec<Value> = devices.iter().map(ackwin::object).collect();
        let mut loaded = Vec::new();
        for k in &ours {
            let (counts, parameters) =
                (counts(k)?, k.parameters().iter().cloned().collect::<BTreeMap<_, _>>());
            loaded.push(json!({
                "name": k.name(), "program": k.program(), "parameters": parameters,
                "connections": counts.live(), "connections_ever": counts.opened,
            }));
        }
        return say(format_args!(
            "{:#}\n",
            json!({ "loaded": loaded, "devices": devices, "others": others })
        ));
    }
    let mut text = String::new();
    for k in &ours {
        let counts = counts(k)?;
        let parameters: Vec<String> =
            k.parameters().iter().map(|(name, value)| format!("--{} {value}", flag(name))).collect();
        text += &format!(
            "{:<15} {}, {} connections ({} ever)\n                {}\n",
            k.name(),
            k.program(),
            counts.live(),
            counts.opened,
            parameters.join(" ")
        );
    }
    text.extend(devices.iter().map(ackwin::line));
    if ours.is_empty() {
        text += "nothing loaded by narrows: try `narrows kernel load becc`\n";
    }
    say(format_args!("{text}others in the kernel: {}\n", others.join(", ")))
}

/// The one asked for, or the only one.
fn chosen(name: Option<&str>) -> Result<Kept, Stop> {
    let mut ours = narrows_kernel::kept().map_err(refused)?;
    let names: Vec<String> = ours.iter().map(|k| k.name().to_string()).collect();
    let found = match name {
        Some(name) => names.iter().position(|n| n == name),
        None => (names.len() == 1).then_some(0),
    };
    found.map(|i| ours.swap_remove(i)).ok_or_else(|| {
        let what = name.map_or("which of them is not said".into(), |n| format!("`{n}` is not loaded"));
        let help = match names.len() {
            0 => "load one first: narrows kernel load becc".to_string(),
            _ => format!("write narrows kernel watch with one of {}", names.join(", ")),
        };
        Stop::Refused(miette::miette!(help = help, "nothing to watch: {what}"))
    })
}

fn watch(args: WatchArgs) -> Result<(), Stop> {
    let kept = chosen(args.name.as_deref())?;
    let mut watch = kept.watch(args.every).map_err(refused)?;
    let stopped = crate::work::interrupted();
    let live = args.format == Format::Text && std::io::stdout().is_terminal();
    let mut screen = Screen::default();
    if args.format == Format::Text && !live {
        say(format_args!("{}\n", head()))?;
    }
    while !stopped.load(Ordering::Relaxed) {
        for event in watch.poll(Duration::from_millis(200)).map_err(refused)? {
            match args.format {
                Format::Json => say(format_args!("{}\n", object(&event)))?,
                Format::Text if live => screen.see(&event),
                Format::Text => say(format_args!("{}\n", line(&event)))?,
            }
        }
        if live {
            screen.draw(kept.name())?;
        }
        if unread() {
            drop(watch); // and with it the lease
            crate::enough();
        }
    }
    let lost = kept.counts().map_or(0, |c| c.lost);
    if lost > 0 {
        crate::note(format_args!(
            "{lost} events came faster than they were read: ask for fewer with --every"
        ));
    }
    Ok(())
}

/// Whether nobody reads standard output any more. A write would tell, but while nothing happens there is none.
fn unread() -> bool {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())]; // errors and hang-ups are told unasked
    poll(&mut fds, PollTimeout::ZERO).is_ok() && fds[0].any() == Some(true)
}

fn head() -> String {
    format!(
        "{:<42} {:>9} {:>14} {:>14} {:>10} {:>10}  mode",
        "connection", "cwnd", "snd_swnd", "t_msrd_th", "t_minrtt", "srtt"
    )
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::UpdateStart => "UPDATE_START",
        Mode::Updating => "UPDATING",
        Mode::NotUpdate => "NOT_UPDATE",
    }
}

fn state(event: &Event) -> &'static str {
    ["open", "disorder", "cwr", "recovery", "loss"].get(usize::from(event.state)).copied().unwrap_or("?")
}

/// Unlimited until the first loss.
fn window(event: &Event) -> Option<u32> {
    (event.snd_swnd < narrows_core::congestion::becc::control::UNLIMITED).then_some(event.snd_swnd)
}

fn line(e: &Event) -> String {
    let doing = match e.kind() {
        Kind::Started => "started",
        Kind::Closed => "closed",
        Kind::TimedOut => "timeout",
        Kind::Acked => state(e),
    };
    format!(
        "{:<42} {:>7} p {:>14} {:>7.1} Mbit/s {:>7} ms {:>7.1} ms  {} {doing}",
        format!("{} > {}", e.local(), e.remote()),
        e.snd_cwnd,
        window(e).map_or("unlimited".into(), |w| format!("{w} B")),
        f64::from(e.t_msrd_th) * 8e-6,
        e.t_minrtt,
        f64::from(e.srtt_us) * 1e-3,
        mode(e.mode()),
    )
}

fn object(e: &Event) -> Value {
    json!({
        "time_s": e.now as f64 * 1e-6,
        "event": e.kind(),
        "connection": e.number,
        "local": e.local().to_string(),
        "remote": e.remote().to_string(),
        "netns": e.netns,
        "state": state(e),
        "cwnd_packets": e.snd_cwnd,
        "inner_cwnd_packets": e.cwnd,
        "mss": e.mss,
        "snd_swnd": window(e),
        "t_msrd_th_bps": u64::from(e.t_msrd_th) * 8,
        "t_maxacked": e.t_maxacked,
        "t_minrtt_s": f64::from(e.t_minrtt) * 1e-3,
        "srtt_s": f64::from(e.srtt_us) * 1e-6,
        "mode": mode(e.mode()),
        "pacing_rate_bps": (e.pacing_rate < u64::MAX / 8).then_some(e.pacing_rate.saturating_mul(8)),
        "bandwidth_bps": (e.bandwidth > 0).then_some(e.bandwidth),
    })
}

/// A table refreshed in place.
#[derive(Default)]
struct Screen {
    rows: BTreeMap<u32, (Event, Instant)>,
    drawn: usize,
}

/// Rows at most, so that the table fits a terminal, and how long a connection that has closed stays to be seen.
const MOST_ROWS: usize = 20;
const AFTERGLOW: Duration = Duration::from_secs(3);

impl Screen {
    fn see(&mut self, event: &Event) {
        self.rows.insert(event.number, (*event, Instant::now()));
    }

    fn draw(&mut self, name: &str) -> Result<(), Stop> {
        self.rows.retain(|_, (e, seen)| e.kind() != Kind::Closed || seen.elapsed() < AFTERGLOW);
        // A line that wrapped would count as two on the way back up, so none may.
        let mut text = String::from("\x1b[?7l");
        if self.drawn > 0 {
            text += &format!("\x1b[{}A", self.drawn);
        }
        text += &format!("\x1b[J{name}: {} connections, Ctrl-C stops\n{}\n", self.rows.len(), head());
        let shown = self.rows.values().take(MOST_ROWS);
        text.extend(shown.map(|(e, _)| line(e) + "\n"));
        self.drawn = 2 + self.rows.len().min(MOST_ROWS);
        say(text + "\x1b[?7h")
    }
}
