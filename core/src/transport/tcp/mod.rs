//! TCP.
pub mod stack;
