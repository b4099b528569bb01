//! Idle times of keys.
//!
//! Normally no time is kept per key; only the last use of any key of its shard is known. A request for the idle time
//! of a key, or setting it, makes its extras keep the time from then on, until the key is set anew. Called for OBJECT
//! IDLETIME, DEBUG OBJECT and RESTORE.

use crate::extras::Extras;
use crate::keyed::Keyed;
use crate::uses::seconds;

impl Keyed<'_> {
    /// Seconds since the last use of the key, or fewer if that is not known. The time is kept from now on. `None`:
    /// there is no key.
    pub fn idle_seconds(&mut self) -> Option<u64> {
        let now_ms = self.now_ms;
        self.slot?;
        self.shard.note_uses(now_ms);
        let last_s = match self.extras().and_then(|extras| extras.access_s) {
            Some(last_s) => last_s,
            None => {
                let last_s = seconds(self.shard.uses.last_ms);
                self.set_last_use(last_s);
                last_s
            }
        };
        Some(u64::from(seconds(now_ms).saturating_sub(last_s)))
    }

    /// Sets the idle time of a key.
    pub fn set_idle_seconds(&mut self, idle_s: u64) {
        let idle_s = u32::try_from(idle_s).unwrap_or(u32::MAX);
        self.set_last_use(seconds(self.now_ms).saturating_sub(idle_s));
    }

    /// The OBJECT FREQ value set by RESTORE, unless the key was set since.
    pub fn said_frequency(&self) -> Option<u8> {
        self.extras().and_then(|extras| extras.frequency)
    }

    /// Keeps the OBJECT FREQ value in the key's extras.
    pub fn say_frequency(&mut self, frequency: u8) {
        let extras = self.extras().unwrap_or_default();
        let _ = self.set_extras(Extras { frequency: Some(frequency), ..extras });
    }

    fn set_last_use(&mut self, last_s: u32) {
        let extras = self.extras().unwrap_or_default();
        // If there is no room, the time is not known.
        let _ = self.set_extras(Extras { access_s: Some(last_s), ..extras });
    }
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;

    use crate::Keyed;
    use crate::change::{Class, Event};
    use crate::record::Expiry;
    use crate::shard::{Key, Shard};

    const SET: Event = Event::new(Class::STRING, "set");
    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn idle_time_is_a_lower_bound_until_it_is_asked_for_and_exact_then() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        let key = |name: &'static str| Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
        let idle = |shard: &mut Shard, name, at_s: u64| {
            Keyed::find(shard, 0, key(name), NOW + at_s * 1000).idle_seconds()
        };
        for name in ["a", "b"] {
            shard.set_text(0, key(name), b"value", NOW, SET).expect("room");
        }
        shard.note_uses(NOW);
        assert_eq!(idle(&mut shard, "none", 9), None);
        assert!(Keyed::untouched(&mut shard, 0, key("a"), NOW + 5000).exists());
        assert_eq!(idle(&mut shard, "a", 10), Some(10));
        assert_eq!(shard.read_text(0, key("b"), NOW + 20_000).map(|text| text.is_some()), Ok(true));
        // the use may have been of "b"
        assert_eq!((idle(&mut shard, "a", 30), idle(&mut shard, "b", 30)), (Some(30), Some(0)));
        assert_eq!(idle(&mut shard, "b", 33), Some(3));
        shard.pause_uses(true);
        assert!(Keyed::read(&mut shard, 0, key("a"), NOW + 40_000).exists());
        shard.pause_uses(false);
        assert_eq!(idle(&mut shard, "a", 41), Some(41));
        assert_eq!(shard.read_text(0, key("a"), NOW + 42_000).map(|text| text.is_some()), Ok(true));
        assert_eq!(idle(&mut shard, "a", 44), Some(2));
        assert!(Keyed::read(&mut shard, 0, key("a"), NOW + 45_000).exists());
        assert_eq!(idle(&mut shard, "a", 45), Some(0));
        let mut place = Keyed::find(&mut shard, 0, key("c"), NOW + 50_000);
        place.put_text(b"value", Expiry::None).expect("room");
        place.set_idle_seconds(1000);
        assert_eq!(idle(&mut shard, "c", 51), Some(1001));
    }
}
