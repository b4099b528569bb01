//! The same for collections: adding to an existing one, in one function.
//!
//! [`crate::Keyed`] handles the other cases (new keys, deadlines, members that expire, a running snapshot).

use darter_base::hash::KeyHasher;
use darter_slab::{Arena, Handle};

use super::{Key, Shard};
use crate::Keyed;
use crate::object::Collection;
use crate::record::{self, Record, RecordPayload, RecordValue};
use crate::value_type::Type;

impl Shard {
    /// Passes the collection at a key to `change`, which must not leave it empty. `None`: nothing was done, and
    /// `change` was not called. The caller reports the event.
    #[inline(always)]
    pub fn add_plainly<T: Collection, R>(
        &mut self,
        db: usize,
        key: Key<'_>,
        now_ms: u64,
        change: impl FnOnce(&mut T, &mut Arena, KeyHasher) -> R,
    ) -> Option<R> {
        let handle = self.look(db, key).handle;
        // Readers may have to keep a series as it was.
        if handle.is_none() || self.cut.is_some() || T::TYPE == Type::Series {
            return None;
        }
        let result = match (Record { tail: self.arena.tail(handle) }).plain_object()? {
            RecordValue::Object(kind, id) if kind == T::TYPE => {
                let root =
                    T::of_mut(self.objects.get_mut(id)).filter(|root| root.next_expiry_ms().is_none())?;
                let result = change(root, &mut self.arena, self.hasher);
                debug_assert!(!root.has_no_member(), "the last member went");
                let (next, is_unswept) = (root.next_expiry_ms(), root.is_unswept());
                if is_unswept {
                    self.note_unswept(id);
                }
                if next.is_some() {
                    Keyed::find(self, db, key, now_ms).note_members(None, next);
                }
                result
            }
            RecordValue::Folded(kind, block) if kind == T::TYPE => {
                let mut root = T::unfold(Handle::from_raw(block), &self.arena)?;
                let result = change(&mut root, &mut self.arena, self.hasher);
                match root.fold(&self.arena) {
                    Some(now) => {
                        // The root owns nothing but the block.
                        std::mem::forget(root);
                        if now.raw() != block {
                            let payload = RecordPayload::Folded(T::TYPE, now.raw());
                            record::overwrite_object(self.arena.tail_mut(handle), &payload);
                        }
                    }
                    None => _ = Keyed::find(self, db, key, now_ms).settle_unfolded(root),
                }
                result
            }
            _ => return None,
        };
        if self.counts_uses {
            self.note_use(db, key.hash, handle);
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests;
