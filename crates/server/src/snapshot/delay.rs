//! The sleep for each key that tests ask for, so that a save or a load takes long: `rdb-key-save-delay` and
//! `key-load-delay`. Called by the writer of snapshots and by what reads snapshots and journals. Never sleeps unless a delay
//! is set.

use std::thread;
use std::time::Duration;

/// The longest single sleep: after it the setting is read again.
pub const NAP: Duration = Duration::from_millis(20);

/// Sleeps for `keys` keys: `delay_us` microseconds for each, or one microsecond for N keys if it is -N. Ends early when
/// `is_over` says so.
pub fn sleep(keys: u64, delay_us: impl Fn() -> i64, is_over: impl Fn() -> bool) {
    let mut slept = Duration::ZERO;
    loop {
        // Read each time, so that the sleep can be ended.
        let delay = delay_us();
        let micros = match u64::try_from(delay) {
            Ok(delay) => delay.saturating_mul(keys),
            Err(_) => keys / delay.unsigned_abs().max(1),
        };
        let left = Duration::from_micros(micros).saturating_sub(slept);
        if left.is_zero() || is_over() {
            return;
        }
        let nap = left.min(NAP);
        thread::sleep(nap);
        slept += nap;
    }
}
