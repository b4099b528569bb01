//! XADD key [NOMKSTREAM] [IDMPAUTO producer | IDMP producer name] [MAXLEN | MINID ...] * | id field value
//! [field value ...]

use darter_base::hash::KeyHasher;
use darter_pack::tree::{Full, StreamId};
use darter_store::{Arena, Event, Stream};
use darter_wire::{Args, Reply};

use super::id::{self, NewId};
use super::once::{self, Once};
use super::trim::Trim;
use super::{event, reply_id};
use crate::reader::Reader;
use crate::spec::{Effect, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XADD.
pub const XADD: DataCommand = DataCommand {
    spec: Spec::write("xadd", -5, Keys::ONE)
        .effect(Effect::Trim)
        .fast()
        .doc(
            Group::Stream,
            "5.0.0",
            "key [NOMKSTREAM] [KEEPREF | DELREF | ACKED] [IDMPAUTO producer-id | IDMP producer-id idempotent-id] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id> field value [field value ...]",
            "Appends an entry to a stream, which is made when missing.",
        )
        .cost("O(1) to append, O(N) over the number of entries taken out"),
    run: xadd,
};

const EXHAUSTED: Fault =
    Fault::text("ERR The stream has exhausted the last possible ID, unable to add more items");
const TOO_SMALL: Fault =
    Fault::text("ERR The ID specified in XADD is equal or smaller than the target stream top item");
const NOT_AUTO: Fault =
    Fault::text("ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs");
const ZERO: Fault = Fault::text("ERR The ID specified in XADD must be greater than 0-0");

/// Arguments before the first field.
struct Options<'a> {
    id: NewId,
    once: Option<Once<'a>>,
    trim: Trim,
    must_exist: bool,
    fields_at: usize,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Options<'a>, Fault> {
        let mut read = Reader::new(args, 2);
        let mut options = Options {
            id: NewId::Auto,
            once: None,
            trim: Trim::default(),
            must_exist: false,
            fields_at: args.len(),
        };
        while let Some(arg) = read.peek() {
            if arg == b"*" {
                options.fields_at = read.position() + 1;
                break;
            } else if options.trim.take(&mut read)? || Once::take(&mut read, &mut options.once)? {
                continue;
            } else if read.take("nomkstream") {
                options.must_exist = true;
            } else {
                options.id = id::parse_new(arg)?;
                if options.once.is_some() {
                    return Err(NOT_AUTO);
                }
                options.fields_at = read.position() + 1;
                break;
            }
        }
        options.trim.check(false)?;
        Ok(options)
    }
}

/// The id that `wanted` comes to in a stream whose last one is `last`.
fn resolve(wanted: NewId, last: StreamId, now_ms: u64) -> Result<StreamId, Fault> {
    let id = match wanted {
        NewId::Auto if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
        NewId::Auto => id::next(last).ok_or(EXHAUSTED)?,
        NewId::AutoSeq(ms) if ms == last.ms => {
            StreamId { ms, seq: last.seq.checked_add(1).ok_or(TOO_SMALL)? }
        }
        NewId::AutoSeq(ms) => StreamId { ms, seq: 0 },
        NewId::Given(id) => id,
    };
    if id > last { Ok(id) } else { Err(TOO_SMALL) }
}

fn xadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = Options::parse(args)?;
    let fields = args.tail(options.fields_at);
    if fields.len() < 2 || !fields.len().is_multiple_of(2) {
        return Err(Fault::Arity("xadd".into()));
    }
    if options.id == NewId::Given(StreamId::MIN) {
        return Err(ZERO);
    }
    let (env, now_ms) = (ctx.env, ctx.now_ms);
    let pairs = (0..fields.len() / 2).map(|at| (fields.at(2 * at), fields.at(2 * at + 1)));
    let once = options.once.map(|once| (once.producer, once.name(pairs.clone())));
    let add = |stream: &mut Stream, arena: &mut Arena, _: KeyHasher| {
        if let Some((producer, name)) = &once {
            let producers = stream.producers_mut(|| once::none_yet(env));
            if let Some(id) = producers.find(producer, name, now_ms) {
                producers.duplicates += 1;
                return Ok((id, None));
            }
        }
        if stream.last_id() == StreamId::MAX {
            return Err(EXHAUSTED);
        }
        let id = resolve(options.id, stream.last_id(), now_ms)?;
        match stream.append(arena, id, pairs.clone()) {
            Ok(true) => {
                if let Some((producer, name)) = &once {
                    let producers = stream.producers_mut(|| once::none_yet(env));
                    producers.add(producer, name, id, now_ms);
                    producers.added += 1;
                }
                Ok((id, Some(options.trim.apply(stream, arena, env))))
            }
            Ok(false) => Err(TOO_SMALL),
            Err(Full) => Err(Fault::OutOfMemory),
        }
    };
    let (id, trimmed) = match ctx.add_plainly(args.at(1), add) {
        Some(added) => added?,
        None => {
            let mut place = ctx.at(args.at(1));
            let is_new = !place.exists();
            if is_new && options.must_exist {
                reply.null();
                return Ok(());
            }
            let added = place.edit_or_create(Stream::new, add)?.result;
            if is_new && added.is_err() {
                place.remove();
            }
            added?
        }
    };
    if let Some(trimmed) = trimmed {
        ctx.changed(args.at(1), ADDED);
        if trimmed > 0 {
            ctx.changed(args.at(1), event("xtrim"));
        }
    }
    reply_id(reply, id);
    Ok(())
}

const ADDED: Event = event("xadd");
