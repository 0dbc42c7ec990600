//! What Narrows shows of its runs: figures ([`figure`], [`plan`], [`svg`]), one self-contained page ([`page`]), tables
//! ([`table`], CSV and Parquet), and files that appear whole or not at all ([`output`]).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]
// This crate faces the reader: nothing it computes feeds back into a run.
#![allow(clippy::disallowed_methods)]

mod defaults;
pub mod figure;
mod format;
pub mod output;
pub mod page;
pub mod pcapng;
pub mod plan;
#[cfg(test)]
mod specimen;
pub mod svg;
pub mod table;

pub use defaults::default_figures;
