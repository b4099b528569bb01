//! The thread that listens to the store: what it hears has the state of the group, or the map of the cluster, read at once.
//!
//! Nothing is decided by what it hears. Both are read now and then all the same, and often while nobody listens. A connection
//! on which nothing comes may be dead: it is replaced as soon as a read has found a change that was not told, and each minute.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use darter_quorum::etcd::Etcd;
use darter_quorum::store::StoreFault;
use darter_quorum::watch::WatchHearing;
use darter_reactor::process::boot_ms;

use super::{FailoverGroup, store};
use crate::shared::Shared;
use crate::sync::lock;

/// A connection is used for so long.
const RENEWED_AFTER: Duration = Duration::from_secs(60);
/// etcd says within this time that it tells of changes.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);
/// etcd tells of a change within this time after somebody has read it, or is taken for deaf.
const TELLS_WITHIN_MS: u64 = 1000;
/// Between attempts.
const REST: Duration = Duration::from_secs(1);

/// Begins to listen to the keys of the cluster, or to that of the group.
pub fn start(shared: &'static Shared, group: &'static FailoverGroup) {
    let etcd = match shared.cluster.shared_store() {
        Some(store) => store.of_all(),
        None => store::open(&shared.settings.live(), Default::default()).ok(),
    };
    let Some(mut etcd) = etcd else { return };
    let body = move || {
        shared.snapshots.roam();
        while !shared.is_stopping.load(SeqCst) {
            if let Err(why) = listen(shared, group, &mut etcd) {
                if group.store_tells.swap(false, SeqCst) {
                    tracing::info!("the store does not tell of changes, so it is asked often: {why}");
                }
                thread::sleep(REST);
            }
        }
    };
    if let Err(error) = thread::Builder::new().name("darter-watch".to_owned()).spawn(body) {
        tracing::warn!("nobody listens to the store: {error}");
    }
}

/// Listens on one connection. Errors: it is broken, or etcd has no such thing.
fn listen(shared: &'static Shared, group: &FailoverGroup, etcd: &mut Etcd) -> Result<(), StoreFault> {
    let mut watch = etcd.watch()?;
    let (opened, mut has_begun) = (Instant::now(), false);
    let mut hearing = WatchHearing::default();
    while opened.elapsed() < RENEWED_AFTER && !shared.is_stopping.load(SeqCst) {
        let news = watch.listen()?;
        has_begun |= news.has_begun;
        if !has_begun && opened.elapsed() > BEGINS_WITHIN {
            return Err(StoreFault("etcd does not answer a watch".to_owned()));
        }
        if news.has_begun {
            group.store_tells.store(true, SeqCst);
        }
        if hearing.is_deaf(boot_ms(), &news, known(shared, group), TELLS_WITHIN_MS) {
            return Err(StoreFault("etcd has not told of a change".to_owned()));
        }
        // What was changed before it began is not told.
        let is_told = |end: &[u8]| news.has_begun || news.keys.iter().any(|key| key.ends_with(end));
        if is_told(b"/map")
            && let Some(store) = shared.cluster.shared_store()
        {
            store.look_soon();
        }
        if is_told(b"/state") {
            group.with_machine(shared, |machine| machine.read_soon(boot_ms()));
        }
    }
    Ok(())
}

/// The revision of the latest change of its keys that this server has read or made.
fn known(shared: &Shared, group: &FailoverGroup) -> u64 {
    let of_group = lock(&group.machine).as_ref().and_then(|machine| Some(machine.state()?.0));
    let of_map = shared.cluster.shared_store().map(|_| shared.cluster.store_revision.load(SeqCst));
    of_group.unwrap_or(0).max(of_map.unwrap_or(0))
}
