use super::DUMBBELL;
use narrows_core::registry::Value;
use narrows_core::units::{Bytes, Rate};
use narrows_lab::file::Document;
use narrows_lab::scenario::{Flow, Scenario, TcpFlow, Transport};
use std::time::Duration;

fn document() -> Document {
    Document { name: "dumbbell.toml".into(), text: DUMBBELL.into() }
}

fn with(key: &str, value: &str) -> Scenario {
    let set = document().with(key, value).and_then(|d| d.scenario());
    set.unwrap_or_else(|e| panic!("{key} = {value}: {e}: {:?}", e.advice()))
}

fn tcp(s: &Scenario) -> Vec<&TcpFlow> {
    fn of(flow: &Flow) -> Option<&TcpFlow> {
        if let Transport::Tcp(tcp) = &flow.transport { Some(tcp) } else { None }
    }
    s.flows.iter().filter_map(of).collect()
}

#[test]
fn one_flow_or_all_of_them() {
    let windows = |s: Scenario| tcp(&s).iter().map(|t| t.window.0).collect::<Vec<_>>();
    assert_eq!(windows(with("flow.bulk.window", "220kB")), [220_000, 220_000, 220_000, 35_000]);
    assert_eq!(windows(with("flow.flow-2.window", "220kB")), [90_000, 90_000, 90_000, 220_000]);
    assert_eq!(
        windows(with("flow.window", "220kB")),
        [220_000; 4],
        "the datagrams have none and are passed over"
    );
    assert_eq!(with("flow.bulk.count", "5").flows.len(), 7);
    assert_eq!(with("run.duration", "90s").duration, Duration::from_secs(90));
    assert!(with("record.queues", "true").record.queues);
    assert_eq!(with("host.receiver.timer_phase", "7ms").nodes[1].timer_phase, Some(Duration::from_millis(7)));
}

#[test]
fn links_by_name_and_what_differs_backward() {
    assert_eq!(with("link.r1>r2.rate", "9Mbit/s").links[1].forward.rate, Rate(9_000_000));
    assert_eq!(with("link.r1>r2.backward.rate", "2Mbit/s").links[1].backward.rate, Rate(2_000_000));
    let s = with("link.sender>r1.backward.queue.limit", "90p");
    assert_eq!(s.links[0].backward.queue.settings.value("limit"), Some(&Value::Packets(90)));
    assert_eq!(s.links[0].forward.queue.settings.value("limit"), Some(&Value::Bytes(Bytes(1 << 20))));
    let document = document().with("link.sender>r1.queue", "loss:0.5").unwrap();
    let s = document.with("link.sender>r1.backward.queue.probability", "0.1").unwrap().scenario().unwrap();
    let [there, back] =
        [true, false].map(|forward| s.links[0].line(forward).queue.settings.ratio("probability"));
    assert_eq!((there, back), (0.5, 0.1), "what backward does not say is as the link's");
    assert!(with("link.delay", "3ms").links.iter().all(|l| l.forward.delay == Duration::from_millis(3)));
}

#[test]
fn a_word_becomes_a_table_when_a_parameter_is_set() {
    let s = with("flow.bulk.controller.extra", "16");
    assert_eq!(tcp(&s)[0].controller.settings.count("extra"), 16);
    assert_eq!(
        tcp(&with("flow.bulk.controller", "{ name = \"reno\", extra = 3 }"))[0]
            .controller
            .settings
            .count("extra"),
        3
    );
    let s = with("flow.bulk.receiver_stack.ack_every", "1");
    assert_eq!(
        (tcp(&s)[0].receiver_stack.name.as_str(), tcp(&s)[0].stack.settings.count("ack_every")),
        ("net2", 2)
    );
    let s = with("link.sender>r1.queue.limit", "2MiB");
    assert_eq!(s.links[0].forward.queue.settings.value("limit"), Some(&Value::Bytes(Bytes(2 << 20))));
    let s = with("link.r2>receiver.queue.limit", "77p");
    assert_eq!(
        s.links[2].forward.queue.settings.value("limit"),
        Some(&Value::Packets(77)),
        "of the default queue"
    );
    let inner = with("link.r1>r2.queue.inner.limit", "99p").links[1].forward.queue.inner.clone().unwrap();
    assert_eq!(inner.settings.value("limit"), Some(&Value::Packets(99)));
}

#[test]
fn comments_and_everything_else_stay_as_they_were() {
    let text = document().with("link.sender>r1.rate", "99Mbit/s").unwrap().text;
    assert_eq!(text, DUMBBELL.replacen("rate = \"100Mbit/s\"       #", "rate = \"99Mbit/s\"       #", 1));
}

#[test]
fn keys_that_match_nothing_are_refused_with_a_suggestion() {
    let refused = |key: &str, value: &str, message: &str, advice: &str| {
        let error = document().with(key, value).and_then(|d| d.scenario()).expect_err(key);
        let said = format!("{key}: {error}: {:?}", error.advice());
        assert!(
            error.to_string().contains(message) && error.advice().unwrap_or_default().contains(advice),
            "{said}"
        );
    };
    refused("flow.bukl.window", "9kB", "unknown flow \"bukl\"", "did you mean \"bulk\"?");
    refused("link.r2>r1.rate", "9kbit/s", "unknown link \"r2>r1\"", "r1>r2");
    refused("flwo.bulk.window", "9kB", "unknown section", "did you mean \"flow\"?");
    refused("flow.bulk.wnidow", "9kB", "unknown key", "did you mean \"window\"?");
    refused("flow.bulk", "9kB", "bulk is a flow, not a key", "flow.bulk.KEY");
    refused("flow", "9kB", "section", "flow.NAME.window");
    refused("flow.bulk..window", "9kB", "not a key", "flow.bulk.window");
    refused("flow.bulk.window.size", "9kB", "has no parts", "leave out .size");
    refused("flow.bulk.controller.inner.extra", "1", "contains no other", "leave out .inner");
    refused("flow.bulk.controller.extar", "1", "unknown parameter", "did you mean \"extra\"?");
    refused("flow.bulk.window", "9", "no unit", "9kB");
    refused("flow.cross.controller", "reno", "belongs to transport", "leave it out");
}

#[test]
fn an_error_after_an_edit_points_into_the_edited_text() {
    let edited = document().with("flow.bulk.window", "0B").unwrap();
    let error = edited.scenario().unwrap_err();
    assert_eq!(&edited.text[error.span().unwrap()], "\"0B\"");
}
