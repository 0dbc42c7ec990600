//! Controllers that stay in the kernel: pins in a BPF file system, `narrows/NAME/{about,events,lease,counts,link}`. The link is
//! pinned last and unpinned first: a folder without it is what a killed `load` left, and nothing.

use crate::Error;
use crate::load::{Counts, Maps};
use crate::watch::Watch;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use narrows_core::registry::Value;
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HERE: &str = "/sys/fs/bpf";

/// Who started us, who started them, and so on.
fn ancestors() -> impl Iterator<Item = u32> {
    let parent = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|l| l.strip_prefix("PPid:"))?.trim().parse().ok().filter(|p| *p > 0)
    };
    std::iter::successors(parent(std::process::id()), move |pid| parent(*pid))
}

/// The folder of ours in a BPF file system, if there is one. `ip netns exec` hides `/sys/fs/bpf` under a `/sys` of its own; the
/// shell behind it still sees it.
pub(crate) fn folder() -> Option<PathBuf> {
    let is_bpf = |path: &PathBuf| statfs(path).is_ok_and(|s| s.filesystem_type() == BPF_FS_MAGIC);
    let theirs = ancestors().map(|pid| PathBuf::from(format!("/proc/{pid}/root{HERE}")));
    std::iter::once(PathBuf::from(HERE)).chain(theirs).find(is_bpf).map(|root| root.join("narrows"))
}

pub(crate) fn folder_or_mount() -> Result<PathBuf, Error> {
    if let Some(found) = folder() {
        return Ok(found);
    }
    let missing = |why: &str| {
        let message = format!("there is no BPF file system to keep it in ({why})");
        Error::new(message, format!("as root, outside `ip netns exec`: mount -t bpf bpf {HERE}"))
    };
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    if ancestors().next().and_then(space) != space(std::process::id()) {
        return Err(missing("and one mounted in this mount namespace would vanish with it"));
    }
    mount(Some("bpf"), HERE, Some("bpf"), MsFlags::empty(), None::<&str>).map_err(|e| missing(e.desc()))?;
    folder().ok_or_else(|| missing("it was mounted, but is not there"))
}

pub(crate) fn keep(name: &str, link: &mut Link, maps: &mut Maps) -> Result<(), Error> {
    let folder = folder_or_mount()?.join(name);
    let failed = |e: &dyn std::fmt::Display| {
        let message = format!("{name} cannot be kept in {} ({e})", folder.display());
        Error::new(message, "run as root, and see that the file system is writable")
    };
    let _ = sweep(&folder); // left by a load that was killed: the name is free, or we would not be here
    fs::create_dir_all(&folder).map_err(|e| failed(&e))?;
    let pinned = maps
        .named()
        .into_iter()
        .try_for_each(|(file, map)| map.pin(folder.join(file)))
        .and_then(|()| link.pin(folder.join("link")));
    pinned.map_err(|e| {
        let _ = sweep(&folder);
        failed(&e)
    })
}

/// Takes away a folder and what is pinned in it, the link first.
fn sweep(folder: &Path) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let link = folder.join("link");
    if link.exists() {
        fs::remove_file(link)?;
    }
    for entry in fs::read_dir(folder)? {
        fs::remove_file(entry?.path())?;
    }
    fs::remove_dir(folder)
}

/// A controller that was kept.
pub struct Kept {
    name: String,
    program: String,
    parameters: Vec<(String, String)>,
    maps: Maps,
    folder: PathBuf,
}

impl Kept {
    fn open(name: &str, folder: PathBuf) -> Result<Kept, Error> {
        let maps = Maps::each(|(_, file)| {
            MapHandle::from_pinned_path(folder.join(file)).map_err(|e| {
                let message = format!("{} cannot be opened ({e})", folder.join(file).display());
                Error::new(message, "run as root; if it is broken, `narrows kernel unload` removes it")
            })
        })?;
        let about = maps.about.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&about);
        let mut lines = text.trim_end_matches('\0').lines();
        let program = lines.next().unwrap_or_default().to_string();
        let pair = |l: &str| l.split_once(' ').map(|(k, v)| (k.to_string(), v.to_string()));
        let parameters = lines.filter_map(pair).collect();
        Ok(Kept { name: name.to_string(), program, parameters, maps, folder })
    }

    /// What sockets, routes and namespaces call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which of [`crate::PROGRAMS`] it is.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its parameters, as they would be written.
    pub fn parameters(&self) -> &[(String, String)] {
        &self.parameters
    }

    /// What it has served so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        self.maps.counts()
    }

    /// As [`crate::Loaded::watch`], for one watcher at a time: two would each see half.
    pub fn watch(&self, every: Duration) -> Result<Watch, Error> {
        let alone = fs::File::open(&self.folder).map_err(|e| e.to_string());
        let alone = alone.and_then(|folder| folder.try_lock().map(|()| folder).map_err(|e| e.to_string()));
        let alone = alone.map_err(|e| {
            let message = format!("{} is being watched already ({e})", self.name);
            Error::new(
                message,
                "stop the other watcher, or load the program a second time under another name",
            )
        })?;
        Watch::new(&self.maps, every).map(|w| w.holding(alone))
    }
}

/// Every controller that was kept, by name.
///
/// # Errors
/// If they cannot be read: that takes the right to.
pub fn kept() -> Result<Vec<Kept>, Error> {
    let Some(folder) = folder() else { return Ok(Vec::new()) };
    let unreadable = |e: std::io::Error| {
        let message = format!("{} cannot be read ({e})", folder.display());
        Error::new(message, "run as root: what is kept in the kernel is root's")
    };
    let entries = match fs::read_dir(&folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(unreadable)?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.join("link").exists() {
            all.push(Kept::open(&name, path)?);
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Takes a kept controller out of the kernel. Its connections go on with it to their ends; returns how many there are.
///
/// # Errors
/// If there is none of that name, or no right to remove it.
pub fn unload(name: &str) -> Result<u64, Error> {
    crate::load::overhear();
    let found =
        folder().map(|f| f.join(name)).filter(|f| !name.contains(['/', '.']) && f.join("link").exists());
    let Some(folder) = found else {
        let ours: Vec<String> = kept()?.iter().map(|k| k.name.clone()).collect();
        let advice = match (ours.is_empty(), available().iter().any(|a| a == name)) {
            (_, true) => "the kernel has it from elsewhere: it is not ours to unload".to_string(),
            (true, _) => "nothing is: see narrows kernel list".to_string(),
            (false, _) => format!("loaded are {}", ours.join(", ")),
        };
        return Err(Error::new(format!("`{name}` was not loaded by narrows"), advice));
    };
    let failed =
        |e: &dyn std::fmt::Display| Error::new(format!("{name} cannot be unloaded ({e})"), "run as root");
    let live = Kept::open(name, folder.clone()).and_then(|k| k.counts()).map_or(0, |c| c.live());
    // Taking away the pin alone would free the name only some time later.
    Link::open(folder.join("link")).and_then(|link| link.detach()).map_err(|e| failed(&e))?;
    sweep(&folder).map_err(|e| failed(&e))?;
    Ok(live)
}

/// The congestion controls of the kernel, ours and its own; empty if it does not say.
pub fn available() -> Vec<String> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}

/// A setting in words.
pub(crate) fn written(value: &Value) -> String {
    match value {
        Value::Time(t) => format!("{t:?}"),
        Value::Ratio(r) => r.to_string(),
        Value::Count(n) => n.to_string(),
        Value::Flag(b) => b.to_string(),
        Value::Word(w) => w.clone(),
        Value::Bytes(b) => format!("{b:?}"),
        Value::Rate(r) => format!("{r:?}"),
        Value::Packets(n) => format!("{n}p"),
        Value::List(items) => format!("{items:?}"),
    }
}
