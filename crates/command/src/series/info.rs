//! TS.INFO key [DEBUG]

use darter_series::Series;
use darter_wire::{Args, Reply};

use super::{LINKED, NO_KEY, doc, feed};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TS.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(
        Spec::read("ts.info", -2, Keys::ONE).fast().reach(LINKED),
        "1.0.0",
        "key [DEBUG]",
        "Shows the options and the size of a series.",
    ),
    run: info,
};

const FIELDS: usize = 14;

fn info(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(arity("ts.info"));
    }
    let name = args.at(1);
    // Counts the look.
    ctx.read(name);
    let (shard, record) = ctx.peek(name).ok_or(NO_KEY)?;
    let view = shard.view_of::<Series>(record)?;
    let series = view.root;
    let settings = &series.settings;
    let (mut first, mut samples) = (None, 0);
    series.each(view.arena, 0, u64::MAX, &mut |sample| {
        first.get_or_insert(sample.time);
        samples += 1;
        true
    });
    let is_debug = args.get(2).is_some_and(|word| is(word, "DEBUG"));
    reply.map(FIELDS + 2 * usize::from(is_debug));
    let mut row = |name: &str, number: u64| {
        reply.status(name);
        reply.int(number.cast_signed());
    };
    row("totalSamples", samples);
    row("memoryUsage", (series.memory_bytes() + size_of::<Series>()) as u64);
    row("firstTimestamp", first.unwrap_or(0));
    row("lastTimestamp", series.newest().map_or(0, |newest| newest.time));
    row("retentionTime", settings.retention_ms);
    row("chunkCount", series.chunks_len());
    row("chunkSize", settings.chunk_bytes);
    reply.status("chunkType");
    reply.status(if settings.is_uncompressed { "uncompressed" } else { "compressed" });
    reply.status("duplicatePolicy");
    match settings.policy {
        Some(policy) => reply.status(policy.name()),
        None => reply.null(),
    }
    write_labels(series, reply);
    reply.status("sourceKey");
    reply.bulk_or_null(series.source.as_deref().filter(|source| feed::is_feeding(ctx, source, name)));
    write_rules(ctx, name, series, reply);
    reply.status("ignoreMaxTimeDiff");
    reply.int(settings.ignore_ms.cast_signed());
    reply.status("ignoreMaxValDiff");
    reply.double(settings.ignore_value);
    if is_debug {
        reply.status("keySelfName");
        reply.bulk(args.at(1));
        reply.status("Chunks");
        reply.array(0);
    }
    Ok(())
}

fn write_labels(series: &Series, reply: &mut Reply<'_>) {
    reply.status("labels");
    let labels = &series.settings.labels;
    if reply.is_resp3() {
        reply.map(labels.len());
    } else {
        reply.array(labels.len());
    }
    for (name, value) in labels {
        if !reply.is_resp3() {
            reply.array(2);
        }
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// The rules whose other end exists.
fn write_rules(ctx: &Ctx<'_>, name: &[u8], series: &Series, reply: &mut Reply<'_>) {
    reply.status("rules");
    let rules: Vec<_> = series.rules.iter().filter(|rule| feed::is_fed_by(ctx, &rule.target, name)).collect();
    if reply.is_resp3() {
        reply.map(rules.len());
    } else {
        reply.array(rules.len());
    }
    for rule in rules {
        if reply.is_resp3() {
            reply.bulk(&rule.target);
            reply.array(3);
        } else {
            reply.array(4);
            reply.bulk(&rule.target);
        }
        reply.int(rule.bucket_ms.cast_signed());
        reply.status(rule.kind.name().to_ascii_uppercase());
        reply.int(rule.align_ms.cast_signed());
    }
}
