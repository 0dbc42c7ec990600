//! A UDP datagram that decodes must encode to one that decodes to the same, checksum included. Of the payload a message keeps
//! length and number, so it is the value that must survive, not the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_core::wire::checksum::Pseudo;
use narrows_core::wire::udp::Message;
use std::net::Ipv6Addr;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = Message::decode(bytes, None) else { return };
    let pseudo = Pseudo::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST); // where the checksum is compulsory
    let mut again = Vec::new();
    message.encode(pseudo, &mut again).expect("it came from a datagram with a 16-bit length");
    assert_eq!(Message::decode(&again, Some(pseudo)), Ok(message));
});
