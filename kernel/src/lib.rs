//! Narrows inside the Linux kernel: congestion controls as BPF programs (`bpf/*.bpf.c`), and their loader.
//!
//! A controller that runs in the kernel is a second text of an algorithm in `narrows-core`, held to the first by a test that
//! feeds both the same ACKs. It takes the same parameters by the same names, and is loaded under a name of its own, as often
//! as one likes:
//!
//! ```no_run
//! # fn main() -> Result<(), narrows_kernel::Error> {
//! # let settings = narrows_core::registry::Settings::default();
//! let becc = narrows_kernel::by_name("becc").expect("it is in the table");
//! let loaded = narrows_kernel::load(becc, "mybecc", &settings)?; // sockets, routes, namespaces can choose "mybecc" now
//! println!("{} connections", loaded.counts()?.live());
//! drop(loaded); // the name is gone, live connections go on; `loaded.keep()` would have left it in the kernel
//! # Ok(())
//! # }
//! ```
//!
//! | file | what |
//! |---|---|
//! | `program` | the table of controllers, and what their parameters become in the kernel |
//! | `load` | into the kernel, for as long as this process lives |
//! | `kept` | in the kernel for good: pins in a BPF file system, `list`, `unload` |
//! | `ackwin` | at a device: the router that writes into the windows of ACKs |
//! | `watch` | what connections do, event by event |
//! | `need` | what is missing, in one message |

pub mod ackwin;
mod kept;
mod load;
mod need;
mod program;
mod watch;

pub use kept::{Kept, available, kept, unload};
pub use load::{Counts, Loaded, load};
pub use program::{PROGRAMS, Program, by_name};
pub use watch::{Event, Kind, Mode, Watch};

/// Why something could not be done, and what to do instead.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}: {advice}")]
pub struct Error {
    /// What is wrong.
    pub message: String,
    /// What would help.
    pub advice: String,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>, advice: impl Into<String>) -> Error {
        Error { message: message.into(), advice: advice.into() }
    }
}
