//! Names of members. In a group of its own the name is the host and the port by which others reach a server; in a group of a
//! cluster it is the id of the node, and the map says where that is.

use crate::engine::cluster::links;
use std::net::IpAddr;

use darter_config::Live;

use crate::replication::own_place;
use crate::shared::Shared;

/// The host that the settings name: `replica-announce-ip`, or an address of `bind`.
pub fn host(live: &Live) -> Option<String> {
    let announced = &live.replication.announce_ip;
    if !announced.is_empty() {
        return Some(announced.clone());
    }
    let words = live.bind.iter().map(|word| word.trim_start_matches('-'));
    let addresses: Vec<IpAddr> =
        words.filter_map(|word| word.parse().ok()).filter(|at: &IpAddr| !at.is_unspecified()).collect();
    let wide = addresses.iter().find(|at| !at.is_loopback());
    // Where every interface is listened on, the way to the store says the address.
    let is_narrow = addresses.len() == live.bind.len();
    wide.or(addresses.first().filter(|_| is_narrow)).map(IpAddr::to_string)
}

/// The name of this server at a host.
pub fn name(shared: &Shared, live: &Live, host: &str) -> String {
    let (.., port) = own_place(shared, live);
    let is_bare_ipv6 = host.contains(':') && !host.starts_with('[');
    if is_bare_ipv6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The host and the port of a member; `None`: the name has none, or the map has none for it.
pub fn find(shared: &Shared, name: &str) -> Option<(String, u16)> {
    if shared.cluster.shared_store().is_none() {
        return parse(name);
    }
    let map = shared.cluster.map();
    let (_, node) = map.find(name.as_bytes())?;
    (!node.ip.is_empty())
        .then(|| (node.ip.clone(), node.port_for(links::of_replicas(&shared.settings.live()))))
}

/// The host and the port of a name.
pub fn parse(name: &str) -> Option<(String, u16)> {
    let (host, port) = name.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_as_they_were_put_together() {
        assert_eq!(parse("10.0.0.1:6379"), Some(("10.0.0.1".to_owned(), 6379)));
        assert_eq!(parse("[::1]:6379"), Some(("::1".to_owned(), 6379)));
        assert_eq!((parse("x"), parse("x:y")), (None, None));
    }
}
