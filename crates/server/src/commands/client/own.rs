//! CLIENT ID, GETNAME, SETNAME, SETINFO, REPLY, NO-EVICT, NO-TOUCH, CAPA: the caller's own connection.

use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_command::reader::is;
use darter_wire::{Args, Reply};

use super::super::login;
use crate::dispatch::Caller;
use crate::session::{Gate, ReplyMode};
use crate::sync::lock;

/// CLIENT ID
pub fn id(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int(i64::try_from(caller.session.id).unwrap_or(i64::MAX));
    Ok(())
}

/// CLIENT GETNAME
pub fn getname(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let words = lock(&caller.info.words);
    reply.bulk_or_null((!words.name.is_empty()).then_some(words.name.as_bytes()));
    Ok(())
}

/// CLIENT SETNAME
pub fn setname(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    lock(&caller.info.words).name = login::client_name(args.at(2))?;
    reply.ok();
    Ok(())
}

/// CLIENT SETINFO
pub fn setinfo(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let option = args.at(2);
    let (is_name, is_version) = (is(option, "LIB-NAME"), is(option, "LIB-VER"));
    let shown = String::from_utf8_lossy(option);
    if !is_name && !is_version {
        return Err(Fault::Text(format!("ERR Unrecognized option '{shown}'").into()));
    }
    let Some(word) = login::word(args.at(3)) else {
        let text = format!("ERR {shown} cannot contain spaces, newlines or special characters.");
        return Err(Fault::Text(text.into()));
    };
    let mut words = lock(&caller.info.words);
    if is_name {
        words.lib_name = word;
    } else {
        words.lib_ver = word;
    }
    reply.ok();
    Ok(())
}

/// CLIENT REPLY
pub fn reply(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mode = match args.at(2) {
        arg if is(arg, "ON") => ReplyMode::On,
        arg if is(arg, "OFF") => ReplyMode::Off,
        arg if is(arg, "SKIP") => ReplyMode::SkipNext,
        _ => return Err(Fault::Syntax),
    };
    let session = &mut caller.session;
    if mode == ReplyMode::SkipNext && session.reply_mode == ReplyMode::Off {
        return Ok(());
    }
    session.reply_mode = mode;
    session.gate.set(Gate::REPLY, mode != ReplyMode::On);
    if mode == ReplyMode::On {
        reply.ok();
    }
    Ok(())
}

/// CLIENT NO-EVICT
pub fn no_evict(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.session.no_evict = on_or_off(args.at(2))?;
    reply.ok();
    Ok(())
}

/// CLIENT NO-TOUCH
pub fn no_touch(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_on = on_or_off(args.at(2))?;
    caller.session.no_touch = is_on;
    caller.session.gate.set(Gate::NO_TOUCH, is_on);
    reply.ok();
    Ok(())
}

/// CLIENT IMPORT-SOURCE: a mark that has no effect once `import-mode` is off.
pub fn import_source(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !caller.local.live.import_mode {
        return Err(Fault::text("ERR Server is not in import mode"));
    }
    let is_on = on_or_off(args.at(2))?;
    caller.session.gate.set(Gate::IMPORTS, is_on);
    reply.ok();
    Ok(())
}

/// CLIENT CAPA: a replica sends those who follow redirects to its master (`engine::admit`). Unknown words are ignored.
pub fn capa(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.iter().skip(2).any(|word| is(word, "REDIRECT")) {
        caller.info.takes_redirects.store(true, Relaxed);
    }
    reply.ok();
    Ok(())
}

fn on_or_off(arg: &[u8]) -> Result<bool, Fault> {
    match arg {
        arg if is(arg, "ON") => Ok(true),
        arg if is(arg, "OFF") => Ok(false),
        _ => Err(Fault::Syntax),
    }
}
