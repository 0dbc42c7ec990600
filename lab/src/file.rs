//! Reading scenario files.
//!
//! A scenario is TOML. Every quantity is a text with a unit ([`crate::quantity`]); unknown keys are refused.
//! ```toml
//! [run]
//! title = "Two flows and a bottleneck"
//! duration = "60s"           # may be left out if every flow has a size; then 1h
//! [record]
//! flows = true               # default: nothing but summaries
//! [[host]]
//! name = "sender"
//! [[host]]
//! name = "receiver"
//! [[router]]
//! name = "r1"
//! [[link]]                   # a link is two lines, one in each direction
//! from = "sender"
//! to = "r1"
//! rate = "100Mbit/s"         # of whole IP packets
//! delay = "1ms"              # one-way
//! mtu = "4352B"              # default 1500B
//! queue = "fifo:128KiB"      # default fifo:1000p; or { kind = "loss", packets = [3], inner = "fifo:64KiB" }
//! [[link]]
//! from = "r1"
//! to = "receiver"
//! rate = "45Mbit/s"
//! delay = "5ms"
//! backward = { rate = "1Mbit/s" }             # what differs from `to` to `from`
//! change = [{ at = "10s", delay = "20ms" }]   # both directions, unless `backward` has its own
//! [[flow]]
//! name = "bulk"              # default flow-1, ...
//! from = "sender"
//! to = "receiver"
//! stack = "net2"             # default rfc; `receiver_stack` defaults to it
//! controller = { name = "reno", extra = 8 }   # default reno; the stack may change defaults of its parameters
//! # kernel_controller = "cubic"  # what the kernel runs on host linux, in place of `controller`; other hosts refuse it
//! window = "1MiB"            # the receiver's buffer; `send_buffer` defaults to twice as much
//! size = "31.25MiB"          # default: endless
//! count = 4                  # four alike: bulk-1 to bulk-4, `stagger` apart
//! [[flow]]
//! from = "receiver"
//! to = "sender"
//! transport = "udp"
//! rate = "500kbit/s"
//! on = [["0s", "10s"], ["20s", "40s"]]        # times of the run
//! [sweep]
//! "flow.bulk.window" = ["30kB", "90kB"]
//! ```
//!
//! **Bandwidth-delay products.** In a queue, `1BDP` is the rate of the line times the longest round-trip propagation delay
//! among the flows that use the link: the buffer that keeps the line busy when such a flow halves its window. In a flow's
//! window, send buffer or controller it is the slowest rate on the way there times the flow's round-trip propagation delay.
//! Both take the rates and delays from before any `change`, and are rounded up to a byte.
//!
//! **Lists from files.** Where a queue takes a list of numbers, a text names a file of them, one per line or with blanks
//! between, relative to the scenario file: `queue = "trace:cell.txt"`. The resolved scenario holds the numbers themselves.
//!
//! **Key paths** (`--set`, `[sweep]`) are `run.KEY`, `record.KEY`, `host.NAME.KEY`, `link.A>B.KEY` (or the link's own name),
//! `link.A>B.backward.KEY`, `flow.NAME.KEY`, and `flow.KEY` for all flows (of that transport) likewise `link.KEY` and
//! `host.KEY`. They go on into algorithms: `flow.bulk.controller.trigger`, `link.A>B.queue.inner.limit`. A `[[flow]]` with a
//! `count` is addressed as one, by its own name.

mod bottleneck;
mod class;
mod edit;
mod error;
mod numbers;
pub(crate) mod part;
mod resolve;
pub(crate) mod text;
mod write;

pub use bottleneck::Bottleneck;
pub use error::Error;
pub(crate) use error::Refusal;
pub use part::{Algorithm, Family, Inner, controller};
pub use resolve::{DEFAULT_DURATION, FASTEST, LONGEST, MOST_FLOWS};

use crate::scenario::Scenario;
use crate::sweep::{self, Point};
use std::io::Read;
use std::path::Path;
use toml_edit::DocumentMut;

/// Largest scenario file.
pub const LARGEST_FILE: u64 = 64 << 20;

/// A scenario file: its name and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What errors call it: a path, usually.
    pub name: String,
    /// TOML.
    pub text: String,
}

/// The scenario in `text`, which errors call `name`. A `[sweep]` is checked but not expanded.
pub fn parse(name: &str, text: &str) -> Result<Scenario, Error> {
    Document { name: name.into(), text: text.into() }.scenario()
}

impl Document {
    /// Reads the file at `path`.
    pub fn read(path: impl AsRef<Path>) -> Result<Document, Error> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let refuse = |message: String, advice: &str| Err(Refusal::new(message, advice).within(&name, ""));
        if path.is_dir() {
            return refuse(format!("{name} is a directory"), "name a scenario file in it");
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path).and_then(|f| f.take(LARGEST_FILE + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            return refuse(format!("{name} cannot be read: {error}"), "check the name and the permissions");
        }
        if bytes.len() as u64 > LARGEST_FILE {
            return refuse(
                format!("{name} is larger than 64 MiB"),
                "this is hardly a scenario; alike flows need only a `count`",
            );
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Document { name, text }),
            Err(error) => {
                let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
                    .iter()
                    .filter(|b| **b == b'\n')
                    .count();
                refuse(format!("{name} is not UTF-8: see line {line}"), "save it as UTF-8 text")
            }
        }
    }

    /// This document with `key` set to `value`: TOML, or a text without its quotes (`30ms`). A key that `[sweep]` varies is
    /// then fixed. The result is not yet checked.
    pub fn with(&self, key: &str, value: &str) -> Result<Document, Error> {
        self.edited(|document| edit::set(document, key, value)).map_err(|r| r.within(&self.name, &self.text))
    }

    /// Without its `[sweep]`.
    pub(crate) fn without_sweep(&self) -> Result<Document, Refusal> {
        self.edited(|document| {
            document.remove("sweep");
            Ok(())
        })
    }

    fn edited(
        &self,
        edit: impl FnOnce(&mut DocumentMut) -> Result<(), Refusal>,
    ) -> Result<Document, Refusal> {
        self.file()?; // so that a file with mistakes gets the reader's messages, not the editor's
        let parsed = self.text.parse::<DocumentMut>();
        let mut document = parsed.map_err(|e| Refusal { span: e.span(), ..Refusal::new(e.message(), "") })?;
        edit(&mut document)?;
        Ok(Document { name: self.name.clone(), text: document.to_string() })
    }

    /// The points of its `[sweep]`, in order, the last key varying fastest; one if it has none.
    pub fn points(&self) -> Result<Vec<Point>, Error> {
        sweep::points(self).map_err(|r| r.within(&self.name, &self.text))
    }

    /// The scenario. A `[sweep]` is checked but not expanded.
    pub fn scenario(&self) -> Result<Scenario, Error> {
        let read = || {
            let file = self.file()?;
            if let Some(sweep) = &file.sweep {
                sweep::axes(sweep)?;
            }
            resolve::scenario(&file, &self.stem(), self.folder())
        };
        read().map_err(|r| r.within(&self.name, &self.text))
    }

    /// The scenario as TOML with every default written out, which parses to an equal one.
    pub fn resolved(&self) -> Result<String, Error> {
        Ok(self.scenario()?.to_toml())
    }

    pub(crate) fn file(&self) -> Result<text::File, Refusal> {
        Ok(toml::from_str(&self.text)?)
    }

    /// Where the files lie that it names.
    fn folder(&self) -> &Path {
        Path::new(&self.name).parent().unwrap_or(Path::new(""))
    }

    /// What the scenario is called if it does not say: the file's name without folder and extension.
    fn stem(&self) -> String {
        let stem = Path::new(&self.name).file_stem().map(|s| s.to_string_lossy()).unwrap_or_default();
        let name: String =
            stem.chars().map(|c| if resolve::is_name(&c.to_string()) { c } else { '-' }).take(64).collect();
        if name.is_empty() { "scenario".into() } else { name }
    }
}
