//! Scenario files from the outside: what they mean, what is refused and with which words, and what sweeps and `--set` make of
//! them.

mod classes;
mod edited;
mod read;
mod refused;
mod schema;
mod swept;

/// A scenario with one of everything.
const DUMBBELL: &str = r#"
[run]
title = "One of everything"
duration = "60s"
[record]
flows = true
rate_interval = "30ms"
[[host]]
name = "sender"
timer_phase = "120ms"
[[host]]
name = "receiver"
[[router]]
name = "r1"
[[router]]
name = "r2"
[[link]]
from = "sender"
to = "r1"
rate = "100Mbit/s"       # of whole IP packets
delay = "1ms"
mtu = "4352B"
queue = "fifo:1MiB"
[[link]]
from = "r1"
to = "r2"
rate = "45Mbit/s"
delay = "5ms"
mtu = "4352B"
queue = { kind = "loss", packets = [3, 9], inner = "fifo:1.5BDP" }
backward = { rate = "10Mbit/s", queue = "fifo:50p" }
change = [{ at = "20s", delay = "20ms" }, { at = "10s", rate = "30Mbit/s" }]
[[link]]
from = "r2"
to = "receiver"
rate = "100Mbit/s"
delay = "1ms"
mtu = "4352B"
[[flow]]
name = "bulk"
from = "sender"
to = "receiver"
stack = "net2"
controller = "reno"
window = "90kB"
size = "31.25MiB"
count = 3
stagger = "100ms"
[[flow]]
from = "receiver"
to = "sender"
stack = { name = "net2", recovery = "newreno" }
receiver_stack = "rfc"
controller = { name = "reno", extra = 4 }
window = "2BDP"
start = "1s"
stop = "30s"
[[flow]]
name = "cross"
from = "sender"
to = "receiver"
transport = "udp"
rate = "20Mbit/s"
packet = "1500B"
on = [["0s", "10s"], ["20s", "40s"]]
"#;
