//! What stays at devices: pins in a BPF file system, `narrows/at-device/NETNS-INDEX/{about,counts,egress,ingress}`; no
//! controller's name has a `-`. `ingress`, which alone writes, is pinned last and unpinned first: a folder without it is what a
//! killed command left, and is removed by the next `attach` or `detach`, as is that of a device which is gone.

use super::{Counts, Device, Loaded, Queue};
use crate::Error;
use crate::kept::{folder, folder_or_mount};
use crate::load::unreadable;
use crate::need::Facts;
use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use narrows_core::{Bytes, Rate};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const PLACE: &str = "at-device";

/// The number of this thread's network namespace.
fn here() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |m| m.ino())
}

fn name_of(device: &Device) -> String {
    format!("{}-{}", here(), device.index)
}

/// One command at a time.
fn alone(place: &Path) -> io::Result<File> {
    let folder = File::open(place)?;
    folder.lock()?;
    Ok(folder)
}

/// Both programs are attached, to a device that is there.
fn whole(folder: &Path) -> bool {
    let attached = |link: &str| {
        let info = Link::open(folder.join(link)).and_then(|l| l.info()).map(|i| i.info);
        matches!(info, Ok(LinkTypeInfo::Tcx(tcx)) if tcx.ifindex != 0)
    };
    attached("ingress") && attached("egress")
}

/// Takes away a folder, and what is pinned in it, and attached by it.
fn sweep(folder: &Path) -> io::Result<()> {
    for link in ["ingress", "egress"].map(|l| folder.join(l)).iter().filter(|l| l.exists()) {
        // Taking away the pin alone would detach it only some time later; one whose device is gone cannot be detached.
        let _ = Link::open(link).and_then(|l| l.detach());
        fs::remove_file(link)?;
    }
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(folder)
}

fn folders(place: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(place) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Removes what is not whole.
fn tidy(place: &Path) -> io::Result<()> {
    folders(place)?.iter().filter(|f| !whole(f)).try_for_each(|f| sweep(f))
}

pub(super) fn keep(device: &Device, queue: &Queue, mut loaded: Loaded) -> Result<(), Error> {
    let place = folder_or_mount()?.join(PLACE);
    let folder = place.join(name_of(device));
    let failed = |e: &dyn std::fmt::Display| {
        let message = format!("ackwin cannot be kept in {} ({e})", folder.display());
        Error::new(message, "run as root, and see that the file system is writable")
    };
    fs::create_dir_all(&place).map_err(|e| failed(&e))?;
    let _alone = alone(&place).map_err(|e| failed(&e))?;
    tidy(&place).map_err(|e| failed(&e))?;
    if folder.exists() {
        let advice = format!("detach that first: narrows kernel detach ackwin --dev {}", device.name);
        return Err(Error::new(format!("ackwin is attached to {} already", device.name), advice));
    }
    let mut text = told(device, queue).into_bytes();
    text.resize(4096, 0);
    loaded.about.update(&0u32.to_ne_bytes(), &text, MapFlags::ANY).map_err(unreadable)?;
    let egress = loaded.attach("ackwin_onward", device)?;
    let ingress = loaded.attach("ackwin_back", device)?;
    let pin = |mut link: Link, name: &str| link.pin(folder.join(name));
    let pinned = fs::create_dir(&folder).map_err(libbpf_rs::Error::from);
    pinned
        .and_then(|()| loaded.about.pin(folder.join("about")))
        .and_then(|()| loaded.counts.pin(folder.join("counts")))
        .and_then(|()| pin(egress, "egress"))
        .and_then(|()| pin(ingress, "ingress"))
        .map_err(|e| {
            let _ = sweep(&folder);
            failed(&e)
        })
}

fn told(device: &Device, queue: &Queue) -> String {
    let (name, rtt) = (&device.name, queue.rtt.as_micros());
    format!("device {name}\nrate {}\nlimit {}\nrtt {rtt}\n", queue.rate.0, queue.limit.0)
}

/// A device that it is attached to.
pub struct AtDevice {
    /// The device's name when it was attached.
    pub device: String,
    /// Whether that is in this network namespace.
    pub here: bool,
    /// The number of the device's network namespace.
    pub netns: u64,
    /// What it was told.
    pub queue: Queue,
    /// What it has done so far.
    pub counts: Counts,
}

fn open(folder: &Path) -> Result<AtDevice, Error> {
    let map = |file: &str| {
        MapHandle::from_pinned_path(folder.join(file)).map_err(|e| {
            let message = format!("{} cannot be opened ({e})", folder.join(file).display());
            Error::new(message, "run as root; if it is broken, `narrows kernel detach` removes it")
        })
    };
    let about = map("about")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
    let text = String::from_utf8_lossy(&about.unwrap_or_default()).into_owned();
    let line = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("");
    let number = |name: &str| line(name).parse().unwrap_or(0);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let netns = name.split_once('-').and_then(|(n, _)| n.parse().ok()).unwrap_or(0);
    Ok(AtDevice {
        device: line("device").to_string(),
        here: netns == here(),
        netns,
        queue: Queue {
            rate: Rate(number("rate")),
            limit: Bytes(number("limit")),
            rtt: Duration::from_micros(number("rtt")),
        },
        counts: Counts::read(&map("counts")?)?,
    })
}

fn unreadable_place(e: io::Error) -> Error {
    Error::new(
        format!("what is kept in the kernel cannot be read ({e})"),
        "run as root: what is kept in the kernel is root's",
    )
}

/// Every device that it is attached to, in all network namespaces.
///
/// # Errors
/// If they cannot be read: that takes the right to.
pub fn attached() -> Result<Vec<AtDevice>, Error> {
    crate::load::overhear();
    let Some(place) = folder().map(|f| f.join(PLACE)) else { return Ok(Vec::new()) };
    let folders = folders(&place).map_err(unreadable_place)?;
    let mut all: Vec<AtDevice> =
        folders.iter().filter(|f| whole(f)).map(|f| open(f)).collect::<Result<_, _>>()?;
    all.sort_by(|a, b| (a.netns, &a.device).cmp(&(b.netns, &b.device)));
    Ok(all)
}

/// Detaches it from the device called `name`, and removes all that a killed command left; returns what it has done.
///
/// # Errors
/// If it is not attached there, or there is no right to detach it.
pub fn detach(name: &str) -> Result<Counts, Error> {
    crate::load::overhear();
    let device = Device::find(name)?;
    if let Some(missing) = Facts::cheap().missing() {
        return Err(missing);
    }
    let failed = |e: io::Error| Error::new(format!("ackwin cannot be detached ({e})"), "run as root");
    let place = folder().map(|f| f.join(PLACE)).filter(|p| p.exists());
    let nothing = || {
        let names: Vec<String> =
            attached().unwrap_or_default().into_iter().filter(|a| a.here).map(|a| a.device).collect();
        let advice = match names.is_empty() {
            true => "it is attached nowhere here: see narrows kernel list".to_string(),
            false => format!("write --dev with one of {}", names.join(", ")),
        };
        Error::new(format!("ackwin is not attached to {name}"), advice)
    };
    let Some(place) = place else { return Err(nothing()) };
    let _alone = alone(&place).map_err(failed)?;
    tidy(&place).map_err(failed)?;
    let folder = place.join(name_of(&device));
    if !folder.exists() {
        return Err(nothing());
    }
    let counts = open(&folder).map(|a| a.counts).unwrap_or_default();
    sweep(&folder).map_err(failed)?;
    Ok(counts)
}

#[cfg(test)]
pub(super) fn place_of(name: &str) -> PathBuf {
    let device = Device::find(name).expect("it is there");
    folder().expect("a BPF file system").join(PLACE).join(name_of(&device))
}
