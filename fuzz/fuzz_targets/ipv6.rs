//! An IPv6 header that decodes must encode to the bytes it came from, and the walk along the extension headers must end inside
//! the packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::wire::ipv6::{HEADER, Header, upper};

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, payload)) = Header::decode(bytes) else { return };
    let mut again = Vec::new();
    header.encode(&mut again);
    assert_eq!(again, bytes[..HEADER]);
    again.extend(payload);
    assert_eq!(Header::decode(&again), Ok((header, payload)));
    if let Ok(upper) = upper(header.next_header, payload) {
        assert!(payload.ends_with(upper.payload));
    }
});
