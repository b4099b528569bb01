//! COMMAND DOCS: the arguments come from the notation in each command's row.

use darter_command::Fault;
use darter_command::syntax::{self, Arg, SyntaxKind};
use darter_wire::{Args, Reply};

use crate::dispatch::Caller;
use crate::registry::CommandEntry;

/// COMMAND DOCS.
pub fn docs(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let registry = &caller.local.shared.registry;
    if args.len() == 2 {
        reply.map(registry.commands().len());
        registry.commands().iter().for_each(|entry| write(entry, reply));
        return Ok(());
    }
    let begun = reply.begin_array();
    let found = args.iter().skip(2).filter_map(|name| super::named(registry, name));
    let pairs = found.map(|entry| write(entry, reply)).count();
    reply.end_map(begun, pairs);
    Ok(())
}

fn write(entry: &CommandEntry, reply: &mut Reply<'_>) {
    let spec = &entry.spec;
    let arguments = syntax::parse(spec.syntax);
    let mut pairs = 4;
    text(reply, spec.name);
    let begun = reply.begin_array();
    let facts = [("summary", spec.summary), ("since", spec.since), ("group", spec.group.name())];
    for (name, value) in facts.into_iter().chain([("complexity", spec.complexity)]) {
        text(reply, name);
        text(reply, value);
    }
    if let Some((since, instead)) = spec.deprecated {
        pairs += 3;
        text(reply, "doc_flags");
        reply.set(1);
        reply.status("deprecated");
        text(reply, "deprecated_since");
        text(reply, since);
        text(reply, "replaced_by");
        text(reply, instead);
    }
    if !arguments.is_empty() {
        pairs += 1;
        text(reply, "arguments");
        let mut keys = KeyNumbers { next: 0, len: spec.key_specs().len() };
        write_args(&arguments, &mut keys, reply);
    }
    if !entry.subs.is_empty() && !entry.is_open {
        pairs += 1;
        text(reply, "subcommands");
        reply.map(entry.subs.len());
        entry.subs.iter().for_each(|sub| write(sub, reply));
    }
    reply.end_map(begun, pairs);
}

/// Numbers the key arguments by their group of keys.
struct KeyNumbers {
    next: usize,
    len: usize,
}

impl KeyNumbers {
    fn take(&mut self) -> Option<usize> {
        let number = self.next.min(self.len.checked_sub(1)?);
        self.next += 1;
        Some(number)
    }
}

fn write_args(args: &[Arg], keys: &mut KeyNumbers, reply: &mut Reply<'_>) {
    reply.array(args.len());
    args.iter().for_each(|arg| write_arg(arg, keys, reply));
}

fn write_arg(arg: &Arg, keys: &mut KeyNumbers, reply: &mut Reply<'_>) {
    let mut pairs = 2;
    let begun = reply.begin_array();
    text(reply, "name");
    text(reply, &arg.name);
    text(reply, "type");
    text(reply, arg.kind.name());
    if !matches!(arg.kind, SyntaxKind::PureToken | SyntaxKind::OneOf | SyntaxKind::Block) {
        pairs += 1;
        text(reply, "display_text");
        text(reply, &arg.name);
    }
    if arg.kind == SyntaxKind::Key
        && let Some(number) = keys.take()
    {
        pairs += 1;
        text(reply, "key_spec_index");
        reply.int_len(number);
    }
    if let Some(token) = &arg.token {
        pairs += 1;
        text(reply, "token");
        text(reply, token);
    }
    let flags: Vec<&str> =
        [(arg.is_optional, "optional"), (arg.is_multiple, "multiple"), (arg.repeats_token, "multiple_token")]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
    if !flags.is_empty() {
        pairs += 1;
        text(reply, "flags");
        reply.set(flags.len());
        flags.iter().for_each(|flag| reply.status(flag));
    }
    if !arg.inner.is_empty() {
        pairs += 1;
        text(reply, "arguments");
        write_args(&arg.inner, keys, reply);
    }
    reply.end_map(begun, pairs);
}

fn text(reply: &mut Reply<'_>, text: &str) {
    reply.bulk(text.as_bytes());
}
