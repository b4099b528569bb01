//! memcached's commands for its slabs, its LRU lists and its logs.
//!
//! Darter has neither slabs nor LRU lists: what would tune them is read as memcached reads it, answered as memcached
//! answers it, and changes nothing but for the limit of memory. What would show them is refused as by a memcached that
//! was told to; the items are in `listing`.

use std::os::unix::ffi::OsStrExt;

use darter_base::number;
use darter_wire::memcache::MemcacheWords;

use super::auth;
use crate::conn::Conn;
use crate::thread_state::ThreadState;

/// The answer to one of them.
pub(super) fn reply(name: &[u8], words: MemcacheWords<'_>) -> &'static [u8] {
    let words: Vec<&[u8]> = words.filter(|word| *word != b"noreply").take(WORDS_MAX).collect();
    match name {
        b"slabs" => slabs(&words),
        b"lru" => lru(&words),
        b"lru_crawler" => crawler(&words),
        b"shutdown" => b"ERROR: shutdown not enabled\r\n",
        b"watch" => b"CLIENT_ERROR watch commands not allowed\r\n",
        _ => ERROR,
    }
}

/// `cache_memlimit`: sets `maxmemory` as the connection's user does with CONFIG SET.
pub(super) fn limit_memory(
    conn: &mut Conn,
    local: &mut ThreadState,
    mut words: MemcacheWords<'_>,
) -> &'static [u8] {
    let megabytes = match words.next().and_then(u32_of) {
        None => return ERROR,
        Some(..8) => return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n",
        Some(1_000_000_001..) => return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n",
        Some(megabytes) => megabytes,
    };
    let limit = format!("{megabytes}mb");
    match auth::run_as_client(conn, local, &[b"CONFIG", b"SET", b"maxmemory", limit.as_bytes()]) {
        true => OK,
        false => b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n",
    }
}

/// `refresh_certs`: reads certificates and keys anew, as the connection's user does with CONFIG SET.
pub(super) fn refresh_certificates(conn: &mut Conn, local: &mut ThreadState) -> &'static [u8] {
    // A memcached without TLS does not know the command.
    let Some(file) = local.live.tls.cert_file.clone() else { return ERROR };
    match auth::run_as_client(
        conn,
        local,
        &[b"CONFIG", b"SET", b"tls-cert-file", file.as_os_str().as_bytes()],
    ) {
        true => OK,
        false => b"Error loading the certificate chain\r\n",
    }
}

fn slabs(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"reassign", from, to] => match (i32_of(from), i32_of(to)) {
            (Some(from), Some(to)) if from == to => b"SAME src and dst class are identical\r\n",
            (Some(_), Some(_)) => b"BADCLASS invalid src or dst class id\r\n",
            _ => BAD_FORMAT,
        },
        [b"automove", b"ratio", ratio, ..] => {
            if is_ratio(ratio) {
                OK
            } else {
                ERROR
            }
        }
        [b"automove", b"window", window, ..] => match u32_of(window) {
            Some(3..=1800) => OK,
            Some(_) => b"CLIENT_ERROR automove window too low or too high\r\n",
            None => BAD_FORMAT,
        },
        [b"automove", level, ..] => match u32_of(level) {
            Some(0..=2) => OK,
            Some(_) => ERROR,
            None => BAD_FORMAT,
        },
        _ => ERROR,
    }
}

fn lru(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"tune", hot, warm, hot_factor, warm_factor, ..] => {
            let (Some(hot), Some(warm)) = (u32_of(hot), u32_of(warm)) else { return ERROR };
            if !is_number(hot_factor) || !is_number(warm_factor) {
                ERROR
            } else if hot.saturating_add(warm) > 80 {
                b"ERROR hot and warm pcts must not exceed 80\r\n"
            } else if !is_ratio(hot_factor) || !is_ratio(warm_factor) {
                b"ERROR hot/warm age factors must be greater than 0\r\n"
            } else {
                OK
            }
        }
        [b"mode", b"flat" | b"segmented", ..] => OK,
        [b"temp_ttl", seconds, ..] => {
            if i32_of(seconds).is_some() {
                OK
            } else {
                ERROR
            }
        }
        _ => ERROR,
    }
}

fn crawler(words: &[&[u8]]) -> &'static [u8] {
    match words {
        [b"enable" | b"disable"] => OK,
        [b"sleep", micros] => match u32_of(micros) {
            Some(..=1_000_000) => OK,
            Some(_) => b"CLIENT_ERROR sleep must be one second or less\r\n",
            None => BAD_FORMAT,
        },
        [b"tocrawl", items] => {
            if u32_of(items).is_some() {
                OK
            } else {
                BAD_FORMAT
            }
        }
        [b"crawl", classes] => match *classes {
            b"all" => OK,
            // expired items are searched for all the time, wherever they are
            classes if self::classes(classes).is_some() => OK,
            _ => NO_CLASS,
        },
        // What could be listed is listed before it comes here.
        [b"metadump" | b"mgdump", _] => NO_CLASS,
        _ => ERROR,
    }
}

/// Numbers of classes between commas; `None` if one of them is none.
pub(super) fn classes(word: &[u8]) -> Option<Vec<u32>> {
    word.split(|&byte| byte == b',').map(u32_of).collect()
}

fn u32_of(word: &[u8]) -> Option<u32> {
    number::parse_u64_digits(word).and_then(|value| u32::try_from(value).ok())
}

fn i32_of(word: &[u8]) -> Option<i32> {
    number::parse_i64(word).and_then(|value| i32::try_from(value).ok())
}

fn is_number(word: &[u8]) -> bool {
    number::parse_f64(word).is_some()
}

fn is_ratio(word: &[u8]) -> bool {
    number::parse_f64(word).is_some_and(|value| value > 0.0)
}

const OK: &[u8] = b"OK\r\n";
const ERROR: &[u8] = b"ERROR\r\n";
const NO_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// More words than any of the commands has.
const WORDS_MAX: usize = 8;
