//! What the kernel and this process must have, and one message that names what is missing. Gathering the facts and judging them
//! are apart, so that kernels we do not have can be judged too.

use crate::Error;
use libbpf_rs::btf::{Btf, ReferencesType, types};
use std::path::Path;

/// What loading depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Capabilities in effect, as in `/proc/self/status`.
    capabilities: u64,
    /// The kernel describes its own types.
    btf: bool,
    /// A TCP congestion control can be a BPF program.
    struct_ops: bool,
    /// Arguments of `cong_control`: four since Linux 6.10.
    arguments: usize,
}

/// The capabilities that are needed, and their bits; the last one holds all of them.
const CAPABILITIES: &[(&str, u32)] = &[("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_NET_ADMIN", 12)];
const CAP_SYS_ADMIN: u32 = 21;

fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

impl Facts {
    /// What costs nothing to know: looked at before loading.
    pub(crate) fn cheap() -> Facts {
        let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
        Facts { capabilities: capabilities(), btf, struct_ops: true, arguments: 4 }
    }

    /// All of them: looked at after a failure.
    pub(crate) fn all() -> Facts {
        let Ok(btf) = Btf::from_vmlinux() else { return Facts { btf: false, ..Facts::cheap() } };
        let ops = btf.type_by_name::<types::Struct<'_>>("tcp_congestion_ops");
        let arguments = ops.and_then(|ops| {
            let member = ops.iter().find(|m| m.name.is_some_and(|n| n == "cong_control"))?;
            let pointer = btf.type_by_id::<types::Ptr<'_>>(member.ty)?;
            let function = btf.type_by_id::<types::FuncProto<'_>>(pointer.referenced_type().type_id())?;
            Some(function.iter().count())
        });
        let wrapper = btf.type_by_name::<types::Struct<'_>>("bpf_struct_ops_tcp_congestion_ops");
        Facts { struct_ops: wrapper.is_some(), arguments: arguments.unwrap_or(0), ..Facts::cheap() }
    }

    /// Says what is missing, if anything is.
    pub(crate) fn missing(&self) -> Option<Error> {
        let has = |bit: u32| self.capabilities & 1 << bit != 0;
        let lacking: Vec<&str> = CAPABILITIES
            .iter()
            .filter(|(_, bit)| !has(*bit) && !has(CAP_SYS_ADMIN))
            .map(|(name, _)| *name)
            .collect();
        if !lacking.is_empty() {
            let message =
                format!("no right to load programs into the kernel: {} missing", lacking.join(", "));
            return Some(Error::new(
                message,
                "run as root, or grant these capabilities (man 7 capabilities)",
            ));
        }
        if !self.btf {
            return Some(Error::new(
                "this kernel does not describe its types (BTF): /sys/kernel/btf/vmlinux is missing",
                "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of the distributions are, and mount /sys",
            ));
        }
        if !self.struct_ops {
            return Some(Error::new(
                "this kernel takes no congestion controls as BPF programs (struct_ops)",
                "use Linux 6.10 or later with CONFIG_BPF_JIT=y and CONFIG_BPF_SYSCALL=y",
            ));
        }
        (self.arguments < 4).then(|| {
            let message = "this kernel's cong_control takes two arguments, our programs' four";
            Error::new(message, "use Linux 6.10 or later")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_missing_is_named_once_with_a_remedy() {
        let good =
            Facts { capabilities: 1 << 39 | 1 << 38 | 1 << 12, btf: true, struct_ops: true, arguments: 4 };
        assert_eq!(good.missing(), None);
        let cases = [
            (Facts { capabilities: 1 << 12, ..good.clone() }, "CAP_BPF, CAP_PERFMON missing"),
            (Facts { btf: false, ..good.clone() }, "BTF"),
            (Facts { struct_ops: false, ..good.clone() }, "struct_ops"),
            (Facts { arguments: 2, ..good.clone() }, "two arguments"),
            (Facts::default(), "CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN missing"),
        ];
        for (facts, said) in cases {
            let error = facts.missing().expect("something is missing");
            assert!(error.message.contains(said) && !error.advice.is_empty(), "{error}");
        }
        assert_eq!(Facts { capabilities: 1 << CAP_SYS_ADMIN, ..good }.missing(), None, "it holds the others");
    }

    #[test]
    fn this_kernel_is_recognised() {
        let facts = Facts::all();
        if facts.btf {
            assert!(facts.struct_ops && facts.arguments >= 2, "{facts:?}");
        }
    }
}
