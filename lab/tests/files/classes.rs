//! Classes of lines: read, written back, refused with what would fit.

use narrows_core::ackwin::Room;
use narrows_core::units::{Bytes, Rate};
use narrows_lab::class::{HeaderPattern, Pattern};
use narrows_lab::file::{Document, parse};
use narrows_lab::scenario::Scenario;
use std::time::Duration;

/// 10 Mbit/s with these classes.
fn text(queue: &str, class: &str) -> String {
    format!(
        "[run]\nduration = \"1s\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
         [[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"10Mbit/s\"\ndelay = \"1ms\"\nqueue = \"{queue}\"\nclass = {class}\n\
         [[flow]]\nname = \"voice\"\ncount = 3\nfrom = \"a\"\nto = \"b\"\n[[flow]]\nname = \"web\"\nfrom = \"a\"\nto = \"b\"\n"
    )
}

const VOICE: &str = "{ name = \"voice\", match = \"voice*\", rate = \"1Mbit/s\", ahead = \"3kB\", delay = \"20ms\", \
                     priority = 1, weight = 2, limit = \"64kB\", surplus = false }";

fn read(queue: &str, class: &str) -> Scenario {
    parse("x.toml", &text(queue, class)).unwrap_or_else(|e| panic!("{e}: {:?}", e.advice()))
}

#[test]
fn a_class_is_read_with_all_its_keys_and_the_rest_is_one_more() {
    let s = read("reserve", &format!("[{VOICE}]"));
    let [voice, rest] = &s.links[0].forward.classes[..] else { panic!("there are two") };
    let c = &voice.class;
    assert_eq!(
        (c.rate, c.ahead, c.delay),
        (Some(Rate(1_000_000)), Bytes(3000), Some(Duration::from_millis(20)))
    );
    assert_eq!((c.priority, c.weight, c.limit, c.surplus), (1, 2, Some(Room::Bytes(64_000)), false));
    assert_eq!(voice.patterns, [Pattern::Flow("voice*".into())]);
    assert_eq!(
        (&*rest.class.name, rest.patterns.len(), rest.class.priority, rest.class.weight),
        ("rest", 0, 8, 1)
    );
    assert_eq!(s.links[0].backward.classes, s.links[0].forward.classes);
    assert_eq!(s.links[0].forward.promise(c), "voice: 1Mbit/s, 20ms at most");
    // 1500 bytes at 1 Mbit/s, and a packet at 10.
    let natural = read(
        "reserve",
        "[{ name = \"w\", match = [\"web\", \"voice-2\"], rate = \"1Mbit/s\" }, { name = \"others\", weight = 5 }]",
    );
    let line = &natural.links[0].forward;
    assert_eq!(
        line.classes.iter().map(|m| line.promise(&m.class)).collect::<Vec<_>>(),
        ["w: 1Mbit/s, 13.2ms at most", "others"]
    );
}

#[test]
fn what_is_written_back_reads_as_the_same() {
    for queue in ["reserve", "priority", "drr", "wfq", "fifo:100p"] {
        let s = read(
            queue,
            &format!("[{VOICE}, {{ name = \"web\", match = [\"web\", \"voice-1\"], limit = \"9p\" }}]"),
        );
        assert_eq!(parse("x", &s.to_toml()).unwrap(), s, "{}", s.to_toml());
    }
    let other = text("wfq", &format!("[{VOICE}]\nbackward = {{ class = [] }}"));
    let s = parse("x.toml", &other).unwrap();
    assert_eq!((s.links[0].forward.classes.len(), s.links[0].backward.classes.len()), (2, 0));
    assert_eq!(parse("x", &s.to_toml()).unwrap(), s, "{}", s.to_toml());
}

#[test]
fn a_key_of_a_class_is_set_from_outside() {
    let document = Document { name: "x".into(), text: text("reserve", &format!("[{VOICE}]")) };
    let set = |key: &str, value: &str| document.clone().with(key, value).and_then(|d| d.scenario());
    let rate = |s: &Scenario| [true, false].map(|f| s.links[0].line(f).classes[0].class.rate.unwrap().0);
    assert_eq!(rate(&set("link.a>b.class.voice.rate", "2Mbit/s").unwrap()), [2_000_000; 2]);
    assert_eq!(rate(&set("link.class.voice.rate", "2Mbit/s").unwrap()), [2_000_000; 2]);
    assert_eq!(rate(&set("link.a>b.backward.class.voice.rate", "2Mbit/s").unwrap()), [1_000_000, 2_000_000]);
    assert_eq!(
        set("link.a>b.queue", "wfq").unwrap().links[0].forward.queue.name,
        "wfq",
        "the same classes, another queue"
    );
    let error = set("link.a>b.class.vioce.rate", "2Mbit/s").unwrap_err();
    assert!(error.advice().unwrap().contains("did you mean \"voice\"?"), "{error}: {:?}", error.advice());
}

#[track_caller]
fn refused(queue: &str, class: &str, message: &str, advice: &str) {
    let text = text(queue, class);
    let error = parse("x.toml", &text).err().unwrap_or_else(|| panic!("accepted:\n{text}"));
    let said = format!("{error}: {}", error.advice().unwrap_or_default());
    assert!(said.contains(message) && error.advice().unwrap_or_default().contains(advice), "{said}");
    assert!(error.span().is_some_and(|span| text.get(span).is_some()), "{said}");
}

#[test]
fn classes_that_cannot_be_are_refused_with_what_would_fit() {
    let one = |keys: &str| format!("[{{ name = \"v\", match = \"voice*\", {keys} }}]");
    refused("wfq", &one("weight = 0"), "weight = 0 of class v is outside 1 to 1000000", "write 1 to");
    refused("wfq", &one("priority = 9"), "priority = 9", "write 1 (goes first) to 8");
    refused("wfq", &one("limit = \"0p\""), "has no room", "100p");
    refused("wfq", &one("limit = \"1kB\""), "cannot be kept", "at least a packet: \"1500B\"");
    refused("wfq", &one("rate = \"0bit/s\""), "nothing passes at rate zero", "10Mbit/s");
    refused("wfq", &one("weigth = 2"), "unknown key \"weigth\"", "did you mean \"weight\"?");
    refused(
        "wfq",
        "[{ name = \"v\", match = \"vioce*\" }]",
        "there is no flow \"vioce*\"",
        "did you mean \"voice-",
    );
    refused(
        "wfq",
        "[{ name = \"v\", match = \"voice\" }]",
        "there is no flow \"voice\"",
        "With * at its end",
    );
    refused(
        "wfq",
        "[{ name = \"v\", match = { dscp = 46 } }]",
        "known by their flow, on every host",
        "match = \"voice*\"",
    );
    refused("wfq", "[{ name = \"v\", match = [] }]", "nothing belongs to this class", "leave `match` out");
    refused(
        "wfq",
        "[{ name = \"v\" }, { name = \"w\" }]",
        "which packets belong to v?",
        "only the last class has none",
    );
    refused(
        "wfq",
        "[{ name = \"v\", match = \"web\" }, { name = \"v\" }]",
        "two classes called v",
        "its own name",
    );
    refused(
        "wfq",
        "[{ name = \"rest\", match = \"web\" }]",
        "`rest` is what belongs to no other class",
        "write it last",
    );
    refused("priority", "[]", "it needs classes", "class = [{ name = ");
    refused("reserve", "[]", "it needs classes", "rate = ");
    refused("reserve", &one("rate = \"11Mbit/s\""), "11Mbit/s, 1500B at once", "rate = \"10Mbit/s\" or less");
    refused(
        "reserve",
        &one("rate = \"1Mbit/s\", delay = \"2ms\""),
        "2ms cannot be kept",
        "delay = \"2.4ms\" or longer",
    );
    refused("reserve", &one("delay = \"2ms\""), "promised for a rate", "at most \"10Mbit/s\"");
    let inside = text("fifo", &one("rate = \"4Mbit/s\""))
        .replace("\"fifo\"", "{ kind = \"shaper\", rate = \"3Mbit/s\", inner = \"reserve\" }");
    let error = parse("x", &inside).unwrap_err();
    assert!(
        error.advice().unwrap().contains("on a line of 3Mbit/s"),
        "behind a shaper the line is as slow: {:?}",
        error.advice()
    );
    let slower = text("reserve", &one("rate = \"4Mbit/s\""))
        .replace("class =", "change = [{ at = \"0.5s\", rate = \"2Mbit/s\" }]\nclass =");
    assert!(parse("x", &slower).unwrap_err().advice().unwrap().contains("on a line of 2Mbit/s"));
}

fn gateway(class: &str) -> Document {
    let text = format!("rate = \"10Mbit/s\"\ndelay = \"0ms\"\nqueue = \"reserve\"\nclass = {class}\n");
    Document { name: "gateway.toml".into(), text }
}

#[test]
fn a_gateway_knows_packets_by_their_headers_and_mirrors_them_on_the_way_back() {
    let class = "[{ name = \"voice\", rate = \"1Mbit/s\", match = [{ dscp = 46 }, { protocol = \"udp\", source = \"10.0.0.0/8\", \
                 destination_port = \"5060-5070\", destination = \"fd00::1\", source_port = 9 }] }]";
    let b = gateway(class).bottleneck().unwrap();
    let Pattern::Header(there) = &b.forward.classes[0].patterns[1] else { panic!("a header") };
    let Pattern::Header(back) = &b.backward.classes[0].patterns[1] else { panic!("a header") };
    let expected = HeaderPattern {
        source: Some(("10.0.0.0".parse().unwrap(), 8)),
        destination: Some(("fd00::1".parse().unwrap(), 128)),
        protocol: Some(17),
        source_port: Some((9, 9)),
        destination_port: Some((5060, 5070)),
        dscp: None,
    };
    assert_eq!(*there, expected);
    assert_eq!((back.source, back.destination_port), (expected.destination, expected.source_port));
    assert!(b.describe()[0].ends_with("; voice: 1Mbit/s, 13.2ms at most; rest"), "{}", b.describe()[0]);
    for (pattern, message) in [
        ("\"voice*\"", "known by their headers, not by a text"),
        ("{ }", "this says nothing of a packet"),
        ("{ dscp = 64 }", "write 0 to 63"),
        ("{ source = \"10.0.0.0/33\" }", "a prefix of 33 is longer"),
        ("{ source = \"ten\" }", "is no address"),
        ("{ protocol = \"udq\" }", "did you mean \"udp\""),
        ("{ source_port = \"9-8\" }", "ends before it begins"),
        ("{ source_port = 65536 }", "write 0 to 65535"),
        ("{ sauce = \"10.0.0.0/8\" }", "did you mean \"source\""),
    ] {
        let error = gateway(&format!("[{{ name = \"v\", match = {pattern} }}]")).bottleneck().err();
        let error = error.unwrap_or_else(|| panic!("accepted: {pattern}"));
        let said = format!("{error}: {:?}", error.advice()).replace("\\\"", "\"");
        assert!(said.contains(message) && error.span().is_some(), "{said}");
    }
}
