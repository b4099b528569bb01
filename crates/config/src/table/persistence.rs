//! Snapshots and the append-only file.

use super::{BYTES_MAX, I32_MAX};
use crate::check;
use crate::setting::{Setting, SettingChange, SettingGroup::Persistence, SettingKind};

const OTHER_AOF: &str = "the journal has another format";
const NO_CLOUD: &str = "this way to Google Cloud Storage";

pub(super) const ROWS: &[Setting] = &[
    Setting::new("dir", SettingKind::Dir, "")
        .change(SettingChange::Protected)
        .help(Persistence, "folder of snapshots; empty means the folder at start"),
    Setting::checked("dbfilename", "dump", check::dbfilename).change(SettingChange::Protected).help(
        Persistence,
        "name of snapshots, {timestamp} and strftime macros allowed; empty turns saving off",
    ),
    Setting::bool("df_snapshot_format", "true")
        .dragonfly()
        .fixed()
        .help(Persistence, "native snapshot files instead of one .rdb file"),
    Setting::new("save", SettingKind::Save, "")
        .help(Persistence, "snapshot after a number of changes within a number of seconds; \"\" means never"),
    Setting::checked("snapshot_cron", "", check::cron)
        .dragonfly()
        .fixed()
        .help(Persistence, "when to take snapshots, five fields of cron"),
    Setting::checked("save_schedule", "", check::save_schedule)
        .dragonfly()
        .fixed()
        .help(Persistence, "when to take snapshots, HH:MM in UTC, * for any; snapshot_cron replaces it"),
    Setting::bool("stop-writes-on-bgsave-error", "yes")
        .help(Persistence, "refuse writes after a failed snapshot"),
    Setting::bool("rdbcompression", "yes").help(Persistence, "compress strings in .rdb files"),
    Setting::bool("rdbchecksum", "yes").fixed().help(Persistence, "close .rdb files with a checksum"),
    Setting::bool("rdb_modules", "true").dragonfly().help(
        Persistence,
        "write keys into .rdb files that only servers with modules, or Redis 8.8, can read",
    ),
    Setting::bool("rdb-save-incremental-fsync", "yes")
        .no_effect("snapshots are always synced while they are written")
        .help(Persistence, "sync while writing"),
    Setting::bool("rdb-del-sync-files", "no")
        .no_effect("replicas are synced without files")
        .help(Persistence, "delete the files of a sync"),
    Setting::int("rdb-key-save-delay", -I32_MAX - 1, I32_MAX, "0")
        .hidden()
        .help(Persistence, "microseconds to sleep per saved key, for tests"),
    Setting::int("key-load-delay", -I32_MAX - 1, I32_MAX, "0")
        .hidden()
        .help(Persistence, "microseconds to sleep per loaded key or journalled command, for tests"),
    Setting::int("loading-process-events-interval-bytes", 1024, I32_MAX, "2097152")
        .hidden()
        .no_effect("clients are served while loading")
        .help(Persistence, "bytes loaded between looks at clients"),
    Setting::bool("rdb_ignore_expiry", "false")
        .dragonfly()
        .fixed()
        .not_yet("loading without expiry")
        .help(Persistence, "load keys without their time to live"),
    Setting::bool("rdb_load_dry_run", "false")
        .dragonfly()
        .fixed()
        .not_yet("loading without effect")
        .help(Persistence, "read a snapshot and throw it away"),
    Setting::bool("rdb_sbf_chunked", "true")
        .dragonfly()
        .fixed()
        .no_effect("filters are always written in chunks")
        .help(Persistence, "write Bloom filters in chunks"),
    Setting::choice("rdb-version-check", &["strict", "relaxed"], "strict")
        .help(Persistence, "whether RESTORE refuses versions that are not known; of files they always are"),
    Setting::choice("compression_mode", COMPRESSION_MODES, "3").dragonfly().fixed().help(
        Persistence,
        "of native snapshots: 0 none, 1 to 3 by block; Dragonfly's names of these say the same",
    ),
    Setting::int("compression_level", 0, 22, "2")
        .dragonfly()
        .fixed()
        .no_effect("blocks are compressed with LZ4, which has no levels")
        .help(Persistence, "effort of that compression"),
    Setting::memory("serialization_max_chunk_size", 0, BYTES_MAX, "64kb")
        .dragonfly()
        .fixed()
        .no_effect("every value is written in bounded pieces")
        .help(Persistence, "largest value written in one piece"),
    Setting::bool("serialization_tagged_chunks", "true")
        .dragonfly()
        .fixed()
        .no_effect("every value is written in bounded pieces")
        .help(Persistence, "tag those pieces"),
    Setting::memory("snapshot_egress_limit_bytes", 0, BYTES_MAX, "0")
        .dragonfly()
        .fixed()
        .help(Persistence, "bytes of snapshot per second and thread; 0 means no limit"),
    Setting::bool("background_snapshotting", "false")
        .dragonfly()
        .no_effect("snapshots take what time is left over")
        .help(Persistence, "snapshots at low priority"),
    Setting::bool("appendonly", "no").help(Persistence, "log every write to a file"),
    Setting::choice("appendfsync", &["everysec", "always", "no"], "everysec")
        .help(Persistence, "when that file is synced"),
    Setting::checked("appendfilename", "appendonly.aof", check::appendfilename)
        .fixed()
        .help(Persistence, "its name"),
    Setting::checked("appenddirname", "appendonlydir", check::appenddirname)
        .fixed()
        .help(Persistence, "its folder"),
    Setting::checked("backupdirname", "backupdir", check::backupdirname)
        .help(Persistence, "folder in dir that BACKUP writes to"),
    Setting::int("backup-sealed-ttl", 0, I32_MAX, "0")
        .help(Persistence, "seconds that a sealed backup is kept; 0 keeps it until BACKUP CLEANUP"),
    Setting::bool("no-appendfsync-on-rewrite", "no").help(Persistence, "do not sync during a rewrite"),
    Setting::int("auto-aof-rewrite-percentage", 0, I32_MAX, "100")
        .help(Persistence, "growth in percent that starts a rewrite; 0 means never"),
    Setting::memory("auto-aof-rewrite-min-size", 0, BYTES_MAX, "64mb")
        .help(Persistence, "size below which it never starts"),
    Setting::bool("aof-load-truncated", "yes").help(Persistence, "load a file that was cut off"),
    Setting::bool("aof-use-rdb-preamble", "yes")
        .no_effect(OTHER_AOF)
        .help(Persistence, "start the file with a snapshot"),
    Setting::bool("aof-timestamp-enabled", "no")
        .no_effect(OTHER_AOF)
        .help(Persistence, "write times into the file"),
    Setting::bool("aof-rewrite-incremental-fsync", "yes")
        .no_effect(OTHER_AOF)
        .help(Persistence, "sync while rewriting"),
    Setting::bool("aof-disable-auto-gc", "no")
        .hidden()
        .no_effect(OTHER_AOF)
        .help(Persistence, "keep old files, for tests"),
    Setting::text("s3_endpoint", "").dragonfly().fixed().help(Persistence, "address of an S3 service"),
    Setting::bool("s3_use_https", "true").dragonfly().fixed().help(Persistence, "HTTPS to it"),
    Setting::bool("s3_ec2_metadata", "false")
        .dragonfly()
        .fixed()
        .help(Persistence, "credentials from EC2 metadata"),
    Setting::bool("s3_sign_payload", "true").dragonfly().fixed().help(Persistence, "sign uploads"),
    Setting::bool("s3_use_helio_client", "true")
        .dragonfly()
        .fixed()
        .no_effect("there is one S3 client")
        .help(Persistence, "Dragonfly's own S3 client"),
    Setting::text("gcs_auth_token", "")
        .dragonfly()
        .fixed()
        .secret()
        .not_yet(NO_CLOUD)
        .help(Persistence, "token for Google Cloud Storage"),
    Setting::bool("gcs_dry_upload", "false")
        .dragonfly()
        .fixed()
        .not_yet(NO_CLOUD)
        .help(Persistence, "upload nothing in the end"),
];

/// Dragonfly's compression of snapshots, by number and by name. It has LZF, ZSTD and LZ4; here it is LZ4 or none.
const COMPRESSION_MODES: &[&str] =
    &["0", "1", "2", "3", "NONE", "SINGLE_ENTRY", "MULTI_ENTRY_ZSTD", "MULTI_ENTRY_LZ4"];
