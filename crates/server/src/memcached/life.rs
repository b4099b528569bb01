//! How long an item lives: memcached's seconds as deadlines.

use darter_store::{Event, Expiry, Keyed, error::ShardFull};

use super::{EXPIRE_EVENT, PERSIST_EVENT};

/// What an expiry time means now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// It never expires.
    Endless,
    /// It expires at this time, Unix milliseconds.
    Until(u64),
    /// It has expired already.
    Over,
}

/// Times up to 30 days are from now on, longer ones Unix time.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

impl Life {
    /// The meaning of `seconds` at `now_ms`.
    pub fn of(seconds: i64, now_ms: u64) -> Life {
        let ms = u64::try_from(seconds).map(|seconds| seconds.saturating_mul(1000));
        match ms {
            Ok(0) => Life::Endless,
            Ok(ms) if seconds <= RELATIVE_SECONDS_MAX => Life::Until(now_ms.saturating_add(ms)),
            Ok(ms) if ms > now_ms => Life::Until(ms),
            _ => Life::Over,
        }
    }

    /// What a write makes of it; nothing can be written with one that is over.
    pub fn expiry(self) -> Option<Expiry> {
        match self {
            Life::Endless => Some(Expiry::None),
            Life::Until(ms) => Some(Expiry::At(ms)),
            Life::Over => None,
        }
    }

    /// Whole seconds left at `now_ms` as the `t` of meta commands tells them, -1 without end.
    pub fn seconds_left(self, now_ms: u64) -> i64 {
        match self {
            Life::Endless => -1,
            Life::Until(ms) => i64::try_from(ms.saturating_sub(now_ms).div_ceil(1000)).unwrap_or(i64::MAX),
            Life::Over => 0,
        }
    }

    /// The life of a key that is there.
    pub fn of_key(place: &Keyed<'_>) -> Life {
        place.deadline_ms().map_or(Life::Endless, Life::Until)
    }

    /// Gives it to a key that is there and tells the change; one whose life is over is deleted.
    ///
    /// Errors: no room; nothing changed.
    pub fn give(self, place: &mut Keyed<'_>) -> Result<(), ShardFull> {
        match self {
            Life::Endless if place.deadline_ms().is_none() => {}
            Life::Endless => {
                place.set_deadline(None)?;
                place.changed(PERSIST_EVENT);
            }
            Life::Until(ms) => {
                place.set_deadline(Some(ms))?;
                place.changed(EXPIRE_EVENT);
            }
            Life::Over => {
                place.remove();
                place.changed(Event::DEL);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_from_now_up_to_thirty_days() {
        const NOW: u64 = 1_700_000_000_500;
        for (seconds, life) in [
            (0, Life::Endless),
            (-1, Life::Over),
            (i64::MIN, Life::Over),
            (1, Life::Until(NOW + 1000)),
            (2_592_000, Life::Until(NOW + 2_592_000_000)),
            (2_592_001, Life::Over),
            (1_700_000_000, Life::Over),
            (1_700_000_001, Life::Until(1_700_000_001_000)),
            (i64::MAX, Life::Until(u64::MAX)),
        ] {
            assert_eq!(Life::of(seconds, NOW), life, "{seconds}");
        }
        assert_eq!(Life::of(10, NOW).seconds_left(NOW), 10);
        assert_eq!(Life::of(10, NOW).seconds_left(NOW + 1), 10);
        assert_eq!(Life::of(10, NOW).seconds_left(NOW + 1000), 9);
        assert_eq!((Life::Endless.seconds_left(NOW), Life::Over.seconds_left(NOW)), (-1, 0));
    }
}
