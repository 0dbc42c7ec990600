//! A path of our own for kernel connections: two namespaces, joined by a relay that reads packets from one's TUN device, holds
//! them in a bounded queue at a set rate and for a set delay, and writes them to the other's. Everything has a name with our
//! process's number in it and vanishes with the value; what a killed run left is removed by the next.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

/// What the path does to packets, in each direction.
#[derive(Clone, Copy)]
pub struct Nature {
    pub bits_per_second: f64,
    pub one_way: Duration,
    pub queue_bytes: usize,
}

pub struct Path {
    /// Transfers fall silent for so long when half their time is over.
    pub pause: Duration,
    names: [String; 2],
    stop: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

/// Set for processes that a test starts as a user without rights, which do not get as far as the kernel.
const NOBODY: &str = "NARROWS_NOBODY";

/// Why tests of the kernel cannot run here, if they cannot.
pub fn impossible() -> Option<&'static str> {
    if std::env::var_os(NOBODY).is_some() {
        return None;
    }
    if !nix::unistd::geteuid().is_root() {
        return Some("needs root");
    }
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists()
        || !std::path::Path::new("/dev/net/tun").exists()
    {
        return Some("needs BTF and /dev/net/tun");
    }
    (!Command::new("ip").arg("-V").output().is_ok_and(|o| o.status.success())).then_some("needs iproute2")
}

pub fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).output().expect("iproute2 is there");
    assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Path {
    pub const NEAR: &'static str = "10.77.0.1";
    pub const FAR: &'static str = "10.77.0.2";

    pub fn new(nature: Nature) -> Path {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        remove_orphans();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("nk{}-{number}{end}", std::process::id()));
        let devices = names.each_ref().map(|name| {
            ip(&format!("netns add {name}"));
            let device = in_namespace(name, open_tun).join().expect("a TUN device");
            let address = if name.ends_with('a') { Self::NEAR } else { Self::FAR };
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set t0 up mtu 1500 txqueuelen 10000"));
            ip(&format!("-n {name} addr add {address}/24 dev t0"));
            device
        });
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let relay = Some(spawn(move || relay(devices, nature, &stopping)));
        Path { pause: Duration::ZERO, names, stop, relay }
    }

    /// The sender's namespace.
    pub fn near(&self) -> &str {
        &self.names[0]
    }

    /// Runs `work` in the sender's namespace.
    pub fn at_near<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        in_namespace(&self.names[0], work)
    }

    /// Sends for `time` with the congestion control named, or the one the system chooses, and closes. Yields the one in use, and
    /// what arrived.
    pub fn transfer(&self, control: Option<&str>, time: Duration) -> JoinHandle<(String, u64)> {
        static PORT: AtomicU32 = AtomicU32::new(5000);
        let to = SocketAddr::new(
            Self::FAR.parse().expect("an address"),
            PORT.fetch_add(1, Ordering::Relaxed) as u16,
        );
        let listener = in_namespace(&self.names[1], move || TcpListener::bind(to).expect("a port"))
            .join()
            .expect("a listener");
        let receiver = spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut buffer, mut total) = (vec![0; 1 << 16], 0);
            loop {
                match stream.read(&mut buffer).expect("data") {
                    0 => return total,
                    n => total += n as u64,
                }
            }
        });
        let (control, pause) = (control.map(str::to_string), self.pause);
        self.at_near(move || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            if let Some(control) = control {
                socket.set_tcp_congestion(control.as_bytes()).expect("the congestion control is loaded");
            }
            socket.connect(&to.into()).expect("the other end listens");
            let used = socket.tcp_congestion().expect("it has one");
            let used = String::from_utf8_lossy(&used).trim_end_matches('\0').to_string();
            let (mut stream, data, mut sent) = (TcpStream::from(socket), vec![7; 1 << 15], 0);
            for silence in [pause, Duration::ZERO] {
                let end = Instant::now() + time / 2;
                while Instant::now() < end {
                    sent += stream.write(&data).expect("the connection lives") as u64;
                }
                std::thread::sleep(silence);
            }
            drop(stream);
            let received = receiver.join().expect("the receiver lives");
            assert_eq!(received, sent, "everything arrives");
            (used, received)
        })
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        self.names.iter().for_each(|name| remove(name));
    }
}

pub fn remove(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

/// Namespaces of processes that are gone.
pub fn remove_orphans() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for name in entries.flatten().filter_map(|e| e.file_name().into_string().ok()) {
        let pid = name.strip_prefix("nk").and_then(|rest| rest.split_once('-')).map(|(pid, _)| pid);
        let dead = |pid: &str| !pid.is_empty() && !std::path::Path::new("/proc").join(pid).exists();
        if pid.is_some_and(|pid| pid.bytes().all(|b| b.is_ascii_digit()) && dead(pid)) {
            remove(&name);
        }
    }
}

pub fn in_namespace<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let place = File::open(format!("/run/netns/{name}")).expect("the namespace is there");
    spawn(move || {
        setns(place, CloneFlags::CLONE_NEWNET).expect("root may enter it");
        work()
    })
}

nix::ioctl_write_int!(tun_set_interface, b'T', 202);

fn open_tun() -> File {
    let device = File::options().read(true).write(true).open("/dev/net/tun").expect("there are TUN devices");
    // struct ifreq: a name of 16 bytes, then the flags IFF_TUN | IFF_NO_PI.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"t0");
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes());
    #[allow(unsafe_code)] // the device is named by an ioctl without a safe wrapper
    // SAFETY: the kernel reads and writes the 40 bytes of the request, which outlives the call.
    let done = unsafe { tun_set_interface(device.as_raw_fd(), request.as_mut_ptr() as u64) };
    done.expect("root may make a TUN device");
    nix::fcntl::fcntl(&device, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK)).expect("a flag");
    device
}

/// One direction: packets with the time they are due at the other end.
#[derive(Default)]
struct Line {
    due: VecDeque<(Instant, Vec<u8>)>,
    free_at: Option<Instant>,
}

fn relay(devices: [File; 2], nature: Nature, stop: &AtomicBool) {
    let mut lines = [Line::default(), Line::default()];
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        let mut sources = devices.each_ref().map(|d| PollFd::new(d.as_fd(), PollFlags::POLLIN));
        let waiting = lines.iter().any(|l| !l.due.is_empty());
        let patience = if waiting { PollTimeout::from(1u8) } else { PollTimeout::from(20u8) };
        poll(&mut sources, patience).expect("poll");
        for (from, line) in lines.iter_mut().enumerate() {
            let now = Instant::now();
            while let Ok(n @ 1..) = (&devices[from]).read(&mut buffer) {
                line.enqueue(now, &buffer[..n], nature);
            }
            while line.due.front().is_some_and(|(due, _)| *due <= now) {
                let (_, packet) = line.due.pop_front().expect("it has a front");
                let _ = (&devices[1 - from]).write(&packet); // a full device drops, as a network does
            }
        }
    }
}

impl Line {
    fn enqueue(&mut self, now: Instant, packet: &[u8], nature: Nature) {
        let free_at = self.free_at.filter(|t| *t > now).unwrap_or(now);
        let queued = free_at.duration_since(now).as_secs_f64() * nature.bits_per_second / 8.0;
        if queued as usize + packet.len() > nature.queue_bytes {
            return; // drop-tail
        }
        let done = free_at + Duration::from_secs_f64(packet.len() as f64 * 8.0 / nature.bits_per_second);
        self.free_at = Some(done);
        self.due.push_back((done + nature.one_way, packet.to_vec()));
    }
}
