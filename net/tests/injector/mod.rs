//! Packets, or what is none, put onto a device as they are.

use narrows_net::namespace::Namespace;
use std::io;

/// Sends whole IP packets, or what is none, out at the near device, past all of the kernel's checks.
pub struct Injector(socket2::Socket);

impl Injector {
    /// At the device called `name` in namespace `at`.
    pub fn new(at: &Namespace, name: &str) -> io::Result<Injector> {
        let open = || {
            let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, None)?;
            let index = nix::net::if_::if_nametoindex(name)?;
            // SAFETY: the storage is larger than any socket address, and `len` is that of the one written.
            #[allow(unsafe_code)] // a link-layer address has no safe constructor
            let (_, address) = unsafe {
                socket2::SockAddr::try_init(|storage, len| {
                    let address = storage.cast::<libc::sockaddr_ll>();
                    (*address).sll_family = libc::AF_PACKET as u16;
                    (*address).sll_protocol = (libc::ETH_P_IP as u16).to_be();
                    (*address).sll_ifindex = index as i32;
                    *len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                    Ok(())
                })
            }?;
            socket.bind(&address)?;
            Ok(socket)
        };
        at.enter(open).map(Injector)
    }

    /// Sends these bytes as they are.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.0.send(packet).map(drop)
    }
}
