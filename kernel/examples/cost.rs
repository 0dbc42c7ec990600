//! What a controller of ours costs per ACK beside the kernel's own cubic, in one run, on the loopback of a network namespace of
//! our own:
//!
//! * all CPU time of a process that is both ends of a connection, the kernel's work for both in it, over the ACKs that were
//!   received: it writes two segments, reads them, writes the next two, so that every control sees the same packets, and an
//!   ACK for every other segment. The controls take turns, and the medians are compared;
//! * time in the control alone, as the kernel counts it for BPF programs: ours, and cubic's own functions called from a
//!   program, so that both pass the same trampolines; over a bottleneck of 400 Mbit/s with a short queue, so that there are
//!   loss and recovery. Ours contains what the kernel does itself for cubic and does not count: the window in recovery and the
//!   pacing rate. Nothing paces here: ACKs of paced segments come one by one, into cold caches, whatever the control.
//!
//! As root: cargo run --release -p narrows-kernel --example cost [-- ROUNDS]
#![allow(clippy::disallowed_methods)] // real connections take real time

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{MapCore, ObjectBuilder};
use narrows_kernel::PROGRAMS;
use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

const BYTES: usize = 16 << 20;
/// Two segments of an MTU of 1500 bytes with timestamps.
const PAIR: usize = 2 * 1448;
/// Over the bottleneck: a third of a second.
const SLOW: usize = 16 << 20;
/// What a control may cost, of all CPU time per ACK under cubic.
const MOST: f64 = 1.5;
const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const WRAPPED: &str = "nkcostcubic";

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(9), |n| n.parse())?;
    unshare(CloneFlags::CLONE_NEWNET)
        .map_err(|e| format!("a network namespace of our own needs root: {e}"))?;
    run("ip link set lo up mtu 1500")?;
    run("ethtool -K lo tso off gro off")?;

    let mut measure = ObjectBuilder::default()
        .open_memory(include_bytes!(concat!(env!("OUT_DIR"), "/measure.o")))?
        .load()?;
    let _cubic =
        measure.maps_mut().find(|m| m.name() == "controller").ok_or("a controller")?.attach_struct_ops()?;
    let mut loaded = Vec::new();
    for (i, program) in PROGRAMS.iter().enumerate() {
        let off = [("pacing".to_string(), "false".to_string())];
        let given = if program.parameters().any(|p| p.name == "pacing") { &off[..] } else { &[] };
        let settings = narrows_lab::file::controller(program.name(), given)?.settings;
        let name = format!("nkc{}_{i}", std::process::id());
        loaded.push((program.name(), narrows_kernel::load(program, &name, &settings)?));
    }
    let mut controls = vec![("cubic", "cubic".to_string())];
    controls.extend(loaded.iter().map(|(name, l)| (*name, l.name().to_string())));

    let (mut per_ack, mut heard) = (BTreeMap::<&str, Vec<f64>>::new(), BTreeMap::<&str, u64>::new());
    for _ in 0..=rounds {
        for (name, control) in &controls {
            let (cpu, acks) = transfer(control, BYTES, PAIR)?;
            *heard.entry(name).or_default() += acks;
            per_ack.entry(name).or_default().push(cpu.as_nanos() as f64 / acks as f64);
        }
    }
    let median = |v: &Vec<f64>| {
        let mut v = v[1..].to_vec(); // the first warms up
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let (cubic, mut dearest) = (median(&per_ack["cubic"]), 0.0_f64);
    println!(
        "all CPU time of both ends per ACK received, median of {rounds} alternating transfers of {} MiB:",
        BYTES >> 20
    );
    for (name, _) in &controls {
        let ours = median(&per_ack[name]);
        dearest = dearest.max(ours / cubic);
        println!(
            "  {name:<12} {ours:>7.0} ns   {:.3} of cubic   ({} ACKs in all)",
            ours / cubic,
            heard[name]
        );
    }

    run("tc qdisc add dev lo root tbf rate 400mbit burst 32kb limit 150kb")?;
    let _counting = Counting::start()?;
    let of_cubic = in_control(
        WRAPPED,
        &["cubic_cong_avoid", "cubic_acked", "cubic_state", "cubic_cwnd_ev"],
        "cubic_acked",
    )?;
    println!("time in the control alone per ACK, by the kernel's own count:");
    println!("  {:<12} {of_cubic:>7.0} ns   (its own functions, called from a program)", "cubic");
    for (name, program) in &loaded {
        let prefix = if *name == "becc" { "becc" } else { "modern" };
        let names = [format!("{prefix}_cong_co"), format!("{prefix}_set_sta")];
        let ours = in_control(program.name(), &[&names[0], &names[1]], &names[0])?;
        println!("  {name:<12} {ours:>7.0} ns   {:.3} of cubic", ours / of_cubic);
    }
    if dearest > MOST {
        Err(format!("{dearest:.3} of cubic's CPU time per ACK, {MOST} are allowed").into())
    } else {
        Ok(())
    }
}

fn run(command: &str) -> Result<(), Box<dyn Error>> {
    let mut words = command.split(' ');
    let done = Command::new(words.next().ok_or("a command")?).args(words).output()?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!("{command}: {}", String::from_utf8_lossy(&done.stderr)).into())
    }
}

/// Turns the kernel's counting of BPF programs' time on, and off again.
struct Counting(String);

impl Counting {
    fn start() -> Result<Counting, Box<dyn Error>> {
        let before = std::fs::read_to_string(STATS)?;
        std::fs::write(STATS, "1")?;
        Ok(Counting(before))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = std::fs::write(STATS, &self.0);
    }
}

/// Nanoseconds per call of `per` spent in the programs whose names begin so.
fn in_control(control: &str, programs: &[&str], per: &str) -> Result<f64, Box<dyn Error>> {
    let sum = || {
        let (mut nanos, mut calls) = (0, 0);
        for info in ProgInfoIter::default() {
            let name = info.name.to_string_lossy().into_owned();
            if programs.iter().any(|p| name.starts_with(p)) {
                nanos += info.run_time_ns;
            }
            if name.starts_with(per) {
                calls += info.run_cnt;
            }
        }
        (nanos, calls)
    };
    transfer(control, SLOW, 1 << 16)?;
    let before = sum();
    for _ in 0..5 {
        transfer(control, SLOW, 1 << 16)?;
    }
    let after = sum();
    Ok((after.0 - before.0) as f64 / (after.1 - before.1) as f64)
}

/// CPU time of a transfer in this process, and the ACKs received in it.
fn transfer(control: &str, bytes: usize, at_once: usize) -> Result<(Duration, u64), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_tcp_congestion(control.as_bytes())?;
    socket.connect(&listener.local_addr()?.into())?;
    let (mut near, mut far) = (TcpStream::from(socket), listener.accept()?.0);
    near.set_nodelay(true)?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let mut buffer = vec![0; 1 << 16];
    let (mut sent, mut received) = (0, 0);
    let (cpu, acks) = (cpu()?, acks()?);
    while received < bytes {
        let before = (sent, received);
        if sent < bytes && (at_once > PAIR || sent == received) {
            sent += done(near.write(&buffer[..(bytes - sent).min(at_once)]))?;
        }
        received += done(far.read(&mut buffer))?;
        if before == (sent, received) {
            std::thread::sleep(Duration::from_micros(50)); // a repair is under way
        }
    }
    Ok((self::cpu()?.saturating_sub(cpu), self::acks()? - acks))
}

fn done(result: std::io::Result<usize>) -> std::io::Result<usize> {
    match result {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

fn cpu() -> Result<Duration, Box<dyn Error>> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// ACKs received in this namespace: `TCPPureAcks` and `TCPHPAcks`.
fn acks() -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat")?;
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("TcpExt:"));
    let (names, values) = lines.next().zip(lines.next()).ok_or("TcpExt")?;
    let pairs = names.split_whitespace().zip(values.split_whitespace());
    Ok(pairs
        .filter(|(n, _)| matches!(*n, "TCPPureAcks" | "TCPHPAcks"))
        .filter_map(|(_, v)| v.parse::<u64>().ok())
        .sum())
}
