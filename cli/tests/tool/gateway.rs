//! `narrows gateway` as its operator meets it. What it does to packets is tested beside its code.

use super::refused::refused;
use super::{Folder, narrows, run, skipped, stdout};
use narrows_net::namespace::Namespace;
use narrows_net::netlink::Netlink;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

const CONFIG: &str = "rate = \"10Mbit/s\"\ndelay = \"1ms\"\nqueue = \"fifo:64KiB\"\n";

#[test]
fn a_configuration_is_checked_without_privileges_or_interfaces() {
    let folder = Folder::new();
    folder.file("good.toml", format!("{CONFIG}backward = {{ rate = \"2Mbit/s\" }}\n"));
    let output = run(&folder, &["gateway", "--check", "--config", "good.toml"]);
    let said = "good.toml: good\n  forward: 10Mbit/s, 1ms, MTU 1500B, queue { kind = \"fifo\", limit = \"64KiB\" }\n  \
                backward: 2Mbit/s, 1ms, MTU 1500B, queue { kind = \"fifo\", limit = \"64KiB\" }\n";
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), said));
    let bad = |text: &str, words: &[&str]| {
        folder.file("bad.toml", text);
        refused(&run(&folder, &["gateway", "--check", "--config", "bad.toml"]), words);
    };
    bad("rate = \"10Mbit/s\"", &["`delay` is missing"]);
    bad(&CONFIG.replace("queue", "qeue"), &["unknown key \"qeue\"", "did you mean \"queue\"?"]);
    bad(&CONFIG.replace("64KiB", "2BDP"), &["needs a round-trip time", "rtt = \"40ms\""]);
    bad(&format!("{CONFIG}metrics = \"9464\""), &["\"9464\" is no address", "127.0.0.1:9464"]);
    bad(&format!("{CONFIG}change = [{{ at = \"1s\", rate = \"1Mbit/s\" }}]"), &["no timetable", "SIGHUP"]);
    refused(&run(&folder, &["gateway", "--config", "good.toml"]), &["--between"]);
    refused(&run(&folder, &["gateway", "--check", "--config", "none.toml"]), &["none.toml cannot be read"]);
}

/// A namespace with the interfaces left and right, and one with their other ends.
struct Site {
    middle: Namespace,
    outside: Namespace,
}

impl Site {
    fn new() -> Option<Site> {
        if fs::metadata("/proc/self").map_or(1, |m| m.uid()) != 0 {
            skipped("a gateway needs root");
            return None;
        }
        let site = Site { middle: Namespace::new().unwrap(), outside: Namespace::new().unwrap() };
        site.plug("left");
        site.plug("right");
        Some(site)
    }

    fn plug(&self, name: &str) {
        let outer = format!("{name}0");
        self.outside
            .enter(|| {
                let net = Netlink::open()?;
                net.veth(&outer, name, &self.middle)?;
                net.up(&outer, None, None)
            })
            .unwrap();
        self.middle.enter(|| Netlink::open()?.up(name, None, None)).unwrap();
    }

    fn stand(&self, folder: &Path, config: &str) -> Standing {
        Standing::between(&self.middle, folder, config)
    }
}

/// A running gateway; killed if a test fails.
pub(super) struct Standing {
    pub(super) child: Child,
    said: Receiver<String>,
    heard: Vec<String>,
}

impl Standing {
    /// Between the interfaces left and right of `middle`.
    pub(super) fn between(middle: &Namespace, folder: &Path, config: &str) -> Standing {
        let mut command = narrows();
        command.current_dir(folder).args(["gateway", "--between", "left", "right", "--config", config]);
        middle.confine(&mut command).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (say, said) = channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| say.send(line)));
        Standing { child, said, heard: Vec::new() }
    }

    /// Waits for a line with these words on standard error, and gives it.
    #[track_caller]
    pub(super) fn hear(&mut self, words: &str) -> String {
        loop {
            match self.said.recv_timeout(Duration::from_secs(10)) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => self.heard.push(line),
                Err(_) => panic!("`{words}` is not in {:?}", self.heard),
            }
        }
    }

    pub(super) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it, and gives its account.
    pub(super) fn end(mut self) -> String {
        self.signal("-TERM");
        let output = std::mem::replace(&mut self.child, Command::new("true").spawn().unwrap());
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        stdout(&output).to_string()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_gateway_gives_up_its_privileges_reloads_sits_out_a_lost_interface_and_ends_with_an_account() {
    let Some(site) = Site::new() else { return };
    // Where the user it becomes can read it.
    let folder = std::env::temp_dir().join(format!("narrows-gateway-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let config = folder.join("gateway.toml");
    fs::write(&config, CONFIG).unwrap();
    let mut gateway = site.stand(&folder, "gateway.toml");
    gateway.hear("as user nobody, without capabilities");

    fs::write(&config, CONFIG.replace("10Mbit", "0Mbit")).unwrap();
    gateway.signal("-HUP");
    gateway.hear("nothing passes at rate zero");
    fs::write(&config, CONFIG.replace("10Mbit", "20Mbit")).unwrap();
    gateway.signal("-HUP");
    gateway.hear("reloaded: forward: 20Mbit/s");

    let tasks = fs::read_dir(format!("/proc/{}/task", gateway.child.id())).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for line in ["Uid:\t65534\t65534\t65534\t65534", "Groups:\t \n", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{line}: {status}");
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(status.contains(&format!("{set}:\t0000000000000000")), "{set}: {status}");
        }
        threads += 1;
    }
    assert!(threads >= 2, "one moves packets, one hears signals");

    site.middle.enter(|| Netlink::open()?.remove("left")).unwrap();
    gateway.hear("left is gone");
    site.plug("left");
    gateway.hear("left is back");

    let said = gateway.end();
    fs::remove_dir_all(&folder).unwrap();
    assert!(said.contains("every packet is accounted for") && said.contains("late "), "{said}");
}

#[test]
fn a_configuration_that_the_later_user_cannot_read_is_a_warning_at_the_start() {
    let Some(site) = Site::new() else { return };
    let folder = Folder::new();
    let config = folder.file("secret.toml", CONFIG);
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    let mut gateway = site.stand(&folder.0, "secret.toml");
    gateway.hear("secret.toml cannot be read any more by this user: SIGHUP will change nothing");
    gateway.signal("-INT");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_interface_that_is_not_there_is_refused_with_those_that_are() {
    let Some(site) = Site::new() else { return };
    let folder = Folder::new();
    folder.file("x.toml", CONFIG);
    let mut command = narrows();
    command.current_dir(&folder.0).args(["gateway", "--between", "left", "wrong", "--config", "x.toml"]);
    site.middle.confine(&mut command).unwrap();
    refused(&command.output().unwrap(), &["no interface wrong", "left", "right"]);
}
