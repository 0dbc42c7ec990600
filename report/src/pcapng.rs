//! What crossed the links of a run as a capture file: pcapng, which Wireshark and tshark open (IETF draft-ietf-opsawg-pcapng;
//! the blocks are written by the `pcap-file` crate).
//!
//! One interface per link and direction, named by the caller (`r1>r2`), of link type RAW (101), which holds IPv4 and IPv6. Timestamps are
//! the run's own nanoseconds since its start, shown by Wireshark as 1970-01-01 and by `frame.time_relative` as they are. Real
//! packets are written byte for byte. Those of the simulator are encoded here: complete, their checksums valid; the payload, of
//! which only the length is known, is zeros.
//!
//! The simulator has flows, not addresses. Flow `f` gets a pair of its own: source `10.h.l.1`, destination `10.h.l.2`, where `h`
//! and `l` are the high and low byte of `f`; packets that travel backward have them exchanged. From flow 65536 on the last byte
//! goes up in twos (3 and 4, 5 and 6, ...), which keeps 8 million flows apart. A filter for flow 7 is thus `ip.addr == 10.0.7.1`.

use std::borrow::Cow;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use narrows_core::packet::Direction;
use narrows_core::wire::ipv4;
use narrows_core::{FlowId, Time};
use narrows_lab::host::Seen;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::output::Pending;

/// `if_tsresol`: timestamps count 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// A capture being written. It appears at its path when [`Pcapng::finish`] is called, whole; without that, nothing is left.
pub struct Pcapng {
    blocks: PcapNgWriter<Pending>,
    /// Packets so far on each interface: their IP identification, so that a retransmission is told from a copy.
    counts: Vec<u16>,
    /// The packet being written, kept for its allocation.
    bytes: Vec<u8>,
}

impl Pcapng {
    /// Starts a capture for `path`, with one interface per name. Until it is finished its bytes lie in a file beside `path`.
    ///
    /// # Errors
    /// The file cannot be created or written; the error names it.
    pub fn create(path: impl AsRef<Path>, interfaces: &[String]) -> io::Result<Pcapng> {
        let file = Pending::create(path)?;
        let mut blocks = PcapNgWriter::with_endianness(file, Endianness::Little).map_err(io_error)?;
        for name in interfaces {
            let options = vec![
                InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ];
            let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
            blocks.write_pcapng_block(interface).map_err(io_error)?;
        }
        Ok(Pcapng { blocks, counts: vec![0; interfaces.len()], bytes: Vec::new() })
    }

    /// Adds a packet seen at `now` on the `interface`-th of the interfaces named at the start. Wireshark expects packets in order
    /// of time.
    ///
    /// # Errors
    /// `InvalidInput` if there is no such interface, or a value is longer than IPv4 allows; otherwise what writing met with.
    pub fn packet(&mut self, interface: usize, now: Time, packet: Seen<'_>) -> io::Result<()> {
        let known = self.counts.len();
        let count = self.counts.get_mut(interface).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("interface {interface} of a capture with {known}"),
            )
        })?;
        let bytes = match packet {
            Seen::Bytes(bytes) => bytes,
            Seen::Value(datagram) => {
                let (source, destination) = addresses(datagram.flow, datagram.direction);
                self.bytes.clear();
                ipv4::encode_datagram(datagram, source, destination, *count, &mut self.bytes)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
                *count = count.wrapping_add(1);
                &self.bytes
            }
        };
        let packet = EnhancedPacketBlock {
            interface_id: interface as u32,
            timestamp: Duration::from_nanos(now.as_nanos()),
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(bytes),
            options: vec![],
        };
        self.blocks.write_pcapng_block(packet).map_err(io_error)?;
        Ok(())
    }

    /// Completes the capture and puts it in its place, over a file that was there.
    ///
    /// # Errors
    /// The last bytes cannot be written, or the file not be renamed; then the old file is untouched.
    pub fn finish(self) -> io::Result<()> {
        self.blocks.into_inner().finish()
    }
}

/// Source and destination address of a flow's packets that travel in `direction`: see the head of this file.
pub fn addresses(flow: FlowId, direction: Direction) -> (Ipv4Addr, Ipv4Addr) {
    let [_, above, high, low] = flow.0.to_be_bytes();
    let pair = above % 127 * 2; // 1 and 2 ... 253 and 254
    let (source, destination) =
        (Ipv4Addr::new(10, high, low, pair + 1), Ipv4Addr::new(10, high, low, pair + 2));
    match direction {
        Direction::Forward => (source, destination),
        Direction::Backward => (destination, source),
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidInput, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use narrows_core::wire::tcp::{Flags, Length, Options, SackBlocks, Segment, Seq, Timestamps};
    use narrows_core::wire::udp::Message;
    use narrows_core::{Datagram, Ecn};
    use pcap_file::pcapng::{Block, PcapNgReader};
    use std::fs::{self, File};
    use std::path::PathBuf;
    use std::process::Command;

    /// A directory of the test's own, removed with everything in it.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("narrows-pcapng-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }
        fn files(&self) -> Vec<String> {
            let names = fs::read_dir(&self.0).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
            names.collect()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const SYN: Flags = Flags::SYN;
    const ACK: Flags = Flags::ACK;

    fn segment(
        direction: Direction,
        seq: u32,
        ack: u32,
        flags: Flags,
        length: u32,
        options: Options,
    ) -> Datagram {
        let (source, destination) = match direction {
            Direction::Forward => (40_000, 80),
            Direction::Backward => (80, 40_000),
        };
        let segment = Segment {
            source,
            destination,
            seq: Seq(seq),
            ack: Seq(ack),
            flags,
            window: 32_768,
            urgent: 0,
            ecn: Ecn::NotEct,
            options,
            payload: Length(length),
        };
        Datagram::tcp(FlowId(7), direction, Ecn::NotEct, segment)
    }

    /// A handshake, data of which one segment is missing, the duplicate ACK with its SACK block, and a UDP datagram of another flow.
    fn conversation() -> Vec<(usize, Time, Datagram)> {
        use Direction::{Backward, Forward};
        let stamped =
            |value, echo| Options { timestamps: Some(Timestamps { value, echo }), ..Options::default() };
        let syn = |value, echo| Options {
            mss: Some(1460),
            window_scale: Some(5),
            sack_permitted: true,
            ..stamped(value, echo)
        };
        let mut block = SackBlocks::default();
        block.push(Seq(2897), Seq(4345));
        let sack = Options { sack: block, ..stamped(3, 4) };
        let mut marked = segment(Forward, 2897, 1, ACK, 1448, stamped(4, 1));
        marked.ecn = Ecn::Ce;
        let message = Message { source: 9, destination: 10, length: 1000, number: 42 };
        let ms = Time::from_millis;
        vec![
            (0, ms(1), segment(Forward, 0, 0, SYN, 0, syn(1, 0))),
            (1, ms(11), segment(Backward, 0, 1, SYN | ACK, 0, syn(1, 1))),
            (0, ms(21), segment(Forward, 1, 1, ACK, 0, stamped(2, 1))),
            (0, Time::from_nanos(21_000_001), segment(Forward, 1, 1, ACK, 1448, stamped(3, 1))),
            (0, ms(22), marked),
            (1, ms(32), segment(Backward, 1, 1449, ACK, 0, sack)),
            (0, ms(33), Datagram::udp(FlowId(300), Forward, message)),
            (0, Time::from_nanos(4_000_000_000_123_456), segment(Forward, 1449, 1, ACK, 1, stamped(5, 3))),
        ]
    }

    fn write(path: &Path) {
        let mut capture = Pcapng::create(path, &["r1>r2".into(), "r2>r1".into()]).unwrap();
        for (interface, now, datagram) in conversation() {
            capture.packet(interface, now, Seen::Value(&datagram)).unwrap();
        }
        capture.finish().unwrap();
    }

    #[test]
    fn what_was_written_reads_back_with_times_in_nanoseconds() {
        let directory = Directory::new("reads-back");
        let path = directory.0.join("run.pcapng");
        write(&path);
        assert_eq!(directory.files(), ["run.pcapng"]);

        let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
        let (mut names, mut packets) = (vec![], vec![]);
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(i) => names.push(i.options[0].clone().into_owned()),
                Block::EnhancedPacket(p) => {
                    packets.push((p.interface_id as usize, p.timestamp, p.data.len() as u32))
                }
                other => panic!("unexpected block {other:?}"),
            }
        }
        let name = |name: &'static str| InterfaceDescriptionOption::IfName(name.into());
        assert_eq!(names, [name("r1>r2"), name("r2>r1")]);
        let expected =
            conversation().into_iter().map(|(i, t, d)| (i, Duration::from_nanos(t.as_nanos()), d.size));
        assert_eq!(packets, expected.collect::<Vec<_>>());
    }

    #[test]
    fn real_packets_of_both_versions_are_written_byte_for_byte() {
        let directory = Directory::new("bytes");
        let path = directory.0.join("run.pcapng");
        let (_, _, datagram) = conversation().remove(3);
        let (source, destination) = addresses(datagram.flow, datagram.direction);
        let mut v4 = Vec::new();
        ipv4::encode_datagram(&datagram, source, destination, 77, &mut v4).unwrap();
        let mut v6 = vec![0; 40]; // no next header (59), from :: to ::
        (v6[0], v6[6]) = (0x60, 59);
        let mut capture = Pcapng::create(&path, &["tun".into()]).unwrap();
        for bytes in [&v4, &v6] {
            capture.packet(0, Time::from_millis(1), Seen::Bytes(bytes)).unwrap();
        }
        capture.finish().unwrap();

        let mut reader = PcapNgReader::new(File::open(&path).unwrap()).unwrap();
        let mut packets = vec![];
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(i) => assert_eq!(i.linktype, DataLink::RAW),
                Block::EnhancedPacket(p) => packets.push(p.data.into_owned()),
                other => panic!("unexpected block {other:?}"),
            }
        }
        assert_eq!(packets, [v4, v6]);
        let Ok(output) = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(["-T", "fields", "-e", "ip.version", "-e", "ipv6.nxt"])
            .output()
        else {
            return println!("SKIPPED: tshark is not installed (Debian: apt install tshark)");
        };
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "4\t\n6\t59\n");
    }

    #[test]
    fn a_capture_that_is_not_finished_leaves_nothing_and_harms_nothing() {
        let directory = Directory::new("unfinished");
        let path = directory.0.join("run.pcapng");
        fs::write(&path, "what was there").unwrap();
        let mut capture = Pcapng::create(&path, &["a>b".into()]).unwrap();
        let (_, now, datagram) = conversation().remove(0);
        capture.packet(0, now, Seen::Value(&datagram)).unwrap();
        assert_eq!(directory.files().len(), 2);
        drop(capture);
        assert_eq!(directory.files(), ["run.pcapng"]);
        assert_eq!(fs::read(&path).unwrap(), b"what was there");
    }

    #[test]
    fn what_a_capture_cannot_hold_is_refused() {
        let directory = Directory::new("refused");
        let mut capture = Pcapng::create(directory.0.join("run.pcapng"), &["a>b".into()]).unwrap();
        let (_, now, datagram) = conversation().remove(0);
        let no_interface = capture.packet(1, now, Seen::Value(&datagram)).unwrap_err();
        assert_eq!(no_interface.to_string(), "interface 1 of a capture with 1");
        let giant = segment(Direction::Forward, 0, 0, ACK, 70_000, Options::default());
        assert_eq!(
            capture.packet(0, now, Seen::Value(&giant)).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(Pcapng::create(&directory.0, &[]).is_err(), "a directory is no file");
    }

    #[test]
    fn every_flow_has_addresses_of_its_own_and_backward_exchanges_them() {
        let pair = |flow| addresses(FlowId(flow), Direction::Forward);
        let ip = Ipv4Addr::new;
        assert_eq!(pair(7), (ip(10, 0, 7, 1), ip(10, 0, 7, 2)));
        assert_eq!(pair(65_535), (ip(10, 255, 255, 1), ip(10, 255, 255, 2)));
        assert_eq!(pair(65_536), (ip(10, 0, 0, 3), ip(10, 0, 0, 4)));
        assert_eq!(pair((127 << 16) - 1), (ip(10, 255, 255, 253), ip(10, 255, 255, 254)));
        assert_eq!(addresses(FlowId(7), Direction::Backward), (ip(10, 0, 7, 2), ip(10, 0, 7, 1)));
    }

    /// What tshark must say of [`conversation`]: nothing malformed, the three checksums good (1), the times of the run, the
    /// options as they were, and the hole before the fifth packet seen.
    const DISSECTED: &str = "\
r1>r2,0.001000000,60,,10.0.7.1,0,1,1,,1460,5,1,,32768,
r2>r1,0.011000000,60,,10.0.7.2,0,1,1,,1460,5,1,,32768,
r1>r2,0.021000000,52,,10.0.7.1,0,1,1,,,,2,,1048576,
r1>r2,0.021000001,1500,,10.0.7.1,0,1,1,,,,3,,1048576,
r1>r2,0.022000000,1500,,10.0.7.1,3,1,1,,,,4,,1048576,1
r2>r1,0.032000000,64,,10.0.7.2,0,1,1,,,,3,2897,1048576,
r1>r2,0.033000000,1028,,10.1.44.1,0,1,,1,,,,,,
r1>r2,4000000.000123456,53,,10.0.7.1,0,1,1,,,,5,,1048576,
";

    #[test]
    fn tshark_finds_nothing_malformed_valid_checksums_and_the_times_of_the_run() {
        let directory = Directory::new("tshark");
        let path = directory.0.join("run.pcapng");
        write(&path);
        let fields = "frame.interface_name frame.time_epoch frame.len _ws.malformed ip.src ip.dsfield.ecn \
            ip.checksum.status tcp.checksum.status udp.checksum.status tcp.options.mss_val tcp.options.wscale.shift \
            tcp.options.timestamp.tsval tcp.options.sack_le tcp.window_size tcp.analysis.lost_segment";
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=,"]);
        for protocol in ["ip", "tcp", "udp"] {
            tshark.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
        for field in fields.split_whitespace() {
            tshark.args(["-e", field]);
        }
        let Ok(output) = tshark.output() else {
            return println!("skipped: tshark is not installed (Debian: apt install tshark)");
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), DISSECTED);
    }
}
