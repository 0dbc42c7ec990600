//! A TCP segment that decodes must encode to one that decodes to the same, checksum included. Options come back in one order and
//! padding, so it is the value that must survive, not the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::tcp::Segment;
use std::net::Ipv4Addr;

fuzz_target!(|bytes: &[u8]| {
    let Ok(segment) = Segment::decode(bytes, None) else { return };
    let pseudo = Pseudo::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut again = Vec::new();
    segment.encode(pseudo, &mut again);
    assert_eq!(again.len(), segment.size() as usize);
    assert_eq!(Segment::decode(&again, Some(pseudo)), Ok(segment));
});
