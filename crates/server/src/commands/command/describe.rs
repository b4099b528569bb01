//! One command as COMMAND and COMMAND INFO show it.

use darter_command::keyspec::{Begin, Find, KeySpec};
use darter_command::{Flags, Spec};
use darter_wire::Reply;

use crate::registry::CommandEntry;

/// Writes the ten elements of a command.
pub fn entry(entry: &CommandEntry, reply: &mut Reply<'_>) {
    let spec = &entry.spec;
    reply.array(10);
    reply.bulk(spec.name.as_bytes());
    reply.int(i64::from(spec.arity));
    let flags = flag_names(spec);
    reply.set(flags.len());
    flags.iter().for_each(|name| reply.status(name));
    let (first, last, step) = spec.key_range();
    [first, last, step].into_iter().for_each(|n| reply.int(n));
    let categories: Vec<&str> = spec.categories().names().collect();
    reply.set(categories.len());
    categories.iter().for_each(|name| reply.status(format!("@{name}")));
    let tips = spec.tips;
    reply.set(tips.len());
    tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    let key_specs = spec.key_specs();
    reply.set(key_specs.len());
    key_specs.iter().for_each(|spec| key_spec(spec, reply));
    if entry.subs.is_empty() || entry.is_open {
        reply.set(0);
    } else {
        reply.array(entry.subs.len());
        entry.subs.iter().for_each(|sub| self::entry(sub, reply));
    }
}

fn flag_names(spec: &Spec) -> Vec<&'static str> {
    let movable = spec.has_movable_keys();
    // Redis keeps the flag of commands that replicate without writing to itself
    let flags = Flags(spec.flags.0 & !Flags::MAY_REPLICATE.0);
    let is_set = |flag: &Flags| flags.any(*flag) || (*flag == Flags::MOVABLEKEYS && movable);
    Flags::ALL.iter().filter(|(flag, _)| is_set(flag)).map(|(_, name)| *name).collect()
}

fn key_spec(spec: &KeySpec, reply: &mut Reply<'_>) {
    let has_notes = !spec.notes.is_empty();
    reply.map(3 + usize::from(has_notes));
    if has_notes {
        text(reply, "notes");
        text(reply, spec.notes);
    }
    text(reply, "flags");
    let flags = spec.access.split(' ');
    reply.set(flags.clone().count());
    flags.for_each(|flag| reply.status(flag));
    text(reply, "begin_search");
    match spec.begin {
        Begin::Index(at) => typed(reply, "index", &[("index", i64::from(at))]),
        Begin::Unknown => typed(reply, "unknown", &[]),
        Begin::Keyword(word, from) => {
            reply.map(2);
            text(reply, "type");
            text(reply, "keyword");
            text(reply, "spec");
            reply.map(2);
            text(reply, "keyword");
            text(reply, word);
            text(reply, "startfrom");
            reply.int(i64::from(from));
        }
    }
    text(reply, "find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let parts = [("lastkey", last.into()), ("keystep", step.into()), ("limit", limit.into())];
            typed(reply, "range", &parts);
        }
        Find::Count { step } => {
            typed(reply, "keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", step.into())]);
        }
        Find::Unknown => typed(reply, "unknown", &[]),
    }
}

fn typed(reply: &mut Reply<'_>, kind: &str, parts: &[(&str, i64)]) {
    reply.map(2);
    text(reply, "type");
    text(reply, kind);
    text(reply, "spec");
    reply.map(parts.len());
    for (name, value) in parts {
        text(reply, name);
        reply.int(*value);
    }
}

fn text(reply: &mut Reply<'_>, text: &str) {
    reply.bulk(text.as_bytes());
}
