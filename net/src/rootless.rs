//! Without root: a user namespace, in which we are root over network namespaces of our own and nothing else.

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use std::fs;
use std::io;

/// CAP_NET_ADMIN and CAP_SYS_ADMIN of capability(7): devices and routes, namespaces.
const NEEDED: u64 = 1 << 12 | 1 << 21;

/// Whether this process may make network namespaces and devices where it is.
pub fn may_already() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|has| has & NEEDED == NEEDED)
}

/// Moves this process into a user namespace, as root there, and into an empty network namespace. It must still have only one
/// thread.
///
/// # Errors
/// Says what the machine does not permit.
pub fn enter() -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(|e| {
        let why = match e {
            Errno::ENOSPC => "user.max_user_namespaces is reached or 0",
            Errno::EPERM => {
                "kernel.unprivileged_userns_clone is 0, or a container's or AppArmor's rules forbid user namespaces"
            }
            Errno::EINVAL => "this kernel has none (CONFIG_USER_NS)",
            other => other.desc(),
        };
        refused(io::Error::from(e).kind(), why)
    })?;
    let map = |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text);
    map("setgroups", "deny".into())
        .and_then(|()| map("uid_map", format!("0 {user} 1")))
        .and_then(|()| map("gid_map", format!("0 {group} 1")))
        .map_err(|e| refused(e.kind(), &format!("no user may be mapped into it ({e})")))?;
    if !may_already() {
        let why = "AppArmor grants no capability in it (kernel.apparmor_restrict_unprivileged_userns)";
        return Err(refused(io::ErrorKind::PermissionDenied, why));
    }
    crate::netlink::Netlink::open()?.up("lo", None, None)
}

fn refused(kind: io::ErrorKind, why: &str) -> io::Error {
    io::Error::new(
        kind,
        format!("without root this takes a user namespace, which this machine refuses: {why}"),
    )
}
