//! Compiles every `bpf/*.bpf.c` to an object that the crate embeds; a new controller needs nothing here.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=bpf");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    for entry in std::fs::read_dir("bpf")? {
        let source = entry?.path();
        let file = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(name) = file.strip_suffix(".bpf.c") {
            compile(&source, &out.join(format!("{name}.o")))?;
        }
    }
    Ok(())
}

fn compile(source: &Path, object: &Path) -> Result<(), Box<dyn Error>> {
    let mut builder = libbpf_cargo::SkeletonBuilder::new();
    builder.source(source).obj(object).clang_args(["-Wall", "-Werror", "-mcpu=v3"]);
    builder
        .build()
        .map_err(|e| format!("{e:#}\nthe programs for the kernel need clang with its BPF target").into())
}
