//! How connections of ours with the kernel begin and end, in the corners of RFC 9293.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types)]

mod lab;

use lab::{Host, Lab, NET2, Path, RFC, Side, Watch, both};
use narrows_core::Time;
use narrows_core::transport::tcp::State;
use narrows_net::build::{FLOW_PORT, address};
use narrows_net::content::{Content, Received};
use narrows_net::namespace::Namespace;
use narrows_net::port::end::{Application, End, Host as Ours, SocketId};
use socket2::SockRef;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const FIVE_SECONDS: Duration = Duration::from_secs(5);
const SIZE: u64 = 300_000;

/// The kernel's server; what `f` makes of the first connection. Our end connects and does what `application` says; it runs on
/// until `over` once the server is done.
fn with_server<T: Send>(
    lab: &mut Lab,
    application: Application,
    f: impl FnOnce(TcpStream) -> T + Send,
    over: impl Fn(&mut Ours, SocketId) -> bool,
) -> (T, End, SocketId) {
    let [Host::Ours(end), Host::Kernel(namespace)] = &lab.hosts else { unreachable!() };
    let end = end.clone();
    let listener = namespace.enter(|| TcpListener::bind((address(1), FLOW_PORT))).unwrap();
    let opening = lab.opening(0, application);
    let id = end.with(|host| host.open(opening));
    let result = thread::scope(|scope| {
        let server = scope.spawn(move || f(patient(listener.accept().unwrap().0)));
        let mut until = |_| server.is_finished() && end.with(|host| over(host, id));
        let mut watch = Watch::default();
        lab.run(&mut watch, &mut until);
        assert!(watch.in_time, "it hangs in {:?}", end.with(|host| host.tcp(id).tcp().state()));
        server.join().unwrap()
    });
    (result, end, id)
}

fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(FIVE_SECONDS)).unwrap();
    stream.set_write_timeout(Some(FIVE_SECONDS)).unwrap();
    stream
}

/// The kernel connects from a namespace; never blocks for longer than it takes.
fn connect(namespace: &Namespace) -> io::Result<TcpStream> {
    let to = SocketAddr::new(address(1).into(), FLOW_PORT);
    namespace.enter(|| TcpStream::connect_timeout(&to, FIVE_SECONDS)).map(patient)
}

fn write_all(mut stream: &TcpStream, len: u64) {
    let mut bytes = vec![0; len as usize];
    Content::new(0).fill(0, &mut bytes);
    stream.write_all(&bytes).unwrap();
}

/// Everything up to the end; how much it was, if all of it was right.
fn read_all(mut stream: &TcpStream) -> Option<u64> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut received = Received::new(Content::new(0));
    received.take(&bytes);
    received.first_wrong().is_none().then_some(received.bytes())
}

fn has_read(host: &mut Ours, id: SocketId) -> Option<u64> {
    let received = host.tcp(id).received();
    received.first_wrong().is_none().then_some(received.bytes())
}

/// And the application has had its turn.
fn closed(host: &mut Ours, id: SocketId) -> bool {
    let tcp = host.tcp(id).tcp();
    matches!(tcp.state(), State::Closed | State::TimeWait) && tcp.readable() == 0
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    for side in [NET2, RFC] {
        let Some(mut lab) = Lab::new(Path::default(), side, Side::Kernel) else { return };
        let Host::Ours(end) = &lab.hosts[0] else { unreachable!() };
        let (end, opening) = (end.clone(), lab.opening(0, Application::Writes(SIZE)));
        let id = end.with(|host| host.open(opening));
        let mut watch = Watch::default();
        lab.run(&mut watch, &mut |_| end.with(|host| closed(host, id)));
        assert!(watch.in_time && watch.window == 0, "the kernel answers with a RST");

        let mut lab = Lab::new(Path::default(), Side::Kernel, side).unwrap();
        let Host::Kernel(namespace) = &lab.hosts[0] else { unreachable!() };
        let namespace = namespace.clone();
        let refused = thread::scope(|scope| {
            let client = scope.spawn(|| connect(&namespace).map(drop));
            lab.run(&mut Watch::default(), &mut |_| client.is_finished());
            client.join().unwrap()
        });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "and so do we");
    }
}

#[test]
fn the_kernel_closes_first() {
    for side in [NET2, RFC] {
        let Some(mut lab) = Lab::new(Path::default(), side, Side::Kernel) else { return };
        let serve = |stream: TcpStream| {
            write_all(&stream, SIZE);
            stream.shutdown(Shutdown::Write).unwrap();
            read_all(&stream)
        };
        let (got, end, id) = with_server(&mut lab, Application::Reads, serve, closed);
        assert_eq!(got, Some(0));
        end.with(|host| {
            assert_eq!((has_read(host, id), host.tcp(id).tcp().state()), (Some(SIZE), State::Closed));
        });
    }
}

#[test]
fn a_half_closed_connection_carries_the_other_direction() {
    for side in [NET2, RFC] {
        let Some(mut lab) = Lab::new(Path::default(), side, Side::Kernel) else { return };
        let serve = |stream: TcpStream| {
            stream.shutdown(Shutdown::Write).unwrap();
            read_all(&stream)
        };
        let (got, end, id) = with_server(&mut lab, Application::Writes(SIZE), serve, closed);
        assert_eq!(got, Some(SIZE));
        assert_eq!(end.with(|host| host.tcp(id).tcp().state()), State::Closed, "we closed last");
    }
}

#[test]
fn both_send_and_close_at_the_same_time() {
    for side in [NET2, RFC] {
        let Some(mut lab) = Lab::new(Path::default(), side, Side::Kernel) else { return };
        let serve = |stream: TcpStream| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    write_all(&stream, SIZE);
                    stream.shutdown(Shutdown::Write).unwrap();
                });
                read_all(&stream)
            })
        };
        let (got, end, id) = with_server(&mut lab, Application::Writes(SIZE), serve, closed);
        assert_eq!((got, end.with(|host| has_read(host, id))), (Some(SIZE), Some(SIZE)));
    }
}

#[test]
fn data_and_fin_in_one_segment_cross_each_other() {
    // A millisecond's worth of data each, both ends done before the other's first byte arrives.
    let Some(mut lab) = Lab::new(Path { delay: "20ms", ..Path::default() }, RFC, Side::Kernel) else {
        return;
    };
    let serve = |stream: TcpStream| {
        SockRef::from(&stream).set_tcp_cork(true).unwrap();
        write_all(&stream, 1000);
        stream.shutdown(Shutdown::Write).unwrap();
        read_all(&stream)
    };
    let (got, end, id) = with_server(&mut lab, Application::Writes(1000), serve, closed);
    assert_eq!((got, end.with(|host| has_read(host, id))), (Some(1000), Some(1000)));
}

#[test]
fn a_peer_that_resets_is_noticed_by_either() {
    for side in [NET2, RFC] {
        let Some(mut lab) = Lab::new(Path::default(), side, Side::Kernel) else { return };
        let vanish = |mut stream: TcpStream| {
            stream.read_exact(&mut [0; 100_000]).unwrap();
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        };
        let ((), end, id) = with_server(&mut lab, Application::WritesOn, vanish, closed);
        assert_eq!(end.with(|host| host.tcp(id).tcp().state()), State::Closed);

        let mut lab = Lab::new(Path::default(), side, Side::Kernel).unwrap();
        let Host::Ours(end) = &lab.hosts[0] else { unreachable!() };
        let end = end.clone();
        let abort = |mut stream: TcpStream| {
            stream.read_exact(&mut [0; 100_000]).unwrap();
            end.with(|host| host.abort(0));
            io::copy(&mut stream, &mut io::sink()).map_err(|e| e.kind())
        };
        let (error, ..) = with_server(&mut lab, Application::WritesOn, abort, closed);
        assert_eq!(error, Err(ErrorKind::ConnectionReset));
    }
}

#[test]
fn a_lost_syn_and_a_lost_syn_ack_are_sent_again() {
    let first = r#"{ kind = "loss", packets = [1], inner = "fifo:200p" }"#;
    let paths = [
        Path { queue: first, back: Some("\"fifo:200p\""), ..Path::default() },
        Path { back: Some(first), ..Path::default() },
    ];
    thread::scope(|scope| {
        for path in paths {
            for (from, to) in [(RFC, Side::Kernel), (Side::Kernel, RFC)] {
                scope.spawn(move || {
                    let Some(ran) = both(from, to, 100_000, path) else { return };
                    assert!(ran.completed, "{ran:?}");
                    assert!((1.0..1.5).contains(&ran.finished), "RFC 6298: after a second, {ran:?}");
                });
            }
        }
    });
}

#[test]
fn options_are_used_if_both_ends_have_them_and_else_not() {
    const PLAIN: Side = Side::Ours("{ name = \"rfc\", timestamps = false, window_scale = false }");
    let path = Path { window: "512KiB", rate: "200Mbit/s", ..Path::default() };
    let (timestamps, scale) = (1, 4);
    for (side, window, options) in [(RFC, 512 * 1024, timestamps | scale), (PLAIN, 65_535, 0)] {
        let Some(ran) = both(Side::Kernel, side, 5_000_000, path) else { return };
        assert!(ran.completed);
        assert_eq!((ran.info.options & (timestamps | scale), ran.info.snd_wnd as u64), (options, window));
        let ran = both(side, Side::Kernel, 5_000_000, path).unwrap();
        assert!(ran.completed && lab::bounded(ran.window, window), "{} of {window}", ran.window);
    }
}

#[test]
fn datagrams_and_strangers_at_an_end_of_ours() {
    let Some(mut lab) = Lab::new(Path::default(), Side::Kernel, RFC) else { return };
    let [Host::Kernel(namespace), Host::Ours(end)] = &lab.hosts else { unreachable!() };
    let (socket, end) = (namespace.enter(|| std::net::UdpSocket::bind("0.0.0.0:0")).unwrap(), end.clone());
    let id = end.with(|host| host.receive_udp(FLOW_PORT));
    for number in [0u64, 1, 3, 4] {
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(500, 0);
        socket.send_to(&payload, (address(1), FLOW_PORT)).unwrap();
    }
    lab.run(&mut Watch::default(), &mut |now| now > Time::from_millis(100));
    end.with(|host| {
        let narrows_net::port::end::UdpSocket::Sink(sink) = host.udp(id) else { unreachable!() };
        assert_eq!((sink.received(), sink.bytes(), sink.missing()), (4, 2000, 1));
    });
}
