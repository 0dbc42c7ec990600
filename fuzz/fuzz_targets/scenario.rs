//! Whatever stands in a scenario file, reading it ends in a scenario or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = narrows_lab::file::parse("fuzz.toml", text);
    }
});
