use super::*;
use crate::namespace::Namespace;
use narrows_core::Rate;
use std::time::Instant;

/// Loopback of a namespace of our own; `None` if we may not make one.
fn loopback() -> Option<Namespace> {
    Namespace::new().inspect_err(|e| eprintln!("SKIPPED: {e}")).ok()
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn sending(to: SocketAddr) -> Sending {
    Sending {
        to,
        controller: Some("reno".into()),
        send_buffer: Some(Bytes(400_000)),
        mss: None,
        content: Content::new(1),
        size: Some(3_000_001),
        start: Time::ZERO,
        stop: None,
        sample: Some(Duration::from_millis(1)),
    }
}

fn receiving(at: SocketAddr) -> Receiving {
    Receiving { at, window: Some(Bytes(100_000)), mss: None, content: Content::new(1), pauses: Vec::new() }
}

fn until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(20), "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_source_writes_a_slow_sink_reads_to_the_byte() {
    let Some(inside) = loopback() else { return };
    let clock = Clock::start();
    let ms = Time::from_millis;
    let pauses = vec![(ms(0), ms(300))];
    let sink = TcpSink::open(&inside, clock, Receiving { pauses, ..receiving(at(20_000)) }).unwrap();
    let source = TcpSource::open(&inside, clock, sending(at(20_000))).unwrap();
    until(|| source.progress().over && sink.progress().over);
    let (sent, got) = (source.finish(), sink.finish());
    assert!(sent.failure.is_none() && got.failure.is_none(), "{:?} {:?}", sent.failure, got.failure);
    assert_eq!((sent.written, got.bytes, got.first_wrong, got.ended), (3_000_001, 3_000_001, None, true));
    assert_eq!(got.digest, Content::new(1).digest(3_000_001));
    assert!(sent.finished.unwrap() > ms(300), "the sink began to read no sooner");
    let last = sent.samples.last().unwrap().info;
    assert!(last.bytes_acked >= 3_000_001 && last.rwnd_limited > 200_000, "{last:?}");
    // Loopback's first packets of 64 KiB are unlike any that the kernel expected; it learns.
    let late = sent.samples.iter().filter(|s| s.at > ms(100));
    assert_eq!(late.map(|s| s.info.snd_wnd).max(), Some(100_000));
}

#[test]
fn an_endless_source_stops_when_told_and_all_it_wrote_arrives() {
    let Some(inside) = loopback() else { return };
    let clock = Clock::start();
    let sink = TcpSink::open(&inside, clock, receiving(at(20_000))).unwrap();
    let source = TcpSource::open(&inside, clock, Sending { size: None, ..sending(at(20_000)) }).unwrap();
    until(|| sink.progress().bytes > 1_000_000);
    source.stop();
    until(|| source.progress().over && sink.progress().over);
    let (sent, got) = (source.finish(), sink.finish());
    assert!(sent.finished.is_some() && sent.written == got.bytes, "{} {}", sent.written, got.bytes);
}

#[test]
fn an_unknown_congestion_control_is_refused_with_those_that_there_are() {
    let Some(inside) = loopback() else { return };
    let unknown = Sending { controller: Some("xyz".into()), ..sending(at(20_000)) };
    let refused = TcpSource::open(&inside, Clock::start(), unknown).err().unwrap().to_string();
    assert!(refused.contains("`xyz`") && refused.contains("cubic"), "{refused}");
}

#[test]
fn a_source_says_when_nobody_listens_and_when_the_sink_goes_away() {
    let Some(inside) = loopback() else { return };
    let clock = Clock::start();
    let source = TcpSource::open(&inside, clock, sending(at(20_000))).unwrap();
    until(|| source.progress().over);
    let failure = source.finish().failure.unwrap();
    assert!(
        failure.to_string().starts_with("cannot connect to 127.0.0.1:20000: Connection refused"),
        "{failure}"
    );

    let sink = TcpSink::open(&inside, clock, receiving(at(20_001))).unwrap();
    let source = TcpSource::open(&inside, clock, Sending { size: None, ..sending(at(20_001)) }).unwrap();
    until(|| sink.progress().bytes > 100_000);
    assert!(!sink.finish().ended);
    until(|| source.progress().over);
    let failure = source.finish().failure.unwrap();
    assert!(matches!(failure, Failure::Broken { bytes, .. } if bytes > 100_000), "{failure}");
}

#[test]
fn a_handle_that_is_dropped_takes_its_thread_along() {
    let Some(inside) = loopback() else { return };
    let clock = Clock::start();
    let threads = || {
        let all = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let name = |t: std::fs::DirEntry| std::fs::read_to_string(t.path().join("comm")).unwrap_or_default();
        all.map(name).filter(|n| n.trim() == "drop-me").count()
    };
    let waits = move |shared: &Shared| shared.wait(clock, None, Time::MAX).is_ok();
    let worker = Worker::spawn("drop-me", waits).unwrap();
    until(|| threads() == 1);
    drop(worker);
    assert_eq!(threads(), 0);
    let later = Sending { start: Time::from_millis(3_600_000), ..sending(at(20_000)) };
    let started = Instant::now();
    drop(TcpSource::open(&inside, clock, later).unwrap());
    drop(TcpSink::open(&inside, clock, receiving(at(20_000))).unwrap());
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn datagrams_keep_their_rate_and_what_is_missing_is_known() {
    let Some(inside) = loopback() else { return };
    let (clock, ms) = (Clock::start(), Time::from_millis);
    let sink = UdpSink::open(&inside, clock, at(20_000)).unwrap();
    let periods = vec![(ms(0), ms(100)), (ms(200), ms(300))];
    let source = UdpSource::open(&inside, clock, at(20_000), Rate(8_000_000), 1000, periods).unwrap();
    until(|| source.progress().over);
    let (sent, failure) = source.finish();
    until(|| sink.progress().bytes >= sent * 972);
    let (sink, _) = sink.finish();
    assert!(clock.now() >= ms(299) && failure.is_none());
    assert_eq!(
        (sent, sink.received(), sink.missing()),
        (200, 200, 0),
        "1000 bytes a millisecond, twice 100 ms"
    );
}
