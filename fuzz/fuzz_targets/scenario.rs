//! Whatever stands in a scenario file, reading it ends in one error that points into the text, or in a scenario that, written out
//! with all its defaults, reads as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_lab::file::parse;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse("fuzz.toml", text) {
        Ok(scenario) => {
            let written = scenario.to_toml();
            match parse("fuzz.toml", &written) {
                Ok(again) => assert_eq!(again, scenario, "{written}"),
                Err(error) => panic!("{error} in\n{written}"),
            }
        }
        Err(error) => {
            if let Some(span) = error.span() {
                assert!(text.get(span.clone()).is_some(), "{error} at {span:?} of {} bytes", text.len());
            }
        }
    }
});
