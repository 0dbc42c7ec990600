//! What claims may ask of the code itself (`metric = "code.NAME"`): arguments and results in base units.

use narrows_core::congestion::becc::control::{self, ControlBlock, Operations, Place};
use narrows_core::units::Rate;
use std::time::Duration;

macro_rules! costs {
    ($($place:literal $variant:ident: $($field:ident)*;)*) => {
        &[$($((concat!("becc.cost.", $place, ".", stringify!($field)), |_: &[f64]| {
            let operations: Operations = control::cost(Place::$variant);
            Some(f64::from(operations.$field))
        } as fn(&[f64]) -> Option<f64>),)*)*]
    };
}

const COSTS: &[(&str, fn(&[f64]) -> Option<f64>)] = costs! {
    "input_rtt" InputRtt: assignments branches multiplications divisions;
    "input_loss" InputLoss: assignments branches multiplications divisions;
    "output" Output: assignments branches multiplications divisions;
    "timer" Timer: assignments branches multiplications divisions;
};

/// The functions, by the name behind `code.`.
pub fn functions() -> Vec<(&'static str, fn(&[f64]) -> Option<f64>)> {
    let mut all: Vec<(&'static str, fn(&[f64]) -> Option<f64>)> = vec![
        ("delay_bandwidth_product", |a| {
            let [rate, rtt] = *a else { return None };
            Some(Rate(rate as u64).bytes_in(Duration::from_secs_f64(rtt)).0 as f64)
        }),
        ("becc.bandwidth_window", |a| {
            let [most, rtt, period] = *a else { return None };
            let ms = |s: f64| (s * 1e3).round() as u32;
            Some(f64::from(control::bandwidth_window(most as u32, ms(rtt), ms(period))))
        }),
        ("becc.control_block", |a| {
            let [connections] = *a else { return None };
            Some(size_of::<ControlBlock>() as f64 * connections)
        }),
    ];
    all.extend_from_slice(COSTS);
    all
}
