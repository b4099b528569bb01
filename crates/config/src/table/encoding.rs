//! The layout of values, as shown by OBJECT ENCODING.

use super::{BYTES_MAX, I32_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Encoding};

const NO_COMPRESSION: &str = "lists are packed, not compressed";

pub(super) const ROWS: &[Setting] = &[
    Setting::int("hash-max-listpack-entries", 0, i64::MAX, "512")
        .alias(&["hash-max-ziplist-entries"])
        .help(Encoding, "fields of a hash that is still a listpack"),
    Setting::memory("hash-max-listpack-value", 0, BYTES_MAX, "64")
        .alias(&["hash-max-ziplist-value", "listpack_max_field_len"])
        .help(Encoding, "bytes of its longest field or value"),
    Setting::memory("listpack_max_bytes", 0, BYTES_MAX, "1024")
        .dragonfly()
        .fixed()
        .no_effect("the two limits above decide")
        .help(Encoding, "bytes of a hash that is still a listpack"),
    Setting::int("list-max-listpack-size", -I32_MAX - 1, I32_MAX, "-2")
        .alias(&["list-max-ziplist-size"])
        .help(Encoding, "elements of a list node, or -1 to -5 for 4 to 64 KB"),
    Setting::int("list-compress-depth", 0, I32_MAX, "0")
        .no_effect(NO_COMPRESSION)
        .help(Encoding, "nodes at each end that stay uncompressed"),
    Setting::memory("list_compress_dict_threshold", 0, BYTES_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(NO_COMPRESSION)
        .help(Encoding, "bytes of a list before its nodes share a dictionary"),
    Setting::int("list_compress_level", -1, 22, "-1")
        .dragonfly()
        .fixed()
        .no_effect(NO_COMPRESSION)
        .help(Encoding, "zstd level of that dictionary"),
    Setting::int("set-max-intset-entries", 0, i64::MAX, "512").help(Encoding, "members of a set of integers"),
    Setting::int("set-max-listpack-entries", 0, i64::MAX, "128")
        .help(Encoding, "members of a set that is still a listpack"),
    Setting::memory("set-max-listpack-value", 0, BYTES_MAX, "64")
        .help(Encoding, "bytes of its longest member"),
    Setting::int("zset-max-listpack-entries", 0, i64::MAX, "128")
        .alias(&["zset-max-ziplist-entries"])
        .help(Encoding, "members of a sorted set that is still a listpack"),
    Setting::memory("zset-max-listpack-value", 0, BYTES_MAX, "64")
        .alias(&["zset-max-ziplist-value"])
        .help(Encoding, "bytes of its longest member"),
    Setting::memory("stream-node-max-bytes", 0, BYTES_MAX, "4096")
        .help(Encoding, "bytes of a stream node; 0 means any"),
    Setting::int("stream-node-max-entries", 0, i64::MAX, "100")
        .help(Encoding, "entries of a stream node; 0 means any"),
    Setting::int("stream-idmp-duration", 1, 86_400, "100").help(
        Encoding,
        "seconds that a stream remembers the names of producers' entries, unless XCFGSET says",
    ),
    Setting::int("stream-idmp-maxsize", 1, 10_000, "100")
        .help(Encoding, "names of entries that a stream remembers of each producer, unless XCFGSET says"),
    Setting::memory("hll-sparse-max-bytes", 0, BYTES_MAX, "3000")
        .help(Encoding, "bytes of a sparse HyperLogLog"),
    Setting::choice("sanitize-dump-payload", &["no", "yes", "clients"], "no")
        .no_effect("every payload is checked in full")
        .help(Encoding, "check RESTORE payloads deeply"),
    Setting::bool("use_oah_set", "true")
        .dragonfly()
        .fixed()
        .no_effect("sets have one layout of their own")
        .help(Encoding, "open addressing for sets"),
    Setting::text("huffman_table", "")
        .dragonfly()
        .fixed()
        .no_effect("text is packed to 7 bits if that saves memory")
        .help(Encoding, "Huffman tables for keys or values"),
    Setting::bool("experimental_flat_json", "false")
        .dragonfly()
        .fixed()
        .no_effect("JSON has a single layout")
        .help(Encoding, "compact JSON"),
    Setting::int("container_iteration_yield_interval_usec", 0, U32_MAX, "500")
        .dragonfly()
        .fixed()
        .no_effect("a turn of the loop is bounded")
        .help(Encoding, "microseconds of walking one value"),
];
