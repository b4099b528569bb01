//! MIGRATE: sends keys to another server. This file reads its arguments; [`crate::migrate`] does the work.

use darter_command::category::Categories;
use darter_command::keyspec;
use darter_command::spec::ReplicaForm;
use std::time::Duration;

use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Keys, Marks, Spec, reader};
use darter_wire::{Args, Reply};

use super::persistence::{asking, wait};
use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::migrate::{self, MigrateOrder};
use crate::redact::follows;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[row(
    Spec::shrink("migrate", -6, Keys::Find(each_key)).replica_form(ReplicaForm::Values).key_groups(&[
            keyspec::one(3, keyspec::TAKEN),
            keyspec::KeySpec {
                access: "RW access delete incomplete",
                begin: keyspec::Begin::Keyword("KEYS", -2),
                find: keyspec::Find::Range { last: -1, step: 1, limit: 0 },
                notes: "",
            },
        ]).mark(Marks::MOVES_KEYS).category(Categories::DANGEROUS).tips(&["nondeterministic_output"])
        .secret(|args, at| follows(args, at, "AUTH", 1) || follows(args, at, "AUTH2", 2))
        .flag(Flags::MOVABLEKEYS.with(Flags::NO_MULTI).with(Flags::NOSCRIPT))
        .doc(
            Group::Generic,
            "2.6.0",
            "host port <key | \"\"> destination-db timeout [COPY] [REPLACE] [AUTH password | AUTH2 username password] [KEYS key [key ...]]",
            "Atomically transfers a key from one Redis instance to another.",
        )
        .cost("DUMP+DEL of the keys here and RESTORE of them there, and the network between."),
    run,
)];

/// Position of the first option.
const OPTIONS_AT: usize = 6;
const TIMEOUT_MS: u64 = 1000;

/// The keys after KEYS if the one key is empty, else that one.
fn each_key(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    let mut at = OPTIONS_AT;
    while at < args.len() {
        if reader::is(args.at(at), "keys") && args.at(3).is_empty() {
            return (at + 1..args.len()).for_each(visit);
        }
        at += match args.at(at) {
            word if reader::is(word, "auth") => 2,
            word if reader::is(word, "auth2") => 3,
            _ => 1,
        };
    }
    if args.len() > 3 {
        visit(3);
    }
}

fn run(caller: &mut Caller<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    let order = read(caller, args)?;
    migrate::spawn(caller.local.shared, order).map_err(|why| Fault::Text(format!("ERR {why}").into()))?;
    wait(caller);
    Ok(())
}

fn read(caller: &Caller<'_>, args: Args<'_>) -> Result<MigrateOrder, Fault> {
    let (mut copies, mut replaces, mut login) = (false, false, Vec::new());
    let mut keys: Vec<Box<[u8]>> = vec![args.at(3).into()];
    let mut options = ArgReader::new(args, OPTIONS_AT);
    while !options.is_done() {
        if options.take("copy") {
            copies = true;
        } else if options.take("replace") {
            replaces = true;
        } else if options.take_with("auth", 1) {
            login = vec![options.bytes()?.to_vec()];
        } else if options.take_with("auth2", 2) {
            login = vec![options.bytes()?.to_vec(), options.bytes()?.to_vec()];
        } else if options.take("keys") {
            if !args.at(3).is_empty() {
                return Err(Fault::text(
                    "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
                ));
            }
            keys.clear();
            while !options.is_done() {
                keys.push(options.bytes()?.into());
            }
        } else {
            return Err(Fault::Syntax);
        }
    }
    let timeout = reader::int(args.at(5))?;
    let to_db = reader::int(args.at(4))?;
    let text = |at: usize| String::from_utf8_lossy(args.at(at)).into_owned();
    // The same key twice would be sent twice, and refused the second time.
    let mut seen = std::collections::HashSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    Ok(MigrateOrder {
        place: (text(1), text(2)),
        to_db,
        patience: Duration::from_millis(
            u64::try_from(timeout).ok().filter(|ms| *ms > 0).unwrap_or(TIMEOUT_MS),
        ),
        copies,
        replaces,
        login,
        keys,
        is_node: caller.local.shared.cluster.is_on(),
        db: caller.session.db,
        asking: asking(caller),
    })
}
