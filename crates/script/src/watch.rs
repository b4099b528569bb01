//! A running script as other threads see it: since when it runs, whether it has written, whether it is to end.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

/// One thread's script, if one runs.
#[derive(Debug, Default)]
pub struct Watch {
    since_ms: AtomicU64,
    state: AtomicU8,
}

const IDLE: u8 = 0;
const CLEAN: u8 = 1;
const WRITTEN: u8 = 2;
const KILLED: u8 = 3;

/// What came of an attempt to end a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Killing {
    /// It ends.
    Done,
    /// It has written already.
    Refused,
    /// There is none.
    Idle,
}

impl Watch {
    /// A script begins at `now_ms`, Unix milliseconds.
    pub fn begin(&self, now_ms: u64) {
        self.since_ms.store(now_ms, Release);
        self.state.store(CLEAN, Release);
    }

    /// It has ended; whether it was killed.
    pub fn end(&self) -> bool {
        self.state.swap(IDLE, AcqRel) == KILLED
    }

    /// It is about to write; false when it has been killed, and then it must not.
    pub fn note_write(&self) -> bool {
        self.state.compare_exchange(CLEAN, WRITTEN, AcqRel, Acquire) != Err(KILLED)
    }

    /// Ends it, if it has written nothing.
    pub fn kill(&self) -> Killing {
        match self.state.compare_exchange(CLEAN, KILLED, AcqRel, Acquire) {
            Ok(_) | Err(KILLED) => Killing::Done,
            Err(WRITTEN) => Killing::Refused,
            Err(_) => Killing::Idle,
        }
    }

    /// Whether it is to end.
    pub fn is_killed(&self) -> bool {
        self.state.load(Acquire) == KILLED
    }

    /// Whether one runs that began before `ms_ago` milliseconds.
    pub fn runs_for(&self, ms_ago: u64, now_ms: u64) -> bool {
        self.state.load(Acquire) != IDLE && now_ms.saturating_sub(self.since_ms.load(Acquire)) > ms_ago
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_written_is_not_killed_and_what_is_killed_does_not_write() {
        let watch = Watch::default();
        assert_eq!(watch.kill(), Killing::Idle);
        watch.begin(1000);
        assert!(watch.runs_for(500, 2000) && !watch.runs_for(5000, 2000));
        assert!(watch.note_write() && watch.note_write());
        assert_eq!(watch.kill(), Killing::Refused);
        assert!(!watch.end() && !watch.runs_for(0, 9000));
        watch.begin(1000);
        assert_eq!((watch.kill(), watch.kill()), (Killing::Done, Killing::Done));
        assert!(!watch.note_write() && watch.is_killed() && watch.end() && !watch.is_killed());
    }
}
