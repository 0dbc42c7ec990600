//! Devices, addresses and routes of the network namespace this thread is in, by rtnetlink. The library wants an executor: each
//! [`Netlink`] has a small one of its own, which runs only while a request does.

use futures_util::TryStreamExt;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::address::AddressHeaderFlags;
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use tokio::runtime::{Builder, Runtime};

/// A prefix: an address and how many of its leading bits count.
pub type Prefix = (IpAddr, u8);

/// A conversation with the kernel about one network namespace: that of the thread which opened it.
pub struct Netlink {
    executor: Runtime,
    handle: Handle,
}

impl Netlink {
    /// About the namespace this thread is in.
    pub fn open() -> io::Result<Netlink> {
        let executor = Builder::new_current_thread().enable_io().build()?;
        let within = executor.enter();
        let (connection, handle, _) = rtnetlink::new_connection()?;
        executor.spawn(connection);
        drop(within);
        Ok(Netlink { executor, handle })
    }

    /// Takes a device up; with this MTU and room for so many packets, if given.
    pub fn up(&self, device: &str, mtu: Option<u32>, queue: Option<u32>) -> io::Result<()> {
        let mut link = LinkUnspec::new_with_index(index(device)?).up();
        if let Some(mtu) = mtu {
            link = link.mtu(mtu);
        }
        if let Some(packets) = queue {
            link = link.txqueuelen(packets);
        }
        let what = format!("device {device} cannot be taken up");
        self.ask(&what, self.handle.link().set(link.build()).execute())
    }

    /// Gives a device an address, usable at once: nobody else can have it, so duplicate address detection is left out.
    pub fn address(&self, device: &str, (address, length): Prefix) -> io::Result<()> {
        let mut request = self.handle.address().add(index(device)?, address, length);
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        self.ask(&format!("device {device} cannot have the address {address}/{length}"), request.execute())
    }

    /// Sends what goes to `destination` out at `device`.
    pub fn route(&self, (to, length): Prefix, device: &str) -> io::Result<()> {
        let (index, what) = (index(device)?, format!("no route to {to}/{length} through {device}"));
        let message = RouteMessageBuilder::<IpAddr>::new()
            .output_interface(index)
            .destination_prefix(to, length)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {e}")))?
            .build();
        self.ask(&what, self.handle.route().add(message).execute())
    }

    /// Two devices joined by a cable: `here` in this namespace, `there` in the other.
    pub fn veth(&self, here: &str, there: &str, other: &impl AsFd) -> io::Result<()> {
        let what = format!("the pair of devices {here} and {there} cannot be made");
        self.ask(&what, self.handle.link().add(LinkVeth::new(here, there).build()).execute())?;
        let moved = LinkUnspec::new_with_index(index(there)?).setns_by_fd(other.as_fd().as_raw_fd());
        self.ask(&what, self.handle.link().set(moved.build()).execute())
    }

    /// Removes a device.
    pub fn remove(&self, device: &str) -> io::Result<()> {
        let what = format!("device {device} cannot be removed");
        self.ask(&what, self.handle.link().del(index(device)?).execute())
    }

    /// The devices here.
    pub fn devices(&self) -> io::Result<Vec<LinkMessage>> {
        self.ask("the devices cannot be listed", self.handle.link().get().execute().try_collect())
    }

    /// The IPv4 destinations that have routes here, in any table.
    pub fn routes(&self) -> io::Result<Vec<Prefix>> {
        let every = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let routes: Vec<RouteMessage> =
            self.ask("the routes cannot be listed", self.handle.route().get(every).execute().try_collect())?;
        let prefix = |route: RouteMessage| {
            let length = route.header.destination_prefix_length;
            route.attributes.into_iter().find_map(|attribute| match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(to)) => Some((to.into(), length)),
                _ => None,
            })
        };
        Ok(routes.into_iter().filter_map(prefix).collect())
    }

    fn ask<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, rtnetlink::Error>>,
    ) -> io::Result<T> {
        self.executor.block_on(request).map_err(|error| match error {
            rtnetlink::Error::NetlinkError(refusal) => {
                let cause = refusal.to_io();
                io::Error::new(cause.kind(), format!("{what}: {cause}"))
            }
            other => io::Error::other(format!("{what}: {other}")),
        })
    }
}

fn index(device: &str) -> io::Result<u32> {
    if_nametoindex(device).map_err(|e| {
        let cause = io::Error::from(e);
        io::Error::new(cause.kind(), format!("there is no device {device} here: {cause}"))
    })
}
