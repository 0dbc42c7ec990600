//! Serves one page over HTTP/1.0 to a few readers at once. A reader that says nothing is not waited for longer than a second,
//! and those above the limit are sent away, so that however many come, descriptors and threads stay few.

use nix::poll::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Readers at once.
const READERS: u32 = 8;
/// For a request to come, and for an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(1);
/// A request is no longer.
const LONGEST: usize = 8192;
/// How often it is looked whether to go on, in milliseconds.
const LOOK: u8 = 100;

/// What a path has: its media type and text; `None` if nothing is there.
pub type Page = dyn Fn(&str) -> Option<(&'static str, String)> + Send + Sync;

/// Serves `page` until `over`.
pub fn serve(listener: &TcpListener, over: &AtomicBool, page: Arc<Page>) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let readers = Arc::new(AtomicU32::new(0));
    while !over.load(Ordering::Relaxed) {
        let _ = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], LOOK);
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                thread::sleep(Duration::from_millis(LOOK.into())); // no descriptor is free, for instance
                continue;
            }
        };
        if readers.fetch_add(1, Ordering::Relaxed) >= READERS {
            readers.fetch_sub(1, Ordering::Relaxed);
            continue; // and the connection is closed
        }
        let (page, counted) = (page.clone(), readers.clone());
        let answer = move || {
            let _ = answer(stream, &*page); // a reader that has gone away misses nothing it can be told
            counted.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("reader".into()).spawn(answer).is_err() {
            readers.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream, page: &Page) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (until, mut request, mut part) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut part)? {
            n if n > 0 && request.len() < LONGEST => request.extend(&part[..n]),
            _ => return Ok(()),
        }
    }
    let line = String::from_utf8_lossy(&request);
    let mut words = line.split_whitespace();
    let found = match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => page(target.split('?').next().unwrap_or(target)),
        _ => None,
    };
    let (status, (kind, text)) = match found {
        Some(found) => ("200 OK", found),
        None => ("404 Not Found", ("text/plain; charset=utf-8", "metrics are at /metrics\n".into())),
    };
    let length = text.len();
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(test: impl FnOnce(std::net::SocketAddr)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, over) = (listener.local_addr().unwrap(), AtomicBool::new(false));
        let page: Arc<Page> =
            Arc::new(|path| (path == "/metrics").then(|| ("text/plain", "all is well\n".to_string())));
        thread::scope(|scope| {
            scope.spawn(|| serve(&listener, &over, page));
            test(at);
            over.store(true, Ordering::Relaxed);
        });
    }

    fn get(at: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        let _ = stream.write_all(request.as_bytes());
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn the_page_is_where_it_is_and_nowhere_else() {
        serving(|at| {
            let page = get(at, "GET /metrics?x HTTP/1.1\r\nHost: x\r\n\r\n");
            assert!(
                page.starts_with("HTTP/1.0 200 OK\r\n") && page.ends_with("\r\n\r\nall is well\n"),
                "{page}"
            );
            assert!(get(at, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
            assert!(get(at, "POST /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 404"));
            assert_eq!(get(at, &"x".repeat(100_000)), "", "no request is that long");
        });
    }

    #[test]
    fn a_crowd_that_says_nothing_is_gone_after_a_second() {
        serving(|at| {
            let crowd: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(at).unwrap()).collect();
            let began = Instant::now();
            while !get(at, "GET /metrics HTTP/1.0\r\n\r\n").contains("all is well") {
                assert!(began.elapsed() < Duration::from_secs(5), "nobody is served any more");
                thread::sleep(Duration::from_millis(50));
            }
            drop(crowd);
        });
    }
}
