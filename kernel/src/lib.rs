//! Narrows inside the Linux kernel: congestion controls as BPF programs, and their loader.
