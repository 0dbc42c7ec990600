//! Congestion controls of ours that are in the kernel while runs are made, and gone after them.

use crate::Stop;
use narrows_kernel::Loaded;
use narrows_lab::file::controller;
use narrows_lab::scenario::{Part, TcpFlow};

/// What has been loaded, each with the parameters it was loaded with.
#[derive(Default)]
pub struct Guests(Vec<(Part, Loaded)>);

impl Guests {
    /// The kernel's name for what a flow's kernel is to send with, if that is a program of ours: loaded now if it was not, under
    /// a name of this process's own. A `kernel_controller` that the kernel has is the kernel's.
    pub fn name_for(&mut self, flow: &TcpFlow) -> Result<Option<String>, Stop> {
        let part = match &flow.kernel_controller {
            None => flow.controller.clone(),
            Some(name) if narrows_kernel::available().contains(name) => return Ok(None),
            Some(name) => match controller(name, &[]) {
                Ok(part) => part,
                Err(_) => return Ok(None), // the kernel will say what it has
            },
        };
        let Some(program) = narrows_kernel::by_name(&part.name) else { return Ok(None) };
        if part.inner.as_ref().map(|inner| inner.name.as_str()) != program.entry.decorates {
            return Err(Stop::Refused(miette::miette!(
                help = "leave `inner` out, or run it in the simulator: --on sim",
                "in the kernel {} goes around {} only",
                part.name,
                program.entry.decorates.unwrap_or("nothing"),
            )));
        }
        if let Some((_, loaded)) = self.0.iter().find(|(other, _)| *other == part) {
            return Ok(Some(loaded.name().to_string()));
        }
        // The kernel has one list of names for all namespaces, of at most 15 characters.
        let name = format!("nw{}_{}", std::process::id(), self.0.len());
        let loaded = narrows_kernel::load(program, &name, &part.settings)
            .map_err(|e| Stop::Refused(miette::miette!(help = e.advice, "{}", e.message)))?;
        self.0.push((part, loaded));
        Ok(Some(name))
    }
}
