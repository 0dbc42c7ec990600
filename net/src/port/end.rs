//! Ends of our own on real packets: TCP of any stack and controller, UDP sources and sinks, all those of one host. Values become
//! bytes here: segments are encoded into IPv4 packets with their checksums, and decoded again, checksums tested, anything
//! malformed counted and dropped. The state machines are the simulator's.
//!
//! The application is one that writes as soon as there is room, or reads as soon as there is data: what it writes is
//! [`Content`], so every byte can be told to be the right one. It may stop reading for a while, which closes the window.
//!
//! Deviations: one connection per local port, for the whole run; fragments are not put together (the ends set DF).

use super::{Port, Take, Tell};
use crate::content::{Content, PIECE, Received};
use crate::frame::{Frame, Kind, Malformed};
use narrows_core::Time;
use narrows_core::congestion::Controller;
use narrows_core::transport::Endpoint;
use narrows_core::transport::tcp::{Config, State, Tcp};
use narrows_core::transport::udp::{Sink, Source};
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::ipv4::{self, Header};
use narrows_core::wire::tcp::{Flags, Payload, Segment, Seq};
use narrows_core::wire::udp::Message;
use narrows_core::wire::{DecodeError, protocol};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A connection of a [`Host`], by its number: they are counted from 0 as they are added.
pub type SocketId = usize;

/// Segments carry bytes here.
pub type Bytewise = Tcp<Vec<u8>>;

/// Segments that one connection sends at a time; the gateway is asked for what is due between.
const BATCH: usize = 64;

/// Looks on at one connection.
pub trait Watcher: Send {
    /// A segment leaves. `tcp` is the connection just after.
    fn sent(&mut self, _now: Time, _tcp: &mut Bytewise, _segment: &Segment<Vec<u8>>) {}
    /// A segment has arrived. `tcp` is the connection just after.
    fn received(&mut self, _now: Time, _tcp: &mut Bytewise) {}
    /// Timers have run, the application had its turn, and nothing more leaves for now.
    fn rests(&mut self, _now: Time, _tcp: &mut Bytewise) {}
}

/// Watches nothing.
pub struct Unwatched;

impl Watcher for Unwatched {}

/// What the application at an end does beside reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Application {
    /// Writes so many bytes, then closes.
    Writes(u64),
    /// Writes until it is stopped.
    WritesOn,
    /// Writes nothing, and closes when the peer has.
    Reads,
}

/// A TCP connection to be.
pub struct Opening {
    /// Stack, buffers, ports: `ports.0` is ours and no other socket's; `ports.1` is the peer's if we open. Data is always read by
    /// [`Tcp::read`].
    pub config: Config,
    /// Its congestion control.
    pub controller: Box<dyn Controller>,
    /// Whom to connect to; `None` listens.
    pub peer: Option<Ipv4Addr>,
    /// What is written and what is expected to be read.
    pub content: Content,
    /// What the application does.
    pub application: Application,
    /// When it begins: the SYN leaves then.
    pub start: Time,
    /// When it stops writing; what is in the buffer by then is still delivered.
    pub stop: Option<Time>,
    /// When it does not read: from, until; in order of time and disjoint.
    pub pauses: Vec<(Time, Time)>,
    /// Who looks on.
    pub watcher: Box<dyn Watcher>,
}

/// A TCP connection and its application.
pub struct TcpSocket {
    tcp: Bytewise,
    /// Known from the start if we open, from the first segment if not.
    peer: Option<SocketAddrV4>,
    application: Application,
    content: Content,
    stop: Time,
    pauses: Vec<(Time, Time)>,
    received: Received,
    received_at: Option<Time>,
    finished: Option<Time>,
    watcher: Box<dyn Watcher>,
}

impl TcpSocket {
    /// The connection. What is changed in it through this takes effect at its next event.
    pub fn tcp(&mut self) -> &mut Bytewise {
        &mut self.tcp
    }
    /// What was received.
    pub fn received(&self) -> &Received {
        &self.received
    }
    /// When the last byte was read.
    pub fn received_at(&self) -> Option<Time> {
        self.received_at
    }
    /// When everything that the application had to write was acknowledged.
    pub fn finished(&self) -> Option<Time> {
        self.finished
    }

    fn new(o: Opening) -> TcpSocket {
        let config = Config { reads_at_once: false, ..o.config };
        let port = config.ports.1;
        let tcp = match o.peer {
            Some(_) => Tcp::connect(config, o.controller),
            None => Tcp::listen(config, o.controller),
        };
        TcpSocket {
            tcp,
            peer: o.peer.map(|peer| SocketAddrV4::new(peer, port)),
            application: o.application,
            content: o.content,
            stop: o.stop.unwrap_or(Time::MAX),
            pauses: o.pauses,
            received: Received::new(o.content),
            received_at: None,
            finished: None,
            watcher: o.watcher,
        }
    }

    /// Whether `from` may speak to it.
    fn accepts(&self, from: SocketAddrV4) -> bool {
        self.tcp.state() == State::Listen || self.peer == Some(from)
    }

    fn arrive(&mut self, now: Time, from: SocketAddrV4, segment: Segment<Vec<u8>>) {
        self.peer = Some(from);
        self.tcp.receive(now, segment);
        self.note_finish(now);
        self.watcher.received(now, &mut self.tcp);
    }

    fn note_finish(&mut self, now: Time) {
        if let Application::Writes(size) = self.application
            && self.tcp.acknowledged() >= size
        {
            self.finished.get_or_insert(now);
        }
    }

    /// The application's turn.
    fn run(&mut self, now: Time) {
        if !self.pauses.iter().any(|(from, until)| *from <= now && now < *until) {
            while self.tcp.readable() > 0 {
                self.received.take(&self.tcp.read(PIECE as u32));
                self.received_at = Some(now);
            }
        }
        if self.stop <= now && self.application != Application::Reads {
            self.application = Application::Writes(self.tcp.written());
            self.note_finish(now);
        }
        let size = match self.application {
            Application::Writes(size) => size,
            Application::WritesOn => u64::MAX,
            Application::Reads if self.tcp.at_end() => 0,
            Application::Reads => return,
        };
        loop {
            let written = self.tcp.written();
            let n = (size - written).min(self.tcp.room()).min(PIECE as u64);
            if n == 0 {
                break;
            }
            let mut piece = vec![0; n as usize];
            self.content.fill(written, &mut piece);
            self.tcp.write(&piece);
        }
        if self.tcp.written() >= size {
            self.tcp.close();
        }
    }

    /// When it has something to do after `now`, if nothing arrives before.
    fn wake_at(&self, now: Time) -> Time {
        let pauses = self.pauses.iter().map(|(_, until)| *until);
        let application = pauses.chain([self.stop]).filter(|at| *at > now).min().unwrap_or(Time::MAX);
        self.tcp.wake_at().map_or(application, |at| at.min(application))
    }
}

/// A UDP socket and its application.
pub enum UdpSocket {
    /// Sends to an address and port.
    Source(Source, SocketAddrV4),
    /// Counts what arrives.
    Sink(Sink),
}

enum Kinds {
    Tcp(Box<TcpSocket>),
    Udp(UdpSocket),
}

struct Socket {
    kind: Kinds,
    local: u16,
    wake: Time,
    /// IP identification of the next packet.
    identification: u16,
}

/// All sockets of one address.
pub struct Host {
    address: Ipv4Addr,
    sockets: Vec<Socket>,
    /// By protocol and local port.
    ports: HashMap<(u8, u16), SocketId>,
    /// RSTs for segments that belong to no connection.
    resets: Vec<(SocketAddrV4, Segment<Vec<u8>>)>,
    refused: BTreeMap<&'static str, u64>,
    /// When any socket wants to run.
    wake: Time,
}

impl Host {
    /// Adds a TCP connection. Its local port must be free.
    pub fn open(&mut self, opening: Opening) -> SocketId {
        let (start, local) = (opening.start, opening.config.ports.0);
        self.add(protocol::TCP, local, start, Kinds::Tcp(Box::new(TcpSocket::new(opening))))
    }

    /// Adds a UDP source that sends to `to`. Its local port must be free.
    pub fn send_udp(&mut self, local: u16, to: SocketAddrV4, source: Source) -> SocketId {
        let start = source.wake_at().unwrap_or(Time::MAX);
        self.add(protocol::UDP, local, start, Kinds::Udp(UdpSocket::Source(source, to)))
    }

    /// Adds a UDP sink. Its port must be free.
    pub fn receive_udp(&mut self, local: u16) -> SocketId {
        self.add(protocol::UDP, local, Time::MAX, Kinds::Udp(UdpSocket::Sink(Sink::default())))
    }

    fn add(&mut self, protocol: u8, local: u16, start: Time, kind: Kinds) -> SocketId {
        let id = self.sockets.len();
        assert!(self.ports.insert((protocol, local), id).is_none(), "port {local} is taken");
        self.sockets.push(Socket { kind, local, wake: start, identification: 0 });
        self.wake = self.wake.min(start);
        id
    }

    /// The TCP connection `id`.
    pub fn tcp(&mut self, id: SocketId) -> &mut TcpSocket {
        match &mut self.sockets[id].kind {
            Kinds::Tcp(socket) => socket,
            Kinds::Udp(_) => panic!("socket {id} is a UDP one"),
        }
    }

    /// The UDP socket `id`.
    pub fn udp(&self, id: SocketId) -> &UdpSocket {
        match &self.sockets[id].kind {
            Kinds::Udp(socket) => socket,
            Kinds::Tcp(_) => panic!("socket {id} is a TCP one"),
        }
    }

    /// Socket `id` stops writing; what it has written is still delivered.
    pub fn stop(&mut self, now: Time, id: SocketId) {
        self.tcp(id).stop = now;
        self.rouse(id);
    }

    /// Socket `id` gives its connection up with a RST.
    pub fn abort(&mut self, id: SocketId) {
        self.tcp(id).tcp.abort();
        self.rouse(id);
    }

    /// Packets that came for this host and were of no use, by reason.
    pub fn refused(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }

    fn rouse(&mut self, id: SocketId) {
        (self.sockets[id].wake, self.wake) = (Time::ZERO, Time::ZERO);
    }

    /// A packet arrives; the error says why it is of no use.
    fn arrive(&mut self, now: Time, frame: &Frame) -> Result<(), &'static str> {
        if frame.kind() == Kind::Fragment {
            return Err("fragment");
        }
        let malformed = |e: DecodeError| Malformed::from(e).name();
        let (header, payload) = Header::decode(frame.packet().ok_or("not_ip")?).map_err(malformed)?;
        if header.destination != self.address {
            return Err("not_ours");
        }
        let pseudo = Pseudo::v4(header.source, header.destination);
        match header.protocol {
            protocol::TCP => {
                let segment = Segment::decode(payload, Some(pseudo)).map_err(malformed)?;
                let segment = Segment { ecn: header.ecn, ..segment };
                self.arrive_tcp(now, SocketAddrV4::new(header.source, segment.source), segment)
            }
            protocol::UDP => {
                let message = Message::decode(payload, Some(pseudo)).map_err(malformed)?;
                let id = self.ports.get(&(protocol::UDP, message.destination)).ok_or("no_socket")?;
                if let Kinds::Udp(UdpSocket::Sink(sink)) = &mut self.sockets[*id].kind {
                    sink.receive(now, message);
                }
                Ok(())
            }
            _ => Err("other_protocol"),
        }
    }

    fn arrive_tcp(
        &mut self,
        now: Time,
        from: SocketAddrV4,
        segment: Segment<&[u8]>,
    ) -> Result<(), &'static str> {
        let id = self.ports.get(&(protocol::TCP, segment.destination)).copied();
        if let Some(id) = id
            && let Kinds::Tcp(socket) = &mut self.sockets[id].kind
            && socket.accepts(from)
        {
            socket.arrive(now, from, segment.with_payload(segment.payload.to_vec()));
            self.rouse(id);
            return Ok(());
        }
        if let Some(reset) = reset(&segment) {
            self.resets.push((from, reset));
            self.wake = Time::ZERO;
        }
        Err("no_socket")
    }

    /// What leaves now; a batch of each socket at most.
    fn transmit(&mut self, now: Time, take: Take<'_>) {
        for (to, segment) in self.resets.drain(..) {
            take(Frame::ip(packet(self.address, *to.ip(), 0, &segment)));
        }
        self.wake = Time::MAX;
        for socket in &mut self.sockets {
            if socket.wake <= now {
                socket.transmit(now, self.address, take);
            }
            self.wake = self.wake.min(socket.wake);
        }
    }
}

impl Socket {
    fn transmit(&mut self, now: Time, address: Ipv4Addr, take: Take<'_>) {
        let Socket { kind, local, wake, identification } = self;
        match kind {
            Kinds::Tcp(socket) => {
                socket.run(now);
                for _ in 0..BATCH {
                    let Some(mut segment) = socket.tcp.transmit(now) else {
                        socket.watcher.rests(now, &mut socket.tcp);
                        return *wake = socket.wake_at(now);
                    };
                    let peer = socket.peer.expect("who has heard from nobody says nothing");
                    (segment.source, segment.destination) = (*local, peer.port());
                    socket.watcher.sent(now, &mut socket.tcp, &segment);
                    take(Frame::ip(packet(address, *peer.ip(), *identification, &segment)));
                    *identification = identification.wrapping_add(1);
                }
                *wake = now;
            }
            Kinds::Udp(UdpSocket::Source(source, to)) => {
                for _ in 0..BATCH {
                    let Some(message) = source.transmit(now) else { break };
                    let message = Message { source: *local, destination: to.port(), ..message };
                    take(Frame::ip(datagram(address, *to.ip(), *identification, &message)));
                    *identification = identification.wrapping_add(1);
                }
                *wake = source.wake_at().unwrap_or(Time::MAX);
            }
            Kinds::Udp(UdpSocket::Sink(_)) => *wake = Time::MAX,
        }
    }
}

/// An IPv4 header of `fields` without options around so many bytes, and room for them.
fn header(fields: Header, payload: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ipv4::HEADER + payload as usize);
    let payload = u16::try_from(payload).expect("segments fit their MTU");
    Header { payload, ..fields }.encode(&mut bytes).expect("segments fit their MTU");
    bytes
}

fn packet(from: Ipv4Addr, to: Ipv4Addr, identification: u16, segment: &Segment<Vec<u8>>) -> Vec<u8> {
    let fields = Header { identification, ecn: segment.ecn, ..Header::new(from, to, protocol::TCP, 0) };
    let mut bytes = header(fields, segment.size());
    segment.encode(Pseudo::v4(from, to), &mut bytes);
    bytes
}

fn datagram(from: Ipv4Addr, to: Ipv4Addr, identification: u16, message: &Message) -> Vec<u8> {
    let fields = Header { identification, ..Header::new(from, to, protocol::UDP, 0) };
    let mut bytes = header(fields, message.size());
    message.encode(Pseudo::v4(from, to), &mut bytes).expect("messages fit their MTU");
    bytes
}

/// The answer to a segment that belongs to no connection (RFC 9293 section 3.10.7.1).
fn reset<P: Payload>(segment: &Segment<P>) -> Option<Segment<Vec<u8>>> {
    let answer = Segment { source: segment.destination, destination: segment.source, ..Segment::default() };
    match segment.flags {
        flags if flags.has(Flags::RST) => None,
        flags if flags.has(Flags::ACK) => Some(Segment { seq: segment.ack, flags: Flags::RST, ..answer }),
        _ => {
            let (flags, ack) = (Flags::RST | Flags::ACK, segment.seq.plus(segment.span()));
            Some(Segment { seq: Seq(0), ack, flags, ..answer })
        }
    }
}

/// A host of our own as a port of the gateway. Its clones are the same host: the gateway owns one, who looks on another.
#[derive(Clone)]
pub struct End(Arc<Mutex<Host>>);

impl End {
    /// A host without sockets.
    pub fn new(address: Ipv4Addr) -> End {
        End(Arc::new(Mutex::new(Host {
            address,
            sockets: Vec::new(),
            ports: HashMap::new(),
            resets: Vec::new(),
            refused: BTreeMap::new(),
            wake: Time::MAX,
        })))
    }

    /// Looks at the host, or changes it; the gateway waits meanwhile.
    pub fn with<T>(&self, f: impl FnOnce(&mut Host) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Port for End {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    fn receive(&mut self, now: Time, take: Take<'_>) -> io::Result<()> {
        self.with(|host| host.transmit(now, take));
        Ok(())
    }
    fn send(&mut self, now: Time, _due: Time, frame: Frame, tell: Tell<'_>) {
        self.with(|host| {
            if let Err(reason) = host.arrive(now, &frame) {
                *host.refused.entry(reason).or_default() += 1;
            }
        });
        tell(&frame, true);
    }
    fn wake_at(&self) -> Option<Time> {
        self.with(|host| (host.wake != Time::MAX).then_some(host.wake))
    }
}
