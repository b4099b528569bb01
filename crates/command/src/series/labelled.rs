//! TS.MGET [LATEST] [WITHLABELS | SELECTED_LABELS label...] FILTER condition..., TS.MRANGE, TS.MREVRANGE,
//! TS.QUERYINDEX condition..., TS.QUERYLABELS <LABELS | VALUES label> [FILTER condition...]

use std::collections::BTreeSet;

use darter_series::query::{SampleOrder, SeriesQuery};
use darter_series::series::Label;
use darter_series::{Aggregator, Series};
use darter_store::Arena;
use darter_store::labels::Matcher;
use darter_wire::{Args, Reply};

use super::feed;
use super::filter::matchers;
use super::gathering::{self, Empties, GatheredForm, LatestSamples};
use super::groups::Groups;
use super::query::query_with;
use super::ranging::BLOCKS_AT_ONCE;
use super::searching::{SERIES_MAX, SearchedAll, SearchedSeries, WriteHead, label_words};
use super::{TOO_MANY, asks_for_latest, doc, write_number, write_rows, write_sample};
use crate::incremental::FoundValue;
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, Marks, Reach, Spec};
use crate::{ArgReader, Ctx, DataCommand, Fault};

pub(super) const NO_RIGHT: Fault = Fault::text(
    "NOPERM TSDB: current user doesn't have read permission to one or more keys that match the specified filter",
);

const fn spec(name: &'static str, arity: i16) -> Spec {
    Spec::read(name, arity, Keys::None).reach(Reach::All).mark(Marks::READS_BY_LABEL)
}

const MRANGE_SYNTAX: &str = "fromTimestamp toTimestamp [LATEST] [FILTER_BY_TS timestamp [timestamp ...]] [FILTER_BY_VALUE \
                             min max] [WITHLABELS | <SELECTED_LABELS label1 [label1 ...]>] [COUNT count] [[ALIGN value] \
                             AGGREGATION aggregators bucketDuration [BUCKETTIMESTAMP bt] [EMPTY]] FILTER filterExpr \
                             [filterExpr ...] [GROUPBY label REDUCE reducer] [EXCLUDEEMPTY]";
const MRANGE_COST: &str = "O(n/m+k) where n = Number of data points, m = Chunk size (data points per chunk), k = Number of \
                           data points that are in the requested ranges";

/// TS.MGET.
pub const MGET: DataCommand = DataCommand {
    spec: doc(
        spec("ts.mget", -3),
        "1.0.0",
        "[LATEST] [WITHLABELS | <SELECTED_LABELS label1 [label1 ...]>] FILTER filterExpr [filterExpr ...]",
        "Returns the last sample of the series that a filter takes.",
    )
    .cost("O(n) where n is the number of time-series that match the filters"),
    run: mget,
};
/// TS.MRANGE.
pub const MRANGE: DataCommand = DataCommand {
    spec: doc(
        spec("ts.mrange", -5),
        "1.0.0",
        MRANGE_SYNTAX,
        "Returns samples or aggregates of the series that a filter takes, oldest first.",
    )
    .cost(MRANGE_COST),
    run: |ctx, args, reply| mrange(ctx, args, SampleOrder::Up, reply),
};
/// TS.MREVRANGE.
pub const MREVRANGE: DataCommand = DataCommand {
    spec: doc(
        spec("ts.mrevrange", -5),
        "1.4.0",
        MRANGE_SYNTAX,
        "Returns samples or aggregates of the series that a filter takes, newest first.",
    )
    .cost(MRANGE_COST),
    run: |ctx, args, reply| mrange(ctx, args, SampleOrder::Down, reply),
};
/// TS.QUERYINDEX.
pub const QUERYINDEX: DataCommand = DataCommand {
    spec: doc(
        spec("ts.queryindex", -2),
        "1.0.0",
        "filterExpr [filterExpr ...]",
        "Returns the keys of the series that a filter takes.",
    )
    .cost("O(n) where n is the number of time-series that match the filters"),
    run: query_index,
};
/// TS.QUERYLABELS.
pub const QUERYLABELS: DataCommand = DataCommand {
    spec: doc(
        spec("ts.querylabels", -2),
        "8.10.0",
        "<LABELS | VALUES label> [FILTER filterExpr [filterExpr ...]]",
        "Returns the labels, or the values of a label, of the series that a filter takes.",
    )
    .cost("O(n) where n is the number of time-series that match the filters"),
    run: query_labels,
};

/// The labels in the reply for a series.
enum ShownLabels<'a> {
    None,
    All,
    Selected(Vec<&'a [u8]>),
}

/// The same, to be kept beyond the command's words.
struct OwnedShown {
    is_all: bool,
    selected: Option<Vec<Box<[u8]>>>,
}

impl ShownLabels<'_> {
    fn owned(&self) -> OwnedShown {
        let selected = match self {
            ShownLabels::Selected(labels) => Some(labels.iter().map(|label| Box::from(*label)).collect()),
            ShownLabels::None | ShownLabels::All => None,
        };
        OwnedShown { is_all: matches!(self, ShownLabels::All), selected }
    }
}

impl OwnedShown {
    fn borrowed(&self) -> ShownLabels<'_> {
        match &self.selected {
            Some(labels) => ShownLabels::Selected(labels.iter().map(|label| &**label).collect()),
            None if self.is_all => ShownLabels::All,
            None => ShownLabels::None,
        }
    }
}

/// Labels that one call can select.
const SELECTED_MAX: usize = 50;
/// Words that end SELECTED_LABELS.
const WORDS: &[&str] = &[
    "WITHLABELS",
    "AGGREGATION",
    "LIMIT",
    "GROUPBY",
    "REDUCE",
    "FILTER",
    "FILTER_BY_TS",
    "FILTER_BY_VALUE",
    "COUNT",
    "ALIGN",
    "LATEST",
    "EMPTY",
    "BUCKETTIMESTAMP",
    "SELECTED_LABELS",
];

/// The options of TS.MGET and TS.MRANGE, and those of the latter only.
struct LabelledRequest<'a> {
    shown: ShownLabels<'a>,
    filter: Option<Vec<Matcher>>,
    group: Option<(&'a [u8], Aggregator)>,
    excludes_empty: bool,
}

impl<'a> LabelledRequest<'a> {
    fn new() -> LabelledRequest<'a> {
        LabelledRequest { shown: ShownLabels::None, filter: None, group: None, excludes_empty: false }
    }

    /// Applies the option `word`, which the reader has just passed. Returns false if it is not one of these options.
    fn take(&mut self, word: &[u8], reader: &mut ArgReader<'a>) -> Result<bool, Fault> {
        if is(word, "WITHLABELS") || is(word, "SELECTED_LABELS") {
            if !matches!(self.shown, ShownLabels::None) {
                let text = "ERR TSDB: cannot accept WITHLABELS and SELECT_LABELS together";
                return Err(Fault::text(text));
            }
            self.shown = if is(word, "WITHLABELS") { ShownLabels::All } else { selected(reader)? };
        } else if is(word, "FILTER") {
            let mut words = Vec::new();
            while let Some(word) =
                reader.peek().filter(|word| !is(word, "GROUPBY") && !is(word, "EXCLUDEEMPTY"))
            {
                words.push(word);
                reader.skip(1);
            }
            if words.is_empty() {
                return Err(Fault::text("ERR TSDB: missing labels for filter argument"));
            }
            self.filter = Some(matchers(words.into_iter())?);
        } else if is(word, "GROUPBY") {
            if self.filter.is_none() {
                return Err(Fault::text("ERR TSDB: GROUPBY should always come after filter"));
            }
            self.group = Some(group(reader)?);
        } else if is(word, "EXCLUDEEMPTY") {
            self.excludes_empty = true;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn selected<'a>(reader: &mut ArgReader<'a>) -> Result<ShownLabels<'a>, Fault> {
    let mut labels = Vec::new();
    while let Some(word) = reader.peek().filter(|word| !WORDS.iter().any(|known| is(word, known))) {
        if labels.len() >= SELECTED_MAX {
            return Err(Fault::text("ERR TSDB: reached max size for SELECT_LABELS"));
        }
        labels.push(word);
        reader.skip(1);
    }
    if labels.is_empty() {
        return Err(Fault::text("ERR TSDB: SELECT_LABELS should have at least 1 parameter"));
    }
    Ok(ShownLabels::Selected(labels))
}

fn group<'a>(reader: &mut ArgReader<'a>) -> Result<(&'a [u8], Aggregator), Fault> {
    let wrong = |_| arity("ts.mrange");
    let label = reader.bytes().map_err(wrong)?;
    if !reader.take("REDUCE") {
        return Err(arity("ts.mrange"));
    }
    let kind = Aggregator::of_name(reader.bytes().map_err(wrong)?);
    match kind {
        Some(kind) if !matches!(kind, Aggregator::First | Aggregator::Last | Aggregator::Twa) => {
            Ok((label, kind))
        }
        _ => Err(Fault::text("ERR TSDB: Invalid reducer type")),
    }
}

/// The open buckets that count as samples, if the command asks for them, of the series that others feed.
fn latest_of(ctx: &Ctx<'_>, found: &FoundValue, args: Args<'_>) -> LatestSamples {
    let mut latest = LatestSamples::new();
    let is_asked = asks_for_latest(args);
    for &[nth, at] in found.numbers.as_chunks::<2>().0.iter().filter(|_| is_asked) {
        let series = SearchedAll(found.bytes.get(at as usize..).unwrap_or_default()).next();
        let sample = series.and_then(|series| feed::latest(ctx, series.name));
        latest.extend(sample.map(|sample| (nth as u32, sample)));
    }
    latest
}

/// Returns true if reading these series takes long enough for slices.
fn is_long(ctx: &Ctx<'_>, found: &FoundValue, query: &SeriesQuery) -> bool {
    let mut blocks = found.series.iter().map(darter_store::reads::SeriesToRead::len).sum::<usize>();
    if blocks <= SERIES_MAX {
        for series in SearchedAll(&found.bytes) {
            blocks +=
                visit(ctx, series.name, |series, _| series.blocks_within(query.from, query.to)).unwrap_or(0);
        }
    }
    blocks > BLOCKS_AT_ONCE
}

/// Passes the series at `name` to `visit`.
fn visit<R>(ctx: &Ctx<'_>, name: &[u8], visit: impl FnOnce(&Series, &Arena) -> R) -> Option<R> {
    let (shard, record) = ctx.peek(name)?;
    let view = shard.view_of::<Series>(record).ok()?;
    Some(visit(view.root, view.arena))
}

/// Errors: the client may not read one of the series.
fn check_names(ctx: &Ctx<'_>, found: &FoundValue) -> Result<(), Fault> {
    if SearchedAll(&found.bytes).all(|series| ctx.may_read(series.name)) { Ok(()) } else { Err(NO_RIGHT) }
}

fn mget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut asked = LabelledRequest::new();
    let mut reader = ArgReader::new(args, 1);
    while let Some(word) = reader.peek() {
        reader.skip(1);
        let is_other = is(word, "GROUPBY") || is(word, "EXCLUDEEMPTY");
        if !is(word, "LATEST") && (is_other || !asked.take(word, &mut reader)?) {
            return Err(Fault::Syntax);
        }
    }
    let filter = asked.filter.take().ok_or(arity("ts.mget"))?;
    let (shown, resp3) = (asked.shown.owned(), reply.is_resp3());
    let head: WriteHead = Box::new(move |series, out| {
        let mut reply = Reply::new(out, resp3);
        reply_head(&mut reply, &series.name, 2);
        write_labels(&mut reply, &series.settings.labels, &shown.borrowed());
    });
    let Some(mut found) = ctx.search_series(&filter, head, (args, reply)) else { return Ok(()) };
    let mut latest = latest_of(ctx, &found, args);
    let len = found.series.iter().map(darter_store::reads::SeriesToRead::len).sum::<usize>();
    if ctx.may_slice && len > SERIES_MAX {
        let all = SeriesQuery::new(0, u64::MAX);
        match gathering::leave(ctx, found, (&all, latest), GatheredForm::Newest, reply) {
            Ok(()) => return Ok(()),
            Err(back) => (found, latest) = back,
        }
    }
    check_names(ctx, &found)?;
    begin_entries(reply, len);
    for (nth, SearchedSeries { name, head }) in (0..).zip(SearchedAll(&found.bytes)) {
        reply.raw(head);
        let latest = latest.get(&nth).copied();
        match visit(ctx, name, |series, _| gathering::newest(series, latest)).flatten() {
            Some(sample) => write_sample(reply, sample),
            None => reply.array(0),
        }
    }
    Ok(())
}

pub(super) fn begin_entries(reply: &mut Reply<'_>, len: usize) {
    if reply.is_resp3() {
        reply.map(len);
    } else {
        reply.array(len);
    }
}

/// The key of an entry, and the head of the `parts` that follow.
fn reply_head(reply: &mut Reply<'_>, name: &[u8], parts: usize) {
    if reply.is_resp3() {
        reply.bulk(name);
        reply.array(parts);
    } else {
        // RESP2 has no place for the reducers and sources.
        reply.array(3);
        reply.bulk(name);
    }
}

fn write_labels(reply: &mut Reply<'_>, labels: &[Label], shown: &ShownLabels<'_>) {
    let one = |reply: &mut Reply<'_>, name: &[u8], value: Option<&[u8]>| {
        if !reply.is_resp3() {
            reply.array(2);
        }
        reply.bulk(name);
        reply.bulk_or_null(value);
    };
    match shown {
        ShownLabels::None => begin_entries(reply, 0),
        ShownLabels::All => {
            begin_entries(reply, labels.len());
            labels.iter().for_each(|(name, value)| one(reply, name, Some(value)));
        }
        ShownLabels::Selected(selected) => {
            begin_entries(reply, selected.len());
            for &name in selected {
                match labels.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)) {
                    Some((own, value)) => one(reply, own, Some(value)),
                    None => one(reply, name, None),
                }
            }
        }
    }
}

fn mrange(ctx: &mut Ctx<'_>, args: Args<'_>, order: SampleOrder, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut asked = LabelledRequest::new();
    let query = query_with(args, 1, order, &mut |word, reader| asked.take(word, reader))?;
    let filter = asked.filter.take().ok_or(Fault::text("ERR TSDB: missing FILTER argument"))?;
    if asked.group.is_some() && asked.excludes_empty {
        return Err(Fault::text("ERR TSDB: EXCLUDEEMPTY is not allowed with GROUPBY"));
    }
    if asked.group.is_some() && query.buckets.as_ref().is_some_and(|buckets| buckets.kinds.len() > 1) {
        let text = "ERR TSDB: GROUPBY is not allowed when multiple aggregators are specified";
        return Err(Fault::text(text));
    }
    let head = range_head(&asked, &query, reply.is_resp3());
    let Some(mut found) = ctx.search_series(&filter, head, (args, reply)) else { return Ok(()) };
    let mut latest = latest_of(ctx, &found, args);
    if ctx.may_slice && is_long(ctx, &found, &query) {
        let mut query = query.clone();
        let form = gathered_form(&asked, &mut query);
        match gathering::leave(ctx, found, (&query, latest), form, reply) {
            Ok(()) => return Ok(()),
            Err(back) => (found, latest) = back,
        }
    }
    check_names(ctx, &found)?;
    match asked.group {
        Some(group) => grouped(ctx, &found.bytes, group, (query, &latest), &asked.shown, reply),
        None => ungrouped(ctx, &found.bytes, (query, &latest), &asked, reply),
    }
}

/// Writes for each series the reply before its rows or, for groups, what [`group_of`] reads.
fn range_head(asked: &LabelledRequest<'_>, query: &SeriesQuery, resp3: bool) -> WriteHead {
    if let Some((label, _)) = asked.group {
        let label = Box::<[u8]>::from(label);
        return Box::new(move |series, out| {
            if let Some(value) = series.label(&label) {
                out.push(b'=');
                out.extend_from_slice(value);
            }
        });
    }
    let (shown, query) = (asked.shown.owned(), query.clone());
    Box::new(move |series, out| write_series(&mut Reply::new(out, resp3), series, &query, &shown.borrowed()))
}

/// The value of the label that series are grouped by; `None` if the series lacks it.
pub(super) fn group_of(head: &[u8]) -> Option<&[u8]> {
    head.split_first().map(|(_, value)| value)
}

/// The form of the answer. The limit of `query` becomes that of the groups.
fn gathered_form(asked: &LabelledRequest<'_>, query: &mut SeriesQuery) -> GatheredForm {
    let Some(group) = asked.group else {
        return GatheredForm::Each(if asked.excludes_empty { Empties::Hidden } else { Empties::Shown });
    };
    let groups = Groups::new(group, query.count.take().unwrap_or(usize::MAX), query.order);
    let shown = asked.shown.owned();
    let write = move |groups: &Groups, reply: &mut Reply<'_>| write_groups(reply, groups, &shown.borrowed());
    GatheredForm::Grouped(groups, Box::new(write))
}

/// The reply for a series before its rows.
fn write_series(reply: &mut Reply<'_>, series: &Series, query: &SeriesQuery, shown: &ShownLabels<'_>) {
    reply_head(reply, &series.name, 3);
    write_labels(reply, &series.settings.labels, shown);
    if reply.is_resp3() {
        let kinds = query.buckets.as_ref().map_or(&[][..], |buckets| &buckets.kinds);
        write_how(reply, "aggregators", kinds.iter().map(|kind| kind.name().as_bytes()));
    }
}

fn ungrouped(
    ctx: &Ctx<'_>,
    found: &[u8],
    (mut query, latest): (SeriesQuery, &LatestSamples),
    asked: &LabelledRequest<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut answers = Vec::new();
    for (nth, SearchedSeries { name, head }) in (0..).zip(SearchedAll(found)) {
        query.latest = latest.get(&nth).copied();
        let Some(rows) = visit(ctx, name, |series, arena| query.run(series, arena)) else { continue };
        let rows = rows.map_err(|_| TOO_MANY)?;
        if !(asked.excludes_empty && rows.is_empty()) {
            answers.push((head, rows));
        }
    }
    begin_entries(reply, answers.len());
    for (head, rows) in answers {
        reply.raw(head);
        write_rows(reply, &rows);
    }
    Ok(())
}

fn write_how<'a>(reply: &mut Reply<'_>, what: &str, names: impl ExactSizeIterator<Item = &'a [u8]>) {
    reply.map(1);
    reply.bulk(what.as_bytes());
    reply.array(names.len());
    names.for_each(|name| reply.bulk(name));
}

fn grouped(
    ctx: &Ctx<'_>,
    found: &[u8],
    group: (&[u8], Aggregator),
    (mut query, latest): (SeriesQuery, &LatestSamples),
    shown: &ShownLabels<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let count = query.count.take().unwrap_or(usize::MAX);
    let mut groups = Groups::new(group, count, query.order);
    for (nth, SearchedSeries { name, head }) in (0..).zip(SearchedAll(found)) {
        let Some(value) = group_of(head) else { continue };
        query.latest = latest.get(&nth).copied();
        let Some(rows) = visit(ctx, name, |series, arena| query.run(series, arena)) else { continue };
        groups.add_series(value, name);
        for (time, numbers) in rows.map_err(|_| TOO_MANY)?.iter() {
            groups.add_row(value, time, numbers.iter().copied());
        }
    }
    write_groups(reply, &groups, shown);
    Ok(())
}

fn write_groups(reply: &mut Reply<'_>, groups: &Groups, shown: &ShownLabels<'_>) {
    let all = groups.rows();
    begin_entries(reply, all.len());
    for (value, joined, rows) in all {
        write_group(reply, (&groups.label, value, groups.kind), &joined.names, shown);
        write_rows(reply, &rows);
    }
}

fn write_group(
    reply: &mut Reply<'_>,
    (label, value, kind): (&[u8], &[u8], Aggregator),
    names: &[Box<[u8]>],
    shown: &ShownLabels<'_>,
) {
    let mut labels: Vec<Label> = vec![(label.into(), value.into())];
    if !reply.is_resp3() || matches!(shown, ShownLabels::Selected(_)) {
        labels.push(((*b"__reducer__").into(), kind.name().as_bytes().into()));
        labels.push(((*b"__source__").into(), names.join(&b',').into()));
    }
    reply_head(reply, &[label, b"=", value].concat(), 4);
    write_labels(reply, &labels, shown);
    if reply.is_resp3() {
        write_how(reply, "reducers", [kind.name().as_bytes()].into_iter());
        write_how(reply, "sources", names.iter().map(|name| &**name));
    }
}

pub(super) fn begin_set(reply: &mut Reply<'_>, len: usize) {
    if reply.is_resp3() {
        reply.set(len);
    } else {
        reply.array(len);
    }
}

fn query_index(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let filter = matchers(args.tail(1).iter())?;
    let keys = Box::new(|series: &Series, visit: &mut dyn FnMut(&[u8])| visit(&series.name));
    if ctx.take_answer(reply) || ctx.search_words(&filter, keys, (args, reply)) {
        return Ok(());
    }
    let (db, now_ms, mut names) = (ctx.db, ctx.now_ms, BTreeSet::new());
    ctx.each_part(|_, part| {
        part.shard.each_series(db, &filter, now_ms, &mut |one| {
            names.insert(one.series.name.clone());
        });
    });
    begin_set(reply, names.len());
    names.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

fn query_labels(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (label, from) = match args.at(1) {
        word if is(word, "LABELS") => (None, 2),
        word if is(word, "VALUES") => (Some(args.get(2).ok_or(arity("ts.querylabels"))?), 3),
        _ => return Err(Fault::text("ERR TSDB: unknown subtype, must be one of LABELS|VALUES")),
    };
    let filter = match args.get(from) {
        None => Vec::new(),
        Some(word) if !is(word, "FILTER") => {
            return Err(Fault::text("ERR TSDB: unknown argument, expected FILTER"));
        }
        Some(_) if args.len() == from + 1 => {
            return Err(Fault::text("ERR TSDB: FILTER given with no filter expressions"));
        }
        Some(_) => matchers(args.tail(from + 1).iter())?,
    };
    // A user's rights are those of the moment the answer is made: with limits, all at once.
    let words = label_words(label);
    if ctx.take_answer(reply) || ctx.may_read.is_none() && ctx.search_words(&filter, words, (args, reply)) {
        return Ok(());
    }
    let (db, now_ms, may_read) = (ctx.db, ctx.now_ms, ctx.may_read.take());
    let may_read = |name: &[u8]| may_read.as_ref().is_none_or(|may_read| may_read(name));
    let each_word = label_words(label);
    let mut found: BTreeSet<Box<[u8]>> = BTreeSet::new();
    ctx.each_part(|_, part| {
        part.shard.each_series(db, &filter, now_ms, &mut |one| {
            if may_read(&one.series.name) {
                each_word(one.series, &mut |word| found.extend([Box::from(word)]));
            }
        });
    });
    begin_set(reply, found.len());
    found.iter().for_each(|name| reply.bulk(name));
    Ok(())
}

/// Writes one cell of a table of several series.
pub(super) fn write_cell(reply: &mut Reply<'_>, number: Option<f64>) {
    write_number(reply, number.unwrap_or(f64::NAN));
}
