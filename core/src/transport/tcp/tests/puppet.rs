//! One end under test, and a peer that says exactly what the test wants. What the end sends is collected as lines:
//!
//! `0:1000` data (stream offsets), `F` FIN, `R` RST, `S` SYN, `. 500` a pure ACK for 500; `probe` is up to the reader.

use super::*;
use crate::wire::tcp::{Flags, Options, Timestamps};
use std::format;
use std::string::String;

/// The peer's initial sequence number.
pub const PEER: u32 = 900_000;

/// An end under test.
pub struct Puppet {
    pub tcp: Tcp<Vec<u8>>,
    pub now: Time,
    /// Every segment sent, with its time, since the last look.
    pub out: Vec<(Time, Segment<Vec<u8>>)>,
    /// What the peer's segments say of its window, and which timestamp they carry.
    pub window: u16,
    pub stamp: Option<Timestamps>,
    /// The peer's place in its own stream, and what it acknowledges.
    pub seq: u64,
    pub ack: u64,
}

impl Puppet {
    /// An active opener, established at time 0 with a peer that has no options but an equal MSS (and timestamps and ECN if the stack
    /// has them).
    pub fn new(config: Config) -> Puppet {
        let controller = reno(&config.stack);
        let accepts = if config.stack.ecn { Flags::ECE } else { Flags::default() };
        let stamp = config.stack.timestamps.then_some(Timestamps { value: 1, echo: 0 });
        let tcp = Tcp::connect(config, controller);
        let mut puppet =
            Puppet { tcp, now: Time::ZERO, out: Vec::new(), window: 60_000, stamp, seq: 0, ack: 0 };
        puppet.flush();
        puppet.out.clear();
        let mut syn = puppet.segment(Flags::SYN | Flags::ACK | accepts, 0);
        syn.seq = Seq(PEER);
        syn.options.mss = Some(MSS as u16);
        puppet.says(syn);
        puppet.out.clear();
        assert_eq!(puppet.tcp.state(), State::Established);
        puppet
    }

    /// Collects what leaves now.
    pub fn flush(&mut self) {
        while let Some(segment) = self.tcp.transmit(self.now) {
            self.out.push((self.now, segment));
            assert!(self.out.len() < 100_000, "it never stops sending");
        }
    }

    /// On to `at` ms, running the timers on the way.
    pub fn at(&mut self, at: u64) -> &mut Self {
        let at = Time::from_millis(at);
        while let Some(wake) = self.tcp.wake_at().filter(|w| *w <= at) {
            self.now = wake;
            self.flush();
            assert!(
                self.tcp.wake_at() > Some(wake) || self.tcp.wake_at().is_none(),
                "a due timer was not run"
            );
        }
        self.now = self.now.max(at);
        self.flush();
        self
    }

    pub fn segment(&self, flags: Flags, len: u32) -> Segment<Vec<u8>> {
        Segment {
            source: 80,
            destination: 1024,
            seq: Seq(PEER).plus(1).plus(self.seq as u32),
            ack: Seq(self.tcp.config.iss).plus(1).plus(self.ack as u32),
            flags,
            window: self.window,
            options: Options { timestamps: self.stamp, ..Options::default() },
            payload: Vec::piece(self.seq, len),
            ..Segment::default()
        }
    }

    pub fn says(&mut self, segment: Segment<Vec<u8>>) -> &mut Self {
        self.tcp.receive(self.now, segment);
        self.flush();
        self
    }

    /// The peer acknowledges `ack`.
    pub fn ack(&mut self, ack: u64) -> &mut Self {
        self.ack = ack;
        self.says(self.segment(Flags::ACK, 0))
    }

    /// The peer sends `len` bytes from stream offset `at`.
    pub fn data(&mut self, at: u64, len: u32) -> &mut Self {
        self.seq = at;
        let segment = self.segment(Flags::ACK, len);
        self.seq = at + len as u64;
        self.says(segment)
    }

    /// The application writes `bytes` more.
    pub fn write(&mut self, bytes: u32) -> &mut Self {
        let data = Vec::piece(self.tcp.written, bytes);
        assert_eq!(self.tcp.write(&data), bytes, "the send buffer is full");
        self.flush();
        self
    }

    /// The lines since the last look.
    pub fn sent(&mut self) -> Vec<String> {
        let iss = self.tcp.config.iss;
        core::mem::take(&mut self.out).iter().map(|(_, s)| line(s, iss)).collect()
    }

    /// The lines since the last look, each with its time in ms.
    pub fn sent_at(&mut self) -> Vec<String> {
        let iss = self.tcp.config.iss;
        let show = |(t, s): &(Time, _)| format!("{} {}", t.as_nanos() / 1_000_000, line(s, iss));
        core::mem::take(&mut self.out).iter().map(show).collect()
    }

    /// An ACK and what follows from it, as one line of a table: windows in segments, and the segments sent by number.
    pub fn row(&mut self, ack: u64) -> String {
        self.ack(ack * MSS as u64);
        let row = format!("ack {ack}: {}", self.state());
        row
    }

    /// Windows and segments since the last look.
    pub fn state(&mut self) -> String {
        let segments = |b: Bytes| b.0 as f64 / MSS as f64;
        let controller = self.tcp.controller();
        let (cwnd, ssthresh) = (segments(controller.congestion_window()), segments(controller.ssthresh()));
        let ssthresh = if ssthresh > 60.0 { String::from("-") } else { format!("{ssthresh}") };
        let mut row = format!("cwnd {cwnd} ssthresh {ssthresh} sends");
        for (_, s) in core::mem::take(&mut self.out) {
            let at = s.seq.0.wrapping_sub(self.tcp.config.iss).wrapping_sub(1);
            row += &format!(" {}", at / MSS);
        }
        row
    }
}

fn line(s: &Segment<Vec<u8>>, iss: u32) -> String {
    let at = s.seq.0.wrapping_sub(iss).wrapping_sub(1);
    let ack = s.ack.0.wrapping_sub(PEER).wrapping_sub(1);
    let mut line = String::new();
    for (flag, letter) in [(Flags::SYN, "S"), (Flags::FIN, "F"), (Flags::RST, "R")] {
        if s.flags.has(flag) {
            line += letter;
        }
    }
    if !s.payload.is_empty() {
        line += &format!("{at}:{}", at + s.payload.len() as u32);
    } else if line.is_empty() {
        line = format!(". {ack}");
    } else {
        line += &format!(" {at}");
    }
    line
}

/// Fails with both tables in full.
#[track_caller]
pub fn assert_table(got: &[String], want: &str) {
    let want: Vec<&str> = want.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert!(got == want, "got\n  {}\nwanted\n  {}", got.join("\n  "), want.join("\n  "));
}
