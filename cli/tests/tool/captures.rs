//! `run --pcap`, read by tshark: every packet of the line, whole, valid, at its time.

use super::{Folder, SMALL, json, skipped, stderr};
use std::process::Command;

#[test]
fn a_capture_holds_every_packet_of_its_line_whole_and_valid() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let o = json(
        &folder,
        &["run", "small.toml", "-o", "out", "--pcap", "r>b", "--pcap", "b>r", "--format", "json"],
    );
    let fields = "frame.interface_name _ws.malformed ip.checksum.status tcp.checksum.status udp.checksum.status \
        frame.time_relative frame.len tcp.analysis.lost_segment tcp.analysis.retransmission";
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.0.join("out/small.pcapng")).args(["-T", "fields", "-E", "separator=,"]);
    for protocol in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    for field in fields.split_whitespace() {
        tshark.args(["-e", field]);
    }
    let Ok(output) = tshark.output() else {
        return skipped("tshark is not installed (Debian: apt install tshark)");
    };
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
    for queue in o["queues"].as_array().unwrap().iter().skip(2) {
        let name = queue["name"].as_str().unwrap();
        let of_line: Vec<_> = rows.iter().filter(|r| r[0] == name).collect();
        assert_eq!(Some(of_line.len() as u64), queue["departed"].as_u64(), "{name}: packets");
        let bytes: u64 = of_line.iter().map(|r| r[6].parse::<u64>().unwrap()).sum();
        assert_eq!(Some(bytes), queue["departed_bytes"].as_u64(), "{name}: bytes");
    }
    assert!(rows.len() > 1000);
    for row in &rows {
        let tcp = !row[3].is_empty();
        assert_eq!((row[1], row[2]), ("", "1"), "{row:?}");
        assert_eq!(if tcp { row[3] } else { row[4] }, "1", "{row:?}");
    }
    let times: Vec<f64> = rows.iter().map(|r| r[5].parse().unwrap()).collect();
    assert!(times.windows(2).all(|w| w[0] <= w[1]), "in order of time");
    let ended = o["ended_at_s"].as_f64().unwrap();
    assert!(
        *times.last().unwrap() <= ended && *times.last().unwrap() > ended - 0.1,
        "{} {ended}",
        times.last().unwrap()
    );
    let resent = rows.iter().filter(|r| !r[8].is_empty()).count() as u64;
    let lost = o["flows"][0]["lost"].as_u64().unwrap();
    assert!(lost > 0 && rows.iter().any(|r| !r[7].is_empty()), "behind the queue its drops are holes");
    assert!(resent <= o["flows"][0]["retransmissions"].as_u64().unwrap(), "{resent}");
}

#[test]
fn a_capture_at_a_host_sees_what_the_host_sees_when_it_sees_it() {
    let folder = Folder::new();
    folder.file("small.toml", SMALL);
    let o = json(&folder, &["run", "small.toml", "-o", "out", "--pcap", "a", "--format", "json"]);
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(folder.0.join("out/small.pcapng")).args([
        "-T",
        "fields",
        "-e",
        "tcp.analysis.ack_rtt",
    ]);
    let Ok(output) = tshark.output() else {
        return skipped("tshark is not installed (Debian: apt install tshark)");
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let least = text.lines().filter_map(|l| l.parse::<f64>().ok()).fold(f64::INFINITY, f64::min);
    let flow = &o["flows"][0];
    // The handshake, which tshark counts and Narrows does not, is a little faster than data.
    let rtt = flow["rtt_min_s"].as_f64().unwrap();
    assert!(least <= rtt && least > 0.8 * rtt, "tshark {least}, Narrows {rtt}");
}
