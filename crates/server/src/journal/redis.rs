//! Taking over the append-only files of a Redis that ran here before: base, then commands, transactions whole.

use std::fs::{self, File};
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use darter_base::number;
use darter_persist::file::FileSource;
use darter_persist::journal::Damage;
use darter_persist::journal::redis::{Commands, Role, parse_manifest};
use darter_wire::OwnedArgs;

use super::replay::Player;
use super::rewrite;
use crate::shared::Shared;
use crate::snapshot::load::rest_after;
use crate::thread_state::ThreadState;
use darter_config::Live;

/// No manifest of Redis is longer.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// The manifest that Redis left in the journal's folder, or its one file of earlier versions.
pub fn file_of(live: &Live, dir: &Path) -> Option<PathBuf> {
    let name = &live.persistence.appendfilename;
    let places = [dir.join(format!("{name}.manifest")), live.persistence.dir.join(name)];
    places.into_iter().find(|path| path.exists())
}

/// Loads what Redis left in the journal's folder, or its one file of earlier versions, as of `clock_ms`; false when there
/// is none.
///
/// Errors: what an operator has to know. An end that is cut off is left out if `aof-load-truncated` allows it.
pub fn load(shared: &'static Shared, live: &Live, clock_ms: u64) -> Result<bool, String> {
    let dir = rewrite::dir_of(live)?;
    let Some(found) = file_of(live, &dir) else { return Ok(false) };
    let files = if found.extension().is_some_and(|end| end == "manifest") {
        let text = read_short(&found)?;
        let listed = parse_manifest(&text).map_err(|damage| told(&found, &damage))?;
        listed.into_iter().map(|file| (dir.join(file.name), file.role)).collect()
    } else {
        vec![(found, Role::Base)]
    };
    let last = files.len().saturating_sub(1);
    let mut local = ThreadState::new(shared, 0);
    let mut commands = 0;
    for (at, (path, role)) in files.into_iter().enumerate() {
        let is_rdb = role == Role::Base && begins_with_rdb(&path)?;
        let offset = match is_rdb {
            true => load_rdb(shared, &mut local, &path, clock_ms)?,
            false => 0,
        };
        let mut player = Player::new(local).ok_or("shards are busy before anything runs")?;
        let may_be_cut = at == last && live.persistence.aof_load_truncated;
        // Redis writes times as such, so what is dead then is dead.
        player.set_clock(clock_ms);
        play(shared, &mut player, &path, offset, may_be_cut)?;
        commands += player.done.commands;
        local = player.finish();
    }
    tracing::info!("took over the append-only files of Redis: {commands} commands after the base");
    Ok(true)
}

fn told(path: &Path, what: &impl std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

fn read_short(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| told(path, &error))?;
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(|error| told(path, &error))?;
    Ok(text)
}

fn begins_with_rdb(path: &Path) -> Result<bool, String> {
    let file = File::open(path).map_err(|error| told(path, &error))?;
    let mut magic = Vec::new();
    file.take(5).read_to_end(&mut magic).map_err(|error| told(path, &error))?;
    Ok(magic == b"REDIS")
}

/// Loads an RDB file, or the one an append-only file begins with; returns where it ends.
fn load_rdb(
    shared: &'static Shared,
    local: &mut ThreadState,
    path: &Path,
    clock_ms: u64,
) -> Result<u64, String> {
    let (dir, name) = (path.parent().map(PathBuf::from).unwrap_or_default(), path.file_name());
    let name = name.and_then(|name| name.to_str()).ok_or_else(|| told(path, &"the name is no text"))?;
    let len = rewrite::load_base(shared, local, &dir, name, clock_ms)?;
    if name.ends_with(".rdb") { Ok(len) } else { end_of_rdb(path) }
}

/// Where the RDB file ends that a file of Redis 4 to 6 begins with: commands follow. Cost: reads it.
fn end_of_rdb(path: &Path) -> Result<u64, String> {
    let file = File::open(path).map_err(|error| told(path, &error))?;
    let mut reader = FileSource::open(&file).map_err(|error| told(path, &error))?;
    reader.each(|_| Ok(())).map_err(|error| told(path, &error))?;
    match &reader {
        FileSource::Rdb(rdb) => Ok(rdb.offset()),
        FileSource::Native(_) => Err(told(path, &"this is no file of Redis")),
    }
}

/// Plays the commands of a file from `offset` on.
fn play(
    shared: &Shared,
    player: &mut Player,
    path: &Path,
    offset: u64,
    may_be_cut: bool,
) -> Result<(), String> {
    let io = |error: std::io::Error| told(path, &error);
    let len = fs::metadata(path).map_err(io)?.len();
    if offset >= len {
        return Ok(());
    }
    let mut file = File::open(path).map_err(io)?;
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut commands = Commands::new(BufReader::with_capacity(256 << 10, file), len - offset, offset);
    let mut tape = Tape { db: 0, open: None };
    let mut whole = offset;
    let damage = loop {
        match commands.next_command().map_err(io)? {
            None if tape.open.is_none() => return Ok(()),
            None => break Damage { offset: whole, what: "a transaction is cut off" },
            Some(Err(damage)) => break damage,
            Some(Ok(args)) => {
                tape.take(player, &args).map_err(|cause| told(path, &cause))?;
                rest_after(shared, 1);
                if tape.open.is_none() {
                    whole = commands.offset();
                }
            }
        }
    };
    // Damage in the middle is no crash.
    if !may_be_cut || !commands.is_at_end() {
        return Err(told(path, &damage));
    }
    tracing::warn!(
        "{}: {damage}; the {} bytes from offset {whole} on are left out",
        path.display(),
        len - whole
    );
    Ok(())
}

/// Commands one after another, those of a transaction kept until its end.
struct Tape {
    db: u64,
    open: Option<Vec<(u64, OwnedArgs)>>,
}

impl Tape {
    fn take(&mut self, player: &mut Player, args: &[Vec<u8>]) -> Result<(), String> {
        let is = |word: &str| args.first().is_some_and(|name| name.eq_ignore_ascii_case(word.as_bytes()));
        if is("select") {
            let db =
                args.get(1).and_then(|text| number::parse_i64(text)).and_then(|db| u64::try_from(db).ok());
            self.db = db.ok_or("a database has no number")?;
        } else if is("multi") {
            self.open = Some(Vec::new());
        } else if is("exec") {
            for (db, args) in self.open.take().unwrap_or_default() {
                player.command(db, None, args.args()).map_err(|cause| cause.to_string())?;
            }
        } else {
            let slices: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            let owned = OwnedArgs::from_slices(&slices);
            match &mut self.open {
                Some(open) => open.push((self.db, owned)),
                None => player.command(self.db, None, owned.args()).map_err(|cause| cause.to_string())?,
            }
        }
        Ok(())
    }
}
