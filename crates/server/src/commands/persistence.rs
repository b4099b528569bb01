//! SAVE, BGSAVE, LASTSAVE, SHUTDOWN: snapshots as an administrator asks for them. DEBUG RELOAD is here too.

use darter_command::category::Categories;
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Marks, Spec};
use darter_persist::storage::name::NameFormat;
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::replication::replace;
use crate::scripts::busy_line;
use crate::shared::{Shared, ThreadMessage};
use crate::snapshot::ending::{self, Asking, Failing, Saving};
use crate::snapshot::load::LoadOnto;
use crate::snapshot::{self, Purpose, RefusedSave, SnapshotOrder, load, naming, schedule};
use crate::sync::lock;
use crate::waiting::{BlockedState, TimeUp};
use darter_config::Live;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("save", -1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING).with(Flags::NO_MULTI))
            .cost("O(N) where N is the total number of keys in all databases")
            .doc(
                Group::Server,
                "1.0.0",
                "[DF | RDB] [basename]",
                "Synchronously saves the database(s) to disk.",
            ),
        save,
    ),
    row(
        Spec::other("bgsave", -1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING))
            .cost("O(1)")
            .doc(
                Group::Server,
                "1.0.0",
                "[SCHEDULE | CANCEL | DF | RDB] [basename]",
                "Asynchronously saves the database(s) to disk.",
            ),
        bgsave,
    ),
    row(
        Spec::other("lastsave", 1).category(Categories::ADMIN).category(Categories::DANGEROUS).tips(&["nondeterministic_output"]).flag(Flags::LOADING.with(Flags::STALE)).mark(Marks::ONLY_TELLS).fast().doc(
            Group::Server,
            "1.0.0",
            "",
            "Returns the Unix timestamp of the last successful save to disk.",
        ),
        lastsave,
    ),
    row(
        Spec::other("shutdown", -1)
            .flag(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))
            .flag(Flags::NO_MULTI.with(Flags::ALLOW_BUSY))
            .cost("O(N) when saving, where N is the total number of keys in all databases when saving data, otherwise O(1)")
            .doc(
                Group::Server,
                "1.0.0",
                "[NOSAVE | SAVE] [NOW] [FORCE] [SAFE] [ABORT]",
                "Synchronously saves the database(s) to disk and shuts down the server.",
            ),
        shutdown,
    ),
];

const IN_PROGRESS: Fault = Fault::text("ERR Background save already in progress");
const BASE_IN_PROGRESS: Fault = Fault::text(
    "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a \
     BGSAVE whenever possible.",
);
const IS_LOADING: Fault = Fault::text("LOADING Redis is loading the dataset in memory");

/// The options of SAVE and BGSAVE.
#[derive(Default)]
struct SaveWish<'a> {
    format: Option<NameFormat>,
    name: Option<&'a str>,
}

impl<'a> SaveWish<'a> {
    fn parse(reader: &mut ArgReader<'a>) -> Result<SaveWish<'a>, Fault> {
        let mut wish = SaveWish::default();
        if reader.take("df") {
            wish.format = Some(NameFormat::Native);
        } else if reader.take("rdb") {
            wish.format = Some(NameFormat::Rdb);
        }
        if !reader.is_done() {
            let name = std::str::from_utf8(reader.bytes()?).map_err(|_| Fault::Syntax)?;
            if name.is_empty() || name.contains('/') {
                return Err(Fault::text("ERR the name of a snapshot can't be a path, just a filename"));
            }
            wish.name = Some(name);
        }
        if reader.is_done() { Ok(wish) } else { Err(Fault::Syntax) }
    }

    fn order(&self, caller: &Caller<'_>) -> Result<SnapshotOrder, Fault> {
        let live = &caller.local.live;
        let name = self.name.unwrap_or(&live.persistence.dbfilename);
        if name.is_empty() {
            return Err(Fault::text("ERR snapshots are turned off: dbfilename is empty"));
        }
        SnapshotOrder::named(live, name, self.format).map_err(|why| Fault::Text(format!("ERR {why}").into()))
    }
}

/// Begins a snapshot, or fails with the reason.
fn begin(caller: &mut Caller<'_>, order: SnapshotOrder) -> Result<(), Fault> {
    if caller.local.shared.snapshots.loading.is_on() {
        return Err(IS_LOADING);
    }
    match snapshot::start(caller.local, order) {
        Ok(_) => Ok(()),
        Err(RefusedSave::Busy(_))
            if caller.local.shared.snapshots.current().is_some_and(|run| run.purpose == Purpose::Base) =>
        {
            Err(BASE_IN_PROGRESS)
        }
        Err(RefusedSave::Busy(_)) => Err(IN_PROGRESS),
        Err(RefusedSave::NoThread(error)) => Err(Fault::Text(format!("ERR {error}").into())),
    }
}

/// The client that calls, for a later answer.
pub(super) fn asking(caller: &Caller<'_>) -> Asking {
    Asking { thread: caller.info.thread, token: caller.info.token, client: caller.session.id }
}

/// Answers a client that waits.
pub(super) fn answer(shared: &Shared, to: Asking, outcome: Result<(), &str>) {
    let mut reply = Vec::new();
    match outcome {
        Ok(()) => Reply::new(&mut reply, false).ok(),
        Err(why) => Reply::new(&mut reply, false).error(format!("ERR {why}").as_bytes()),
    }
    shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply });
}

/// Makes the caller wait for its answer.
pub(super) fn wait(caller: &mut Caller<'_>) {
    let on_timeout = TimeUp::Reply(b"-ERR the wait was ended\r\n".to_vec());
    caller.session.blocked =
        Some(BlockedState { ticket: None, deadline_ms: None, ready_at_ms: None, on_timeout });
}

fn save(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let mut order = SaveWish::parse(&mut ArgReader::new(args, 1))?.order(caller)?;
    let to = asking(caller);
    order.then.push(Box::new(move |shared, outcome| {
        answer(shared, to, outcome.as_ref().map(|_| ()).map_err(|why| why.as_str()));
    }));
    begin(caller, order)?;
    wait(caller);
    Ok(())
}

fn bgsave(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 1);
    if reader.take("cancel") {
        return if reader.is_done() { cancel(caller, reply) } else { Err(Fault::Syntax) };
    }
    let schedules = reader.take("schedule");
    let order = SaveWish::parse(&mut reader)?.order(caller)?;
    let snapshots = &caller.local.shared.snapshots;
    let has_other = snapshots.current().is_some_and(|run| run.purpose != Purpose::Save);
    // Within a transaction shards are held: the cut has to wait.
    if !caller.may_wait || schedules && has_other {
        if snapshots.current().is_some() && !has_other {
            return Err(IN_PROGRESS);
        }
        snapshots.schedule(order).map_err(|_| IN_PROGRESS)?;
        reply.status("Background saving scheduled");
        return Ok(());
    }
    begin(caller, order)?;
    reply.status("Background saving started");
    Ok(())
}

fn cancel(caller: &mut Caller<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let snapshots = &caller.local.shared.snapshots;
    if snapshots.unschedule() {
        reply.status("Scheduled background saving cancelled");
    } else if snapshots.cancel() {
        reply.status("Background saving cancelled");
    } else {
        return Err(Fault::text("ERR Background saving is currently not in progress or scheduled"));
    }
    Ok(())
}

fn lastsave(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let saved_s = lock(&shared.snapshots.history).saved_s;
    // Redis too answers the time it started until it has saved.
    reply.int((if saved_s > 0 { saved_s } else { shared.started_unix_s }).cast_signed());
    Ok(())
}

fn shutdown(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 1);
    let (mut saves, mut nosave, mut now, mut force, mut safe, mut aborts) = Default::default();
    while !reader.is_done() {
        if reader.take("save") {
            saves = true;
        } else if reader.take("nosave") {
            nosave = true;
        } else if reader.take("now") {
            now = true;
        } else if reader.take("force") {
            force = true;
        } else if reader.take("safe") {
            // Valkey's: not while it leads others of a cluster, which no server does here.
            safe = true;
        } else if reader.take("abort") {
            aborts = true;
        } else {
            return Err(Fault::Syntax);
        }
    }
    if (saves && nosave) || (aborts && (saves || nosave || now || force || safe)) {
        return Err(Fault::Syntax);
    }
    let shared = caller.local.shared;
    if aborts {
        if !ending::abort(shared) {
            return Err(Fault::text("ERR No shutdown in progress."));
        }
        reply.ok();
        return Ok(());
    }
    if let Some(kind) = caller.local.busy.filter(|_| !nosave) {
        return Err(Fault::Text(busy_line(kind).into()));
    }
    tracing::info!("shutdown asked for by {}", caller.info.peer);
    let live = &caller.local.live;
    let has_name = !live.persistence.dbfilename.is_empty();
    let is_loading = shared.snapshots.loading.is_on();
    if !nosave && has_name && !is_loading && (saves || schedule::saves_at_end(live)) {
        let to = asking(caller);
        let saving = if saves { Saving::Always } else { Saving::Changes };
        let failing = if force { Failing::Ignored } else { Failing::Stays };
        ending::save_and_stop(caller.local, saving, failing, Some(to));
        wait(caller);
    } else if !nosave && !force && ending::may_not_end(shared) {
        return Err(Fault::text("ERR Errors trying to SHUTDOWN. Check logs."));
    } else {
        ending::stop(shared);
        if nosave {
            shared.scripts.force_all();
        }
        caller.session.is_closing = true;
    }
    Ok(())
}

/// DEBUG RELOAD [NOSAVE] [MERGE] [NOFLUSH]: saves, empties everything and loads the snapshot. NOFLUSH alone does not
/// load keys that exist; with MERGE the loaded value replaces them.
pub(super) fn reload(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 2);
    let (mut saves, mut empties, mut merges) = (true, true, false);
    while !reader.is_done() {
        if reader.take("nosave") {
            saves = false;
        } else if reader.take("noflush") {
            empties = false;
        } else if reader.take("merge") {
            merges = true;
        } else {
            return Err(Fault::text("ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options."));
        }
    }
    let onto = match (empties, merges) {
        (true, _) => LoadOnto::Emptied,
        (false, false) => LoadOnto::Others,
        (false, true) => LoadOnto::Replaced,
    };
    if caller.local.shared.snapshots.loading.is_beside() {
        return Err(IS_LOADING);
    }
    let to = asking(caller);
    if saves {
        let mut order = SaveWish::default().order(caller)?;
        let live = caller.local.live.clone();
        let replication = &caller.local.shared.replication;
        // A replica that applies nothing in between saves and loads the same data.
        let keeps = onto == LoadOnto::Emptied && replication.is_replica();
        replication.hold(keeps);
        order.then.push(Box::new(move |shared, outcome| match outcome {
            Ok(_) => reload_newest(shared, &live, (onto, keeps), to),
            Err(why) => {
                shared.replication.hold(false);
                answer(shared, to, Err(why));
            }
        }));
        begin(caller, order).inspect_err(|_| replication.hold(false))?;
    } else {
        reload_newest(caller.local.shared, &caller.local.live.clone(), (onto, false), to);
    }
    wait(caller);
    Ok(())
}

/// Loads the newest snapshot; `keeps`: it has the present data, and replication continues after it.
fn reload_newest(shared: &'static Shared, live: &Live, (onto, keeps): (LoadOnto, bool), to: Asking) {
    const FAILED: &str = "Error trying to load the RDB dump, check server logs.";
    let fail = |why: &str| {
        shared.replication.hold(false);
        answer(shared, to, Err(why));
    };
    let source = match naming::newest(live) {
        Ok(Some(source)) => source,
        Ok(None) => return fail(FAILED),
        Err(fault) => return fail(&fault.to_string()),
    };
    let bytes = source.1.len;
    if !replace::begin_other_load(shared, |loading| loading.begin(bytes)) {
        return fail(FAILED);
    }
    let then: load::Then = Box::new(move |shared, outcome| {
        shared.snapshots.note_loaded(shared, None);
        // The journal has no records of the loaded data.
        shared.journal.ask_for_base();
        shared.replication.note_loaded(shared);
        if !keeps || outcome.is_err() || !shared.replication.is_replica() {
            shared.replication.begin_anew(shared);
        }
        shared.replication.hold(false);
        if let Err(why) = outcome {
            tracing::error!("{why}");
        }
        answer(shared, to, if outcome.is_ok() { Ok(()) } else { Err(FAILED) });
    });
    if let Err(error) = load::spawn(shared, source, onto, then) {
        shared.snapshots.loading.end();
        fail(&error.to_string());
    }
}

/// DEBUG LOADAOF: empties everything and reads the journal back.
pub(super) fn load_journal(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    const FAILED: &str = "Error trying to load the AOF files, check server logs.";
    if caller.local.shared.snapshots.loading.is_beside() {
        return Err(IS_LOADING);
    }
    let to = asking(caller);
    let then: crate::journal::reload::Then = Box::new(move |shared, outcome| {
        if let Err(why) = outcome {
            tracing::error!("DEBUG LOADAOF: {why}");
        }
        answer(shared, to, if outcome.is_ok() { Ok(()) } else { Err(FAILED) });
    });
    crate::journal::reload::spawn(caller.local.shared, then)
        .map_err(|why| Fault::Text(format!("ERR {why}").into()))?;
    wait(caller);
    Ok(())
}
