//! XADD key [NOMKSTREAM] [IDMPAUTO producer | IDMP producer name] [MAXLEN | MINID ...] * | id field value
//! [field value ...]

use crate::keyspec;
use darter_base::hash::KeyHasher;
use darter_pack::tree::{StreamId, TreeFull};
use darter_store::change::{JournalReaders, JournalWords, Vocabulary};
use darter_store::{Arena, Event, StreamValue};
use darter_wire::{Args, Reply};

use super::id::{self, NewId};
use super::once::{self, Once};
use super::trim::Trim;
use super::{event, reply_id};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// XADD.
pub const XADD: DataCommand = DataCommand {
    spec: Spec::write("xadd", -5, Keys::ONE).key_groups(&[keyspec::KeySpec {
            notes: "UPDATE instead of INSERT because of the optional trimming feature",
            ..keyspec::one(1, "RW update")
        }]).tips(&["nondeterministic_output"])
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
struct XaddOptions<'a> {
    id: NewId,
    once: Option<Once<'a>>,
    trim: Trim,
    must_exist: bool,
    fields_at: usize,
}

impl<'a> XaddOptions<'a> {
    fn parse(args: Args<'a>) -> Result<XaddOptions<'a>, Fault> {
        let mut read = ArgReader::new(args, 2);
        let mut options = XaddOptions {
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

impl XaddOptions<'_> {
    /// Whether the journal has to word it otherwise for `readers`. Files have the clock that `*` went by.
    fn is_reworded(&self, readers: JournalReaders) -> bool {
        let is_chosen = self.once.is_some() || !matches!(self.id, NewId::Given(_));
        is_chosen && readers == JournalReaders::Replicas || self.trim.is_reworded(readers)
    }
}

/// The id that `wanted` means in a stream whose last one is `last`.
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
    let options = XaddOptions::parse(args)?;
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
    let add = |stream: &mut StreamValue, arena: &mut Arena, _: KeyHasher| {
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
            Err(TreeFull) => Err(Fault::OutOfMemory),
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
            let added = place.edit_or_create(StreamValue::new, add)?.result;
            if is_new && added.is_err() {
                place.remove();
            }
            added?
        }
    };
    if let Some(trimmed) = trimmed {
        let readers = ctx.changed_for(args.at(1), ADDED);
        if trimmed > 0 {
            ctx.changed(args.at(1), event("xtrim"));
        }
        if readers != JournalReaders::None && options.is_reworded(readers) {
            journal(ctx, args, &options, id)?;
        }
    }
    reply_id(reply, id);
    Ok(())
}

/// Has the journal write an addition whose words do the same at any time: the id that was chosen, and the number of
/// entries that are left in place of an approximate one.
#[cold]
fn journal(ctx: &mut Ctx<'_>, args: Args<'_>, options: &XaddOptions<'_>, id: StreamId) -> Result<(), Fault> {
    let left = ctx.at(args.at(1)).view::<StreamValue>()?.map_or(0, |stream| stream.root.len());
    let mut words = JournalWords::from_iter([b"xadd".as_slice(), args.at(1)]);
    if options.must_exist {
        words.push(b"NOMKSTREAM");
    }
    let vocabulary = options.trim.write(left, &mut words);
    let vocabulary = match options.once {
        // Which id it was is remembered with the name, and only `*` goes with one.
        Some(once) => {
            once.write(&mut words);
            words.push(b"*");
            Vocabulary::New
        }
        None => {
            words.push(&id::text(id));
            vocabulary
        }
    };
    args.tail(options.fields_at).iter().for_each(|word| words.push(word));
    ctx.journal_as(args.at(1), vocabulary, words.iter());
    Ok(())
}

const ADDED: Event = event("xadd");
