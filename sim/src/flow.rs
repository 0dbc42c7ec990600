//! One flow: its two ends, and what is counted at them.

use narrows_core::packet::{Body, Direction};
use narrows_core::transport::Endpoint;
use narrows_core::transport::tcp::{State, Tcp};
use narrows_core::transport::udp::{Sink, Source};
use narrows_core::wire::tcp::Segment;
use narrows_core::{Datagram, FlowId, Time};
use narrows_lab::line::Written;
use narrows_lab::meter::Meter;
use narrows_lab::outcome::FlowSummary;
use narrows_lab::record::Recorder;

/// The two ends.
pub enum Ends {
    /// A TCP connection: who opens and sends, who listens and receives.
    Tcp(Box<(Tcp, Tcp)>),
    /// Datagrams.
    Udp(Source, Sink),
}

/// Which end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where it starts: data leaves, ACKs arrive.
    Source,
    /// Where it ends.
    Sink,
}

/// A flow of the scenario, as it runs.
pub struct Flow {
    pub id: FlowId,
    pub name: String,
    pub controller: String,
    pub ends: Ends,
    /// Where its ways begin in the table of ways: forward, backward.
    pub ways: [u32; 2],
    pub start: Time,
    pub stop: Option<Time>,
    pub started: bool,
    /// Whether it ends by itself: it has a size, or a stop.
    pub bounded: bool,
    /// Whether its end has been noted.
    pub over: bool,
    /// Whether source and sink wait for room in the line into which they send.
    pub held_back: [bool; 2],
    pub lost: u64,
    /// What is measured at the source of a TCP flow.
    pub meter: Meter,
    pub recorder: Option<Box<Recorder>>,
}

impl Flow {
    /// A flow that has not started.
    #[allow(clippy::too_many_arguments)] // each is a distinct fact of the scenario; a struct would only repeat Flow
    pub fn new(
        id: FlowId,
        name: String,
        controller: String,
        ends: Ends,
        ways: [u32; 2],
        size: Option<u64>,
        start: Time,
        stop: Option<Time>,
        recorder: Option<Box<Recorder>>,
    ) -> Flow {
        let bounded = size.is_some() || (stop.is_some() && matches!(ends, Ends::Tcp(_)));
        Flow {
            id,
            name,
            controller,
            ends,
            ways,
            start,
            stop,
            started: false,
            bounded,
            over: false,
            held_back: [false; 2],
            lost: 0,
            meter: Meter::new(start, size),
            recorder,
        }
    }

    /// A packet has come to its end.
    #[inline]
    pub fn receive(&mut self, now: Time, datagram: Datagram) -> End {
        let Datagram { ecn, direction, body, .. } = datagram;
        match (&mut self.ends, body, direction) {
            (Ends::Tcp(ends), Body::Tcp(segment), Direction::Forward) => {
                ends.1.receive(now, Segment { ecn, ..segment });
                End::Sink
            }
            (Ends::Tcp(ends), Body::Tcp(segment), Direction::Backward) => {
                ends.0.receive(now, Segment { ecn, ..segment });
                if let Some(rtt) = ends.0.take_rtt() {
                    self.meter.rtt(rtt);
                }
                self.meter.advance(now, ends.0.una());
                End::Source
            }
            (Ends::Udp(_, sink), Body::Udp(message), _) => {
                sink.receive(now, message);
                End::Sink
            }
            _ => unreachable!("a flow's packets are of its own transport"),
        }
    }

    /// The packet that comes next is an ACK whose window a router has written.
    pub fn written(&mut self, now: Time, window: Written) {
        self.meter.written(now, window);
        if let Some(recorder) = &mut self.recorder {
            recorder.written(now, window.line);
        }
    }

    /// The next packet that leaves `end` now, and the line it takes first.
    #[inline]
    pub fn transmit(&mut self, now: Time, end: End) -> Option<(Datagram, u32)> {
        let id = self.id;
        let (datagram, way) = match (&mut self.ends, end) {
            (Ends::Tcp(ends), End::Source) => {
                if ends.0.una() == ends.0.max() {
                    self.meter.idle(now);
                }
                let segment = ends.0.transmit(now)?;
                if let Some(recorder) = &mut self.recorder {
                    recorder.sent(now, segment.seq, segment.payload.0 as u64);
                }
                (Datagram::tcp(id, Direction::Forward, segment.ecn, segment), self.ways[0])
            }
            (Ends::Tcp(ends), End::Sink) => {
                let segment = ends.1.transmit(now)?;
                (Datagram::tcp(id, Direction::Backward, segment.ecn, segment), self.ways[1])
            }
            (Ends::Udp(source, _), End::Source) => {
                let message = source.transmit(now)?;
                (Datagram::udp(id, Direction::Forward, message), self.ways[0])
            }
            (Ends::Udp(..), End::Sink) => return None,
        };
        Some((datagram, way))
    }

    /// When `end` wants to be called.
    #[inline]
    pub fn wake_at(&self, end: End) -> Option<Time> {
        match (&self.ends, end) {
            (Ends::Tcp(ends), End::Source) => ends.0.wake_at(),
            (Ends::Tcp(ends), End::Sink) => ends.1.wake_at(),
            (Ends::Udp(source, _), End::Source) => source.wake_at(),
            (Ends::Udp(..), End::Sink) => None,
        }
    }

    /// The source stops writing: what it has written is what it has to send.
    pub fn stop(&mut self, now: Time) {
        if let Ends::Tcp(ends) = &mut self.ends {
            ends.0.stop();
            self.meter.limit(now, ends.0.written());
        }
    }

    /// Whether nothing more will come of it: all arrived, or the connection was given up.
    #[inline]
    pub fn is_over(&self) -> bool {
        let given_up = |ends: &(Tcp, Tcp)| self.started && ends.0.state() == State::Closed;
        self.meter.finished().is_some() || matches!(&self.ends, Ends::Tcp(ends) if given_up(ends))
    }

    /// While nothing happens: timers of the congestion control catch up, so that what is recorded of them does.
    pub fn tick(&mut self, now: Time) {
        if let (Some(recorder), Ends::Tcp(ends)) = (&mut self.recorder, &mut self.ends) {
            ends.0.catch_up(now);
            recorder.look_at(now, &ends.0);
        }
    }

    /// Something has happened at the source: what is recorded of it follows.
    #[inline]
    pub fn record(&mut self, now: Time) {
        if let (Some(recorder), Ends::Tcp(ends)) = (&mut self.recorder, &self.ends) {
            recorder.look_at(now, &ends.0);
        }
    }

    /// The flow in numbers at `now`, the end of the run; `lines` are the lines' names.
    pub fn summary(&mut self, now: Time, lines: &[String]) -> FlowSummary {
        let stopped = self.stop.filter(|_| matches!(self.ends, Ends::Udp(..)));
        let end = self.meter.finished().or(stopped).unwrap_or(now).min(now);
        let seconds = end.since(self.start).as_secs_f64();
        let mut summary = FlowSummary {
            name: self.name.clone(),
            controller: self.controller.clone(),
            started_at_s: self.start.as_secs_f64(),
            finished_at_s: end.as_secs_f64(),
            lost: self.lost,
            ..FlowSummary::default()
        };
        match &self.ends {
            Ends::Tcp(ends) => {
                let outstanding = ends.0.max() > ends.0.una();
                let c = *ends.0.counters();
                summary.delivered_bytes = ends.1.delivered();
                summary.segments_sent = c.segments_sent;
                summary.retransmissions = c.retransmissions;
                summary.retransmit_ratio = c.retransmissions as f64 / c.segments_sent.max(1) as f64;
                summary.rto_count = c.timeouts;
                summary.fast_retransmits = c.fast_retransmits;
                summary.ecn_reductions = c.ecn_reductions;
                self.meter.end(now, self.started && outstanding);
                self.meter.fill(&mut summary, lines);
            }
            Ends::Udp(source, sink) => {
                summary.delivered_bytes = sink.bytes();
                summary.segments_sent = source.sent();
                summary.completed = source.wake_at().is_none();
            }
        }
        if seconds > 0.0 {
            summary.goodput_bps = summary.delivered_bytes as f64 * 8.0 / seconds;
        }
        summary
    }
}
