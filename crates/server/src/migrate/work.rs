//! The thread of one MIGRATE, from reading the values to the answer.

use std::sync::Arc;
use std::thread;

use darter_wire::Reply;

use super::held::{self, HeldItem};
use super::peer::{BrokenPeer, Peer, Sent, Unreached};
use super::{MigrateOrder, MigrateSeat};
use crate::shared::{Shared, ThreadMessage};

/// What MIGRATE answers.
enum MigrateAnswer {
    Ok,
    NoKey,
    Error(Vec<u8>),
}

/// Times a key is sent again because it was changed meanwhile.
const ROUNDS_MAX: usize = 16;

/// Begins a MIGRATE; its client is answered at the end.
///
/// Errors: too many are under way, or there can be no more threads; in words.
pub fn spawn(shared: &'static Shared, order: MigrateOrder) -> Result<(), String> {
    let seat = MigrateSeat::take(shared).ok_or("too many MIGRATEs are under way")?;
    let body = move || {
        shared.snapshots.roam();
        let (order, seat) = (Arc::new(order), seat);
        let answer = run(shared, &order);
        drop(seat);
        tell(shared, &order, answer);
    };
    thread::Builder::new()
        .name("darter-migrate".to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn tell(shared: &Shared, order: &MigrateOrder, answer: MigrateAnswer) {
    let mut bytes = Vec::new();
    let mut reply = Reply::new(&mut bytes, false);
    match answer {
        MigrateAnswer::Ok => reply.ok(),
        MigrateAnswer::NoKey => reply.status("NOKEY"),
        MigrateAnswer::Error(line) => reply.error(&line),
    }
    let to = order.asking;
    shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply: bytes });
}

fn run(shared: &'static Shared, order: &Arc<MigrateOrder>) -> MigrateAnswer {
    let ended = || MigrateAnswer::Error(b"ERR the server ends".to_vec());
    let Some(mut items) = held::read(shared, order, order.keys.clone()) else { return ended() };
    if items.is_empty() {
        return MigrateAnswer::NoKey;
    }
    let mut replaces = order.replaces;
    for _ in 0..ROUNDS_MAX {
        let (peer, mut sent) = match send(shared, order, &items, replaces) {
            Ok(done) => done,
            Err(answer) => {
                held::forget(shared, order, items);
                return answer;
            }
        };
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (at, item) in items.into_iter().enumerate() {
            let is_taken = sent.is_taken.get(at).copied().unwrap_or_default();
            if is_taken { taken.push(item) } else { left.push(item) }
        }
        held::forget(shared, order, left);
        let settled = if order.copies { None } else { held::settle(shared, order, taken) };
        let settled = settled.unwrap_or_default();
        if settled.is_void {
            return MigrateAnswer::Error(b"ERR this server has become a replica; the keys stay".to_vec());
        }
        let mut peer = peer;
        if sent.broken.is_none() && !settled.vanished.is_empty() {
            sent.broken = peer.delete(order, &settled.vanished).err();
        }
        if sent.broken.is_none() || !order.is_node {
            held::let_go(shared, order, settled.vanished);
        } else if !settled.vanished.is_empty() {
            let keys = settled.vanished.len();
            tracing::warn!(
                "MIGRATE: {keys} deleted keys may be at {}:{} still",
                order.place.0,
                order.place.1
            );
        }
        let outcome = outcome(&sent);
        if sent.broken.is_none() {
            shared.migrations.give_back(&order.place, peer);
        }
        if outcome.is_some() || settled.changed.is_empty() {
            held::forget(shared, order, settled.changed);
            return outcome.unwrap_or(MigrateAnswer::Ok);
        }
        items = settled.changed;
        replaces = true;
    }
    held::forget(shared, order, items);
    MigrateAnswer::Error(b"ERR a key was changed each time it was sent; it stays here".to_vec())
}

/// What the client is told if something went wrong.
fn outcome(sent: &Sent) -> Option<MigrateAnswer> {
    if let Some(why) = &sent.refusal {
        let mut line = b"ERR Target instance replied with error: ".to_vec();
        line.extend_from_slice(why);
        return Some(MigrateAnswer::Error(line));
    }
    let BrokenPeer { at, .. } = sent.broken?;
    Some(MigrateAnswer::Error(format!("IOERR error or timeout {at} to target instance").into_bytes()))
}

/// Sends keys over a connection that was kept or a new one. One that was kept may have been closed there meanwhile:
/// then a new one is tried.
fn send(
    shared: &Shared,
    order: &MigrateOrder,
    items: &[HeldItem],
    replaces: bool,
) -> Result<(Peer, Sent), MigrateAnswer> {
    if let Some(mut peer) = shared.migrations.take(&order.place) {
        let sent = peer.send(order, items, replaces);
        let is_stale = sent.broken.is_some_and(|broken| !broken.is_late) && sent.is_taken.is_empty();
        if !is_stale || sent.refusal.is_some() {
            return Ok((peer, sent));
        }
    }
    match Peer::connect(&order.place, &shared.settings.live().tls, order.patience) {
        Ok(mut peer) => {
            let sent = peer.send(order, items, replaces);
            Ok((peer, sent))
        }
        Err(why) => {
            // Redis connects without waiting, so a host that refuses fails the first write.
            let (error, line) = match why {
                Unreached::Unknown(error) => (error, "IOERR error or timeout connecting to the client"),
                Unreached::Silent(error) => (error, "IOERR error or timeout writing to target instance"),
            };
            tracing::info!("MIGRATE: cannot connect to {}:{}: {error}", order.place.0, order.place.1);
            Err(MigrateAnswer::Error(line.as_bytes().to_vec()))
        }
    }
}
