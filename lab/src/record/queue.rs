//! What is written down of one queue over time, if the scenario asks for it: what waits, in bytes and in packets, and what its
//! discipline shows.

use super::{Shown, held_until};
use crate::line::Queue;
use crate::outcome::{Series, points_each};
use narrows_core::Time;
use narrows_core::packet::Packet;

/// Series of a queue: two of its own, and what disciplines show (two).
const SERIES: usize = 4;

/// Series of one queue.
pub struct QueueRecorder {
    /// In bytes, and in packets: only changes are kept, from the first packet that waits.
    backlog: [(u64, Series); 2],
    shown: Shown,
}

/// The unit of what a discipline's `inspect` shows.
fn unit_of(quantity: &str) -> &'static str {
    match quantity {
        "average_queue" | "input_queue" | "output_queue" => "B",
        "average_packets" => "p",
        "sojourn" => "s",
        _ => "",
    }
}

impl QueueRecorder {
    /// One for each of the lines called so, with nothing recorded yet.
    pub fn of_lines(names: &[String]) -> Vec<QueueRecorder> {
        let points = points_each(SERIES * names.len());
        let of = |name: &String| QueueRecorder {
            backlog: [("backlog", "B"), ("backlog_packets", "p")]
                .map(|(quantity, unit)| (0, Series::new(name, quantity, unit, points))),
            shown: Shown::new(name, unit_of, points),
        };
        names.iter().map(of).collect()
    }

    /// Something has happened at the queue: notes what has changed.
    #[inline]
    pub fn look<P: Packet + Send>(&mut self, now: Time, queue: &Queue<P>) {
        let backlog = queue.backlog();
        for ((last, series), value) in self.backlog.iter_mut().zip([backlog.bytes.0, backlog.packets]) {
            if *last == value {
                continue;
            }
            if series.points.is_empty() {
                series.push(Time::ZERO, 0.0);
            }
            *last = value;
            series.push(now, value as f64);
        }
        if let Queue::Other(_) = queue {
            self.shown.look(now, |probe| queue.inspect(probe));
        }
    }

    /// The run ends: hands out what was recorded. The last values hold until then.
    pub fn finish(self, now: Time) -> impl Iterator<Item = Series> {
        let backlog = self.backlog.into_iter().map(move |(last, series)| {
            if series.points.is_empty() { series } else { held_until(now, last as f64, series) }
        });
        backlog.chain(self.shown.finish(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Carried, Line};
    use crate::{file, parts};
    use narrows_core::packet::Direction;
    use narrows_core::wire::udp::Message;
    use narrows_core::{Datagram, FlowId};

    const LINK: &str = "[run]\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[flow]]\nsize = \"1kB\"\nfrom = \"a\"\n\
        to = \"b\"\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"8Mbit/s\"\ndelay = \"0s\"\nqueue = ";

    /// Of a series: whose and what, the unit, and the points.
    type Seen = (String, String, Vec<(f64, f64)>);

    /// Packets of 1000 bytes, 1 ms each: four at 10 ms, until nothing waits, and the end at 20 ms.
    fn series(queue: &str) -> Vec<Seen> {
        let scenario = file::parse("s.toml", &format!("{LINK}{queue}")).unwrap_or_else(|e| panic!("{e}"));
        let mut lines = parts::lines::<Datagram>(&scenario, 1).unwrap();
        let line: &mut Line<Datagram> = &mut lines.lines[0];
        let mut recorder = QueueRecorder::of_lines(&lines.names[..1]).remove(0);
        for _ in 0..4 {
            let now = Time::from_millis(10);
            let message = Message { length: 972, ..Message::default() };
            let packet = Datagram::udp(FlowId(0), Direction::Forward, message);
            line.offer(now, Carried::new(packet, 0));
            recorder.look(now, &line.queue);
        }
        for now in [11, 12, 13].map(Time::from_millis) {
            line.ready(now);
            recorder.look(now, &line.queue);
        }
        let rounded = |p: &(f64, f64)| (libm::round(p.0 * 1e3), libm::round(p.1 * 1e3) / 1e3);
        let seen = recorder.finish(Time::from_millis(20));
        seen.map(|s| {
            (format!("{} {}", s.subject, s.quantity), s.unit, s.points.iter().map(rounded).collect())
        })
        .collect()
    }

    #[test]
    fn a_backlog_is_known_from_the_start_to_the_end() {
        let packets =
            [(0.0, 0.0), (10.0, 1.0), (10.0, 2.0), (10.0, 3.0), (11.0, 2.0), (12.0, 1.0), (13.0, 0.0)];
        let packets = [packets.as_slice(), &[(20.0, 0.0)]].concat();
        let bytes = packets.iter().map(|(t, n)| (*t, 1000.0 * n)).collect();
        let want = [("a>b backlog", "B", bytes), ("a>b backlog_packets", "p", packets)];
        assert_eq!(
            series("\"fifo:9p\""),
            want.map(|(name, unit, points)| (name.into(), unit.into(), points))
        );
    }

    #[test]
    fn what_a_discipline_shows_is_recorded_through_those_around_it() {
        let red = "{ kind = \"red\", limit = \"9p\", min = \"3p\", max = \"9p\", rate = \"8Mbit/s\", weight = 0.5 }";
        let around = ["loss", "reorder"].map(|kind| format!("{{ kind = \"{kind}\", inner = {red} }}"));
        let shaper = format!("{{ kind = \"shaper\", rate = \"8Mbit/s\", inner = {red} }}");
        let trace = format!("{{ kind = \"trace\", at = [1], inner = {red} }}");
        for queue in [red.to_string(), shaper, trace].into_iter().chain(around) {
            let seen = series(&queue);
            let [average, max_p] = &seen[2..] else { panic!("{queue}: {seen:?}") };
            assert_eq!((average.0.as_str(), average.1.as_str()), ("a>b average_packets", "p"));
            assert_eq!((max_p.0.as_str(), max_p.1.as_str()), ("a>b max_p", ""));
            assert_eq!(max_p.2, [(10.0, 0.1), (20.0, 0.1)]);
            let last = average.2[average.2.len() - 1];
            assert!(last.0 == 20.0 && last.1 > 0.0, "{queue}: {seen:?}");
        }
        let average = series(red)[2].2.clone();
        // Before each arrival 0 (one leaves at once), 0, 1 and 2 packets wait: 0, 0, 0.5, 1.25.
        assert_eq!(average, [(10.0, 0.0), (10.0, 0.5), (10.0, 1.25), (20.0, 1.25)]);
        let codel: Vec<_> =
            series("\"codel\"").into_iter().skip(2).map(|(name, unit, _)| (name, unit)).collect();
        assert_eq!(codel, [("a>b sojourn", "s"), ("a>b drop_count", "")].map(|(n, u)| (n.into(), u.into())));
    }
}
