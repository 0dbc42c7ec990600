//! `narrows emulate`: a program behind an emulated path. Where the machine allows no namespaces or TUN devices, these say so and
//! pass.

use super::refused::refused;
use super::{Folder, narrows, skipped, stderr, stdout};
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// `narrows emulate FLAGS -- CMD`; `None`, and why, where the machine allows none.
fn emulate(flags: &[&str], cmd: &[&str]) -> Option<Output> {
    let output = narrows().arg("emulate").args(flags).arg("--").args(cmd).output().unwrap();
    if output.status.code() == Some(2) && stderr(&output).contains("TUN") | stderr(&output).contains("root") {
        skipped(stderr(&output));
        return None;
    }
    Some(output)
}

/// Sends a datagram to port $PORT of the host side, waits for its echo, and prints the host's address and the milliseconds. A
/// read takes one character, and the rest of the datagram is gone.
const PING: &str = r#"exec 3<>/dev/udp/$NARROWS_HOST/$PORT
echo >&3; read -t 2 -N 1 <&3; began=$EPOCHREALTIME; echo hello >&3; read -t 2 -N 1 -r word <&3; ended=$EPOCHREALTIME
echo $NARROWS_HOST $(( (${ended/./} - ${began/./}) / 1000 )) $word"#;

/// Answers every datagram, while the test runs.
fn echo() -> u16 {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut packet = [0; 100];
        while let Ok((n, from)) = socket.recv_from(&mut packet) {
            let _ = socket.send_to(&packet[..n], from);
        }
    });
    port
}

/// The host, the milliseconds, and the word of [`PING`].
fn pinged(output: &Output) -> (String, u64, String) {
    let words: Vec<&str> = stdout(output).split_whitespace().collect();
    assert_eq!(words.len(), 3, "{} {}", stdout(output), stderr(output));
    (words[0].into(), words[1].parse().unwrap(), words[2].into())
}

#[test]
fn its_programs_exit_code_is_its_own() {
    for (cmd, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        let Some(output) = emulate(&["--quiet"], &["sh", "-c", cmd]) else { return };
        assert_eq!(output.status.code(), Some(code), "{cmd}: {}", stderr(&output));
    }
    let Some(output) = emulate(&["--quiet"], &["no-such-program"]) else { return };
    assert_eq!(output.status.code(), Some(127));
    assert!(stderr(&output).contains("no-such-program cannot be run"), "{}", stderr(&output));
}

#[test]
fn a_round_trip_takes_both_delays_and_the_account_says_what_passed() {
    let (port, folder) = (echo().to_string(), Folder::new());
    let file = folder.0.join("account.json").display().to_string();
    let capture = folder.0.join("path.pcapng").display().to_string();
    let flags = ["--up", "delay=15ms", "--down", "delay=5ms", "--account", &file, "--pcap", &capture];
    let Some(output) = emulate(&flags, &["env", &format!("PORT={port}"), "bash", "-c", PING]) else { return };
    let (host, ms, word) = pinged(&output);
    assert!(host.starts_with("100.") && word == "h", "{host} {word}");
    assert!((20..30).contains(&ms), "{ms} ms");
    let said = stderr(&output);
    for words in ["up    2 packets", "down  2 packets", "dropped none", "late (p50/p99/max)"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let account: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(account["directions"][0]["sent"], 2);
    assert_eq!(account["directions"][1]["queue"]["arrived"], 2);
    let captured = fs::read(&capture).unwrap();
    let packets = captured.windows(6).filter(|w| *w == b"hello\n").count();
    assert_eq!((&captured[..4], packets), (&[0x0A, 0x0D, 0x0D, 0x0A][..], 4), "there and back, at both ends");
}

#[test]
fn paths_nest_and_the_outermost_host_stays_the_host() {
    let port = format!("PORT={}", echo());
    let inner = [env!("CARGO_BIN_EXE_narrows"), "emulate", "--delay", "5ms", "-q", "--", "bash", "-c", PING];
    let twice = [env!("CARGO_BIN_EXE_narrows"), "emulate", "--delay", "3ms", "-q", "--"];
    let cmd: Vec<&str> = ["env", &port].into_iter().chain(twice).chain(inner).collect();
    let Some(output) = emulate(&["--delay", "10ms", "-q"], &cmd) else { return };
    let (_, ms, word) = pinged(&output);
    assert!((36..50).contains(&ms) && word == "h", "{ms} ms");
}

#[test]
fn two_side_by_side_have_hosts_of_their_own() {
    let cmd = [env!("CARGO_BIN_EXE_narrows"), "emulate", "-q", "--", "sh", "-c", "echo $NARROWS_HOST"];
    let beside = narrows()
        .args(["emulate", "-q", "--", "sh", "-c", "echo $NARROWS_HOST; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (beside, first) = first_line(beside);
    if first.is_empty() {
        return skipped("no emulation here");
    }
    let other = Command::new(cmd[0]).args(&cmd[1..]).output().unwrap();
    assert!(
        stdout(&other).starts_with("100.") && stdout(&other).trim() != first,
        "{first} {}",
        stdout(&other)
    );
    drop(beside); // its stdin closes, so it ends
}

fn first_line(mut child: Child) -> (Child, String) {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_string())
}

/// Until it is so, two seconds at most.
fn soon(mut so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !so() {
        if began.elapsed() > Duration::from_secs(2) {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn kill_9_leaves_no_device_and_no_program() {
    // A shell that waits for its child, one that has left it in a session of its own, and a server with another.
    let script = "echo $$ $NARROWS_HOST; setsid sh -c 'sleep 1717; :' & sleep 1718; :";
    let child = narrows()
        .args(["emulate", "-q", "--serve", "sh -c 'sleep 1719; :'; :", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut child, line) = first_line(child);
    let Some((pid, host)) = line.split_once(' ') else { return skipped("no emulation here") };
    let third: u32 = host.split('.').nth(2).unwrap().parse().unwrap();
    let second: u32 = host.split('.').nth(1).unwrap().parse().unwrap();
    let device = format!("/sys/class/net/narrows{}", (second - 64) * 2 + third / 128);
    let sleepers = || {
        let programs =
            fs::read_dir("/proc").unwrap().filter_map(|p| fs::read(p.ok()?.path().join("cmdline")).ok());
        let all: Vec<Vec<u8>> = programs.collect();
        ["1717", "1718", "1719"]
            .iter()
            .filter(|s| all.contains(&format!("sleep\0{s}\0").into_bytes()))
            .count()
    };
    let shell = || Path::new(&format!("/proc/{pid}")).exists();
    assert!(Path::new(&device).exists() && soon(|| sleepers() == 3 && shell()), "{device} {}", sleepers());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        soon(|| sleepers() == 0 && !shell() && !Path::new(&device).exists()),
        "{device} {} {pid}",
        sleepers()
    );
}

#[test]
fn a_signal_for_it_reaches_its_program() {
    let script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.02; done";
    // What a background job inherits is a SIGINT that is ignored, and no shell can trap that.
    let child = Command::new("env")
        .args([
            "--default-signal=INT",
            env!("CARGO_BIN_EXE_narrows"),
            "emulate",
            "-q",
            "--",
            "sh",
            "-c",
            script,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut child, line) = first_line(child);
    if line != "ready" {
        return skipped("no emulation here");
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// The tool as nobody, with a /dev/net/tun that everyone may open, or with the machine's own; in a private mount namespace.
fn as_nobody(folder: &Folder, open_tun: bool, args: &[&str]) -> Option<Output> {
    let copy = folder.0.join("narrows");
    fs::copy(env!("CARGO_BIN_EXE_narrows"), &copy).unwrap();
    let tun = if open_tun { "chmod 0666 tun" } else { "chmod 0600 tun" };
    let script = format!(
        "set -e; mount -t tmpfs none '{0}/m'; cp narrows m/; cd m; chmod 755 . narrows; mknod tun c 10 200; {tun}
        mount --bind tun /dev/net/tun
        exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all ./narrows \"$@\"",
        folder.0.display()
    );
    fs::create_dir(folder.0.join("m")).ok();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]).args(args).env("NO_COLOR", "1").arg0("unshare");
    let output = command.current_dir(&folder.0).output().unwrap();
    if stderr(&output).contains("unshare:") || stderr(&output).contains("mount:") {
        skipped(stderr(&output));
        return None;
    }
    Some(output)
}

#[test]
fn without_root_the_host_side_is_a_network_of_its_own_with_servers_in_it() {
    let folder = Folder::new();
    let serve = "exec iperf3 -s -p 5999 >/dev/null";
    let cmd = ["sh", "-c", "id -u; iperf3 -c $NARROWS_HOST -p 5999 -n 100K >/dev/null && echo done"];
    let flags = ["emulate", "--rate", "45Mbit/s", "--delay", "1ms", "--serve", serve, "--"];
    let Some(output) = as_nobody(&folder, true, &[&flags[..], &cmd].concat()) else { return };
    if stderr(&output).contains("iperf3: not found") {
        return skipped("iperf3 is not installed");
    }
    assert_eq!(stdout(&output), "0\ndone\n", "{}", stderr(&output));
    assert!(stderr(&output).contains("not root, so the host side is an empty network of its own"));
    assert!(stderr(&output).contains("ordinary scheduling"), "{}", stderr(&output));
}

#[test]
fn without_root_and_without_a_tun_device_it_says_what_is_missing() {
    let folder = Folder::new();
    let Some(output) = as_nobody(&folder, false, &["emulate", "--", "true"]) else { return };
    refused(&output, &["/dev/net/tun may not be opened", "chmod 0666"]);
}

#[test]
fn wrong_flags_get_the_words_of_scenario_files() {
    for (flags, words) in [
        (&["--rate", "0Mbit/s"][..], &["nothing passes at rate zero"][..]),
        (&["--delay", "5"], &["5 has no unit"]),
        (&["--queue", "fifoo:3p"], &["unknown queue", "fifo"]),
        (&["--queue", "fifo:100B"], &["smaller than one packet"]),
        (&["--loss", "2"], &["probability"]),
        (&["--up", "speed=3"], &["no setting", "rate, delay, queue"]),
        (&["--trace", "nowhere"], &["nowhere cannot be read"]),
        (&["--up", "rate=1Mbit/s,trace=x"], &["not both"]),
    ] {
        let output = narrows().arg("emulate").args(flags).args(["--", "true"]).output().unwrap();
        refused(&output, words);
    }
}

#[test]
fn a_recording_gives_the_rate() {
    let folder = Folder::new();
    let file = folder.file("1.5mbit.trace", "8\n").display().to_string();
    let port = echo();
    // 10 datagrams of 1472 bytes at one opportunity each 8 ms: the last one's echo cannot be back before 80 ms.
    let script = format!(
        "exec 3<>/dev/udp/$NARROWS_HOST/{port}; line=$(printf '%01471d' 0); began=$EPOCHREALTIME
        for i in 1 2 3 4 5 6 7 8 9 10; do echo $line >&3; done
        for i in 1 2 3 4 5 6 7 8 9 10; do read -t 2 -N 1 -r c <&3; done; ended=$EPOCHREALTIME
        echo $(( (${{ended/./}} - ${{began/./}}) / 1000 ))"
    );
    let trace = format!("trace={file}");
    let Some(output) = emulate(&["--up", &trace, "-q"], &["bash", "-c", &script]) else { return };
    let ms: u64 = stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert!((72..110).contains(&ms), "{ms} ms");
}
