use super::DUMBBELL;
use narrows_core::registry::{Kind, Parameter, Value};
use narrows_core::units::{Bytes, Rate};
use narrows_lab::file::{Document, Family, Inner, parse};
use narrows_lab::scenario::{Change, Line, Scenario, TcpFlow, Transport};
use proptest::prelude::*;
use std::time::Duration;

fn dumbbell() -> Scenario {
    parse("papers/dumbbell.toml", DUMBBELL).unwrap_or_else(|e| panic!("{e}: {:?}", e.advice()))
}

fn tcp<'s>(s: &'s Scenario, flow: &str) -> &'s TcpFlow {
    match &s.flows.iter().find(|f| f.name == flow).unwrap().transport {
        Transport::Tcp(tcp) => tcp,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_defaults_and_copies() {
    let s = dumbbell();
    assert_eq!((s.name.as_str(), s.title.as_str()), ("dumbbell", "One of everything"));
    assert_eq!(s.duration, Duration::from_secs(60));
    let names: Vec<&str> = s.flows.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["bulk-1", "bulk-2", "bulk-3", "flow-2", "cross"]);
    assert_eq!(s.flows[2].start, Duration::from_millis(200), "staggered");
    let links: Vec<&str> = s.links.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(links, ["sender>r1", "r1>r2", "r2>receiver"]);
    assert_eq!(tcp(&s, "bulk-1").window, Bytes(90_000));
    assert_eq!(tcp(&s, "bulk-1").send_buffer, Bytes(180_000), "twice the window");
    assert_eq!(s.nodes[0].timer_phase, Some(Duration::from_millis(120)));
    assert_eq!((s.record.flows, s.record.queues), (true, false));
    assert_eq!(s.links[2].forward.queue.settings.value("limit"), Some(&Value::Packets(1000)));
}

#[test]
fn what_backward_does_not_say_is_as_forward() {
    let s = dumbbell();
    let line = &s.links[1];
    assert_eq!((line.forward.rate, line.backward.rate), (Rate(45_000_000), Rate(10_000_000)));
    assert_eq!(
        (line.forward.delay, line.backward.delay),
        (Duration::from_millis(5), Duration::from_millis(5))
    );
    assert_eq!(line.backward.queue.name, "fifo");
    assert_eq!(line.forward.changes, line.backward.changes);
    let first = Change { at: Duration::from_secs(10), rate: Some(Rate(30_000_000)), delay: None };
    assert_eq!(line.forward.changes[0], first, "in order of time");
}

#[test]
fn a_bandwidth_delay_product_is_line_rate_times_the_longest_base_rtt() {
    let s = dumbbell();
    let inner = s.links[1].forward.queue.inner.as_ref().unwrap();
    // 45 Mbit/s x 14 ms = 78,750 bytes
    assert_eq!(inner.settings.value("limit"), Some(&Value::Bytes(Bytes(118_125))));
    // flow-2 is limited by the 10 Mbit/s back: 17,500 bytes
    assert_eq!(tcp(&s, "flow-2").window, Bytes(35_000));
}

#[test]
fn stacks_are_defaults_then_their_values_then_the_files() {
    let s = dumbbell();
    let (bulk, other) = (tcp(&s, "bulk-1"), tcp(&s, "flow-2"));
    assert_eq!(bulk.stack.settings.word("recovery"), "reno", "net2's");
    assert_eq!(bulk.stack.settings.word("rto"), "ticks", "net2's");
    assert_eq!(bulk.stack.settings.count("ack_every"), 2, "everyone's");
    assert_eq!(bulk.receiver_stack, bulk.stack);
    assert_eq!(other.stack.settings.word("recovery"), "newreno", "the file's");
    assert_eq!(other.receiver_stack.name, "rfc");
    assert_eq!(bulk.controller.settings.count("extra"), 8, "net2's default for its controllers");
    assert_eq!(other.controller.settings.count("extra"), 4, "the file's");
    assert!(!other.controller.settings.flag("count_bytes"), "net2's default for its controllers");
}

#[test]
fn a_kernel_controller_stands_beside_the_controller_of_other_hosts() {
    let s = dumbbell();
    assert_eq!(tcp(&s, "bulk-1").kernel_controller, None);
    assert!(s.needs_no_kernel("sim").is_ok() && !s.to_toml().contains("kernel_controller"));

    let document = Document { name: "dumbbell.toml".into(), text: DUMBBELL.into() };
    let set = document.with("flow.bulk.kernel_controller", "bbr").unwrap().scenario().unwrap();
    assert_eq!(tcp(&set, "bulk-3").kernel_controller.as_deref(), Some("bbr"));
    assert_eq!(tcp(&set, "bulk-3").controller.name, "reno");
    assert_eq!(parse("dumbbell", &set.to_toml()).unwrap(), set);
    let refused = set.needs_no_kernel("wire").unwrap_err();
    assert_eq!(refused.path, "flow.bulk-1.kernel_controller");
    assert!(refused.message.contains("wire has none") && refused.message.contains("leave it out"));

    let text = format!("{DUMBBELL}\n[sweep]\n\"flow.kernel_controller\" = [\"cubic\", \"bbr\"]");
    let swept = Document { name: "x".into(), text }.points().unwrap();
    let second = swept[1].scenario().unwrap();
    let names: Vec<_> = ["bulk-1", "flow-2"].map(|f| tcp(&second, f).kernel_controller.clone()).into();
    assert_eq!(names, [Some("bbr".to_string()), Some("bbr".to_string())], "all TCP flows, and no other");
}

#[test]
fn a_run_ends_by_itself_if_every_flow_has_a_size() {
    let text = DUMBBELL.replace("duration = \"60s\"", "");
    assert!(parse("x", &text).is_err());
    let (head, _) = text.split_once("[[flow]]\nfrom = \"receiver\"").unwrap();
    assert_eq!(parse("x", head).unwrap().duration, Duration::from_secs(3600));
}

#[test]
fn the_resolved_text_reads_as_an_equal_scenario() {
    let document = Document { name: "dumbbell.toml".into(), text: DUMBBELL.into() };
    let resolved = document.resolved().unwrap();
    assert_eq!(parse("elsewhere", &resolved).unwrap(), dumbbell(), "{resolved}");
    assert!(resolved.contains("\"118125B\""), "limits are in bytes:\n{resolved}");
    let again = Document { name: "elsewhere".into(), text: resolved.clone() };
    assert_eq!(again.resolved().unwrap(), resolved);
}

/// A directory of the test's own, removed with everything in it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("narrows-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_list_may_be_a_file_of_numbers_beside_the_scenario() {
    let folder = Folder::new("lists");
    let put = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
    let name = folder.0.join("cell.toml").display().to_string();
    let with = |queue: &str| parse(&name, &DUMBBELL.replace("\"fifo:1MiB\"", queue));
    let refused = |queue: &str, message: &str, advice: &str| {
        let error = with(queue).err().unwrap_or_else(|| panic!("accepted {queue}"));
        let said = format!("{error}: {:?}", error.advice());
        assert!(said.contains(message) && said.contains(advice), "{said}");
        assert_eq!(error.line(), Some(23), "{said}");
    };

    put("cell.txt", "0\n3 3\r\n\n\t10\n");
    let scenario = with("\"trace:cell.txt\"").unwrap();
    let queue = &scenario.links[0].forward.queue;
    assert_eq!(queue.settings.list("at")[..], [0, 3, 3, 10]);
    let resolved = scenario.to_toml();
    assert!(resolved.contains("at = [0, 3, 3, 10]"), "{resolved}");
    assert_eq!(parse("elsewhere.toml", &resolved).unwrap(), scenario, "without the file");
    put("lost.txt", "");
    assert!(with("{ kind = \"loss\", packets = \"lost.txt\" }").is_ok(), "no numbers are a list");

    refused("\"trace:none.txt\"", "none.txt cannot be read: No such file", "relative to the scenario file");
    refused("\"trace:.\"", "is not a file", "[3, 4, 9]");
    refused("\"trace:/dev/zero\"", "/dev/zero is not a file", "[3, 4, 9]");
    put("bad.txt", "1\n2 x3\n4");
    refused("\"trace:bad.txt\"", "bad.txt, line 2: \"x3\" is not a whole number", "one per line");
    put("bad.txt", "1\n\n-3");
    refused("\"trace:bad.txt\"", "line 3: \"-3\" is not", "0 or more");
    put("bad.txt", "1 5 4");
    refused("\"trace:bad.txt\"", "`at` of trace does not fit", "number 3 is 4 after 5");
}

#[test]
fn the_example_of_the_manual_is_a_scenario() {
    let manual = include_str!("../../src/file.rs");
    let block = manual.split("//! ```toml\n").nth(1).and_then(|rest| rest.split("//! ```").next()).unwrap();
    let text: String = block.lines().map(|l| l.trim_start_matches("//!").to_string() + "\n").collect();
    let document = Document { name: "manual".into(), text };
    let points = document.points().unwrap_or_else(|e| panic!("{e}: {:?}", e.advice()));
    assert_eq!((points.len(), points[1].scenario().unwrap().flows.len()), (2, 5));
}

#[test]
fn every_registered_algorithm_can_be_written_with_all_its_parameters() {
    for (family, key) in [
        (Family::Controller, "controller"),
        (Family::Stack, "stack"),
        (Family::Queue, "queue"),
        (Family::AckWindow, "ack_window"),
    ] {
        for algorithm in family.algorithms() {
            let must = |p: &&Parameter| algorithm.default_of(p).is_empty();
            let must: Vec<String> = algorithm.parameters.iter().filter(must).map(example).collect();
            let mut value = format!("{{ {} = \"{}\"", family.key(), algorithm.name);
            must.iter().for_each(|entry| value += &format!(", {entry}"));
            for name in ["burst", "input", "output"] {
                if algorithm.parameters.iter().any(|p| p.name == name) {
                    value += &format!(", {name} = \"9kB\""); // more than the MTU
                }
            }
            value = value.replace("min = \"64KiB\"", "min = \"16KiB\""); // less than max
            let of_a_link = matches!(family, Family::Queue | Family::AckWindow);
            let path = if of_a_link { "link.sender>r1" } else { "flow.bulk" };
            let mut document = Document { name: "x".into(), text: DUMBBELL.into() };
            if ["priority", "reserve"].contains(&algorithm.name) {
                let class = "[{ name = \"a\", match = \"bulk*\", rate = \"1Mbit/s\" }]";
                document = document.with("link.sender>r1.class", class).unwrap();
            }
            let document = document.with(&format!("{path}.{key}"), &(value.clone() + " }")).unwrap();
            let scenario = document.scenario().unwrap_or_else(|e| panic!("{value}: {e}: {:?}", e.advice()));
            assert_eq!(
                parse("dumbbell", &scenario.to_toml()).unwrap(),
                Scenario { name: "x".into(), ..scenario.clone() }
            );
            let part = match family {
                Family::Queue => &scenario.links[0].forward.queue,
                Family::Controller => &tcp(&scenario, "bulk-1").controller,
                Family::Stack => &tcp(&scenario, "bulk-1").stack,
                Family::AckWindow => &scenario.links[0].forward.ack_window,
            };
            assert_eq!(part.settings.0.len(), algorithm.parameters.len(), "{value}");
            if let Inner::Default(inner) = algorithm.inner {
                assert_eq!(part.inner.as_ref().unwrap().name, inner, "{value}");
            }
        }
    }
}

fn example(parameter: &Parameter) -> String {
    let value = match parameter.kind {
        Kind::Bytes | Kind::Limit => "\"64KiB\"",
        Kind::Rate => "\"10Mbit/s\"",
        Kind::Time => "\"30ms\"",
        Kind::List => "[3, 4, 9]",
        other => panic!("{} is a {other:?} without a default", parameter.name),
    };
    format!("{} = {value}", parameter.name)
}

#[test]
fn ten_thousand_flows_of_as_many_hosts_are_read() {
    let mut text = String::from("[run]\nduration = \"1s\"\n[[router]]\nname = \"r\"\n");
    for i in 0..10_000 {
        text += &format!(
            "[[host]]\nname = \"h{i}\"\n[[link]]\nfrom = \"h{i}\"\nto = \"r\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n"
        );
        text += &format!("[[flow]]\nfrom = \"h{i}\"\nto = \"h{}\"\n", (i + 5000) % 10_000);
    }
    assert_eq!(parse("many", &text).unwrap().flows.len(), 10_000);
}

#[test]
fn a_file_is_read_and_named() {
    let path = std::env::temp_dir().join(format!("narrows-{}.toml", std::process::id()));
    std::fs::write(&path, DUMBBELL).unwrap();
    let document = Document::read(&path);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(document.unwrap().text, DUMBBELL);
}

proptest! {
    #[test]
    fn every_accepted_scenario_survives_being_resolved(
        rate in 1u64..10_000_000_000_000, delay in 0u64..1 << 44, mtu in 68u64..65_535, room in 65_535u64..1 << 30,
        window in 65_535u64..1 << 29, phase: u32, start in 0u64..59_000_000_000, loss in 0.0f64..1.0, mss in 1u64..28,
    ) {
        let text = format!(r#"
            run = {{ duration = "60s" }}
            link = [{{ from = "a", to = "b", rate = "{rate}bit/s", delay = "{delay}ns", mtu = "{mtu}B",
                       queue = {{ kind = "loss", probability = {loss:?}, inner = "fifo:{room}B" }} }}]
            host = [{{ name = "a", timer_phase = "{phase}ns" }}, {{ name = "b" }}]
            flow = [{{ from = "a", to = "b", window = "{window}B", start = "{start}ns", mss = "{mss}B" }}]
        "#);
        let document = Document { name: "p".into(), text };
        let scenario = document.scenario().unwrap();
        prop_assert_eq!(parse("p", &document.resolved().unwrap()).unwrap(), scenario);
    }

    #[test]
    fn no_damage_to_a_file_makes_it_panic(at in 0usize..DUMBBELL.len(), cut in 0usize..40, paste in "[\\PC\n]{0,12}") {
        let mut text = DUMBBELL.to_string();
        let end = (at + cut).min(text.len());
        text.replace_range(at..end, &paste);
        let document = Document { name: "damaged".into(), text: text.clone() };
        let _ = document.with(&paste, &paste);
        if let Err(error) = document.scenario() {
            let span = error.span().unwrap_or(0..0);
            prop_assert!(span.end <= text.len(), "{span:?}");
        }
    }
}

#[test]
fn a_standing_bottleneck_is_a_link_without_nodes() {
    let read = |text: &str| Document { name: "gateway.toml".into(), text: text.into() }.bottleneck();
    let b = read(
        "rate = \"8Mbit/s\"\ndelay = \"5ms\"\nqueue = \"fifo:2BDP\"\nrtt = \"10ms\"\nbackward = { rate = \"2Mbit/s\", mtu = \"576B\" }",
    );
    let b = b.unwrap();
    let limit = |line: &Line| line.queue.settings.value("limit").cloned();
    assert_eq!((b.forward.rate, b.backward.rate), (Rate(8_000_000), Rate(2_000_000)));
    assert_eq!((b.forward.mtu, b.backward.mtu), (Bytes(1500), Bytes(576)));
    assert_eq!(limit(&b.forward), Some(Value::Bytes(Bytes(20_000))));
    assert_eq!(limit(&b.backward), Some(Value::Bytes(Bytes(5_000))));
    assert_eq!((b.metrics, &*b.user), (None, "nobody"));
    let text = "rate = \"8Mbit/s\"\ndelay = \"5ms\"\nbackward = { queue = \"fifo:1kB\" }";
    let error = read(text).unwrap_err();
    assert!(error.to_string().contains("smaller than one packet"), "{error}");
    assert_eq!(error.span().map(|s| &text[s]), Some("\"fifo:1kB\""));
}

#[test]
fn framing_and_back_pressure_are_read_and_written_back() {
    let text = DUMBBELL.replacen("mtu =", "framing = \"frame-relay\"\nback_pressure = true\nmtu =", 1);
    let scenario = parse("dumbbell", &text).unwrap();
    let line = &scenario.links[0].forward;
    assert_eq!((line.framing.name(), line.back_pressure), ("frame-relay", true));
    assert_eq!(parse("dumbbell", &scenario.to_toml()).unwrap(), scenario);
    let refused = |old: &str, new: &str| parse("dumbbell", &text.replacen(old, new, 1)).unwrap_err();
    assert!(refused("frame-relay", "x25").to_string().contains("unknown framing"));
    let codel = refused("\"fifo:1MiB\"", "\"codel\"");
    assert!(codel.to_string().contains("does not tell when it has room"), "{codel}");
}
