//! HOTKEYS: the keys with the most time and bytes, as `crate::hot_keys` notes them.

use darter_base::crc::SLOTS_LEN;
use darter_command::reader::{self, is};
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::{Caller, ServerRun};
use crate::hot_keys::{FoundHotKeys, HotKeysWish};
use darter_config::ClusterMode;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("hotkeys", -2)
            .doc(Group::Server, "8.6.0", "", "A container for hotkeys tracking commands.")
            .cost("Depends on subcommand."),
        super::no_subcommand,
    ),
    admin("hotkeys|get", 2, "8.6.0", "", "Returns the keys that took the most.", get),
    row(super::help_row("hotkeys|help", "8.6.1"), help),
    admin("hotkeys|reset", 2, "8.6.0", "", "Releases the result of tracking.", reset),
    admin("hotkeys|start", -2, "8.6.0", SYNTAX, "Starts hotkeys tracking.", start),
    admin("hotkeys|stop", 2, "8.6.0", "", "Stops hotkeys tracking.", stop),
];

const SYNTAX: &str =
    "METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot [slot ...]]";

const fn admin(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
    run: ServerRun,
) -> ServerCommand {
    let spec = Spec::other(name, arity).flag(Flags::ADMIN.with(Flags::NOSCRIPT));
    row(spec.doc(Group::Server, since, syntax, summary), run)
}

fn start(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let hot_keys = &caller.local.shared.hot_keys;
    const ON_ALREADY: Fault = Fault::text("ERR hotkey tracking session already in progress");
    if hot_keys.is_on(caller.local.now_ms) {
        return Err(ON_ALREADY);
    }
    let is_cluster = caller.local.live.cluster.mode != ClusterMode::Off;
    if !hot_keys.start(wish(args, is_cluster)?) {
        return Err(ON_ALREADY);
    }
    // The rest of this turn is noted, too.
    caller.local.times_all = true;
    caller.local.large.look_at_all();
    reply.ok();
    Ok(())
}

fn wish(args: Args<'_>, is_cluster: bool) -> Result<HotKeysWish, Fault> {
    if args.len() < 4 || !is(args.at(2), "METRICS") {
        return Err(Fault::text("ERR METRICS parameter is required"));
    }
    let metrics = int_within(args.at(3), 1, 2, "ERR METRICS count must be > 0 and <= 2")? as usize;
    if args.len() < 4 + metrics {
        return Err(Fault::text("ERR METRICS count does not match number of metric types provided"));
    }
    let mut wish = HotKeysWish { cpu: false, net: false, count: 10, duration_ms: 0, ratio: 1, slots: None };
    for word in args.tail(4).head(metrics).iter() {
        if is(word, "CPU") {
            once(&mut wish.cpu, "ERR METRICS CPU defined more than once!")?;
        } else if is(word, "NET") {
            once(&mut wish.net, "ERR METRICS NET defined more than once!")?;
        }
    }
    if !wish.cpu && !wish.net {
        return Err(Fault::text("ERR METRICS no valid metrics passed. Supported: CPU|NET"));
    }
    let mut reader = ArgReader::new(args, 4 + metrics);
    while !reader.is_done() {
        if reader.take_with("COUNT", 1) {
            wish.count = int_within(reader.bytes()?, 1, 64, "ERR COUNT must be between 1 and 64")? as usize;
        } else if reader.take_with("DURATION", 1) {
            const REFUSED: &str = "ERR DURATION must be between 1 and 1000000";
            wish.duration_ms = int_within(reader.bytes()?, 1, 1_000_000, REFUSED)? * 1000;
        } else if reader.take_with("SAMPLE", 1) {
            const REFUSED: &str = "ERR SAMPLE ratio must be positive";
            wish.ratio = int_within(reader.bytes()?, 1, i64::from(i32::MAX), REFUSED)? as u32;
        } else if reader.take_with("SLOTS", 1) {
            if !is_cluster {
                return Err(Fault::text("ERR SLOTS parameter cannot be used in non-cluster mode"));
            }
            if wish.slots.is_some() {
                return Err(Fault::text("ERR SLOTS parameter already specified"));
            }
            wish.slots = Some(slots(&mut reader)?);
        } else {
            return Err(Fault::text("ERR syntax error"));
        }
    }
    Ok(wish)
}

fn once(is_set: &mut bool, refused: &'static str) -> Result<(), Fault> {
    if std::mem::replace(is_set, true) { Err(Fault::text(refused)) } else { Ok(()) }
}

fn int_within(word: &[u8], least: i64, most: i64, refused: &'static str) -> Result<u64, Fault> {
    let number = reader::int(word).ok().filter(|number| (least..=most).contains(number));
    number.map(i64::cast_unsigned).ok_or(Fault::text(refused))
}

/// The slots after SLOTS, as sorted ranges.
fn slots(reader: &mut ArgReader<'_>) -> Result<Vec<(u16, u16)>, Fault> {
    const COUNT: &str = "ERR SLOTS count must be between 1 and 16384";
    const SLOT: &str = "ERR Invalid or out of range slot";
    let count = int_within(reader.bytes()?, 1, i64::from(SLOTS_LEN), COUNT)?;
    let mut slots = Vec::new();
    for _ in 0..count {
        if reader.is_done() {
            return Err(Fault::text("ERR not enough slot numbers provided"));
        }
        slots.push(int_within(reader.bytes()?, 0, i64::from(SLOTS_LEN) - 1, SLOT)? as u16);
    }
    slots.sort_unstable();
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((_, last)) if *last == slot => return Err(Fault::text("ERR duplicate slot number")),
            Some((_, last)) if *last + 1 == slot => *last = slot,
            _ => ranges.push((slot, slot)),
        }
    }
    Ok(ranges)
}

fn stop(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if caller.local.shared.hot_keys.stop() {
        reply.ok();
    } else {
        reply.null();
    }
    Ok(())
}

fn reset(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !caller.local.shared.hot_keys.reset() {
        return Err(Fault::text("ERR hotkey tracking session in progress, stop tracking first"));
    }
    reply.ok();
    Ok(())
}

fn get(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let Some(found) = caller.local.shared.hot_keys.found() else {
        reply.null();
        return Ok(());
    };
    // One map in an array, so that the answers of several nodes can be joined.
    reply.array(1);
    let fields = fields(&found);
    reply.map(fields.len());
    for (name, field) in fields {
        reply.bulk(name.as_bytes());
        match field {
            HotkeysField::Number(number) => reply.int(number.cast_signed()),
            HotkeysField::Slots(ranges) => {
                reply.array(ranges.len());
                for &(first, last) in ranges {
                    reply.array(1 + usize::from(first != last));
                    reply.int(i64::from(first));
                    if first != last {
                        reply.int(i64::from(last));
                    }
                }
            }
            HotkeysField::Keys(keys, unit) => {
                let shown = || keys.iter().filter(|(_, weight)| weight / unit > 0);
                reply.array(2 * shown().count());
                for (key, weight) in shown() {
                    reply.bulk(key);
                    reply.int((weight / unit).cast_signed());
                }
            }
        }
    }
    Ok(())
}

enum HotkeysField<'a> {
    Number(u64),
    Slots(&'a [(u16, u16)]),
    // Keys, and the divisor of their weights.
    Keys(&'a [(Box<[u8]>, u64)], u64),
}

const NS_PER_US: u64 = 1000;

fn fields(found: &FoundHotKeys) -> Vec<(&'static str, HotkeysField<'_>)> {
    let (wish, sums) = (&found.tracking.wish, &found.sums);
    let (is_part, is_sample) = (wish.slots.is_some(), wish.ratio > 1);
    let number = |n: u64| HotkeysField::Number(n);
    let ms =
        |took: std::time::Duration| HotkeysField::Number(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    let all = [
        (true, "tracking-active", number(u64::from(found.is_active))),
        (true, "sample-ratio", number(u64::from(wish.ratio))),
        (true, "selected-slots", HotkeysField::Slots(wish.slots.as_deref().unwrap_or(&[(0, SLOTS_LEN - 1)]))),
        (
            is_part && is_sample,
            "sampled-commands-selected-slots-us",
            number(sums.sampled.time_ns / NS_PER_US),
        ),
        (is_part, "all-commands-selected-slots-us", number(sums.selected.time_ns / NS_PER_US)),
        (true, "all-commands-all-slots-us", number(sums.all.time_ns / NS_PER_US)),
        (is_part && is_sample, "net-bytes-sampled-commands-selected-slots", number(sums.sampled.bytes)),
        (is_part, "net-bytes-all-commands-selected-slots", number(sums.selected.bytes)),
        (true, "net-bytes-all-commands-all-slots", number(sums.all.bytes)),
        (true, "collection-start-time-unix-ms", number(found.tracking.began_ms)),
        (true, "collection-duration-ms", number(found.duration_ms)),
        (wish.cpu, "total-cpu-time-user-ms", ms(found.cpu.user)),
        (wish.cpu, "total-cpu-time-sys-ms", ms(found.cpu.system)),
        (wish.net, "total-net-bytes", number(found.net_total)),
        (wish.cpu, "by-cpu-time-us", HotkeysField::Keys(&found.by_time, NS_PER_US)),
        (wish.net, "by-net-bytes", HotkeysField::Keys(&found.by_bytes, 1)),
    ];
    all.into_iter().filter_map(|(is_shown, name, field)| is_shown.then_some((name, field))).collect()
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "HOTKEYS",
        &[
            "GET",
            "    Return the keys with the highest cost, and the cost of all calls.",
            "RESET",
            "    Release the result. Tracking must have been stopped.",
            "START METRICS count [CPU] [NET] [COUNT k] [DURATION seconds] [SAMPLE ratio] [SLOTS count slot...]",
            "    Start tracking:",
            "    * METRICS: the number of metrics, then their names. CPU is time, NET is bytes.",
            "    * COUNT: keys to return, 1 to 64 (default: 10).",
            "    * DURATION: seconds until it stops by itself (default: never).",
            "    * SAMPLE: one call in this number is recorded (default: 1).",
            "    * SLOTS: only keys of these slots, with a cluster.",
            "STOP",
            "    Stop tracking. GET still returns the result.",
        ],
    );
    Ok(())
}
