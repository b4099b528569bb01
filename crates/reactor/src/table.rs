//! A slab of tenants addressed by names that carry a generation, so that old names find nothing.

use crate::token::{GENERATION_MASK, generation_of, index_of, name};

/// Slots of `T`, dense from zero; freed slots are reused latest first.
#[derive(Debug)]
pub(crate) struct ConnectionTable<T> {
    slots: Vec<TableSlot<T>>,
    free_head: u32, // index of a free slot, or NONE
    len: usize,     // occupied slots, <= slots.len()
}

#[derive(Debug)]
struct TableSlot<T> {
    generation: u32,
    free_next: u32,
    tenant: Option<T>,
}

impl<T> ConnectionTable<T> {
    pub(crate) fn new() -> ConnectionTable<T> {
        ConnectionTable { slots: Vec::new(), free_head: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, name: u64) -> Option<&T> {
        let slot = self.slots.get(index_of(name))?;
        if slot.generation == generation_of(name) { slot.tenant.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, name: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(index_of(name))?;
        if slot.generation == generation_of(name) { slot.tenant.as_mut() } else { None }
    }

    /// Names of all tenants.
    pub(crate) fn names(&self) -> impl Iterator<Item = u64> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.tenant.is_some())
            .map(|(index, slot)| name(index as u32, slot.generation))
    }

    /// Moves a tenant in and names it. File descriptors bound the length far below the index width.
    pub(crate) fn insert(&mut self, tenant: T) -> u64 {
        self.len += 1;
        if self.free_head == NONE {
            let index = self.slots.len() as u32;
            self.slots.push(TableSlot { generation: 0, free_next: NONE, tenant: Some(tenant) });
            return name(index, 0);
        }
        let index = self.free_head;
        let slot = &mut self.slots[index as usize];
        self.free_head = slot.free_next;
        slot.tenant = Some(tenant);
        name(index, slot.generation)
    }

    /// Moves the tenant out; its name is stale from now on.
    pub(crate) fn remove(&mut self, name: u64) -> Option<T> {
        let index = index_of(name);
        let slot = self.slots.get_mut(index)?;
        if slot.generation != generation_of(name) {
            return None;
        }
        let tenant = slot.tenant.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.free_next = self.free_head;
        self.free_head = index as u32;
        self.len -= 1;
        Some(tenant)
    }
}

const NONE: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_does_not_answer_to_the_old_name() {
        let mut table = ConnectionTable::new();
        let first = table.insert('a');
        let second = table.insert('b');
        assert_eq!(table.remove(first), Some('a'));
        let third = table.insert('c');
        assert_eq!(index_of(third), index_of(first));
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!((table.get(second), table.get(third), table.len()), (Some(&'b'), Some(&'c'), 2));
    }

    #[test]
    fn generations_wrap_within_their_bits() {
        let mut table = ConnectionTable::new();
        let name = table.insert(0);
        table.slots[index_of(name)].generation = GENERATION_MASK;
        let last = super::name(0, GENERATION_MASK);
        assert_eq!(table.remove(last), Some(0));
        assert_eq!(generation_of(table.insert(1)), 0);
    }
}
