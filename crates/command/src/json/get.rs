//! JSON.GET key [INDENT indent] [NEWLINE newline] [SPACE space] [FORMAT format] [path ...], JSON.MGET key [key ...] path

use darter_document::print::{Style, print_styled};
use darter_document::{Doc, Path};
use darter_wire::{Args, Reply};

use super::change::first_of;
use super::document;
use super::fault::{NO_FORMAT, bad_path};
use super::read::reply_each;
use super::shape::{Format, print_found, print_name, reply_node};
use crate::reader::Reader;
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

struct Wanted<'a> {
    style: Style<'a>,
    format: Format,
    // the paths as given, and parsed
    paths: Vec<(&'a [u8], Path)>,
}

fn parse<'a>(args: Args<'a>, reply: &Reply<'_>) -> Result<Wanted<'a>, Fault> {
    let mut wanted = Wanted { style: Style::default(), format: Format::Text, paths: Vec::new() };
    let mut reader = Reader::new(args, 2);
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
            wanted.format = Format::named(reader.bytes()?, "string")?;
        } else if !reader.take("noescape") {
            let text = reader.bytes()?;
            wanted.paths.push((text, Path::parse(text).map_err(bad_path)?));
        }
    }
    if wanted.paths.is_empty() {
        wanted.paths.push((b".", Path::root()));
    }
    Ok(wanted)
}

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = parse(args, reply)?;
    let place = ctx.read(args.at(1));
    let Some(doc) = document(&place)? else {
        reply.null();
        return Ok(());
    };
    if wanted.format != Format::Text {
        reply.array(wanted.paths.len());
        for (_, path) in &wanted.paths {
            reply_each(doc, path, reply, |node, reply| reply_node(node, wanted.format, reply));
        }
        return Ok(());
    }
    let mut text = Vec::new();
    match wanted.paths.as_slice() {
        [(_, path)] => print_one(doc, path, wanted.style, &mut text)?,
        paths => print_many(doc, paths, wanted.style, &mut text)?,
    }
    reply.bulk_long(&text);
    Ok(())
}

fn print_one(doc: Doc<'_>, path: &Path, style: Style<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    if path.is_legacy() {
        print_styled(first_of(doc, path)?, style, 0, out);
    } else {
        print_found(doc, path, style, 0, out);
    }
    Ok(())
}

/// An object whose names are the paths; their values are single ones if all paths are legacy paths.
fn print_many(
    doc: Doc<'_>,
    paths: &[(&[u8], Path)],
    style: Style<'_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let is_legacy = paths.iter().all(|(_, path)| path.is_legacy());
    out.push(b'{');
    for (number, (name, path)) in paths.iter().enumerate() {
        if paths.iter().take(number).any(|(other, _)| other == name) {
            continue;
        }
        if number > 0 {
            out.push(b',');
        }
        print_name(name, style, 1, out);
        if is_legacy {
            print_styled(first_of(doc, path)?, style, 1, out);
        } else {
            print_found(doc, path, style, 1, out);
        }
    }
    style.line(out, 0);
    out.push(b'}');
    Ok(())
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let last = args.len() - 1;
    let path = Path::parse(args.at(last)).ok();
    reply.array(last - 1);
    for at in 1..last {
        let place = ctx.read(args.at(at));
        let mut text = Vec::new();
        let done = match (document(&place), &path) {
            (Ok(Some(doc)), Some(path)) => print_one(doc, path, Style::default(), &mut text).is_ok(),
            _ => false,
        };
        if done {
            reply.bulk_long(&text);
        } else {
            reply.null();
        }
    }
    Ok(())
}
