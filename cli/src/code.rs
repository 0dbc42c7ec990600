//! What claims may ask of the code itself (`metric = "code.NAME"`): arguments and results in base units.

use narrows_core::congestion::becc::control::{self, ControlBlock, Place};
use narrows_core::units::Rate;
use std::time::Duration;

/// The answer to `name` with `arguments`; `None` if there is no such question, or the arguments do not fit it.
pub fn ask(name: &str, arguments: &[f64]) -> Option<f64> {
    match (name, arguments) {
        ("delay_bandwidth_product", &[rate, rtt]) => {
            Some(Rate(rate as u64).bytes_in(Duration::from_secs_f64(rtt)).0 as f64)
        }
        ("becc.bandwidth_window", &[most, rtt, period]) => {
            let ms = |s: f64| (s * 1e3).round() as u32;
            Some(f64::from(control::bandwidth_window(most as u32, ms(rtt), ms(period))))
        }
        ("becc.control_block", &[connections]) => Some(size_of::<ControlBlock>() as f64 * connections),
        (cost, []) => operations(cost.strip_prefix("becc.cost.")?),
        _ => None,
    }
}

/// `PLACE.OPERATION`: how often our code does it there, counted by running it.
fn operations(name: &str) -> Option<f64> {
    let (place, operation) = name.split_once('.')?;
    let counted = control::cost(match place {
        "input_rtt" => Place::InputRtt,
        "input_loss" => Place::InputLoss,
        "output" => Place::Output,
        "timer" => Place::Timer,
        _ => return None,
    });
    Some(f64::from(match operation {
        "assignments" => counted.assignments,
        "branches" => counted.branches,
        "multiplications" => counted.multiplications,
        "divisions" => counted.divisions,
        _ => return None,
    }))
}
