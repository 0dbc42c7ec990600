//! The programs in this kernel, with real connections through a path of our own. As root only; elsewhere each says so and
//! passes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // real connections take real time

mod ackwin;
mod differential;
mod life;
mod path;

use narrows_core::registry::Settings;
use narrows_kernel::{Loaded, Program};

/// Returns from the test where the kernel cannot be tried.
macro_rules! needs_kernel {
    () => {
        if let Some(reason) = crate::path::impossible() {
            eprintln!("SKIPPED: {reason}");
            return;
        }
    };
}
use needs_kernel;

/// A name that nobody else on this machine uses.
fn name(mark: char) -> String {
    format!("bt{}{mark}", std::process::id())
}

fn settings(program: &str, given: &[(&str, &str)]) -> Settings {
    let given: Vec<_> = given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    narrows_lab::file::controller(program, &given).expect("the settings fit").settings
}

fn program(name: &str) -> &'static Program {
    narrows_kernel::by_name(name).expect("it is in the table")
}

fn load(of: &str, mark: char, given: &[(&str, &str)]) -> Loaded {
    narrows_kernel::load(program(of), &name(mark), &settings(of, given)).unwrap_or_else(|e| panic!("{e}"))
}
