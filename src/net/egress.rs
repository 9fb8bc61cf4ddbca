//! [`Egress`]: which addresses this process connects to of its own accord. A pure decision on an address that is already
//! resolved, so that a name cannot lead past it.
//!
//! # Why
//!
//! Whoever can change what a name of the configuration resolves to could make a proxy ask the machine's own metadata
//! service for credentials, and pass on the answer. So what no app listens on is refused, unless the configuration says
//! that very network ([`REFUSED`]); `allow` narrows the rest to a list, `deny` takes more away.
//!
//! # One address, several readings
//!
//! IPv6 has ways to write an IPv4 address inside another, and a gateway or a tunnel on the way takes it out again
//! ([`embedded`]). Each of them is judged; one that is refused refuses the whole. Only where the packet really goes to
//! the inner address (IPv4-mapped, RFC 4291; NAT64, RFC 6052) does `allow` look at that too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// What is refused unless `allow` names it, or a part of it.
pub const REFUSED: [IpNet; 14] = [
    // "This network" (RFC 1122): most systems take it for themselves.
    v4([0, 0, 0, 0], 8),
    // Link-local (RFC 3927), with the metadata services of most clouds: 169.254.169.254 and its neighbours.
    v4([169, 254, 0, 0], 16),
    // Metadata outside of it: Alibaba Cloud, Oracle Cloud, Azure's host.
    v4([100, 100, 100, 200], 32),
    v4([192, 0, 0, 192], 32),
    v4([168, 63, 129, 16], 32),
    // Multicast (RFC 5771) and broadcast.
    v4([224, 0, 0, 0], 4),
    v4([255, 255, 255, 255], 32),
    // Unspecified, link-local (RFC 4291) and multicast.
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
    // Metadata and other services of the host: AWS, Google Cloud, Oracle Cloud, Scaleway.
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
    v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
];

const fn v4(address: [u8; 4], bits: u8) -> IpNet {
    let [a, b, c, d] = address;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits))
}

const fn v6(address: [u16; 8], bits: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = address;
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), bits))
}

/// `[egress]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// When given, only these. A network of it that lies within one of [`REFUSED`] takes that part out of it; a wider
    /// one does not.
    pub allow: Option<Vec<IpNet>>,
    /// Never these, whatever else says so.
    pub deny: Vec<IpNet>,
}

/// Why an address is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// One of [`REFUSED`].
    #[error("link-local, metadata, multicast and unspecified addresses are refused")]
    Special,
    /// In `deny`.
    #[error("in `egress.deny`")]
    Denied,
    /// Not in `allow`.
    #[error("not in `egress.allow`")]
    NotAllowed,
}

impl Egress {
    /// Whether this process may connect to `address`.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, address: IpAddr) -> Result<(), Refused> {
        let allowed = self.allow.as_deref().unwrap_or_default();
        let address = address.to_canonical();
        let readings = || std::iter::once(address).chain(embedded(address).map(IpAddr::V4));
        if readings().any(|reading| contains(&self.deny, reading)) {
            return Err(Refused::Denied);
        }
        let named = |special: &IpNet, reading| {
            let mut parts = allowed.iter().filter(|network| special.contains(*network));
            parts.any(|part| part.contains(&reading))
        };
        let is_special = |reading| {
            let mut special = REFUSED.iter().filter(|special| special.contains(&reading));
            special.any(|special| !named(special, reading))
        };
        if readings().any(is_special) {
            return Err(Refused::Special);
        }
        let goes_to = std::iter::once(address).chain(behind_nat64(address).map(IpAddr::V4));
        match &self.allow {
            Some(allow) if !goes_to.into_iter().any(|place| contains(allow, place)) => Err(Refused::NotAllowed),
            Some(_) | None => Ok(()),
        }
    }
}

fn contains(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Where NAT64 sends it: the well-known prefix (RFC 6052 section 2.1).
fn behind_nat64(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(v6) => match v6.segments() {
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
            _ => None,
        },
        IpAddr::V4(_) => None,
    }
}

/// The IPv4 addresses that an IPv6 address may be taken for on its way.
fn embedded(address: IpAddr) -> impl Iterator<Item = Ipv4Addr> {
    let IpAddr::V6(v6) = address else {
        return [None; 4].into_iter().flatten();
    };
    let one = |address| [Some(address), None, None, None];
    let found = match v6.segments() {
        // The unspecified address and loopback are no IPv4 addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => [None; 4],
        // IPv4-compatible (RFC 4291), and IPv4-translated (RFC 2765).
        [0, 0, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => one(join(high, low)),
        // NAT64: the well-known prefix, and what operators take out of the local one (RFC 8215).
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => one(join(high, low)),
        [0x64, 0xff9b, 1, ..] => local_nat64(v6),
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => one(join(high, low)),
        // Teredo (RFC 4380): the server, and the client with its bits turned round.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            [Some(join(high, low)), Some(join(!client_high, !client_low)), None, None]
        }
        // ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => one(join(high, low)),
        _ => [None; 4],
    };
    found.into_iter().flatten()
}

/// Which length an operator gave the prefix cannot be seen: 48, 56, 64 and 96 are possible (RFC 6052 section 2.2), and what
/// is none of them mostly reads as zeros.
fn local_nat64(v6: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let [_, _, _, _, _, _, g, h, _, j, k, l, m, n, o, p] = v6.octets();
    [[g, h, j, k], [h, j, k, l], [j, k, l, m], [m, n, o, p]].map(|reading| match reading {
        [0, ..] => None,
        reading => Some(Ipv4Addr::from(reading)),
    })
}

fn join(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(egress: &Egress, address: &str) -> Result<(), Refused> {
        egress.judge(address.parse().unwrap())
    }

    fn nets(networks: &[&str]) -> Vec<IpNet> {
        networks.iter().map(|network| network.parse().unwrap()).collect()
    }

    fn allow(networks: &[&str]) -> Egress {
        Egress {
            allow: Some(nets(networks)),
            deny: Vec::new(),
        }
    }

    #[test]
    fn where_apps_live_is_allowed_without_a_word() {
        for address in [
            "127.0.0.1",
            "127.255.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "93.184.216.34",
            "240.0.0.1",
            "::1",
            "fd00::1",
            "fdff:ec2::254",
            "2001:db8::1",
            "2606:2800:220:1::1",
            "::ffff:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::10.0.0.1",
            "64:ff9b:1:a00:0:100::",
            "2002:a00:1::1",
            "169.253.255.255",
            "169.255.0.0",
            "223.255.255.255",
        ] {
            assert_eq!(judge(&Egress::default(), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn metadata_link_local_multicast_and_unspecified_addresses_are_refused() {
        for address in [
            "169.254.169.254",
            "169.254.170.2",
            "169.254.0.0",
            "169.254.255.255",
            "0.0.0.0",
            "0.1.2.3",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "::",
            "fe80::1",
            "febf::1",
            "ff02::1",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "fd00:42::42",
        ] {
            assert_eq!(judge(&Egress::default(), address), Err(Refused::Special), "{address}");
        }
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_address_is_judged_too() {
        for address in [
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            // RFC 6052 section 2.2, length 48: bits 64 to 71 are left out.
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00::",
            "2002:a9fe:a9fe::1",
            // Teredo: a server at 169.254.169.254, and a client there.
            "2001:0:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:5601:5601",
            "fd00::5efe:169.254.169.254",
            "2001:db8::200:5efe:169.254.169.254",
        ] {
            assert_eq!(judge(&Egress::default(), address), Err(Refused::Special), "{address}");
        }
    }

    #[test]
    fn with_allow_only_what_it_names_is_allowed() {
        let egress = allow(&["10.0.0.0/8", "fd00::/8"]);
        for address in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd12::1"] {
            assert_eq!(judge(&egress, address), Ok(()), "{address}");
        }
        for address in [
            "127.0.0.1",
            "11.0.0.1",
            "::1",
            "64:ff9b::11.0.0.1",
            // The packet goes to a tunnel, not to 10.1.2.3.
            "2002:a01:203::1",
            "64:ff9b:1::10.1.2.3",
            "2001:db8::1",
        ] {
            assert_eq!(judge(&egress, address), Err(Refused::NotAllowed), "{address}");
        }
        for address in ["fd00:ec2::254", "169.254.169.254"] {
            assert_eq!(judge(&egress, address), Err(Refused::Special), "{address}");
        }
    }

    #[test]
    fn a_wide_network_does_not_let_in_what_is_refused_by_default_and_a_narrow_one_does() {
        let wide = allow(&["0.0.0.0/0", "::/0"]);
        assert_eq!(judge(&wide, "169.254.169.254"), Err(Refused::Special));
        assert_eq!(judge(&wide, "fe80::1"), Err(Refused::Special));
        assert_eq!(judge(&wide, "8.8.8.8"), Ok(()));
        let narrow = allow(&["0.0.0.0/0", "169.254.169.254/32"]);
        assert_eq!(judge(&narrow, "169.254.169.254"), Ok(()));
        assert_eq!(judge(&narrow, "64:ff9b::169.254.169.254"), Ok(()));
        assert_eq!(judge(&narrow, "169.254.170.2"), Err(Refused::Special));
        assert_eq!(judge(&allow(&["169.254.0.0/16"]), "169.254.170.2"), Ok(()));
        assert_eq!(judge(&allow(&["fe80::/10"]), "fe80::1"), Ok(()));
    }

    #[test]
    fn deny_wins() {
        let egress = Egress {
            allow: Some(nets(&["10.0.0.0/8", "::/0"])),
            deny: nets(&["10.9.0.0/16"]),
        };
        assert_eq!(judge(&egress, "10.1.2.3"), Ok(()));
        for address in ["10.9.1.1", "::ffff:10.9.1.1", "64:ff9b::10.9.1.1", "2002:a09:101::1"] {
            assert_eq!(judge(&egress, address), Err(Refused::Denied), "{address}");
        }
    }
}
