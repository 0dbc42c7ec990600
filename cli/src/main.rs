//! `narrows`: find the bottleneck, try a remedy in an exact simulator, run it on real packets.
//!
//! | file | command |
//! |---|---|
//! | `run` | `narrows run FILE...` |
//! | `compare` | `narrows compare FILE --on sim,linux` |
//! | `on` | where runs are made: in virtual time, or with real packets |
//! | `reproduce` | `narrows reproduce [PAPER]`, `narrows claims` |
//! | `emulate` | `narrows emulate -- CMD` |
//! | `gateway` | `narrows gateway`: a standing bottleneck between two interfaces |
//! | `kernel` | `narrows kernel load`, `list`, `unload`, `watch`, `attach`, `detach` |
//! | `list` | `narrows list`, `schema`, `completions` |
//! | `work` | many runs at once, with progress, stopped by Ctrl-C |
//! | `json` | the documented JSON of `run` |
//! | `code` | what claims may ask of the code itself |
//!
//! Exit codes: 0 good; 1 a claim's verdict is not the recorded one, or a running gateway had to end; 2 wrong use or input; 130 interrupted. `emulate` has its
//! program's.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it faces a person: progress needs the clock

mod code;
mod compare;
mod emulate;
mod gateway;
#[cfg(feature = "kernel")]
mod guests;
/// Built without programs for the kernel, no run brings one.
#[cfg(not(feature = "kernel"))]
mod guests {
    #[derive(Default)]
    pub struct Guests;
    impl Guests {
        pub fn name_for(
            &mut self,
            _: &narrows_lab::scenario::TcpFlow,
        ) -> Result<Option<String>, crate::Stop> {
            Ok(None)
        }
    }
}
mod json;
#[cfg(feature = "kernel")]
mod kernel;
mod list;
mod on;
mod reproduce;
mod run;
mod work;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::fmt::Display;
use std::io::Write;
use std::ops::RangeInclusive;
use std::process::ExitCode;

/// Find the bottleneck, try a remedy in an exact simulator, run it on real packets.
#[derive(Parser)]
#[command(name = "narrows", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenario files and say what was seen
    Run(run::Args),
    /// Run a scenario on several hosts and say how far what they saw is apart
    Compare(compare::Args),
    /// Run a program behind an emulated path, on real packets
    Emulate(emulate::Args),
    /// Stand as a bottleneck between two existing interfaces, until a signal ends it
    Gateway(gateway::Args),
    /// Reproduce papers: run their scenarios, measure every claim, draw their figures
    Reproduce(reproduce::Args),
    /// List the claims of the papers, and the verdicts last recorded
    Claims(reproduce::ClaimsArgs),
    /// Controllers inside the Linux kernel: load, list, unload, watch, attach to a device
    #[cfg(feature = "kernel")]
    Kernel(kernel::Args),
    /// List controllers, queue disciplines, stacks, metrics and papers, with their parameters
    List(list::Args),
    /// Print the JSON Schema of scenario files
    Schema,
    /// Run a program, and end with it all that it has started if the caller ends
    #[command(hide = true)] // what `emulate` starts programs by
    Guard {
        /// End when everything it has started has ended
        #[arg(long)]
        all: bool,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// How results are written to standard output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs; its keys are stable
    Json,
}

/// `1..20` (both included) or `7`.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |s: &str| {
        s.trim().parse::<u64>().map_err(|_| format!("`{s}` is no seed: write 7, or 1..20 for twenty of them"))
    };
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if last < first {
        return Err(format!("{first}..{last} is empty: write the smaller seed first"));
    }
    if last - first >= 100_000 {
        return Err("at most 100,000 seeds at once".into());
    }
    Ok(first..=last)
}

/// Why a command ended without doing what it was asked to.
enum Stop {
    /// Wrong use or input: said in full.
    Refused(miette::Report),
    /// Ctrl-C.
    Interrupted,
}

impl<E: Into<miette::Report>> From<E> for Stop {
    fn from(e: E) -> Stop {
        Stop::Refused(e.into())
    }
}

/// Prints to standard output. A closed pipe or a full disk behind it is an error like any other.
fn say(text: impl Display) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    let refuse = |e| {
        Stop::Refused(miette::miette!(
            help = "give it a reader, or a place with room",
            "standard output cannot be written: {e}"
        ))
    };
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => enough(),
        done => done.map_err(refuse),
    }
}

/// Whoever closed the pipe (`| head`) has read enough: end as the signal would end us.
fn enough() -> ! {
    std::process::exit(128 + 13)
}

/// Prints a line to standard error, if anyone is there to read it.
fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Compare(args) => compare::compare(args),
        Command::Emulate(args) => emulate::emulate(args),
        Command::Guard { all, command } => {
            let guarded = narrows_net::guard::guard(&command, all);
            guarded
                .map(ExitCode::from)
                .map_err(|e| Stop::Refused(miette::miette!("no guard for a program: {e}")))
        }
        Command::Gateway(args) => gateway::gateway(args),
        Command::Reproduce(args) => reproduce::reproduce(args),
        Command::Claims(args) => reproduce::claims(args),
        #[cfg(feature = "kernel")]
        Command::Kernel(args) => kernel::kernel(args),
        Command::List(args) => list::list(args),
        Command::Schema => list::schema(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "narrows", &mut script);
            say(String::from_utf8_lossy(&script)).map(|()| ExitCode::SUCCESS)
        }
    };
    match done {
        Ok(code) => code,
        Err(Stop::Refused(report)) => {
            note(format_args!("{report:?}"));
            ExitCode::from(2)
        }
        Err(Stop::Interrupted) => {
            note("interrupted: no file is left half-written");
            ExitCode::from(130)
        }
    }
}
