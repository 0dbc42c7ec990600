//! Classes in whole runs: what each discipline does for voice beside transfers.

use narrows_lab::Outcome;
use narrows_lab::file::Document;
use narrows_lab::host::Unwatched;
use narrows_lab::outcome::ClassSummary;

fn through(queue: &str) -> Outcome {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reservation.toml");
    let document = Document::read(file).and_then(|d| d.with("link.r>b.queue", queue)).unwrap();
    narrows_sim::run(&document.scenario().unwrap(), 1, &mut Unwatched).unwrap()
}

fn classes(o: &Outcome) -> &[ClassSummary] {
    assert!(o.queues.iter().filter(|q| q.name != "r>b").all(|q| q.classes.is_empty()));
    let q = o.queues.iter().find(|q| q.name == "r>b").unwrap();
    let sum = |of: fn(&ClassSummary) -> u64| q.classes.iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|c| c.departed), sum(|c| c.departed_bytes), sum(|c| c.drops)),
        (q.departed, q.departed_bytes, q.drops),
        "each packet is of one class"
    );
    &q.classes
}

#[test]
fn reserved_voice_is_through_in_time_and_loses_nothing_where_a_common_queue_makes_it_wait() {
    let o = through("reserve");
    let [voice, work, bulk] = classes(&o) else { panic!("there are three") };
    assert_eq!((voice.bound_s, bulk.bound_s), (Some(0.01), None));
    assert!(voice.delay_max_s <= 0.01 && voice.drops == 0, "{voice:?}");
    assert!((voice.delay.unwrap().max - voice.delay_max_s).abs() < 1e-3 * voice.delay_max_s, "{voice:?}");
    let mbits = |c: &ClassSummary| c.departed_bytes as f64 * 8e-6 / o.ended_at_s;
    assert!((mbits(voice) - 0.8).abs() < 0.01, "ten calls of 80 kbit/s: {voice:?}");
    // One flow with all it reserved, and what is left by priority, against four.
    assert!(mbits(work) > 3.0 && mbits(work) + mbits(bulk) > 8.8, "{work:?} {bulk:?}");

    let common = through("fifo:400kB");
    let [late, ..] = classes(&common) else { panic!("there are three") };
    assert!(late.bound_s.is_none() && late.delay_max_s > 0.1, "{late:?}");
}

#[test]
fn the_same_classes_before_other_queues_are_promised_nothing() {
    for queue in ["priority", "drr", "wfq", "{ kind = \"wfq\", clock = \"start\" }"] {
        let o = through(queue);
        let classes = classes(&o);
        assert!(classes.iter().all(|c| c.bound_s.is_none()), "{queue}");
        // None makes the calls wait behind the transfers' queues.
        assert!(classes[0].drops == 0 && classes[0].delay_max_s < 0.02, "{queue}: {:?}", classes[0]);
    }
}
