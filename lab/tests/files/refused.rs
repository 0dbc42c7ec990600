use super::DUMBBELL;
use narrows_lab::file::{Document, Error, parse};

/// The dumbbell with one piece replaced must be refused: with these words, this advice, and at this piece of text.
#[track_caller]
fn refused(old: &str, new: &str, message: &str, advice: &str, place: &str) {
    assert!(DUMBBELL.contains(old), "{old} is not in the scenario");
    refused_text(&DUMBBELL.replacen(old, new, 1), message, advice, place);
}

#[track_caller]
fn refused_text(text: &str, message: &str, advice: &str, place: &str) {
    let error = parse("x.toml", text).err().unwrap_or_else(|| panic!("accepted:\n{text}"));
    let said =
        format!("{error}\n  help: {}\n  at: {:?}", error.advice().unwrap_or_default(), at(&error, text));
    assert!(error.to_string().contains(message), "{said}");
    assert!(error.advice().unwrap_or_default().contains(advice), "{said}");
    assert!(at(&error, text).is_some_and(|t| t.contains(place)), "{said}");
}

fn at<'t>(error: &Error, text: &'t str) -> Option<&'t str> {
    error.span().map(|span| &text[span])
}

#[test]
fn rates() {
    let old = "rate = \"45Mbit/s\"";
    refused(old, "rate = \"0Mbit/s\"", "nothing passes at rate zero", "10Mbit/s", "\"0Mbit/s\"");
    refused(old, "rate = \"45mbps\"", "`mbps` in 45mbps is ambiguous", "45 Mbit/s (tc reads", "\"45mbps\"");
    refused(old, "rate = 45", "45 has no unit", "\"45Mbit/s\"", "45");
    refused(old, "rate = 4.5", "4.5 has no unit", "\"4.5Mbit/s\"", "4.5");
    refused(old, "rate = true", "expected a rate", "", "true");
    refused(old, "rate = \"11Tbit/s\"", "too fast", "10Tbit/s", "11Tbit/s");
    refused(old, "rate = \"-1bit/s\"", "negative", "10Mbit/s", "-1bit/s");
    refused(old, "", "`rate` is missing", "rate = ...", "[[link]]");
}

#[test]
fn times() {
    refused("delay = \"5ms\"", "delay = \"-5ms\"", "-5ms is negative", "\"10ms\"", "\"-5ms\"");
    refused("delay = \"5ms\"", "delay = 5", "5 has no unit", "\"5ms\"", "5");
    refused("delay = \"5ms\"", "delay = 2026-01-01", "", "", "2026-01-01");
    refused("duration = \"60s\"", "duration = \"9000h\"", "too long", "720h", "\"9000h\"");
    refused("duration = \"60s\"", "duration = \"0s\"", "no time", "60s", "\"0s\"");
    refused("duration = \"60s\"", "", "never end", "duration = \"60s\"", "[run]");
    refused("stop = \"30s\"", "stop = \"1s\"", "stops at 1s, before it starts", "after 1s", "\"1s\"");
    refused("start = \"1s\"", "start = \"61s\"", "when the run is over", "longer duration", "\"61s\"");
    refused(
        "rate_interval = \"30ms\"",
        "rate_interval = \"0ms\"",
        "averaged over no time",
        "30ms",
        "\"0ms\"",
    );
}

#[test]
fn names() {
    refused("from = \"r2\"", "from = \"r22\"", "unknown node \"r22\"", "did you mean \"r2\"?", "\"r22\"");
    refused(
        "to = \"receiver\"\nstack",
        "to = \"reciever\"\nstack",
        "unknown host",
        "did you mean \"receiver\"?",
        "reciever",
    );
    refused("name = \"r2\"", "name = \"r1\"", "two nodes called r1", "its own name", "\"r1\"");
    refused("name = \"cross\"", "name = \"bulk-2\"", "two flows called bulk-2", "its own name", "\"bulk-2\"");
    refused("name = \"r2\"", "name = \"r.2\"", "cannot name a router", "letters, digits", "\"r.2\"");
    refused("name = \"r2\"", "name = \"\"", "cannot name a router", "letters, digits", "\"\"");
}

#[test]
fn keys() {
    refused(
        "delay = \"5ms\"",
        "dealy = \"5ms\"",
        "unknown key \"dealy\"",
        "did you mean \"delay\"?",
        "dealy",
    );
    refused("[record]", "[recrod]", "unknown key \"recrod\"", "did you mean \"record\"?", "recrod");
    refused("flows = true", "flows = 1", "invalid type", "", "1");
    refused("window = \"90kB\"", "window = \"90kB\"\nwindow = \"9kB\"", "duplicate key", "", "window");
    refused("[[link]]", "[[link", "", "", "");
}

#[test]
fn algorithms() {
    let old = "controller = \"reno\"";
    refused(
        old,
        "controller = \"renno\"",
        "unknown controller \"renno\"",
        "did you mean \"reno\"?",
        "\"renno\"",
    );
    refused(old, "controller = { nam = \"reno\" }", "`name` is missing", "\"reno\"", "{ nam");
    refused(old, "controller = 3", "not a whole number", "\"reno\"", "3");
    refused(old, "controller = { name = 3 }", "name is a text", "\"reno\"", "3");
    refused(old, "controller = \"reno:3\"", "no value behind a colon", "{ name = \"reno\"", "\"reno:3\"");
    refused(
        old,
        "controller = { name = \"reno\", inner = \"reno\" }",
        "contains no other",
        "leave out `inner`",
        "inner",
    );
    let extra = "extra = 4";
    refused(extra, "extar = 4", "unknown parameter of reno \"extar\"", "did you mean \"extra\"?", "extar");
    refused(extra, "extra = \"4\"", "extra of reno: a text does not fit", "for example 4", "\"4\"");
    refused(extra, "extra = -4", "-4 is negative", "0 or more", "-4");
    let stack = "recovery = \"newreno\"";
    refused(
        stack,
        "recovery = \"newrneo\"",
        "unknown word \"newrneo\"",
        "did you mean \"newreno\"?",
        "newrneo",
    );
    refused("stack = \"net2\"", "stack = \"net3\"", "unknown stack", "did you mean \"net2\"?", "\"net3\"");
    refused(stack, "ack_every = 0", "`ack_every` of net2 does not fit", "between", "0");
}

#[test]
fn queues() {
    let old = "queue = \"fifo:1MiB\"";
    let too_small = "limit = 4kB of fifo is smaller than one packet (MTU 4352B)";
    refused(old, "queue = \"fifo:4kB\"", too_small, "\"4352B\"", "\"fifo:4kB\"");
    refused("fifo:1.5BDP", "fifo:0.01BDP", "smaller than one packet", "\"4352B\"", "0.01BDP");
    refused(old, "queue = \"fifo:0p\"", "`limit` of fifo does not fit", "at least one packet", "\"fifo:0p\"");
    refused(old, "queue = \"fifo:100\"", "100 has no unit", "\"100kB\"", "\"fifo:100\"");
    refused(
        old,
        "queue = \"fifo\"",
        "fifo needs `limit`",
        "{ kind = \"fifo\", limit = \"64KiB\"",
        "\"fifo\"",
    );
    refused(old, "queue = \"fifi:9kB\"", "unknown queue \"fifi\"", "did you mean \"fifo\"?", "fifi");
    refused(
        old,
        "queue = \"shaper:1Mbit/s\"",
        "burst = 1514B of shaper is smaller than one packet",
        "4352B",
        "shaper",
    );
    refused(old, "queue = \"loss:1.5\"", "`probability` of loss does not fit", "in between", "loss:1.5");
    refused(
        old,
        "queue = { kind = \"fifo\", limit = \"9kB\", inner = \"fifo:9kB\" }",
        "contains no other",
        "leave out",
        "inner",
    );
    refused(old, "queue = \"trace\"", "trace needs `at`", "kind = \"trace\", at = [3, 4, 9]", "\"trace\"");
    refused(old, "queue = \"trace:[]\"", "`at` of trace does not fit", "for example [1]", "trace:[]");
    refused(old, "queue = \"trace:[1, 0]\"", "`at` of trace does not fit", "must not be 0", "[1, 0]");
    refused("packets = [3, 9]", "packets = [0]", "`packets` of loss does not fit", "counted from 1", "[0]");
    refused("packets = [3, 9]", "packets = [\"3\"]", "does not fit", "[3, 4, 9]", "[\"3\"]");
}

#[test]
fn topologies() {
    refused("to = \"r2\"", "to = \"r1\"", "joins r1 to itself", "another node", "\"r1\"");
    refused(
        "[[router]]",
        "[[host]]\nname = \"lone\"\n[[router]]",
        "lone has no link",
        "[[link]]",
        "\"lone\"",
    );
    let again = "[[link]]\nfrom = \"r1\"\nto = \"sender\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n[[flow]]";
    refused("[[flow]]", again, "already linked", "`backward`", "\"r1\"");
    refused("to = \"receiver\"\nstack", "to = \"r2\"\nstack", "r2 is a router", "name a host", "\"r2\"");
    refused(
        "to = \"receiver\"\nstack",
        "to = \"sender\"\nstack",
        "sender to itself",
        "another host",
        "\"sender\"",
    );
    refused("mtu = \"4352B\"", "mtu = \"60B\"", "MTU of 60B is outside", "1500B", "\"60B\"");
    refused(
        "{ at = \"20s\", delay = \"20ms\" }",
        "{ at = \"20s\" }",
        "changes nothing",
        "delay",
        "at = \"20s\"",
    );
    let mut cycle =
        String::from("run = { duration = \"1s\" }\nhost = [{ name = \"a\" }, { name = \"b\" }]\n");
    cycle += "router = [{ name = \"r\" }, { name = \"s\" }, { name = \"t\" }, { name = \"u\" }]\n";
    for (from, to) in [("a", "r"), ("r", "s"), ("s", "t"), ("t", "r"), ("u", "b")] {
        cycle +=
            &format!("[[link]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1Mbit/s\"\ndelay = \"1ms\"\n");
    }
    cycle += "[[flow]]\nfrom = \"a\"\nto = \"b\"\n";
    refused_text(&cycle, "no route from a to b", "only routers forward", "\"b\"");
}

#[test]
fn flows() {
    refused("count = 3", "count = 1000000000", "1000000000 flows", "100000", "1000000000");
    refused("count = 3", "count = 0", "0 flows", "count = 1", "0");
    refused("count = 3", "count = -1", "-1 flows", "count = 1", "-1");
    refused("window = \"90kB\"", "window = \"0B\"", "a window of 0B lets nothing pass", "64KiB", "\"0B\"");
    refused(
        "window = \"90kB\"",
        "window = \"2GiB\"",
        "more than TCP can announce",
        "1073725440B",
        "\"2GiB\"",
    );
    refused("window = \"90kB\"", "window = \"90p\"", "count bytes, not packets", "64KiB", "\"90p\"");
    refused("size = \"31.25MiB\"", "size = \"0B\"", "no bytes", "leave it out", "\"0B\"");
    refused(
        "size = \"31.25MiB\"",
        "send_buffer = \"50kB\"",
        "never fill the window of 90kB",
        "90kB",
        "\"50kB\"",
    );
    refused("size = \"31.25MiB\"", "mss = \"5kB\"", "5kB does not fit the MTU", "1B to 4312B", "\"5kB\"");
    refused(
        "size = \"31.25MiB\"",
        "packet = \"1500B\"",
        "`packet` belongs to transport = \"udp\"",
        "leave it out",
        "1500B",
    );
    let (head, _) = DUMBBELL.split_once("[[flow]]").unwrap();
    let error = parse("x", head).unwrap_err();
    assert!(error.to_string().contains("there is no flow"), "{error}");
}

#[test]
fn kernel_controllers() {
    let old = "controller = \"reno\"";
    let with = |name: &str| format!("kernel_controller = \"{name}\"");
    let not = |name: &str| refused(old, &with(name), "cannot be the name", "1 to 15 letters", name);
    not("sixteen_letters_");
    not("cubic; reboot");
    refused(old, &with(""), "cannot be the name", "\"cubic\"", "\"\"");
    refused(old, "kernel_controller = 4", "expected a string", "", "4");
    let udp = "rate = \"20Mbit/s\"";
    let place = "kernel_controller";
    refused(udp, &format!("{udp}\n{}", with("bbr")), "belongs to transport = \"tcp\"", "leave it out", "bbr");
    let misspelt = "kernel_controler = \"bbr\"";
    refused(old, misspelt, "unknown key", &format!("did you mean \"{place}\"?"), "kernel_controler");
}

#[test]
fn datagrams() {
    refused("packet = \"1500B\"", "packet = \"5kB\"", "packet of 5kB does not fit", "4352B", "\"5kB\"");
    refused("packet = \"1500B\"", "packet = \"28B\"", "packet of 28B does not fit", "29B", "\"28B\"");
    refused(
        "packet = \"1500B\"",
        "window = \"9kB\"",
        "`window` belongs to transport = \"tcp\"",
        "leave it out",
        "9kB",
    );
    refused("rate = \"20Mbit/s\"", "", "needs a rate", "10Mbit/s", "[[flow]]");
    refused(
        "transport = \"udp\"",
        "transport = \"upd\"",
        "unknown transport",
        "did you mean \"udp\"?",
        "\"upd\"",
    );
    refused("[\"20s\", \"40s\"]", "[\"5s\", \"40s\"]", "out of order", "pairs", "[\"5s\", \"40s\"]");
    refused("[\"20s\", \"40s\"]", "[\"20s\", \"20s\"]", "out of order", "pairs", "[\"20s\"");
}

#[test]
fn sweeps() {
    let sweep = |text: &str, message: &str, advice: &str, place: &str| {
        refused_text(&format!("{DUMBBELL}[sweep]\n{text}"), message, advice, place);
    };
    sweep("\"flow.bulk.window\" = \"9kB\"", "takes a list or a range", "[\"30kB\", \"90kB\"]", "\"9kB\"");
    sweep("\"flow.bulk.window\" = []", "over no values", "at least one", "[]");
    sweep("x = { from = \"9kB\", to = \"9MB\" }", "either `step` or `count`", "step = \"10kB\"", "{ from");
    sweep(
        "x = { from = \"9kB\", to = \"9MB\", step = \"0B\" }",
        "step above zero",
        "how far apart",
        "\"0B\"",
    );
    sweep(
        "x = { from = \"9kB\", to = \"9MB\", stpe = \"1B\" }",
        "unknown key of a range",
        "\"step\"",
        "stpe",
    );
    sweep(
        "x = { from = \"9MB\", to = \"9kB\", count = 3 }",
        "ends above its beginning",
        "smaller",
        "\"9kB\"",
    );
    sweep("x = { from = \"9kB\", to = \"9s\", count = 3 }", "not a unit", "9kB", "\"9s\"");
    sweep(
        "x = { from = \"1B\", to = \"1GB\", step = \"1B\" }",
        "more than 1000000 values",
        "1000000",
        "{ from",
    );
    sweep(
        "x = { from = 1, to = 2000, step = 1 }\ny = { from = 1, to = 2000, step = 1 }",
        "4000000 points",
        "1000000",
        "",
    );
    sweep("x = { from = 0, to = 9, count = 3, scale = \"log\" }", "cannot begin at zero", "above zero", "0");
    sweep("[[sweep.together]]\nx = [1, 2]\ny = [1]", "y has 1 values, but x has 2", "equally many", "[1]");
}

#[test]
fn files() {
    let refused = |path: &std::path::Path, words: &str| {
        let error = Document::read(path).unwrap_err();
        assert!(error.to_string().contains(words) && error.advice().is_some(), "{error}");
    };
    let folder = std::env::temp_dir();
    refused(&folder, "is a directory");
    refused(&folder.join("narrows-no-such-file.toml"), "cannot be read");
    let path = folder.join(format!("narrows-latin1-{}.toml", std::process::id()));
    std::fs::write(&path, b"[run]\ntitle = \"Stra\xdfe\"\n").unwrap();
    refused(&path, "is not UTF-8: see line 2");
    std::fs::remove_file(&path).unwrap();
}
