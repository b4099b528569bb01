//! Locks of the server: [`lock`]. Called by whatever shares a map or a list between threads. It names no other module.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex whose data stays sound even if a holder panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
