//! DBSIZE, FLUSHDB, FLUSHALL, SWAPDB: commands on a whole database.

use crate::category::Categories;
use darter_store::change::Class;
use darter_store::{Event, Keyed, Shard};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use crate::reader;
use crate::spec::{DatabaseReach, Flags, Group, Keys, Marks, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// DBSIZE.
pub const DBSIZE: DataCommand = DataCommand {
    spec: Spec::read("dbsize", 1, Keys::None)
        .category(Categories::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .fast()
        .reach(Reach::All)
        .doc(Group::Server, "1.0.0", "", "Counts the keys of the selected database."),
    run: dbsize,
};

/// FLUSHDB.
pub const FLUSHDB: DataCommand = DataCommand {
    spec: Spec::shrink("flushdb", -1, Keys::None)
        .category(Categories::DANGEROUS)
        .category(Categories::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .mark(Marks::FLUSHES)
        .reach(Reach::All)
        .doc(Group::Server, "1.0.0", "[ASYNC | SYNC]", "Deletes every key of the selected database.")
        .cost("O(N) over the number of keys, O(1) when no other database has keys"),
    run: flushdb,
};

/// FLUSHALL.
pub const FLUSHALL: DataCommand = DataCommand {
    spec: Spec::shrink("flushall", -1, Keys::None)
        .category(Categories::DANGEROUS)
        .category(Categories::KEYSPACE)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .mark(Marks::FLUSHES.with(Marks::EMPTIES))
        .databases(DatabaseReach::All)
        .reach(Reach::All)
        .doc(Group::Server, "1.0.0", "[ASYNC | SYNC]", "Deletes every key of every database."),
    run: flushall,
};

/// SWAPDB.
pub const SWAPDB: DataCommand = DataCommand {
    spec: Spec::shrink("swapdb", 3, Keys::None)
        .category(Categories::DANGEROUS)
        .category(Categories::KEYSPACE)
        .flag(Flags::FAST)
        .mark(Marks::FLUSHES)
        .databases(DatabaseReach::Exchanged)
        .reach(Reach::All)
        .doc(Group::Server, "4.0.0", "index1 index2", "Exchanges the keys of two databases."),
    run: swapdb,
};

fn dbsize(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (db, mut count) = (ctx.db, 0);
    ctx.each_part(|_, part| count += part.shard.visible_len(db));
    reply.int_len(count);
    Ok(())
}

/// SYNC and ASYNC are accepted and mean the same: flushing frees whole arenas.
fn check_mode(args: Args<'_>) -> Result<(), Fault> {
    match args.get(1) {
        None => Ok(()),
        Some(word) if args.len() == 2 && reader::is_sync_or_async(word) => Ok(()),
        Some(_) => Err(Fault::Syntax),
    }
}

/// For waiters only: its class has no letter, so no notification is sent.
const GONE: Event = Event::new(Class(0), "gone");

fn flush(part: &mut ShardPart, db: usize) {
    let ShardPart { shard, watches, waiters, .. } = part;
    watches.touch_db(db, |name| shard.holds(db, name));
    // readers in a group learn that their stream is gone
    for name in waiters.keys_of(db) {
        if shard.holds(db, &name) {
            shard.changes.push_uncounted(db, &name, GONE);
        }
    }
    shard.flush_db(db);
}

fn flushdb(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    check_mode(args)?;
    let db = ctx.db;
    ctx.each_part(|_, part| flush(part, db));
    reply.ok();
    Ok(())
}

fn flushall(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    check_mode(args)?;
    ctx.each_part(|_, part| (0..part.shard.dbs_len()).for_each(|db| flush(part, db)));
    reply.ok();
    Ok(())
}

fn swapdb(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let number = |at: usize, refused: Fault| match reader::int(args.at(at)) {
        Ok(n) if i32::try_from(n).is_ok() => Ok(usize::try_from(n).unwrap_or(usize::MAX)),
        _ => Err(refused),
    };
    let a = number(1, Fault::text("ERR invalid first DB index"))?;
    let b = number(2, Fault::text("ERR invalid second DB index"))?;
    if a >= ctx.dbs_len || b >= ctx.dbs_len {
        return Err(Fault::text("ERR DB index is out of range"));
    }
    if a != b {
        let now_ms = ctx.now_ms;
        ctx.each_part(|_, part| swap(part, a, b, now_ms));
    }
    reply.ok();
    Ok(())
}

fn is_alive(shard: &mut Shard, db: usize, name: &[u8], now_ms: u64) -> bool {
    let key = shard.key(name);
    Keyed::find(shard, db, key, now_ms).exists()
}

fn swap(part: &mut ShardPart, a: usize, b: usize, now_ms: u64) {
    let ShardPart { shard, watches, waiters, .. } = part;
    for db in [a, b] {
        // An expired key counts as missing, before and after: both lookups remove it.
        watches.touch_db(db, |name| [a, b].map(|at| is_alive(shard, at, name, now_ms)).contains(&true));
    }
    shard.swap_dbs(a, b);
    // waiters for a key may find it now, or no longer
    for db in [a, b] {
        for name in waiters.keys_of(db) {
            match (shard.holds(db, &name), shard.holds(a + b - db, &name)) {
                (true, _) => shard.changes.push_uncounted(db, &name, Event::NEW),
                (false, true) => shard.changes.push_uncounted(db, &name, GONE),
                (false, false) => {}
            }
        }
    }
}
