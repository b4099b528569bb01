//! A question to another node of the cluster, on a connection of its own.
//!
//! Called by threads that may wait. CLUSTER MEET asks who is there. CLUSTER SETSLOT passes a change on to the slot's owner.
//! The source of a migration asks whether its target is there.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use darter_cluster::MapNode;
use darter_replica::stream;

use super::links;
use crate::replication::link;
use crate::replication::wire::Wire;
use crate::shared::Shared;

/// The other node answers within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Logs in at a node as at a master, sends a command, and returns the one line or text of its answer, and this node's address
/// as seen on the connection.
///
/// Errors: the node cannot be reached, does not answer, or refuses; without a code in the first two.
pub fn ask(
    shared: &'static Shared,
    host: &str,
    port: u16,
    words: &[&[u8]],
) -> Result<(String, IpAddr), String> {
    let live = shared.settings.live();
    let failed = |error: std::io::Error| format!("ERR {host}:{port} cannot be reached: {error}");
    let mut wire = Wire::to_node(host, port, &live.tls).map_err(failed)?;
    let own = wire.handle().and_then(|socket| socket.local_addr()).map_err(failed)?.ip().to_canonical();
    let mut bytes = link::login_request(&live);
    let logs_in = !bytes.is_empty();
    stream::write(&mut bytes, words);
    wire.send(&bytes).map_err(failed)?;
    if logs_in {
        answer(&mut wire)?;
    }
    Ok((answer(&mut wire)?, own))
}

/// [`ask`] at a node of the map.
pub fn ask_node(
    shared: &'static Shared,
    node: &MapNode,
    words: &[&[u8]],
) -> Result<(String, IpAddr), String> {
    ask(shared, &node.ip, node.port_for(links::of_nodes(&shared.settings.live())), words)
}

/// Errors: nobody answers at a node, with whatever words.
pub fn must_answer(shared: &'static Shared, node: &MapNode) -> Result<(), String> {
    let live = shared.settings.live();
    let (host, port) = (&node.ip, node.port_for(links::of_nodes(&live)));
    let failed = |error: String| format!("{host}:{port} cannot be reached: {error}");
    let mut wire = Wire::to_node(host, port, &live.tls).map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    stream::write(&mut bytes, &[b"PING"]);
    wire.send(&bytes).map_err(|error| failed(error.to_string()))?;
    line(&mut wire).map(drop).map_err(|why| failed(why.trim_start_matches("ERR ").to_owned()))
}

fn answer(wire: &mut Wire) -> Result<String, String> {
    let line = line(wire)?;
    let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
    match kind {
        "-" => Err(rest.to_owned()),
        "$" => self::line(wire),
        _ => Ok(rest.to_owned()),
    }
}

fn line(wire: &mut Wire) -> Result<String, String> {
    let began = Instant::now();
    loop {
        match wire.line().map_err(|error| format!("ERR {error}"))? {
            Some(line) => return Ok(String::from_utf8_lossy(&line).into_owned()),
            None if began.elapsed() > PATIENCE => return Err("ERR the other node does not answer".to_owned()),
            None => drop(wire.fill().map_err(|error| format!("ERR {error}"))?),
        }
    }
}
