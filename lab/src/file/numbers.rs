//! Lists too long for a scenario: a file of whole numbers, one per line or with blanks between, as traces of links come.

use super::LARGEST_FILE;
use super::error::Refusal;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The numbers in the file called `name`, which is relative to `folder`.
pub(crate) fn read(folder: &Path, name: &str) -> Result<Arc<[u64]>, Refusal> {
    let refuse = |what: String| {
        let advice =
            "a text here names a file of numbers, relative to the scenario file; a list is written [3, 4, 9]";
        Err(Refusal::new(what, advice))
    };
    let path = folder.join(name);
    // Nothing that could wait or never end, such as a pipe or a device, is opened.
    match std::fs::metadata(&path) {
        Err(error) => return refuse(format!("{} cannot be read: {error}", path.display())),
        Ok(m) if !m.is_file() => return refuse(format!("{} is not a file", path.display())),
        Ok(m) if m.len() > LARGEST_FILE => {
            return refuse(format!("{} is larger than 64 MiB", path.display()));
        }
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    if let Err(error) = std::fs::File::open(&path).and_then(|f| f.take(LARGEST_FILE).read_to_end(&mut bytes))
    {
        return refuse(format!("{} cannot be read: {error}", path.display()));
    }
    let mut numbers = Vec::new();
    for (line, text) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        for word in text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
            let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
            numbers.push(number.ok_or_else(|| {
                let word: String = String::from_utf8_lossy(word).chars().take(32).collect();
                Refusal::new(
                    format!("{}, line {line}: \"{word}\" is not a whole number", path.display()),
                    "write numbers of 0 or more, one per line or with blanks between",
                )
            })?);
        }
    }
    Ok(numbers.into())
}
