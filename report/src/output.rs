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
    let mut file = Pending::create(path)?;
    fill(&mut file.out).map_err(|e| unwritable(&file.path, e.into()))?;
    file.finish()
}

/// A file under way, for content that comes in pieces: it appears at its path with [`Pending::finish`], or, dropped before, not
/// at all. Every error names the path.
pub struct Pending {
    out: BufWriter<File>,
    path: PathBuf,
    /// `None` for a device or a pipe (`/dev/stdout`), which is written, not replaced.
    temporary: Option<Temporary>,
}

impl Pending {
    /// Starts the file for `path`, creating its folder if need be.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Pending> {
        let path = path.as_ref();
        Pending::open(path).map_err(|e| unwritable(path, e))
    }

    fn open(path: &Path) -> io::Result<Pending> {
        let there = fs::metadata(path);
        if there.as_ref().is_ok_and(fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into()); // now, not at the rename after an hour's run
        }
        let (target, temporary) = if there.is_ok_and(|there| !there.is_file()) {
            (OpenOptions::new().write(true).open(path)?, None)
        } else {
            if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
                fs::create_dir_all(folder)?;
            }
            let temporary = beside(path)?;
            (OpenOptions::new().write(true).create_new(true).open(&temporary)?, Some(Temporary(temporary)))
        };
        Ok(Pending { out: BufWriter::new(target), path: path.to_owned(), temporary })
    }

    /// Completes the file and puts it in its place.
    pub fn finish(mut self) -> io::Result<()> {
        self.place().map_err(|e| unwritable(&self.path, e))
    }

    fn place(&mut self) -> io::Result<()> {
        self.out.flush()?;
        let Some(Temporary(temporary)) = &self.temporary else { return Ok(()) };
        self.out.get_ref().sync_all()?;
        fs::rename(temporary, &self.path)
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|e| unwritable(&self.path, e))
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().map_err(|e| unwritable(&self.path, e))
    }
}

fn unwritable(path: &Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display()))
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
