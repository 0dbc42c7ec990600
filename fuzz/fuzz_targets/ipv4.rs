//! An IPv4 header that decodes must encode to one that decodes to the same. Options come back as no-operations, so it is the
//! value that must survive, not the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::wire::checksum::Sum;
use narrows_core::wire::ipv4::Header;

fn survives(bytes: &[u8]) {
    let Ok((header, payload)) = Header::decode(bytes) else { return };
    let mut again = Vec::new();
    header.encode(&mut again).expect("it came from a packet with 16-bit lengths");
    again.extend(payload);
    assert_eq!(Header::decode(&again), Ok((header, payload)));
}

fuzz_target!(|bytes: &[u8]| {
    survives(bytes);
    // Chance rarely meets a checksum: once more with the right one.
    let mut bytes = bytes.to_vec();
    let header = bytes.first().map_or(0, |first| (first & 0xF) as usize * 4);
    if header >= 20 && header <= bytes.len() {
        bytes[10..12].fill(0);
        let checksum = Sum::default().bytes(&bytes[..header]).checksum();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        survives(&bytes);
    }
});
