use super::DUMBBELL;
use narrows_lab::file::Document;
use narrows_lab::sweep::Point;

fn points(sweep: &str) -> Vec<Point> {
    let document = Document { name: "x".into(), text: format!("{DUMBBELL}[sweep]\n{sweep}") };
    document.points().unwrap_or_else(|e| panic!("{e}: {:?}", e.advice()))
}

fn values(sweep: &str) -> Vec<String> {
    points(sweep)
        .iter()
        .map(|p| p.given.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn all_combinations_the_last_key_fastest() {
    let sweep = "\"flow.bulk.window\" = [\"30kB\", \"90kB\"]\n\"flow.bulk.controller\" = [\"reno\", { name = \"reno\", extra = 0 }]";
    let reno = "{ name = \"reno\", extra = 0 }";
    assert_eq!(values(sweep), ["30kB reno", &format!("30kB {reno}"), "90kB reno", &format!("90kB {reno}")]);
    let points = points(sweep);
    assert_eq!(points[0].given[0], ("flow.bulk.window".into(), "30kB".into()));
    let document = points[3].document().unwrap();
    assert!(!document.text.contains("[sweep]"), "a point is a plain file");
    assert_eq!(document.scenario().unwrap(), points[3].scenario().unwrap());
    assert_ne!(points[3].scenario().unwrap(), points[2].scenario().unwrap());
}

#[test]
fn a_file_without_a_sweep_is_one_point() {
    let document = Document { name: "x".into(), text: DUMBBELL.into() };
    let points = document.points().unwrap();
    assert_eq!(points.len(), 1);
    assert!(points[0].given.is_empty());
    assert_eq!(points[0].document().unwrap(), document);
}

#[test]
fn ranges_are_exact_and_reach_their_end() {
    let window = |range: &str| values(&format!("\"flow.bulk.window\" = {{ {range} }}"));
    let ten = window("from = \"30kB\", to = \"350kB\", step = \"10kB\"");
    assert_eq!(
        (ten.len(), ten[0].as_str(), ten[1].as_str(), ten[32].as_str()),
        (33, "30kB", "40kB", "350kB")
    );
    assert_eq!(window("from = \"30kB\", to = \"60kB\", count = 4"), ["30kB", "40kB", "50kB", "60kB"]);
    assert_eq!(window("from = \"1BDP\", to = \"2BDP\", step = \"0.5BDP\""), ["1BDP", "1.5BDP", "2BDP"]);
    let rate = "\"link.r1>r2.rate\" = { from = \"1Mbit/s\", to = \"1Gbit/s\", count = 4, scale = \"log\" }";
    assert_eq!(values(rate), ["1Mbit/s", "10Mbit/s", "100Mbit/s", "1Gbit/s"]);
    assert_eq!(values("\"flow.bulk.count\" = { from = 1, to = 7, step = 3 }"), ["1", "4", "7"]);
    let loss = "\"link.r1>r2.queue.probability\" = { from = 0, to = 0.3, step = 0.1 }";
    assert_eq!(values(loss), ["0.0", "0.1", "0.2", "0.3"]);
    let queue = "\"link.r2>receiver.queue.limit\" = { from = \"10p\", to = \"30p\", step = \"10p\" }";
    assert_eq!(values(queue), ["10p", "20p", "30p"]);
    assert!(points(loss).iter().all(|p| p.scenario().is_ok()));
}

#[test]
fn keys_in_together_advance_in_step() {
    let together = "\"run.duration\" = [\"61s\", \"62s\"]\n[[sweep.together]]\n\"link.r1>r2.delay\" = [\"1ms\", \"2ms\"]\n\
                    \"flow.bulk.window\" = [\"30kB\", \"60kB\"]";
    assert_eq!(values(together), ["61s 1ms 30kB", "61s 2ms 60kB", "62s 1ms 30kB", "62s 2ms 60kB"]);
}

#[test]
fn keys_without_quotes_mean_the_same() {
    assert_eq!(
        points("flow.bulk.window = [\"30kB\", \"90kB\"]"),
        points("\"flow.bulk.window\" = [\"30kB\", \"90kB\"]")
    );
    let points = points("flow.bulk.controller.extra = { from = 1, to = 2, step = 1 }");
    assert_eq!(points[1].given, [("flow.bulk.controller.extra".into(), "2".into())]);
}

#[test]
fn a_text_that_looks_like_a_number_stays_a_text() {
    assert_eq!(values("\"run.title\" = [\"2\", \"true\", \"it's\"]"), ["\"2\"", "\"true\"", "it's"]);
    assert_eq!(points("\"run.title\" = [\"2\"]")[0].scenario().unwrap().title, "2");
}

#[test]
fn a_mistaken_key_is_found_before_anything_runs() {
    let text = format!("{DUMBBELL}[sweep]\n\"flow.bukl.window\" = [\"30kB\"]");
    let error = Document { name: "x".into(), text: text.clone() }.points().unwrap_err();
    assert!(error.advice().unwrap().contains("did you mean \"bulk\"?"), "{error}");
    assert_eq!(&text[error.span().unwrap()], "\"flow.bukl.window\"");
}

#[test]
fn a_key_set_from_outside_is_no_longer_swept() {
    let text = format!(
        "{DUMBBELL}[sweep]\n\"flow.bulk.window\" = [\"30kB\", \"60kB\"]\nrun.duration = [\"61s\", \"62s\"]\n\
         [[sweep.together]]\n\"link.r1>r2.delay\" = [\"1ms\", \"2ms\"]\nflow.bulk.stagger = [\"1s\", \"2s\"]"
    );
    let document = Document { name: "x".into(), text };
    let points = |key: &str, value: &str| document.with(key, value).and_then(|d| d.points()).unwrap();
    assert_eq!(document.points().unwrap().len(), 8);
    for (key, value) in [("flow.bulk.window", "90kB"), ("run.duration", "90s")] {
        let points = points(key, value);
        assert_eq!(points.len(), 4);
        assert!(points.iter().all(|p| p.given.iter().all(|(k, _)| k != key)));
    }
    for key in ["link.r1>r2.delay", "flow.bulk.stagger"] {
        assert_eq!(points(key, "3ms").len(), 8, "its companion goes on alone");
        assert_eq!(points(key, "3ms")[0].given.len(), 3);
    }
}
