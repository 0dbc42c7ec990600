//! Where runs are made: in virtual time, or with real packets on this machine.

use crate::Stop;
use crate::guests::Guests;
use crate::work::Job;
use clap::{Args as ClapArgs, ValueEnum};
use narrows_lab::Outcome;
use narrows_lab::host::Watch;
use narrows_lab::scenario::Transport;
use narrows_net::run::{Host, KernelEnd};

/// What makes a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum On {
    /// The simulator: exact, repeatable, in virtual time
    #[default]
    Sim,
    /// Our own TCP on real packets, against Linux's, in real time
    Wire,
    /// Linux's TCP at both ends, in real time
    Linux,
}

/// Which end of a flow is Linux's on `wire`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum End {
    /// Who receives the data; ours sends it
    #[default]
    Receiver,
    /// Who sends the data; ours receives it
    Sender,
    /// Neither: ours at both ends, with real bytes in real time
    None,
}

impl From<End> for KernelEnd {
    fn from(end: End) -> KernelEnd {
        match end {
            End::Receiver => KernelEnd::Receiver,
            End::Sender => KernelEnd::Sender,
            End::None => KernelEnd::None,
        }
    }
}

/// Flags of every command that makes runs on a host of the user's choice.
#[derive(ClapArgs, Clone)]
pub struct Making {
    /// On wire: which end of every flow is the Linux kernel's
    #[arg(long, value_enum, default_value = "receiver", value_name = "END")]
    pub kernel_end: End,
    /// Runs at once; default: one per core in the simulator, one in real time, where runs disturb each other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
}

impl Making {
    /// Sends the jobs to `on`. Where the kernel sends with a controller of which we have a program for it (`becc`), that is
    /// loaded, under a name of this process's own, with the scenario's parameters: as long as the guests are kept.
    pub fn prepare(&self, jobs: &mut [Job], on: On) -> Result<Guests, Stop> {
        let mut guests = Guests::default();
        let kernel_sends = on == On::Linux || (on == On::Wire && self.kernel_end == End::Sender);
        for job in jobs {
            job.on = on;
            job.net.kernel_end = self.kernel_end.into();
            for flow in job.scenario.flows.iter().filter(|_| kernel_sends) {
                let Transport::Tcp(tcp) = &flow.transport else { continue };
                if let Some(name) = guests.name_for(tcp)? {
                    job.net.kernel_names.insert(flow.name.clone(), name);
                }
            }
        }
        Ok(guests)
    }
}

impl On {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            On::Sim => "sim",
            On::Wire => "wire",
            On::Linux => "linux",
        }
    }

    /// In a few words.
    pub fn means(self) -> &'static str {
        match self {
            On::Sim => "in the simulator",
            On::Wire => "on real packets, our TCP against Linux's",
            On::Linux => "on real packets, Linux's TCP at both ends",
        }
    }

    /// Whether a run takes as long as it says.
    pub fn is_real(self) -> bool {
        self != On::Sim
    }
}

/// Makes a run.
pub fn run(job: &Job, watch: &mut dyn Watch) -> Result<Outcome, Stop> {
    let host = match job.on {
        On::Sim => {
            return narrows_sim::run(&job.scenario, job.seed, watch)
                .map_err(|e| Stop::Refused(miette::miette!("{}: {}", e.path, e.message)));
        }
        On::Wire => Host::Wire,
        On::Linux => Host::Linux,
    };
    narrows_net::run::run(&job.scenario, host, job.seed, watch, &job.net).map_err(|e| match e.help() {
        Some(help) => Stop::Refused(miette::miette!(help = help.to_string(), "{e}")),
        None => Stop::Refused(miette::miette!("{e}")),
    })
}
