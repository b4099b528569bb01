//! COMMAND GETKEYS and GETKEYSANDFLAGS: the keys of a command given as arguments.

use darter_command::{Fault, Flags, Keys, Spec};
use darter_wire::{Args, Reply};

use crate::dispatch::Caller;
use crate::registry::CommandEntry;
use darter_command::call_keys;

/// COMMAND GETKEYS.
pub fn getkeys(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let asked = args.tail(2);
    let spec = spec_of(caller, asked)?;
    let keys = keys_of(&spec, asked)?;
    reply.array(keys.len());
    keys.iter().for_each(|&at| reply.bulk(asked.at(at)));
    Ok(())
}

/// COMMAND GETKEYSANDFLAGS.
pub fn getkeysandflags(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let asked = args.tail(2);
    let spec = spec_of(caller, asked)?;
    let keys = keys_of(&spec, asked)?;
    let groups = spec.key_specs();
    reply.array(keys.len());
    for at in keys {
        let access = call_keys::access_at(&groups, &spec, asked, at);
        reply.array(2);
        reply.bulk(asked.at(at));
        let flags = access.split(' ');
        reply.set(flags.clone().count());
        flags.for_each(|flag| reply.status(flag));
    }
    Ok(())
}

fn spec_of(caller: &Caller<'_>, asked: Args<'_>) -> Result<Spec, Fault> {
    const UNKNOWN: Fault = Fault::text("ERR Invalid command specified");
    let command = caller.local.shared.registry.find(asked.at(0)).ok_or(UNKNOWN)?;
    let entry: &CommandEntry =
        if command.subs.is_empty() { command } else { command.sub(asked.at(1)).ok_or(UNKNOWN)? };
    if matches!(entry.spec.keys, Keys::None) {
        return Err(Fault::text("ERR The command has no key arguments"));
    }
    if !entry.spec.accepts(asked.len()) {
        return Err(Fault::text("ERR Invalid number of arguments specified for command"));
    }
    Ok(entry.spec)
}

fn keys_of(spec: &Spec, asked: Args<'_>) -> Result<Vec<usize>, Fault> {
    let mut keys = Vec::new();
    if !spec.counts_too_many(asked) {
        spec.each_key(asked, &mut |at| keys.push(at));
    }
    if keys.is_empty() && !spec.flags.any(Flags::NO_MANDATORY_KEYS) {
        return Err(Fault::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}
