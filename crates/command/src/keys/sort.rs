//! SORT and SORT_RO: the sorted elements of a list, set or sorted set, or the values that they point to.

use crate::category::Categories;
use crate::keyspec;
use std::cmp::Ordering;

use darter_base::number;
use darter_pack::entry::Item;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List};
use darter_store::change::Class;
use darter_store::reads::Stretch;
use darter_store::{Event, Expiry, Keyed, Object, Type};
use darter_wire::{Args, Reply};

use crate::incremental::pointer::Pointer;
use crate::incremental::sort_lookup::SortKeyRequest;
use crate::incremental::{ScoreOf, Sorting, StagedForm};
use crate::reader::ArgReader;
use crate::slices;
use crate::spec::{Effect, Flags, Group, Keys, Marks, Reach, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Fault, zset};

/// SORT.
pub const SORT: DataCommand = DataCommand {
    spec: Spec::write("sort", -2, Keys::Find(sort_keys))
        .replica_form(ReplicaForm::Values)
        .key_groups(&[keyspec::one(1, keyspec::READ), keyspec::SORT_BY, keyspec::SORT_STORE])
        .category(Categories::LIST.with(Categories::SET).with(Categories::SORTEDSET))
        .mark(Marks::NO_GROUP_CATEGORY)
        .category(Categories::DANGEROUS)
        .effect(Effect::LastValue)
        .mark(Marks::READS_BY_PATTERN)
        .flag(Flags::MOVABLEKEYS)
        .reach(Reach::AllIf(reads_other_keys))
        .doc(
            Group::Generic,
            "1.0.0",
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] \
             [STORE destination]",
            "Sorts the elements of a list, set or sorted set, and may store them.",
        )
        .cost("O(N+M*log(M)) over the elements sorted and returned"),
    run: sort,
};

/// SORT_RO.
pub const SORT_RO: DataCommand = DataCommand {
    spec: Spec::read("sort_ro", -2, Keys::ONE)
        .key_groups(&[keyspec::one(1, keyspec::READ), keyspec::SORT_BY])
        .category(Categories::LIST.with(Categories::SET).with(Categories::SORTEDSET))
        .mark(Marks::NO_GROUP_CATEGORY)
        .category(Categories::DANGEROUS)
        .mark(Marks::READS_BY_PATTERN)
        .flag(Flags::MOVABLEKEYS)
        .reach(Reach::AllIf(reads_other_keys_ro))
        .doc(
            Group::Generic,
            "7.0.0",
            "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
            "Sorts the elements of a list, set or sorted set.",
        )
        .cost("O(N+M*log(M)) over the elements sorted and returned"),
    run: sort_ro,
};

const SORTSTORE_EVENT: Event = Event::new(Class::LIST, "sortstore");

#[derive(Default)]
struct SortOptions<'a> {
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    offset: i64,
    // negative: all
    count: i64,
    is_descending: bool,
    is_alpha: bool,
    // index of the destination among the arguments
    store: Option<usize>,
}

impl<'a> SortOptions<'a> {
    fn parse(args: Args<'a>, may_store: bool) -> Result<SortOptions<'a>, Fault> {
        let mut options = SortOptions { count: -1, ..SortOptions::default() };
        let mut reader = ArgReader::new(args, 2);
        while !reader.is_done() {
            if reader.take("ASC") {
                options.is_descending = false;
            } else if reader.take("DESC") {
                options.is_descending = true;
            } else if reader.take("ALPHA") {
                options.is_alpha = true;
            } else if reader.take_with("LIMIT", 2) {
                options.offset = reader.int()?;
                options.count = reader.int()?;
            } else if may_store && reader.take_with("STORE", 1) {
                options.store = Some(reader.position());
                reader.bytes()?;
            } else if reader.take_with("BY", 1) {
                options.by = Some(reader.bytes()?);
            } else if reader.take_with("GET", 1) {
                options.gets.push(reader.bytes()?);
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    /// The patterns of GET.
    fn pointers(&self) -> Vec<Pointer> {
        self.gets.iter().map(|get| Pointer::new(get)).collect()
    }

    fn reads_other_keys(&self) -> bool {
        self.by.is_some_and(|by| by.contains(&b'*')) || self.gets.iter().any(|get| get.contains(&b'*'))
    }

    /// The first element of the answer and the one after its last.
    fn range(&self, len: usize) -> (usize, usize) {
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        match usize::try_from(self.count) {
            Ok(count) => (start, start.saturating_add(count).min(len)),
            Err(_) => (start, len),
        }
    }
}

fn reads_other_keys(args: Args<'_>) -> bool {
    SortOptions::parse(args, true).is_ok_and(|options| options.reads_other_keys())
}

fn reads_other_keys_ro(args: Args<'_>) -> bool {
    SortOptions::parse(args, false).is_ok_and(|options| options.reads_other_keys())
}

fn sort_keys(args: Args<'_>, visit: &mut dyn FnMut(usize)) {
    if args.len() > 1 {
        visit(1);
    }
    if let Ok(SortOptions { store: Some(at), .. }) = SortOptions::parse(args, true) {
        visit(at);
    }
}

fn sort(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = SortOptions::parse(args, true)?;
    sort_with(ctx, args, &options, reply)
}

fn sort_ro(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let options = SortOptions::parse(args, false)?;
    sort_with(ctx, args, &options, reply)
}

fn sort_with(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    options: &SortOptions<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if let Some(mut staged) = ctx.staged.take() {
        let answer = std::mem::take(&mut staged.found.bytes);
        match options.store {
            Some(at) => reply.int(staged.put(ctx, args.at(at), SORTSTORE_EVENT)? as i64),
            None => {
                staged.take(ctx)?;
                reply.take_over(answer);
            }
        }
        return Ok(());
    }
    if ctx.may_slice && leave(ctx, args, options, reply) {
        return Ok(());
    }
    let (kind, mut elements) = elements_of(&zset::read(ctx, args.at(1)))?;
    order(ctx, kind, &mut elements, options)?;
    let (start, end) = options.range(elements.len());
    let chosen = elements.get(start..end).unwrap_or_default();
    let gets = options.pointers();
    match options.store {
        Some(at) => store(ctx, args.at(at), chosen, &gets, reply),
        None => {
            reply.array(chosen.len().saturating_mul(gets.len().max(1)));
            for element in chosen {
                each_answer(ctx, element, &gets, |answer| reply.bulk_or_null(answer));
            }
            Ok(())
        }
    }
}

/// Leaves a long answer to slices; false if it must be written now.
fn leave(ctx: &mut Ctx<'_>, args: Args<'_>, options: &SortOptions<'_>, reply: &Reply<'_>) -> bool {
    let name = args.at(1);
    let place = zset::at(ctx, name);
    let now_ms = place.now_ms();
    let (len, stretch, due_ms) = match place.object() {
        Some((Object::List(list), _)) => (list.len(), Stretch::Ranks(0, list.len(), Direction::Up), None),
        Some((Object::Zset(zset), _)) => {
            (zset.len(), Stretch::Ranks(0, zset.len(), Direction::Up), zset.next_expiry())
        }
        Some((Object::Set(set), _)) => (set.len(), Stretch::All, set.next_expiry_ms()),
        _ => return false,
    };
    if !slices::is_long(len, due_ms, now_ms) || (options.store.is_some() && due_ms.is_some()) {
        return false;
    }
    let is_set = place.kind() == Some(Type::Set);
    let score_of: ScoreOf = |text| Ok(parse_score(text)? + 0.0);
    if options.by.is_some() || !options.gets.is_empty() {
        if due_ms.is_some() {
            // The members that are left in the end are not known before.
            return false;
        }
        let (by, is_alpha) = match options.by {
            None => (Some(Pointer::Itself), options.is_alpha),
            Some(by) if by.contains(&b'*') => (Some(Pointer::new(by)), options.is_alpha),
            // As in `order`.
            Some(_) if is_set && options.store.is_some() => (Some(Pointer::Itself), true),
            Some(_) => (None, false),
        };
        let asked = SortKeyRequest {
            by,
            gets: options.pointers(),
            score_of: (!is_alpha).then_some(score_of),
            is_descending: options.is_descending,
            is_stored: options.store.is_some(),
            range: (options.offset, options.count),
        };
        let dest = options.store.map(|at| args.at(at));
        return ctx.sort_by_lookup((name, stretch), asked, dest, reply.is_resp3());
    }
    let sorting = Sorting::new(
        (!options.is_alpha).then_some(score_of),
        options.is_descending,
        (options.offset, options.count),
    );
    let operation = Box::new(sorting);
    match options.store {
        Some(at) => ctx.store_later((args.at(at), StagedForm::List), &[name], &[(name, stretch)], operation),
        None => ctx.answer_later(&[(name, stretch)], operation, reply.is_resp3()),
    }
}

/// The elements in the value's own order; a missing key is an empty list.
fn elements_of(place: &Keyed<'_>) -> Result<(Type, Vec<Vec<u8>>), Fault> {
    if !place.exists() {
        return Ok((Type::List, Vec::new()));
    }
    match place.object() {
        Some((Object::List(list), arena)) => {
            Ok((Type::List, list.iter(arena, 0, ListEnd::Back).map(Item::to_vec).collect()))
        }
        Some((Object::Set(set), arena)) => {
            Ok((Type::Set, set.iter(arena, place.now_ms()).map(Item::to_vec).collect()))
        }
        Some((Object::Zset(zset), arena)) => {
            let members = zset.iter(arena, 0, Direction::Up);
            Ok((Type::Zset, members.map(|(member, _)| member.to_vec()).collect()))
        }
        _ => Err(Fault::WrongType),
    }
}

/// The sort key of an element.
enum SortWeight {
    Score(f64),
    Text(Option<Vec<u8>>),
}

impl SortWeight {
    fn compare(&self, other: &SortWeight) -> Ordering {
        match (self, other) {
            (SortWeight::Score(a), SortWeight::Score(b)) => a.total_cmp(b),
            (SortWeight::Text(a), SortWeight::Text(b)) => a.cmp(b),
            (SortWeight::Score(_), SortWeight::Text(_)) | (SortWeight::Text(_), SortWeight::Score(_)) => {
                Ordering::Equal
            }
        }
    }
}

fn order(
    ctx: &mut Ctx<'_>,
    kind: Type,
    elements: &mut Vec<Vec<u8>>,
    options: &SortOptions<'_>,
) -> Result<(), Fault> {
    let (mut by, mut is_alpha) = (options.by, options.is_alpha);
    if by.is_some_and(|pattern| !pattern.contains(&b'*')) {
        // BY a constant keeps the order. But a set stored by SORT, or returned to a script, must be in a
        // deterministic order.
        if kind != Type::Set || (options.store.is_none() && ctx.may_slice) {
            if options.is_descending && kind != Type::Set {
                elements.reverse();
            }
            return Ok(());
        }
        (by, is_alpha) = (None, true);
    }
    let by = by.map_or(Pointer::Itself, Pointer::new);
    let mut weighed = Vec::with_capacity(elements.len());
    for element in elements.drain(..) {
        let weight = weigh(ctx, &element, &by, is_alpha)?;
        weighed.push((weight, element));
    }
    let is_tied_by_text = !is_alpha;
    weighed.sort_by(|(a, left), (b, right)| {
        let by_weight = a.compare(b);
        let order = if is_tied_by_text { by_weight.then_with(|| left.cmp(right)) } else { by_weight };
        if options.is_descending { order.reverse() } else { order }
    });
    elements.extend(weighed.into_iter().map(|(_, element)| element));
    Ok(())
}

fn weigh(ctx: &mut Ctx<'_>, element: &[u8], by: &Pointer, is_alpha: bool) -> Result<SortWeight, Fault> {
    let found = look_up(ctx, by, element);
    if is_alpha {
        return Ok(SortWeight::Text(found));
    }
    match found {
        // 0.0 and -0.0 are equal
        Some(text) => Ok(SortWeight::Score(parse_score(&text)? + 0.0)),
        None => Ok(SortWeight::Score(0.0)),
    }
}

/// Like C's `strtod`: leading blanks are allowed, and an empty text is 0.
fn parse_score(text: &[u8]) -> Result<f64, Fault> {
    let trimmed = text.trim_ascii_start();
    if text.is_empty() {
        return Ok(0.0);
    }
    number::parse_f64(trimmed).ok_or(Fault::text("ERR One or more scores can't be converted into double"))
}

/// Passes the answers for an element to `emit`: itself, or the value found by each `GET` pattern.
fn each_answer(ctx: &mut Ctx<'_>, element: &[u8], gets: &[Pointer], mut emit: impl FnMut(Option<&[u8]>)) {
    if gets.is_empty() {
        emit(Some(element));
    }
    for pointer in gets {
        emit(look_up(ctx, pointer, element).as_deref());
    }
}

/// The value of a pattern for an element.
fn look_up(ctx: &mut Ctx<'_>, pointer: &Pointer, element: &[u8]) -> Option<Vec<u8>> {
    if *pointer == Pointer::Itself {
        return Some(element.to_vec());
    }
    let name = pointer.key(element)?;
    pointer.look(&ctx.read(&name)).value
}

fn store(
    ctx: &mut Ctx<'_>,
    destination: &[u8],
    chosen: &[Vec<u8>],
    gets: &[Pointer],
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut answers = Vec::new();
    for element in chosen {
        each_answer(ctx, element, gets, |answer| answers.push(answer.unwrap_or_default().to_vec()));
    }
    let mut place = ctx.at(destination);
    if answers.is_empty() {
        if place.remove() {
            place.changed(Event::DEL);
        }
    } else {
        let mut list = List::new();
        let arena = place.arena_mut();
        for answer in &answers {
            if list.push(arena, ListEnd::Back, Item::of(answer)).is_err() {
                list.clear(arena);
                return Err(Fault::OutOfMemory);
            }
        }
        place.put_object(Object::List(list), Expiry::None)?;
        place.changed(SORTSTORE_EVENT);
    }
    reply.int_len(answers.len());
    Ok(())
}
