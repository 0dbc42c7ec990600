//! What stands at the border to the kernel, and a router that writes into ACKs: any bytes behind any virtio header become packets
//! or are refused by name; what is joined again for the kernel is, cut again, what it was; a written window leaves a checksum that
//! was right, right, and nothing else changed; so does a state that is added. Nothing panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::ackwin::policy::{self, Chosen};
use narrows_core::ackwin::{AckWindow, Room};
use narrows_core::packet::Packet;
use narrows_core::qdisc::Backlog;
use narrows_core::registry::{Settings, Value};
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::{ipv4, tcp};
use narrows_core::{Bytes, Rate, Time};
use narrows_net::frame::Frame;
use narrows_net::port::segment::joined::{self, Due};
use narrows_net::port::segment::{Link, Offload, restore};
use std::time::Duration;

fn router() -> AckWindow {
    let values = [
        ("rtt", Value::Time(Duration::ZERO)),
        ("alive", Value::Time(Duration::from_secs(1))),
        ("hold", Value::Flag(true)),
        ("connections", Value::Count(16)),
        ("report", Value::Flag(true)),
        ("load_over", Value::Time(Duration::from_millis(50))),
    ];
    let settings = Settings(values.into_iter().map(|(k, v)| (k.to_string(), v)).collect());
    let entry = policy::by_name("share").expect("it is registered");
    let chosen = Chosen::new(entry, &settings).expect("the settings fit").expect("it is a policy");
    AckWindow::new(chosen, Room::Packets(3))
}

/// Whether an IPv4 frame carries a TCP segment whose checksum is right; `None` if it carries none.
fn intact(frame: &Frame) -> Option<bool> {
    let v = ipv4::View::new(frame.packet()?).ok()?;
    let segment = tcp::View::new(v.payload()).ok()?;
    Some(segment.is_intact(Pseudo::v4(v.source(), v.destination())))
}

fuzz_target!(|bytes: &[u8]| {
    let [kind, rest @ ..] = bytes else { return };
    let Some((told, packet)) = rest.split_first_chunk::<{ Offload::SIZE }>() else { return };
    let link = if kind & 1 == 0 { Link::Ip } else { Link::Ethernet };
    let tag = (kind & 2 != 0 && link == Link::Ethernet).then_some([0x81, 0, 0, 9]);
    let told = Offload::read(told);
    let mut frames: Vec<Due> = Vec::new();
    let _ = restore(link, packet, told, tag, &mut |bytes| {
        let frame = match link {
            Link::Ip => Frame::ip(bytes),
            Link::Ethernet => Frame::ethernet(bytes),
        };
        frames.extend(
            frame.map(|f| (Time::ZERO, if told.unfinished.is_some() { f.known_intact() } else { f })),
        );
    });

    let mut router = router();
    for (i, (_, frame)) in frames.iter_mut().enumerate() {
        let now = Time::from_millis(i as u64);
        router.onward(now, frame);
        let (before, was) = (frame.bytes().to_vec(), intact(frame));
        let verdict = router.back(
            now,
            frame,
            Backlog { packets: i as u64 % 5, bytes: Bytes(0) },
            None,
            Rate(1_000_000),
        );
        if !verdict.rewritten {
            assert_eq!(frame.bytes(), before);
        } else if was == Some(true) {
            assert_eq!(intact(frame), Some(true));
            assert!(before.iter().zip(frame.bytes()).filter(|(a, b)| a != b).count() <= 4);
        }
        let (before, was) = (frame.bytes().to_vec(), intact(frame));
        router.report(now, frame, 7, Backlog { packets: 1, bytes: Bytes(1500) }, Rate(1_000_000));
        if frame.bytes() == before {
            continue;
        }
        // Ethernet's padding may have been taken off.
        assert!(frame.size().0 as usize <= frame.bytes().len() && frame.size().0 <= 576);
        assert!(was.is_none() || intact(frame) == was, "a checksum is as right or as wrong as it was");
        let again = match link {
            Link::Ip => Frame::ip(frame.bytes().to_vec()),
            Link::Ethernet => Frame::ethernet(frame.bytes().to_vec()),
        };
        assert_eq!(again.expect("it is still a packet").size(), frame.size());
    }

    let before: Vec<Vec<u8>> = frames.iter().map(|(_, f)| f.bytes().to_vec()).collect();
    let (mut messages, mut again) = (Vec::new(), Vec::new());
    joined::messages(link, &frames, &mut messages);
    let mut rest = &frames[..];
    for message in &messages {
        let mut parts = message.parts(rest);
        let told = parts.next().and_then(|p| p.first_chunk().map(Offload::read)).expect("it begins so");
        let whole: Vec<u8> = parts.flat_map(|p| p.to_vec()).collect();
        restore(link, &whole, told, None, &mut |f| again.push(f)).expect("we made it");
        rest = &rest[message.packets..];
    }
    assert!(again == before);
});
