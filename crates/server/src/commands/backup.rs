//! BACKUP: copies of the data in Redis' format, as `crate::backup` makes them.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::persistence::{answer, asking, wait};
use super::{ServerCommand, row};
use crate::backup;
use crate::dispatch::{Caller, ServerRun};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("backup", -2)
            .doc(Group::Server, SINCE, "", "A container for commands about backups.")
            .cost("Depends on subcommand."),
        super::no_subcommand,
    ),
    sub("backup|abort", ACTS, "Gives up a backup that is not sealed.", abort),
    sub("backup|cleanup", ACTS, "Removes the files of a backup that is sealed or has failed.", cleanup),
    row(super::help_row("backup|help", SINCE), help),
    sub("backup|list", TELLS, "Lists the files of the backup that are complete.", list),
    sub("backup|seal", ACTS.with(Flags::NO_MULTI), "Completes the backup with all changes so far.", seal),
    sub("backup|start", ACTS.with(Flags::NO_MULTI), "Begins a backup into the folder backupdirname.", start),
    sub("backup|status", TELLS, "Tells how far the backup has come.", status),
];

const SINCE: &str = "8.10.0";
const ACTS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT);
const TELLS: Flags = Flags::ADMIN.with(Flags::STALE);

const fn sub(name: &'static str, flags: Flags, summary: &'static str, run: ServerRun) -> ServerCommand {
    row(Spec::other(name, 2).flag(flags).doc(Group::Server, SINCE, "", summary), run)
}

fn start(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    backup::begin(caller.local)?;
    reply.ok();
    Ok(())
}

fn seal(caller: &mut Caller<'_>, _: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let (shared, to) = (caller.local.shared, asking(caller));
    backup::seal(shared, move |sealed| answer(shared, to, sealed.as_ref().copied().map_err(String::as_str)))?;
    wait(caller);
    Ok(())
}

fn abort(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    backup::abort(caller.local.shared)?;
    reply.ok();
    Ok(())
}

fn cleanup(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    backup::cleanup(caller.local.shared)?;
    reply.ok();
    Ok(())
}

fn list(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let files = caller.local.shared.backup.files();
    reply.array(files.len());
    files.iter().for_each(|path| reply.bulk(path.as_os_str().as_encoded_bytes()));
    Ok(())
}

fn status(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let status = caller.local.shared.backup.status();
    let fields = [
        ("state", status.stage.name().to_owned()),
        ("error", status.error),
        ("start_time", status.began_s.to_string()),
        ("end_time", status.sealed_s.to_string()),
    ];
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "BACKUP",
        &[
            "ABORT",
            "    Give up a backup that is not sealed.",
            "CLEANUP",
            "    Remove the files of a backup that is sealed or has failed.",
            "LIST",
            "    List the files that are complete.",
            "SEAL",
            "    Complete the backup with all changes so far.",
            "START",
            "    Begin a backup into the folder backupdirname.",
            "STATUS",
            "    Tell how far the backup has come.",
        ],
    );
    Ok(())
}
