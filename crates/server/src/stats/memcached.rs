//! What `stats` counts of memcached's commands, one set per thread.

use crate::stats::Count;

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident = $stat:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Counter {
            $($(#[doc = $doc])* $name,)*
        }

        impl Counter {
            /// Every counter, in the order of `Counter as usize`.
            pub const ALL: &[Counter] = &[$(Counter::$name),*];

            /// The name `stats` gives it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Counter::$name => $stat,)*
                }
            }
        }
    };
}

counters! {
    /// Keys asked for.
    Get = "cmd_get";
    /// Values sent to be stored.
    Set = "cmd_set";
    /// `flush_all`.
    Flush = "cmd_flush";
    /// Keys whose time to live was changed.
    Touch = "cmd_touch";
    /// Meta commands.
    Meta = "cmd_meta";
    /// Keys asked for and found.
    GetHit = "get_hits";
    /// Keys asked for and not found.
    GetMiss = "get_misses";
    /// Of these, keys whose time was up.
    GetExpired = "get_expired";
    /// Deletes of keys that were not there.
    DeleteMiss = "delete_misses";
    /// Deletes of keys that were there.
    DeleteHit = "delete_hits";
    /// Additions to keys that were not there.
    IncrMiss = "incr_misses";
    /// Additions.
    IncrHit = "incr_hits";
    /// Subtractions from keys that were not there.
    DecrMiss = "decr_misses";
    /// Subtractions.
    DecrHit = "decr_hits";
    /// Compared tokens of keys that were not there.
    CasMiss = "cas_misses";
    /// Compared tokens that were the key's.
    CasHit = "cas_hits";
    /// Compared tokens that were not the key's.
    CasBad = "cas_badval";
    /// Touched keys that were there.
    TouchHit = "touch_hits";
    /// Touched keys that were not there.
    TouchMiss = "touch_misses";
    /// Values past the limit.
    TooLarge = "store_too_large";
    /// Values there was no room for.
    NoRoom = "store_no_memory";
    /// Values stored.
    Stored = "total_items";
    /// Logins tried.
    Auth = "auth_cmds";
    /// Logins refused.
    AuthError = "auth_errors";
    /// Clients of any protocol that `timeout` closed.
    IdleKick = "idle_kicks";
}

/// A thread's counters.
#[derive(Debug, Default)]
pub struct MemcachedCounts([Count; Counter::ALL.len()]);

impl MemcachedCounts {
    /// Adds one; only the owning thread may.
    #[inline]
    pub fn add(&self, counter: Counter) {
        self.0[counter as usize].add(1);
    }

    /// How often it was counted.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].get()
    }

    /// Back to zero.
    pub fn reset(&self) {
        self.0.iter().for_each(Count::reset);
    }
}
