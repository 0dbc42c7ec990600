//! How a controller comes, is chosen, and goes.

use crate::path::{Nature, Path, ip};
use crate::{load, name, needs_kernel, program, settings};
use narrows_kernel::{Kind, available, kept, unload};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SHORT: Nature =
    Nature { bits_per_second: 20e6, one_way: Duration::from_millis(5), queue_bytes: 60_000 };
const A_WHILE: Duration = Duration::from_millis(800);

fn in_kernel(name: &str) -> bool {
    available().iter().any(|a| a == name)
}

#[test]
fn a_socket_chooses_it_by_name() {
    needs_kernel!();
    for (of, mark) in [("becc", 's'), ("becc-modern", 't')] {
        let loaded = load(of, mark, &[]);
        let path = Path::new(SHORT);
        let (used, bytes) = path.transfer(Some(&name(mark)), A_WHILE).join().unwrap();
        assert_eq!(used, name(mark));
        assert!(bytes > 400_000, "{of}: {bytes}");
        let counts = loaded.counts().unwrap();
        assert_eq!((counts.opened, counts.lost), (1, 0));
    }
}

#[test]
fn a_route_chooses_it() {
    needs_kernel!();
    let _loaded = load("becc", 'o', &[]);
    let path = Path::new(SHORT);
    ip(&format!("-n {} route replace {}/32 dev t0 congctl {}", path.near(), Path::FAR, name('o')));
    let (used, _) = path.transfer(None, A_WHILE).join().unwrap();
    assert_eq!(used, name('o'));
}

#[test]
fn a_namespace_chooses_it_for_all_its_sockets() {
    needs_kernel!();
    let loaded = load("becc", 'n', &[]);
    let path = Path::new(SHORT);
    assert!(in_kernel(loaded.name()), "before anything is set");
    let chosen = loaded.name().to_string();
    // /proc/sys/net shows the namespace of the thread that opens it.
    let set = move || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", chosen);
    path.at_near(set).join().unwrap().expect("a namespace may choose what is not restricted");
    let (used, _) = path.transfer(None, A_WHILE).join().unwrap();
    assert_eq!(used, name('n'));
}

#[test]
fn several_are_loaded_at_once_with_parameters_of_their_own() {
    needs_kernel!();
    let one = load("becc", 'p', &[("trigger", "3")]);
    let two = load("becc", 'q', &[("ms_period", "10ms")]);
    assert!(in_kernel(one.name()) && in_kernel(two.name()));
    let taken = narrows_kernel::load(program("becc"), one.name(), &settings("becc", &[])).err().unwrap();
    assert!(taken.message.contains("has a congestion control") && taken.advice.contains("--as"), "{taken}");
    let path = Path::new(SHORT);
    let transfers = ['p', 'q'].map(|m| path.transfer(Some(&name(m)), A_WHILE));
    for (transfer, mark) in transfers.into_iter().zip(['p', 'q']) {
        assert_eq!(transfer.join().unwrap().0, name(mark));
    }
    drop(one);
    assert!(!in_kernel(&name('p')) && in_kernel(&name('q')));
}

#[test]
fn what_is_kept_is_listed_and_unloading_breaks_no_connection() {
    needs_kernel!();
    load("becc", 'k', &[("trigger", "5")]).keep().unwrap();
    let path = Path::new(SHORT);
    let transfer = path.transfer(Some(&name('k')), 2 * A_WHILE);
    std::thread::sleep(A_WHILE);
    let ours = kept().unwrap().into_iter().find(|k| k.name() == name('k')).expect("it is listed");
    assert_eq!(ours.program(), "becc");
    assert!(ours.parameters().contains(&("trigger".into(), "5".into())), "{:?}", ours.parameters());
    assert_eq!(ours.counts().unwrap().live(), 1);
    assert_eq!(unload(&name('k')), Ok(1));
    assert!(!in_kernel(&name('k')));
    let (used, bytes) = transfer.join().unwrap(); // which compares what was sent with what arrived
    assert!(used == name('k') && bytes > 1_000_000, "{used} {bytes}");
    assert!(unload(&name('k')).unwrap_err().message.contains("was not loaded by narrows"));
    assert!(unload("cubic").unwrap_err().advice.contains("not ours"));
}

#[test]
fn watching_tells_of_connections_at_the_interval_asked_for_and_of_none_without() {
    needs_kernel!();
    let loaded = load("becc", 'w', &[]);
    let path = Path::new(SHORT);
    path.transfer(Some(&name('w')), A_WHILE).join().unwrap();
    let mut watch = loaded.watch(Duration::from_millis(100)).unwrap();
    assert_eq!(watch.poll(Duration::ZERO).unwrap(), [], "nobody listened to the first");
    while loaded.counts().unwrap().live() > 0 {
        watch.poll(Duration::from_millis(10)).unwrap(); // the first lingers
    }
    watch.poll(Duration::ZERO).unwrap();
    let transfer = path.transfer(Some(&name('w')), A_WHILE);
    let (mut events, end) = (Vec::new(), Instant::now() + 2 * A_WHILE);
    while Instant::now() < end {
        events.extend(watch.poll(Duration::from_millis(50)).unwrap());
    }
    transfer.join().unwrap();
    let of = |kind| events.iter().filter(|e| e.kind() == kind).count();
    assert_eq!((of(Kind::Started), of(Kind::Closed)), (1, 1));
    assert!((4..=17).contains(&of(Kind::Acked)), "{} in {A_WHILE:?}", of(Kind::Acked));
    assert!(events.iter().all(|e| e.remote().ip().to_string() == Path::FAR && e.local().port() > 0));
}

/// This test, alone, in a process of its own, which `NARROWS_VICTIM` tells to load and wait.
#[test]
fn killed_with_the_process_that_held_it_it_is_gone() {
    needs_kernel!();
    if let Ok(name) = std::env::var("NARROWS_VICTIM") {
        let _held = narrows_kernel::load(program("becc"), &name, &settings("becc", &[])).unwrap();
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::killed_with_the_process_that_held_it_it_is_gone"])
        .env("NARROWS_VICTIM", name('v'))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let wait = |there: bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while in_kernel(&name('v')) != there && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        in_kernel(&name('v')) == there
    };
    assert!(wait(true), "the other process loads it");
    victim.kill().unwrap();
    assert_eq!(victim.wait().unwrap().signal(), Some(9));
    assert!(wait(false), "nothing is left of it");
}

/// The same for a user without rights: told once what is missing.
#[test]
fn a_user_without_rights_is_told_which() {
    needs_kernel!();
    if std::env::var_os("NARROWS_NOBODY").is_some() {
        let error = narrows_kernel::load(program("becc"), &name('u'), &settings("becc", &[])).err().unwrap();
        assert!(error.message.contains("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN missing"), "{error}");
        assert!(error.advice.contains("root"), "{error}");
        return;
    }
    // From a copy that nobody may read, too.
    let copy = std::env::temp_dir().join(format!("narrows-nobody-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let ran = Command::new(&copy)
        .args(["--exact", "life::a_user_without_rights_is_told_which", "--nocapture"])
        .env("NARROWS_NOBODY", "1")
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .output();
    std::fs::remove_file(&copy).unwrap();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn every_program_is_loaded_under_the_name_it_has_by_itself() {
    needs_kernel!();
    for program in narrows_kernel::PROGRAMS {
        let name = program.kernel_name();
        if in_kernel(&name) {
            eprintln!("SKIPPED: somebody has loaded {name}");
            continue;
        }
        let loaded = narrows_kernel::load(program, &name, &settings(program.name(), &[]));
        assert_eq!(loaded.unwrap_or_else(|e| panic!("{e}")).name(), name);
    }
}

#[test]
fn names_the_kernel_cannot_take_are_refused() {
    for bad in ["", "sixteen_letters_", "a b", "a/b", "a.b", "becc-modern"] {
        let error = narrows_kernel::load(program("becc"), bad, &settings("becc", &[])).err().unwrap();
        assert!(error.message.contains("cannot name") && error.advice.contains("--as"), "{error}");
    }
}
