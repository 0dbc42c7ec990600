//! `narrows gateway`: a standing bottleneck between two existing interfaces, until a signal ends it.

use crate::{Stop, note, say};
use clap::Args as ClapArgs;
use narrows_lab::file::{Bottleneck, Document, Error};
use narrows_net::clock::{self, Awake};
use narrows_net::privilege::{self, Shed};
use narrows_net::standing::{self, Account, Refused, Standing};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(ClapArgs)]
pub struct Args {
    /// The two interfaces; forward is from the first to the second
    #[arg(long, num_args = 2, value_names = ["IF1", "IF2"], required_unless_present = "check")]
    between: Vec<String>,
    /// Rates, delays and queues, in the words of scenario links; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and do nothing else
    #[arg(long)]
    check: bool,
    /// Keep idle processors awake: packets then leave within some 10 us of their time, for the power of all processors (root)
    #[arg(long)]
    awake: bool,
    /// No status line, even on a terminal
    #[arg(long, short)]
    quiet: bool,
}

pub fn gateway(args: Args) -> Result<ExitCode, Stop> {
    let config = read(&args.config)?;
    if args.check {
        let [forward, backward] = config.describe();
        say(format_args!("{}: good\n  {forward}\n  {backward}\n", args.config.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let [first, second] = &args.between[..] else { unreachable!("clap asks for two") };
    let gateway = Standing::open([first, second], &config).map_err(refuse)?;
    // From here on there is one thread; those that follow have neither its urgency nor any privilege.
    let scheduling = clock::hurry();
    let awake = args.awake.then(Awake::ask);
    if awake.as_ref().is_some_and(|awake| !awake.is_granted()) {
        return Err(Stop::Refused(miette::miette!(
            help = "be root, or leave out --awake",
            "processors cannot be kept awake: /dev/cpu_dma_latency may not be written, or is not there"
        )));
    }
    let shed = privilege::shed(&config.user).map_err(|e| {
        Stop::Refused(miette::miette!(
            help = "write a user that this machine has: user = \"nobody\"",
            "privileges cannot be given up: {e}"
        ))
    })?;
    introduce(&args, &config, &gateway, shed, scheduling.note());
    let path = args.config.clone();
    let orders = standing::signals(move || {
        read(&path)
            .map_err(|e| {
                note(format_args!("not reloaded, the old configuration stays: {:?}", miette::Report::from(e)))
            })
            .ok()
    });
    let orders = orders.map_err(|e| Stop::Refused(miette::miette!("signals cannot be heard: {e}")))?;
    let shown = !args.quiet && std::io::stderr().is_terminal();
    let clear = if shown { "\r\x1b[K" } else { "" };
    let mut status = |line: &str| {
        let mut out = std::io::stderr();
        let _ = write!(out, "{clear}{line}").and_then(|()| out.flush()); // nobody there to read it
    };
    let ended = gateway.run(
        &orders,
        &mut |message| note(format_args!("{clear}{message}")),
        shown.then_some(&mut status as &mut dyn FnMut(&str)),
    );
    match ended {
        Ok(account) => {
            if shown {
                note("");
            }
            say(text(&account)).map(|()| ExitCode::SUCCESS)
        }
        Err(Refused { message, advice }) => {
            note(format_args!("{clear}{message}: {advice}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn read(path: &Path) -> Result<Bottleneck, Error> {
    Document::read(path)?.bottleneck()
}

fn refuse(Refused { message, advice }: Refused) -> Stop {
    Stop::Refused(miette::miette!(help = advice, "{message}"))
}

/// Says what stands now, and what its operator might not expect.
fn introduce(args: &Args, config: &Bottleneck, gateway: &Standing, shed: Shed, scheduling: Option<&str>) {
    note(format_args!("between {} and {}", args.between[0], args.between[1]));
    for line in config.describe() {
        note(format_args!("  {line}"));
    }
    if let Some(at) = gateway.metrics_at() {
        note(format_args!("  metrics at http://{at}/metrics"));
    }
    match shed {
        Shed::Became(user) => note(format_args!("  as user {user}, without capabilities")),
        Shed::Stayed => {
            note("  without capabilities, as the user who started it (only root can become another)")
        }
    }
    if let Some(note_) = scheduling {
        note(format_args!("  {note_}"));
    }
    if std::fs::File::open(&args.config).is_err() {
        note(format_args!(
            "  {} cannot be read any more by this user: SIGHUP will change nothing (chmod a+r, and a+x on its folders)",
            args.config.display()
        ));
    }
}

fn text(account: &Account) -> String {
    let Account { accounts: a, inside, lateness: late, verdict } = account;
    let by_reason = |m: &std::collections::BTreeMap<&str, u64>| {
        let total: u64 = m.values().sum();
        let each: Vec<String> = m.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        if each.is_empty() { total.to_string() } else { format!("{total} ({})", each.join(", ")) }
    };
    let mut out = format!(
        "received {} + {} packets; sent {} + {}, dropped {}, refused {}, unsent {}, left in the queues {inside}\n",
        a.received[0],
        a.received[1],
        a.sent[1],
        a.sent[0],
        by_reason(&a.dropped),
        by_reason(&a.refused),
        a.unsent
    );
    if !a.kinds.is_empty() {
        out += &format!("of those let in, unusual: {}\n", by_reason(&a.kinds));
    }
    match a.unaccounted(*inside) {
        0 => out += "every packet is accounted for\n",
        n => out += &format!("{n} packets are unaccounted for: this is a mistake in narrows\n"),
    }
    out += &format!(
        "late {:.0} us (median), {:.0} us (p99), {:.0} us (most)\n",
        late.p50 * 1e6,
        late.p99 * 1e6,
        late.max * 1e6
    );
    if let Some(verdict) = verdict {
        out += &format!("{verdict}\n");
    }
    out
}
