//! `narrows kernel`, as root; its refusals as anyone.

use super::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn kernel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_narrows")).arg("kernel").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A BPF file system and the right to use it are here.
fn possible() -> bool {
    let root = fs::read_to_string("/proc/self/status").unwrap().contains("\nUid:\t0\t");
    let here = root && Path::new("/sys/kernel/btf/vmlinux").exists();
    if !here {
        eprintln!("SKIPPED: needs root and a kernel with BTF");
    }
    here
}

/// Unloads what a test loaded, whatever happens.
struct Unloading(String);

impl Drop for Unloading {
    fn drop(&mut self) {
        kernel(&["unload", &self.0]);
    }
}

#[test]
fn a_controller_is_loaded_listed_watched_and_unloaded() {
    if !possible() {
        return;
    }
    let name = format!("ct{}", std::process::id());
    let loaded = kernel(&["load", "becc", "--trigger", "3", "--ms-period", "20ms", "--as", &name]);
    let _unloading = Unloading(name.clone());
    assert!(
        loaded.status.success() && said(&loaded).contains(&format!("iperf3 -C {name}")),
        "{}",
        said(&loaded)
    );
    assert!(said(&kernel(&["load", "becc", "--as", &name])).contains("has a congestion control"));

    let listed = kernel(&["list", "--format", "json"]);
    let list: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let ours = list["loaded"].as_array().unwrap().iter().find(|l| l["name"] == name.as_str()).unwrap();
    assert_eq!(ours["program"], "becc");
    assert_eq!(
        (&ours["parameters"]["trigger"], &ours["parameters"]["ms_period"]),
        (&"3".into(), &"20ms".into())
    );
    assert!(list["others"].as_array().unwrap().contains(&"reno".into()));
    assert!(said(&kernel(&["list"])).contains("--trigger 3"));

    let mut watch = Command::new(env!("CARGO_BIN_EXE_narrows"))
        .args(["kernel", "watch", &name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut head = String::new();
    BufReader::new(watch.stdout.as_mut().unwrap()).read_line(&mut head).unwrap();
    assert!(head.contains("snd_swnd") && head.contains("t_minrtt"), "{head}");
    assert!(said(&kernel(&["watch", &name])).contains("being watched already"));
    Command::new("kill").args(["-INT", &watch.id().to_string()]).status().unwrap();
    assert!(watch.wait().unwrap().success(), "Ctrl-C is how it ends");

    let mut watch = Command::new(env!("CARGO_BIN_EXE_narrows"))
        .args(["kernel", "watch", &name])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(watch.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let over = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        watch.try_wait().unwrap().is_some()
    });
    if !over {
        watch.kill().unwrap();
    }
    assert_eq!(watch.wait().unwrap().code(), Some(141), "nobody reads it, and no connection says anything");

    let unloaded = kernel(&["unload", &name]);
    assert!(unloaded.status.success() && said(&unloaded).contains("is unloaded"), "{}", said(&unloaded));
    assert_eq!(kernel(&["unload", &name]).status.code(), Some(2));
    assert!(said(&kernel(&["unload", "reno"])).contains("not ours to unload"));
    assert!(said(&kernel(&["watch", &name])).contains("nothing to watch"));
}

#[test]
fn its_flags_are_the_controllers_parameters_and_their_refusals_say_what_to_write() {
    let help = said(&kernel(&["load", "becc", "--help"]));
    assert!(help.contains("--update-period") && help.contains("default: 30ms"), "{help}");
    for (arguments, words) in [
        (&["load", "becc", "--ms-period", "30"][..], "30ms"),
        (&["load", "becc", "--trigger", "0"], "duplicate ACKs"),
        (&["load", "becc", "--alpha-weighs", "neither"], "old"),
        (&["load", "vegas"], "becc or becc-modern"),
    ] {
        let refused = kernel(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert!(said(&refused).contains(words), "{arguments:?}: {}", said(&refused));
    }
}

/// A device, which goes with the value, and what is attached to it with the device.
struct Device(String);

impl Drop for Device {
    fn drop(&mut self) {
        kernel(&["detach", "ackwin", "--dev", &self.0]);
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn ackwin_is_attached_to_a_device_listed_and_detached() {
    if !possible() {
        return;
    }
    let device = Device(format!("cd{}", std::process::id()));
    let name = device.0.as_str();
    if !Command::new("ip").args(["link", "add", name, "type", "veth"]).status().is_ok_and(|s| s.success()) {
        eprintln!("SKIPPED: needs iproute2 and veth");
        return;
    }
    let attach =
        ["attach", "ackwin", "--dev", name, "--rate", "45Mbit/s", "--limit", "128KiB", "--rtt", "40ms"];
    let attached = kernel(&attach);
    assert!(attached.status.success() && said(&attached).contains("detach ackwin"), "{}", said(&attached));
    assert!(said(&kernel(&attach)).contains("attached to"), "once is enough");

    let list: Value = serde_json::from_slice(&kernel(&["list", "--format", "json"]).stdout).unwrap();
    let ours = list["devices"].as_array().unwrap().iter().find(|d| d["device"] == name).unwrap();
    assert_eq!(
        ours["parameters"],
        serde_json::json!({ "rate": "45Mbit/s", "limit": "128KiB", "rtt": "40ms", "policy": "share" })
    );
    assert_eq!(["passed", "rewritten", "unknown", "floored"].map(|c| ours[c].as_u64()), [Some(0); 4]);
    assert!(said(&kernel(&["list"])).contains("--rate 45Mbit/s --limit 128KiB --rtt 40ms --policy share"));

    let detached = kernel(&["detach", "ackwin", "--dev", name]);
    assert!(detached.status.success() && said(&detached).contains("0 ACKs"), "{}", said(&detached));
    let again = kernel(&["detach", "ackwin", "--dev", name]);
    assert_eq!(again.status.code(), Some(2));
    assert!(said(&again).contains("not attached"), "{}", said(&again));
}

#[test]
fn attaching_with_a_wrong_word_says_what_to_write() {
    let help = said(&kernel(&["attach", "ackwin", "--help"]));
    assert!(["--dev", "--rate", "--limit", "--rtt", "share"].iter().all(|f| help.contains(f)), "{help}");
    for (dev, rate, limit, words) in [
        ("nodevice0", "45Mbit/s", "128KiB", "write --dev with one of"),
        ("lo", "45", "128KiB", "45Mbit/s"),
        ("lo", "45mbps", "128KiB", "write 45 Mbit/s"),
        ("lo", "0bit/s", "128KiB", "--rate 45Mbit/s"),
        ("lo", "45Mbit/s", "100p", "not a unit of an amount of data"),
        ("lo", "45Mbit/s", "0B", "--limit 128KiB"),
    ] {
        let refused = kernel(&["attach", "ackwin", "--dev", dev, "--rate", rate, "--limit", limit]);
        assert_eq!(refused.status.code(), Some(2), "{dev} {rate} {limit}");
        assert!(said(&refused).contains(words), "{}", said(&refused));
    }
}
