//! Slots that move key by key: whether the keys of a command are here, looked at with its shards held.
//!
//! Called where a command of such a slot is about to run, by every way in. The owner sends clients on for keys that have left
//! (ASK), and the target serves those whom it was asked for. A key on its way by MIGRATE is its owner's until the move is
//! settled, whether it is there or not: so nobody makes it at both. Nothing else than this look decides between the two.

use super::links::Routed;
use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use darter_cluster::Routing;
use darter_store::Keyed;
use darter_wire::Args;

use super::route::{self, Line};
use crate::engine::commit;
use crate::engine::origin::ChangedBy;
use crate::job::Shards;
use crate::registry::CommandEntry;
use crate::session::QueuedCommand;
use crate::thread_state::ThreadState;
use crate::waiting::Waiting;

/// Some keys of a command have left and others have not, or not all have arrived.
pub const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// A slot of the command is being handed over to another node, or to this one.
const HANDED_OVER: &str = "TRYAGAIN Slots are being handed over";

/// The keys of a command, counted.
#[derive(Default)]
struct KeyCounts {
    here: usize,
    missing: usize,
    has_several: bool,
}

/// Returns true if slots move to or from this node, or are held.
#[inline]
pub fn is_any(local: &ThreadState) -> bool {
    local.cluster.map.must_look()
}

/// Why a command is not served here that was admitted, with its shards held.
#[inline]
pub fn refusal(
    local: &mut ThreadState,
    grant: &mut Shards,
    client: Routed,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> Option<Line> {
    if is_any(local) { look(local, grant, client, &[(entry, args)]) } else { None }
}

/// The same for the commands of an EXEC.
pub fn refusal_of_queue(
    local: &mut ThreadState,
    grant: &mut Shards,
    client: Routed,
    queued: &[QueuedCommand],
) -> Option<Line> {
    if !is_any(local) {
        return None;
    }
    let calls: Vec<_> = queued.iter().map(|one| (one.entry, one.args.args())).collect();
    look(local, grant, client, &calls)
}

/// Why a client that waits is not served: its destination is in a slot that moves, so it may have left.
pub fn refusal_of_waiting(local: &ThreadState, waiting: &Waiting) -> Option<Line> {
    if !is_any(local) || waiting.dest() == 0 {
        return None;
    }
    let ask = route::ask_of_admitted(local, &[(waiting.entry, waiting.args())]);
    let routing = local.cluster.rules.verdict(&local.cluster.map, &ask);
    let is_moving = matches!(routing, Routing::Leaving(..) | Routing::Arriving);
    is_moving.then(|| TRY_AGAIN.as_bytes().into())
}

#[cold]
fn look(
    local: &mut ThreadState,
    grant: &mut Shards,
    client: Routed,
    calls: &[(&'static CommandEntry, Args<'_>)],
) -> Option<Line> {
    let ask = route::ask_of_admitted(local, calls);
    let map = local.cluster.map.clone();
    let routing = local.cluster.rules.verdict(&map, &ask);
    let waits = map.is_holding() || map.gets_slots();
    if routing == Routing::Held || waits && calls.iter().any(|(entry, _)| route::takes_all(entry)) {
        // It was admitted before the slots were held.
        local.shared.cluster.redirects.try_again.fetch_add(1, Relaxed);
        return Some(HANDED_OVER.as_bytes().into());
    }
    if !matches!(routing, Routing::Leaving(..) | Routing::Arriving) {
        return None;
    }
    let counts = count(local, grant, client.db, calls);
    // Keys that were found dead are gone before the answer.
    commit::changes(local, grant, ChangedBy::SERVER);
    let redirects = &local.shared.cluster.redirects;
    let (counter, line) = match routing {
        Routing::Leaving(slot, node) if counts.missing > 0 && counts.here == 0 => {
            let host = route::endpoint(local.live.cluster.endpoint).of(node).unwrap_or_default();
            (
                &redirects.ask,
                Cow::Owned(format!("ASK {slot} {host}:{}", node.port_for(client.link)).into_bytes()),
            )
        }
        Routing::Leaving(..) if counts.missing > 0 => (&redirects.try_again, TRY_AGAIN.as_bytes().into()),
        Routing::Arriving if counts.missing > 0 && counts.has_several => {
            (&redirects.try_again, TRY_AGAIN.as_bytes().into())
        }
        _ => return None,
    };
    counter.fetch_add(1, Relaxed);
    Some(line)
}

fn count(
    local: &ThreadState,
    grant: &mut Shards,
    db: usize,
    calls: &[(&'static CommandEntry, Args<'_>)],
) -> KeyCounts {
    let shared = local.shared;
    let mut counts = KeyCounts::default();
    let mut first: Option<Box<[u8]>> = None;
    for (entry, args) in calls {
        entry.spec.each_key(*args, &mut |at| {
            let name = args.at(at);
            counts.has_several |= first.as_deref().is_some_and(|first| first != name);
            first.get_or_insert_with(|| name.into());
            let key = shared.router.key(name);
            let part = grant.get_mut(shared.router.shard_of(key.hash));
            let is_here =
                part.is_some_and(|part| Keyed::find(&mut part.shard, db, key, local.now_ms).exists());
            if is_here || shared.migrations.has_custody(db, name) {
                counts.here += 1;
            } else {
                counts.missing += 1;
            }
        });
    }
    counts
}
