//! A program into the kernel: its constants set, its name written, registered. What is loaded lives as long as the process,
//! by file descriptors alone: no BPF file system is needed, and nothing is left behind by `kill -9`.

use crate::kept::{self, available};
use crate::need::Facts;
use crate::watch::Watch;
use crate::{Error, Program};
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, set_print,
};
use narrows_core::registry::Settings;
use std::sync::{Mutex, Once};
use std::time::Duration;

/// What a program shares with us.
#[derive(Debug)]
pub(crate) struct Maps {
    /// Which program it is, with which parameters.
    pub about: MapHandle,
    pub events: MapHandle,
    pub lease: MapHandle,
    pub counts: MapHandle,
}

/// A map's name in the program, and in a BPF file system, where dots are not allowed.
pub(crate) const MAPS: [(&str, &str); 4] =
    [("about", "about"), ("events", "events"), (".data.lease", "lease"), (".data.counts", "counts")];

impl Maps {
    pub(crate) fn each(
        mut find: impl FnMut((&str, &str)) -> Result<MapHandle, Error>,
    ) -> Result<Maps, Error> {
        let [about, events, lease, counts] = MAPS.map(&mut find);
        Ok(Maps { about: about?, events: events?, lease: lease?, counts: counts? })
    }

    /// With their names in a BPF file system.
    pub(crate) fn named(&mut self) -> [(&'static str, &mut MapHandle); 4] {
        let names = MAPS.map(|(_, name)| name);
        let [a, e, l, c] = names;
        [(a, &mut self.about), (e, &mut self.events), (l, &mut self.lease), (c, &mut self.counts)]
    }

    pub(crate) fn counts(&self) -> Result<Counts, Error> {
        let value = self.counts.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
        let value = value.ok_or_else(|| Error::new("the counts are gone", "load the program again"))?;
        let word = |i: usize| u64::from_ne_bytes(value[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        Ok(Counts { opened: word(0), closed: word(1), lost: word(2) })
    }
}

pub(crate) fn unreadable(e: libbpf_rs::Error) -> Error {
    Error::new(format!("what the program tells cannot be read ({e})"), "unload it and load it again")
}

/// What a loaded controller has served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Connections that ever used it.
    pub opened: u64,
    /// Those of them that have ended or gone over to another controller.
    pub closed: u64,
    /// Events that no watcher fetched in time.
    pub lost: u64,
}

impl Counts {
    /// Connections that use it now.
    pub fn live(&self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// A controller in the kernel until this is dropped, or the process ends.
pub struct Loaded {
    name: String,
    link: Link,
    maps: Maps,
    /// Owns the programs.
    _object: Object,
}

/// Loads `program` under `name`, with complete `settings` of [`Program::entry`].
///
/// # Errors
/// If a setting does not fit, the name cannot be used, the kernel or this process lacks something, or the kernel refuses.
pub fn load(program: &Program, name: &str, settings: &Settings) -> Result<Loaded, Error> {
    check_name(name)?;
    if let Some(missing) = Facts::cheap().missing() {
        return Err(missing);
    }
    if available().iter().any(|a| a == name) {
        let advice = "choose another one (--as NAME), or unload that first (narrows kernel unload NAME)";
        return Err(Error::new(format!("the kernel has a congestion control `{name}` already"), advice));
    }
    let constants = program.constants(settings).map_err(|unfit| {
        Error::new(format!("`{}` of {} does not fit", unfit.parameter, program.name()), unfit.advice)
    })?;
    overhear();
    let loaded = into_kernel(program, name, &constants).map_err(refused)?;
    let text = about(program, settings);
    loaded.maps.about.update(&0u32.to_ne_bytes(), &text, MapFlags::ANY).map_err(unreadable)?;
    Ok(loaded)
}

fn into_kernel(program: &Program, name: &str, constants: &[(&str, u64)]) -> Result<Loaded, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().open_memory(program.object)?;
    prepare(&mut open, program.object, name, constants);
    let mut object = open.load()?;
    let link = {
        let mut maps = object.maps_mut();
        let mut ops = maps.find(|m| m.name() == "controller").expect("every program has its `controller`");
        ops.attach_struct_ops()?
    };
    let maps = Maps::each(|(wanted, _)| {
        let map = object.maps().find(|m| m.name().to_string_lossy().ends_with(wanted));
        MapHandle::try_from(&map.expect("every program has these maps")).map_err(unreadable)
    });
    let maps = maps.map_err(|e| libbpf_rs::Error::from(std::io::Error::other(e.to_string())))?;
    Ok(Loaded { name: name.to_string(), link, maps, _object: object })
}

/// Writes constants and name to where the compiled program keeps them.
fn prepare(open: &mut OpenObject, object: &[u8], name: &str, constants: &[(&str, u64)]) {
    let btf = Btf::from_raw("program", object).ok().flatten().expect("clang -g writes the types");
    let ops = btf.type_by_name::<types::Struct<'_>>("tcp_congestion_ops").expect("it is one");
    let name_bits = ops.iter().find(|m| m.name.is_some_and(|n| n == "name")).map(|m| m.attr);
    for mut map in open.maps_mut() {
        let is_controller = map.name() == "controller";
        if !is_controller && !map.name().to_string_lossy().ends_with(".rodata") {
            continue;
        }
        let image = map.initial_value_mut().expect("it has contents");
        if is_controller {
            let Some(types::MemberAttr::Normal { offset }) = name_bits else {
                unreachable!("a name is whole bytes")
            };
            let field = &mut image[offset as usize / 8..][..16];
            field.fill(0);
            field[..name.len()].copy_from_slice(name.as_bytes());
            continue;
        }
        for (wanted, value) in constants {
            let field = constant(&btf, image, wanted);
            field.copy_from_slice(&value.to_le_bytes()[..field.len()]);
        }
    }
}

/// Where the image of a program's read-only data has the constant `wanted`.
pub(crate) fn constant<'i>(btf: &Btf<'_>, image: &'i mut [u8], wanted: &str) -> &'i mut [u8] {
    let rodata = btf.type_by_name::<types::DataSec<'_>>(".rodata").expect("constants are read-only data");
    let named = |v: &types::VarSecInfo| {
        btf.type_by_id::<types::Var<'_>>(v.ty).and_then(|t| t.name()).is_some_and(|n| n == wanted)
    };
    let variable = rodata.iter().find(|v| named(v));
    let variable = variable.unwrap_or_else(|| panic!("the program has no constant {wanted}"));
    &mut image[variable.offset as usize..][..variable.size]
}

/// Name, and parameters other than defaults, for `list`: at most 4096 bytes, the rest zero.
fn about(program: &Program, settings: &Settings) -> Vec<u8> {
    let mut text = program.name().to_string();
    for parameter in program.parameters() {
        if let Some(value) = settings.value(parameter.name) {
            text += &format!("\n{} {}", parameter.name, kept::written(value));
        }
    }
    let mut bytes = text.into_bytes();
    bytes.resize(4096, 0);
    bytes
}

fn check_name(name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_'; // bpf_obj_name_cpy in the kernel; a dot is no file name there
    if (1..=15).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    let advice =
        "the kernel takes 1 to 15 letters, digits and `_` of a BPF program: write for example --as becc3";
    Err(Error::new(format!("`{name}` cannot name a congestion control"), advice))
}

/// What libbpf last complained of.
static COMPLAINTS: Mutex<String> = Mutex::new(String::new());

/// Keeps libbpf's complaints for our one message instead of letting it write to standard error.
pub(crate) fn overhear() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, line| {
            if let Ok(mut all) = COMPLAINTS.lock() {
                all.push_str(&line);
            }
        })));
    });
    if let Ok(mut all) = COMPLAINTS.lock() {
        all.clear();
    }
}

fn refused(e: libbpf_rs::Error) -> Error {
    Facts::all().missing().unwrap_or_else(|| complained(e))
}

/// What to say of a refusal that no missing part explains.
pub(crate) fn complained(e: libbpf_rs::Error) -> Error {
    let complaints = COMPLAINTS.lock().map(|c| c.clone()).unwrap_or_default();
    let told: Vec<&str> = complaints.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if told.iter().any(|l| l.contains("-EPERM") || l.contains("Operation not permitted")) {
        return Error::new(
            "the kernel does not permit it, although the capabilities are there",
            "they must be those of the first user namespace: run as root outside containers",
        );
    }
    let last = told.iter().rev().take(8).rev().copied().collect::<Vec<_>>().join("\n  ");
    Error::new(
        format!("the kernel refused the program ({e:#})\n  {last}"),
        "report this with the output of `uname -r`",
    )
}

impl Loaded {
    /// What sockets, routes and namespaces call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it has served so far.
    pub fn counts(&self) -> Result<Counts, Error> {
        self.maps.counts()
    }

    /// Tells of its connections from now on, each at most once per `every`; zero: at every ACK.
    pub fn watch(&self, every: Duration) -> Result<Watch, Error> {
        Watch::new(&self.maps, every)
    }

    /// Leaves it in the kernel when this process ends; [`crate::unload`] takes it out again.
    ///
    /// # Errors
    /// If there is no BPF file system to keep it in; it is unloaded then.
    pub fn keep(mut self) -> Result<(), Error> {
        kept::keep(&self.name, &mut self.link, &mut self.maps)
    }
}
