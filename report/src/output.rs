//! Files that appear whole or not at all: written beside their place under a temporary name, flushed to the disk, then renamed.
//! What goes wrong on the way (a full disk, a directory that is not there) leaves neither half a file nor the temporary one, and
//! whatever stood in the place before still stands there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes `bytes` to `path`, creating its folder if need be. The error names the path.
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |out| out.write_all(bytes))
}

/// Like [`write()`], for content that is made while it is written.
pub fn write_with<E: Into<io::Error>>(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> io::Result<()> {
    let path = path.as_ref();
    place(path, fill).map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))
}

fn place<E: Into<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> Result<(), E>,
) -> io::Result<()> {
    // A device or a pipe (`/dev/stdout`) is written, not replaced.
    if fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path)?);
        fill(&mut out).map_err(Into::into)?;
        return out.flush();
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let temporary = Temporary(beside(path)?);
    let mut out = BufWriter::new(OpenOptions::new().write(true).create_new(true).open(&temporary.0)?);
    fill(&mut out).map_err(Into::into)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    fs::rename(&temporary.0, path)
}

/// `.name.PID.partial`, in the same folder: a rename is atomic only within one file system.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let unnamed = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
    let name = path.file_name().ok_or_else(unnamed)?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.partial", std::process::id()));
    // Left over from a process with the same number that was killed.
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(temporary),
    }
}

/// Removed when dropped; after the rename there is nothing left to remove.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of this test's own, gone with it.
    struct Folder(PathBuf);
    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("narrows-output-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
        }
    }
    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_and_its_folders_appear() {
        let folder = Folder::new("appear");
        let path = folder.0.join("a/b/report.html");
        write(&path, b"first").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing temporary stays");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_disk_that_fills_leaves_the_old_file_and_one_clear_error() {
        let folder = Folder::new("full");
        let path = folder.0.join("report.html");
        write(&path, b"old").unwrap();
        let fills = |out: &mut BufWriter<File>| -> io::Result<()> {
            out.write_all(&[0; 100_000])?;
            OpenOptions::new().write(true).open("/dev/full")?.write_all(b"one byte too many")
        };
        let message = write_with(&path, fills).unwrap_err().to_string();
        assert!(message.contains("cannot write") && message.contains("report.html"), "{message}");
        assert!(message.contains("No space left"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.names(), ["report.html"], "no half file, no temporary one");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_device_is_written_not_replaced() {
        let message = write("/dev/full", b"x").unwrap_err().to_string();
        assert!(message.contains("/dev/full") && message.contains("No space left"), "{message}");
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
        write("/dev/null", b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn a_place_that_cannot_be_is_refused() {
        let folder = Folder::new("refused");
        write(folder.0.join("file"), b"x").unwrap();
        assert!(write(folder.0.join("file/below"), b"x").is_err(), "a file is no folder");
        assert!(write(&folder.0, b"x").is_err(), "a folder is no file");
        assert_eq!(folder.names(), ["file"]);
    }
}
