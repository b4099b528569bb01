//! Search indexes, JSON paths and probabilistic types.

use super::{BYTES_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Search};

const NO_SEARCH: &str = "search is not supported yet";
const NO_FILTERS: &str = "filters are not supported yet";

pub(super) const ROWS: &[Setting] = &[
    Setting::int("cf_bucket_size", 0, U32_MAX, "2")
        .dragonfly()
        .no_effect(NO_FILTERS)
        .help(Search, "slots of a Cuckoo filter bucket"),
    Setting::int("cf_expansion_factor", 0, U32_MAX, "1")
        .dragonfly()
        .no_effect(NO_FILTERS)
        .help(Search, "growth of a full Cuckoo filter"),
    Setting::int("cf_initial_size", 0, U32_MAX, "1024")
        .dragonfly()
        .no_effect(NO_FILTERS)
        .help(Search, "items of a new Cuckoo filter"),
    Setting::int("cf_max_expansions", 0, U32_MAX, "32")
        .dragonfly()
        .no_effect(NO_FILTERS)
        .help(Search, "growths of a Cuckoo filter"),
    Setting::int("cf_max_iterations", 0, U32_MAX, "20")
        .dragonfly()
        .no_effect(NO_FILTERS)
        .help(Search, "moves before a Cuckoo filter is full"),
    Setting::bool("serialize_hnsw_index", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "write vector graphs into snapshots"),
    Setting::bool("deserialize_hnsw_index", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "read vector graphs from snapshots"),
    Setting::bool("jsonpathv2", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "Dragonfly's own JSONPath"),
    Setting::int("MAXSEARCHRESULTS", 0, U32_MAX, "1000000")
        .dragonfly()
        .no_effect(NO_SEARCH)
        .help(Search, "results of FT.SEARCH"),
    Setting::memory("search_query_string_bytes", 0, BYTES_MAX, "10240")
        .dragonfly()
        .no_effect(NO_SEARCH)
        .help(Search, "bytes of a query"),
    Setting::bool("search_reject_legacy_field", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "refuse the older way to name fields"),
    Setting::int("subset_knn_search_threshold", 0, U32_MAX, "8192")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "documents below which vectors are compared one by one"),
    Setting::bool("use_numeric_range_tree", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_SEARCH)
        .help(Search, "ranges in a tree of ranges"),
];
