//! MEMORY USAGE and the parts of DEBUG that inspect keys.

use darter_store::rdb;
use darter_wire::{Args, Reply};

use crate::keys::object::encoding_of;
use crate::reader::ArgReader;
use crate::spec::{Flags, Group, Keys, Marks, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    DataCommand {
        spec: Spec::read("memory|usage", -3, SECOND)
            .key_access("RO")
            .doc(Group::Server, "4.0.0", "key [SAMPLES count]", "Estimates the memory usage of a key.")
            .cost("O(1)"),
        run: usage,
    },
    DataCommand { spec: debug("debug|object", "key", "Shows low level info about a key."), run: object },
    DataCommand {
        spec: debug("debug|listpack", "key", "Tells whether a value has a compact encoding."),
        run: listpack,
    },
    DataCommand {
        spec: Spec {
            keys: Keys::None,
            arity: 2,
            ..debug("debug|watched", "", "Lists the keys that clients wait for.")
        }
        .reach(Reach::All),
        run: watched,
    },
    crate::digest::DIGEST,
    crate::digest::DIGEST_VALUE,
];

const SECOND: Keys = Keys::Range { first: 2, last: 2, step: 1 };

const fn debug(name: &'static str, syntax: &'static str, summary: &'static str) -> Spec {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
    Spec { keys: SECOND, ..Spec::other(name, 3).mark(Marks::DEBUG) }.flag(flags).doc(
        Group::Server,
        "1.0.0",
        syntax,
        summary,
    )
}

fn usage(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 3);
    while !reader.is_done() {
        if !reader.take_with("samples", 1) || reader.int()? < 0 {
            return Err(Fault::Syntax);
        }
    }
    // the true size is known, so no sampling is needed
    match ctx.at(args.at(2)).memory_bytes() {
        Some(bytes) => reply.int_len(bytes),
        None => reply.null(),
    }
    Ok(())
}

fn object(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let env = ctx.env;
    let seconds = ctx.now_ms / 1000;
    // The command shows an expired key too, and must not remove it.
    let now_ms = std::mem::take(&mut ctx.now_ms);
    let place = ctx.at(args.at(2));
    let encoding = encoding_of(&place, env).ok_or(Fault::NoSuchKey)?;
    let is_dead = place.deadline_ms().is_some_and(|ms| ms <= now_ms);
    let mut value = Vec::new();
    match (place.object(), place.text()) {
        (Some((object, arena)), _) => rdb::write_object(object, arena, &mut value),
        (None, Ok(Some(text))) => rdb::write_text(&mut value, &text.bytes()),
        (None, _) => {}
    }
    ctx.now_ms = now_ms;
    let idle_s = if is_dead { None } else { ctx.at(args.at(2)).idle_seconds() }.unwrap_or_default();
    reply.status(format!(
        "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{} lru:{} lru_seconds_idle:{idle_s}",
        value.len(),
        seconds.saturating_sub(idle_s) & 0xff_ffff
    ));
    Ok(())
}

fn listpack(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let env = ctx.env;
    match encoding_of(&ctx.at(args.at(2)), env) {
        None => Err(Fault::NoSuchKey),
        Some("listpack") => {
            reply.status("Listpack structure printed on stdout");
            Ok(())
        }
        Some(_) => Err(Fault::text("ERR Not a listpack encoded object.")),
    }
}

/// The command that fills a key serves its waiters, so no key is ever pending.
fn watched(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (db, mut names) = (ctx.db, Vec::new());
    ctx.each_part(|_, part| names.extend(part.waiters.waited_keys(db)));
    reply.array(4);
    reply.bulk(b"awaked");
    reply.array(0);
    reply.bulk(b"watched");
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::Bed;

    #[test]
    fn usage_grows_with_the_value_and_options_are_checked() {
        let mut bed = Bed::new();
        bed.run("set short x");
        bed.run(&format!("set long {}", "x1y2".repeat(1000)));
        let bytes = |reply: String| reply.trim_start_matches(':').parse::<usize>().unwrap_or(0);
        let short = bytes(bed.run("memory usage short"));
        let long = bytes(bed.run("memory usage long SAMPLES 0"));
        assert!((10..100).contains(&short), "{short}");
        assert!((3500..8200).contains(&long), "{long}");
        assert_eq!(bed.run("memory usage none"), "$-1");
        for wrong in ["samples", "samples -1", "bar 1"] {
            assert_eq!(bed.run(&format!("memory usage none {wrong}")), "-ERR syntax error");
        }
        assert_eq!(bed.run("memory usage none samples x"), "-ERR value is not an integer or out of range");
    }

    #[test]
    fn debug_object_shows_the_encoding() {
        let mut bed = Bed::new();
        bed.run("set k value");
        let shown = bed.run("debug object k");
        assert!(shown.contains(" encoding:embstr serializedlength:6 lru:"), "{shown}");
        assert_eq!(bed.run("debug object none"), "-ERR no such key");
        assert_eq!(bed.run("debug listpack k"), "-ERR Not a listpack encoded object.");
        bed.run("rpush l a b c");
        assert_eq!(bed.run("debug listpack l"), "+Listpack structure printed on stdout");
    }
}
