//! JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [FORMAT format] [path ...], JSON.MGET key [key ...] path

use darter_document::path::{PathQuery, PlainPath};
use darter_document::print::{PrintStyle, print};
use darter_document::{Doc, JsonPath, alone};
use darter_store::{Collection, Json};
use darter_wire::{Args, Reply};

use super::change::first_spot;
use super::document;
use super::fault::{NO_FORMAT, bad_path};
use super::long_get::{self, JsonText, WantedText};
use super::read::{LONG_BYTES_MIN, is_long, reply_query};
use super::shape::{JsonFormat, print_computed, print_name, reply_node};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.GET.
pub const GET: DataCommand = DataCommand {
    spec: Spec::read("json.get", -2, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key [INDENT indent] [NEWLINE newline] [SPACE space] [FORMAT <STRING | EXPAND1 | EXPAND>] [path [path ...]]",
            "Returns values of a document as JSON text.",
        )
        .cost("O(N) over the part of the document that the path visits"),
    run: get,
};
/// JSON.MGET.
pub const MGET: DataCommand = DataCommand {
    spec: Spec::read("json.mget", -3, Keys::Range { first: 1, last: -2, step: 1 })
        .doc(
            Group::Json,
            "1.0.0",
            "key [key ...] path",
            "Returns the values of one path in several documents.",
        )
        .cost("O(N) over the part of the document that the path visits"),
    run: mget,
};

struct JsonGetWanted<'a> {
    style: PrintStyle<'a>,
    format: JsonFormat,
    // the paths as given, and parsed
    paths: Vec<(&'a [u8], PathQuery)>,
}

fn parse<'a>(args: Args<'a>, reply: &Reply<'_>) -> Result<JsonGetWanted<'a>, Fault> {
    let mut wanted =
        JsonGetWanted { style: PrintStyle::default(), format: JsonFormat::Text, paths: Vec::new() };
    let mut reader = ArgReader::new(args, 2);
    while !reader.is_done() {
        if reader.take("indent") {
            wanted.style.indent = reader.bytes()?;
        } else if reader.take("newline") {
            wanted.style.newline = reader.bytes()?;
        } else if reader.take("space") {
            wanted.style.space = reader.bytes()?;
        } else if reader.take("format") {
            if !reply.is_resp3() {
                return Err(NO_FORMAT);
            }
            wanted.format = JsonFormat::named(reader.bytes()?, "string")?;
        } else if !reader.take("noescape") {
            let text = reader.bytes()?;
            wanted.paths.push((text, PathQuery::parse(text).map_err(bad_path)?));
        }
    }
    if wanted.paths.is_empty() {
        wanted.paths.push((b".", PathQuery::Path(JsonPath::root())));
    }
    Ok(wanted)
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let plain = if args.len() == 3 { PlainPath::of(args.at(2)) } else { None };
    let wanted = if plain.is_some() { None } else { Some(parse(args, reply)?) };
    let may_slice = ctx.may_slice;
    let place = ctx.read(args.at(1));
    let Some(doc) = document(&place)? else {
        reply.null();
        return Ok(());
    };
    if let Some(path) = plain
        && !doc.is_pieced()
    {
        return reply_plain(doc, path, reply);
    }
    let wanted = match wanted {
        Some(wanted) => wanted,
        None => parse(args, reply)?,
    };
    if wanted.format != JsonFormat::Text {
        reply.array(wanted.paths.len());
        for (_, query) in &wanted.paths {
            reply_query(doc, query, reply, |node, reply| reply_node(node, wanted.format, reply));
        }
        return Ok(());
    }
    let memory_bytes = || place.object().map_or(0, |(object, _)| object.memory_bytes());
    let is_long = may_slice
        && doc.is_pieced()
        && is_long(doc, memory_bytes(), wanted.paths.iter().map(|(_, query)| query));
    let mut text = if is_long { JsonText::Later(Vec::new()) } else { JsonText::now(doc, &wanted.paths) };
    match wanted.paths.as_slice() {
        [(_, query)] => print_one(doc, query, wanted.style, &mut text)?,
        paths => print_many(doc, paths, wanted.style, &mut text)?,
    }
    match text {
        JsonText::Now(text) => reply.bulk_long(&text),
        JsonText::Later(parts) => {
            if !long_get::leave(ctx, args.at(1), parts, wanted.style, reply) {
                return Err(Fault::OutOfMemory);
            }
        }
    }
    Ok(())
}

/// Answers the text of an array with the node that `path` leads to.
fn reply_plain(doc: Doc<'_>, path: PlainPath<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut text = Vec::with_capacity(64);
    text.push(b'[');
    path.find(doc).into_iter().for_each(|spot| print(doc.node(spot), &mut text));
    text.push(b']');
    reply.bulk_long(&text);
    Ok(())
}

/// Writes what a query finds in a document.
///
/// Errors: a legacy path leads nowhere.
pub(super) fn print_one(
    doc: Doc<'_>,
    query: &PathQuery,
    style: PrintStyle<'_>,
    out: &mut JsonText,
) -> Result<(), Fault> {
    match query {
        PathQuery::Path(path) if path.is_legacy() => out.value(doc, first_spot(doc, path)?, style, 0),
        PathQuery::Path(path) => out.found(doc, path, style, 0),
        PathQuery::Computed(computed) => print_computed(doc, computed, style, 0, out),
    }
    Ok(())
}

/// An object whose names are the paths; their values are single ones if all paths are legacy paths.
fn print_many(
    doc: Doc<'_>,
    paths: &[(&[u8], PathQuery)],
    style: PrintStyle<'_>,
    out: &mut JsonText,
) -> Result<(), Fault> {
    let is_legacy = paths.iter().all(|(_, query)| match query {
        PathQuery::Path(path) => path.is_legacy(),
        PathQuery::Computed(_) => true,
    });
    out.between().push(b'{');
    for (number, (name, query)) in paths.iter().enumerate() {
        if paths.iter().take(number).any(|(other, _)| other == name) {
            continue;
        }
        if number > 0 {
            out.between().push(b',');
        }
        print_name(name, style, 1, out.between());
        match query {
            PathQuery::Path(path) if is_legacy => out.value(doc, first_spot(doc, path)?, style, 1),
            PathQuery::Path(path) => out.found(doc, path, style, 1),
            PathQuery::Computed(computed) => print_computed(doc, computed, style, 1, out),
        }
    }
    style.line(out.between(), 0);
    out.between().push(b'}');
    Ok(())
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let last = args.len() - 1;
    let query = PathQuery::parse(args.at(last)).ok();
    if ctx.may_slice
        && let Some(query) = &query
        && bytes_of(ctx, args) >= LONG_BYTES_MIN
        && mget_later(ctx, args, query, reply)
    {
        return Ok(());
    }
    reply.array(last - 1);
    for at in 1..last {
        let place = ctx.read(args.at(at));
        let mut text = JsonText::Now(Vec::new());
        let done = match (document(&place), &query) {
            (Ok(Some(doc)), Some(query)) => print_one(doc, query, PrintStyle::default(), &mut text).is_ok(),
            _ => false,
        };
        match text {
            JsonText::Now(text) if done => reply.bulk_long(&text),
            _ => reply.null(),
        }
    }
    Ok(())
}

/// Bytes of the documents of JSON.MGET, about.
fn bytes_of(ctx: &Ctx<'_>, args: Args<'_>) -> usize {
    let mut bytes = 0;
    for name in args.iter().take(args.len() - 1).skip(1) {
        let Some((shard, record)) = ctx.peek(name) else { continue };
        bytes += match shard.view_of::<Json>(record) {
            Ok(view) => view.root.memory_bytes(),
            // A small document has no root.
            Err(_) => record.bytes_len(),
        };
    }
    bytes
}

/// Leaves the answer of JSON.MGET to slices: small documents are copied, large ones read. False if that is impossible.
fn mget_later(ctx: &mut Ctx<'_>, args: Args<'_>, query: &PathQuery, reply: &Reply<'_>) -> bool {
    let mut wanted = Vec::with_capacity(args.len() - 2);
    for at in 1..args.len() - 1 {
        let place = ctx.read(args.at(at));
        let text = match document(&place) {
            Ok(Some(doc)) if !doc.is_pieced() => WantedText::Copied(alone(doc).into_owned()),
            Ok(Some(doc)) => {
                let mut text = JsonText::Later(Vec::new());
                match (print_one(doc, query, PrintStyle::default(), &mut text), text) {
                    (Ok(()), JsonText::Later(parts)) => WantedText::Parts(parts),
                    _ => WantedText::Missing,
                }
            }
            _ => WantedText::Missing,
        };
        wanted.push((args.at(at), text));
    }
    long_get::leave_texts(ctx, wanted, PrintStyle::default(), Some(query.clone()), reply)
}
