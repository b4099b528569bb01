//! What the process may have, by the limits it was started with: open files for clients and for itself, and address space.

use darter_reactor::process;

use darter_config::{CallerLimits, Live, Settings};

/// Open files that are kept back from clients: files of snapshots and the journal, listeners, administrators.
const FILES_KEPT: u64 = 64;
/// More for each thread: its reactor, its segment and ring of the journal.
const FILES_OF_A_THREAD: u64 = 8;
/// Address space of a shard, at least. Below this its pages serve too few sizes.
const SHARD_BYTES_MIN: u64 = 8 << 20;

/// Open files that clients cannot use, for this number of serving threads.
pub fn files_kept(threads: usize) -> u64 {
    FILES_KEPT + FILES_OF_A_THREAD * threads as u64
}

/// Makes room for `maxclients` open connections, or lowers `maxclients` to what there is room for and says so.
///
/// Errors: there is room for none.
pub fn fit_clients(settings: &Settings, threads: usize) -> Result<(), String> {
    let wanted = u64::from(settings.live().maxclients);
    let kept = files_kept(threads);
    let limit = process::raise_open_files(wanted + kept).unwrap_or(0);
    if limit >= wanted + kept {
        return Ok(());
    }
    let Some(fits) = limit.checked_sub(kept).filter(|&fits| fits > 0) else {
        return Err(format!(
            "Your current 'ulimit -n' of {limit} is not enough for the server to start. Please increase your open file \
             limit to at least {}.",
            kept + 1
        ));
    };
    tracing::warn!(
        "You requested maxclients of {wanted} requiring at least {} max file descriptors. Server can't set maximum open \
         files to {} because of OS error. Current maximum open files is {limit}. maxclients has been reduced to {fits} to \
         compensate for low ulimit. If you need higher maxclients increase 'ulimit -n'.",
        wanted + kept,
        wanted + kept,
    );
    let pair = [("maxclients", fits.to_string())];
    settings.config_set(&pair, CallerLimits::Local, |_| Ok(())).map(drop)
}

/// As [`fit_clients`] for a change while the server runs, which is refused where there is no room.
///
/// Errors: how many clients there is room for, in Redis' words.
pub fn try_clients(after: &Live, threads: usize) -> Result<(), String> {
    let (wanted, kept) = (u64::from(after.maxclients), files_kept(threads));
    let limit = process::raise_open_files(wanted + kept).unwrap_or(0);
    if limit >= wanted + kept {
        return Ok(());
    }
    let fits = limit.saturating_sub(kept);
    Err(format!(
        "The operating system is not able to handle the specified number of clients, try with {fits}"
    ))
}

/// Address space that each of `shards` may reserve: half of what is left, where that is limited (`ulimit -v`). `None`: as
/// much as it wants.
///
/// Errors: too little is left.
pub fn shard_bytes(shards: usize) -> Result<Option<usize>, String> {
    let Some(left) = process::address_space_left() else { return Ok(None) };
    let each = left / 2 / shards.max(1) as u64;
    if each < SHARD_BYTES_MIN {
        return Err(format!("ulimit -v leaves {left} bytes of address space, too few for {shards} shards"));
    }
    Ok(Some(usize::try_from(each).unwrap_or(usize::MAX)))
}
