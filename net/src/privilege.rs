//! Giving up privileges: another user, no capabilities, and no way to new ones. What is open stays open.

use nix::unistd::{Uid, User, setgid, setgroups, setuid};
use std::io;

/// Whom [`shed`] made of us.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shed {
    /// This user.
    Became(String),
    /// Still the user who started us: only root can become another one.
    Stayed,
}

/// Becomes `user`, gives up all capabilities, and makes sure that no program we might start gets any. Threads that are
/// started later have none either; start them later.
///
/// # Errors
/// There is no such user; the kernel refuses.
pub fn shed(user: &str) -> io::Result<Shed> {
    let shed = if Uid::effective().is_root() {
        let account = User::from_name(user)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no user \"{user}\"")))?;
        setgroups(&[])?;
        setgid(account.gid)?;
        setuid(account.uid)?;
        Shed::Became(account.name)
    } else {
        Shed::Stayed
    };
    nix::sys::prctl::set_no_new_privs()?;
    no_capabilities()?;
    Ok(shed)
}

/// The header and the sets of `capset(2)`, version 3.
#[repr(C)]
struct Capabilities {
    version: u32,
    process: i32,
    sets: [[u32; 3]; 2],
}

fn no_capabilities() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let none = Capabilities { version: VERSION_3, process: 0, sets: [[0; 3]; 2] };
    // SAFETY: the kernel reads the header (two words) and both halves of the three sets (six words), which outlive the call;
    // it writes into the header only if the version is not known.
    #[allow(unsafe_code)] // no safe wrapper has it
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw const none.version, &raw const none.sets) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
