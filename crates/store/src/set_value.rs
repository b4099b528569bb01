//! A set: its integers as rows of numbers, its other members in a table of packs, side by side.
//!
//! Adding one text never converts the integers. Members that expire live in the table, integers too.
//! Called by the set commands and by RDB's forms; never knows keys or clients.

use darter_base::hash::KeyHasher;
use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::table::{EntryRef, FieldExpiry, Inserted, PackKind, Table};
use darter_pack::tree::{Direction, IntSet};
use darter_slab::{Arena, Handle};

use crate::error::ShardFull;

/// A set of members. Its blocks are given back by `free_step` before it is dropped.
#[derive(Debug)]
pub struct SetValue {
    body: SetBody,
}

#[derive(Debug)]
enum SetBody {
    Ints(IntSet),
    Texts(Table),
    Both(Box<Both>),
}

// Most sets have members of one sort. Only mixed sets pay for both roots.
#[derive(Debug)]
struct Both {
    ints: IntSet,
    texts: Table,
}

/// A member that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// When it expires, Unix milliseconds.
    pub expiry_ms: Option<u64>,
}

impl Default for SetValue {
    fn default() -> SetValue {
        SetValue::new()
    }
}

impl SetValue {
    /// An empty set. Costs nothing.
    pub const fn new() -> SetValue {
        SetValue { body: SetBody::Ints(IntSet::new()) }
    }

    /// The members kept as integers.
    #[inline]
    pub fn ints(&self) -> Option<&IntSet> {
        match &self.body {
            SetBody::Ints(ints) => Some(ints),
            SetBody::Texts(_) => None,
            SetBody::Both(both) => Some(&both.ints),
        }
    }

    /// The members kept in a table.
    #[inline]
    pub fn texts(&self) -> Option<&Table> {
        match &self.body {
            SetBody::Ints(_) => None,
            SetBody::Texts(texts) => Some(texts),
            SetBody::Both(both) => Some(&both.texts),
        }
    }

    /// Number of members, expired ones not yet removed included.
    #[inline]
    pub fn len(&self) -> u64 {
        self.ints_len() + self.texts().map_or(0, |texts| texts.len() as u64)
    }

    /// Moves packs of the members kept in a table, as [`Table::compact_step`] does; the integers are not moved.
    pub fn compact_texts(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
        match &mut self.body {
            SetBody::Ints(_) => 0,
            SetBody::Texts(texts) => texts.compact_step(arena, cursor, packs_max),
            SetBody::Both(both) => both.texts.compact_step(arena, cursor, packs_max),
        }
    }

    /// Returns true if there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ints_len(&self) -> u64 {
        self.ints().map_or(0, IntSet::len)
    }

    /// The member, unless it is missing or its time is up at `now_ms`.
    #[inline]
    pub fn get(&self, arena: &Arena, hasher: KeyHasher, member: Item<'_>, now_ms: u64) -> Option<Found> {
        if let (Some(ints), Item::Int(value)) = (self.ints(), member)
            && ints.contains(arena, value)
        {
            return Some(Found { expiry_ms: None });
        }
        let texts = self.texts()?;
        let mut digits = Digits::new();
        let text = member.text(&mut digits);
        let entry = texts.get(arena, hasher.hash(text), text)?;
        is_alive(&entry, now_ms).then(|| Found { expiry_ms: entry.expiry_ms() })
    }

    /// Returns true if `member` is there at `now_ms`.
    #[inline]
    pub fn contains(&self, arena: &Arena, hasher: KeyHasher, member: Item<'_>, now_ms: u64) -> bool {
        self.get(arena, hasher, member, now_ms).is_some()
    }

    /// Prefetches the memory of the next members, except integers in rows.
    #[cold]
    #[inline(never)]
    pub fn look_ahead<'a>(&self, arena: &Arena, hasher: KeyHasher, members: impl Iterator<Item = &'a [u8]>) {
        if let Some(texts) = self.texts() {
            members.for_each(|member| texts.prefetch(arena, hasher.hash(member)));
        }
    }

    /// Adds `member`, or gives it another expiry; returns whether it is new.
    ///
    /// Errors: no room; the set is unchanged.
    #[inline]
    pub fn insert(
        &mut self,
        arena: &mut Arena,
        hasher: KeyHasher,
        member: Item<'_>,
        expiry: FieldExpiry,
    ) -> Result<bool, ShardFull> {
        if let (Item::Int(value), FieldExpiry::Keep | FieldExpiry::Clear) = (member, expiry)
            && !self.has_text(arena, hasher, member)
        {
            return self.ints_mut().insert(arena, value).map_err(|_| ShardFull);
        }
        let mut digits = Digits::new();
        let text = member.text(&mut digits);
        let hash = hasher.hash(text);
        let of_key = |key: &[u8]| hasher.hash(key);
        let inserted = self.texts_mut().insert(arena, hash, text, Item::Int(0), expiry, &of_key);
        let is_new = inserted.map_err(|_| ShardFull)? == Inserted::New;
        // An integer that is to expire moved out of the rows.
        let was_int = is_new
            && match (&mut self.body, member) {
                (SetBody::Both(both), Item::Int(value)) => both.ints.remove(arena, value),
                _ => false,
            };
        self.settle();
        Ok(is_new && !was_int)
    }

    /// Like [`SetValue::insert`], except that an expired member at `now_ms` counts as missing: it is new, and gets no
    /// deadline unless `expiry` sets one.
    #[inline]
    pub fn insert_alive(
        &mut self,
        arena: &mut Arena,
        hasher: KeyHasher,
        member: Item<'_>,
        expiry: FieldExpiry,
        now_ms: u64,
    ) -> Result<bool, ShardFull> {
        let is_dead = self.may_have_dead(now_ms) && self.is_missing(arena, hasher, member, now_ms);
        let expiry = if is_dead && expiry == FieldExpiry::Keep { FieldExpiry::Clear } else { expiry };
        Ok(self.insert(arena, hasher, member, expiry)? || is_dead)
    }

    /// Like [`SetValue::remove`], except that an expired member at `now_ms` is removed but counts as missing.
    #[inline]
    pub fn remove_alive(
        &mut self,
        arena: &mut Arena,
        hasher: KeyHasher,
        member: Item<'_>,
        now_ms: u64,
    ) -> bool {
        let is_dead = self.may_have_dead(now_ms) && self.is_missing(arena, hasher, member, now_ms);
        self.remove(arena, hasher, member) && !is_dead
    }

    #[inline]
    fn may_have_dead(&self, now_ms: u64) -> bool {
        self.next_expiry_ms().is_some_and(|ms| ms <= now_ms)
    }

    // Separate from its callers, which seldom need it: a set has expired members only until housekeeping removes
    // them.
    #[cold]
    #[inline(never)]
    fn is_missing(&self, arena: &Arena, hasher: KeyHasher, member: Item<'_>, now_ms: u64) -> bool {
        !self.contains(arena, hasher, member, now_ms)
    }

    fn has_text(&self, arena: &Arena, hasher: KeyHasher, member: Item<'_>) -> bool {
        let Some(texts) = self.texts() else { return false };
        let mut digits = Digits::new();
        let text = member.text(&mut digits);
        texts.contains(arena, hasher.hash(text), text)
    }

    /// Takes `member` out; returns whether it was there.
    #[inline]
    pub fn remove(&mut self, arena: &mut Arena, hasher: KeyHasher, member: Item<'_>) -> bool {
        let removed = match (&mut self.body, member) {
            (SetBody::Ints(ints), Item::Int(value)) => return ints.remove(arena, value),
            (SetBody::Ints(_), Item::Bytes(_)) => return false,
            (SetBody::Texts(texts), _) => remove_text(texts, arena, hasher, member),
            (SetBody::Both(both), Item::Int(value)) => {
                both.ints.remove(arena, value) || remove_text(&mut both.texts, arena, hasher, member)
            }
            (SetBody::Both(both), Item::Bytes(_)) => remove_text(&mut both.texts, arena, hasher, member),
        };
        if removed {
            self.settle();
        }
        removed
    }

    /// The members alive at `now_ms`: integers rising, then the others in no order.
    pub fn iter<'a>(&'a self, arena: &'a Arena, now_ms: u64) -> impl Iterator<Item = Item<'a>> + 'a {
        let ints = self.ints().map(|ints| ints.iter(arena, 0, Direction::Up).map(Item::Int));
        let texts = self.texts().map(|texts| {
            texts.iter(arena).filter(move |entry| is_alive(entry, now_ms)).map(|entry| entry.key())
        });
        ints.into_iter().flatten().chain(texts.into_iter().flatten())
    }

    /// A member chosen by `r`, each about as likely as any other; it may have expired.
    pub fn random<'a>(&'a self, arena: &'a Arena, r: u64) -> Option<Item<'a>> {
        let rank = ((u128::from(r) * u128::from(self.len())) >> 64) as u64;
        match self.ints() {
            Some(ints) if rank < ints.len() => ints.nth(arena, rank).map(Item::Int),
            _ => self.texts()?.random(arena, r.rotate_left(32)).map(|entry| entry.key()),
        }
    }

    /// Passes about `count` members from `cursor` on to `emit`; returns the next cursor, 0 at the end.
    ///
    /// A member that is present from the first call (cursor 0) to the last is emitted at least once.
    pub fn scan<'a>(
        &'a self,
        arena: &'a Arena,
        cursor: u64,
        count: usize,
        hasher: KeyHasher,
        now_ms: u64,
        mut emit: impl FnMut(Item<'a>),
    ) -> u64 {
        let mut given = 0;
        let mut table_from = (1..=TABLE_START).contains(&cursor).then_some(cursor % TABLE_START);
        if table_from.is_none() {
            if let Some(ints) = self.ints() {
                let next = ints.scan(arena, cursor & !LOW_INTS, count, |value| {
                    given += 1;
                    emit(Item::Int(value));
                });
                if next != 0 {
                    return if next <= TABLE_START { next | LOW_INTS } else { next };
                }
            }
            table_from = Some(0);
        }
        let (Some(texts), Some(from)) = (self.texts(), table_from) else { return 0 };
        if given >= count {
            return TABLE_START;
        }
        texts.scan(arena, from, count - given, &|key: &[u8]| hasher.hash(key), |entry| {
            if is_alive(&entry, now_ms) {
                emit(entry.key());
            }
        })
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn bytes(&self) -> usize {
        let root = if matches!(self.body, SetBody::Both(_)) { size_of::<Both>() } else { 0 };
        root + self.ints().map_or(0, IntSet::bytes) + self.texts().map_or(0, Table::bytes)
    }

    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        match &mut self.body {
            SetBody::Ints(ints) => ints.free_step(arena, blocks_max),
            SetBody::Texts(texts) => texts.free_step(arena, blocks_max),
            SetBody::Both(both) => {
                if both.ints.free_step(arena, blocks_max) && both.texts.free_step(arena, blocks_max) {
                    self.body = SetBody::Ints(IntSet::new());
                    return true;
                }
                false
            }
        }
    }

    /// No member expires before this, Unix milliseconds; `None` when none expires.
    #[inline]
    pub fn next_expiry_ms(&self) -> Option<u64> {
        self.texts()?.min_expiry_ms()
    }

    /// Removes members that have expired, examining at most `packs_max` packs; returns their number.
    pub fn expire_due(&mut self, arena: &mut Arena, now_ms: u64, packs_max: usize) -> usize {
        let texts = match &mut self.body {
            SetBody::Ints(_) => return 0,
            SetBody::Texts(texts) => texts,
            SetBody::Both(both) => &mut both.texts,
        };
        let removed = texts.expire_due(arena, now_ms, packs_max, |_| {}).removed;
        self.settle();
        removed
    }

    /// [`Table::fold`] for a set that has only texts.
    #[inline]
    pub fn fold(&self, arena: &Arena) -> Option<Handle> {
        match &self.body {
            SetBody::Texts(texts) => texts.fold(arena),
            SetBody::Ints(_) | SetBody::Both(_) => None,
        }
    }

    /// The set that [`SetValue::fold`] gave `pack` for.
    #[inline]
    pub fn unfold(pack: Handle, arena: &Arena) -> SetValue {
        SetValue { body: SetBody::Texts(Table::unfold(PackKind::Keys, pack, arena)) }
    }

    fn ints_mut(&mut self) -> &mut IntSet {
        if let SetBody::Texts(texts) = &mut self.body {
            let texts = std::mem::replace(texts, Table::new(PackKind::Keys));
            self.body = SetBody::Both(Box::new(Both { ints: IntSet::new(), texts }));
        }
        match &mut self.body {
            SetBody::Ints(ints) => ints,
            SetBody::Both(both) => &mut both.ints,
            SetBody::Texts(_) => unreachable!("made into both above"),
        }
    }

    /// The members kept as integers, to be read in steps.
    pub(crate) fn read_ints_mut(&mut self) -> Option<&mut IntSet> {
        match &mut self.body {
            SetBody::Ints(ints) => Some(ints),
            SetBody::Texts(_) => None,
            SetBody::Both(both) => Some(&mut both.ints),
        }
    }

    /// The table of members kept as texts, to be written in pieces.
    pub(crate) fn guarded_texts_mut(&mut self) -> Option<&mut Table> {
        match &mut self.body {
            SetBody::Ints(_) => None,
            SetBody::Texts(texts) => Some(texts),
            SetBody::Both(both) => Some(&mut both.texts),
        }
    }

    fn texts_mut(&mut self) -> &mut Table {
        if let SetBody::Ints(ints) = &mut self.body {
            let texts = Table::new(PackKind::Keys);
            self.body = if ints.is_empty() && !ints.is_read() {
                SetBody::Texts(texts)
            } else {
                SetBody::Both(Box::new(Both { ints: std::mem::take(ints), texts }))
            };
        }
        match &mut self.body {
            SetBody::Texts(texts) => texts,
            SetBody::Both(both) => &mut both.texts,
            SetBody::Ints(_) => unreachable!("made into another above"),
        }
    }

    /// Drops the root of the integers with the last of them, and everything with the last member. The root of the
    /// texts stays: as in Redis, a set that once had a text is not a set of integers again.
    fn settle(&mut self) {
        // A stepwise reader of the integers may still need removed ones.
        if let SetBody::Both(both) = &mut self.body
            && both.ints.is_empty()
            && !both.ints.is_read()
        {
            self.body = SetBody::Texts(std::mem::replace(&mut both.texts, Table::new(PackKind::Keys)));
        }
        if matches!(&self.body, SetBody::Texts(texts) if texts.is_empty()) {
            self.body = SetBody::Ints(IntSet::new());
        }
    }
}

fn remove_text(texts: &mut Table, arena: &mut Arena, hasher: KeyHasher, member: Item<'_>) -> bool {
    let mut digits = Digits::new();
    let text = member.text(&mut digits);
    texts.remove(arena, hasher.hash(text), text)
}

fn is_alive(entry: &EntryRef<'_>, now_ms: u64) -> bool {
    entry.expiry_ms().is_none_or(|ms| ms > now_ms)
}

// Scan cursors. 0 begins with the integers. Below TABLE_START: cursors of the table. TABLE_START: the table's start.
// Above: cursors of the integers; those that would be lower are marked.
const TABLE_START: u64 = 1 << 48;
const LOW_INTS: u64 = 1 << 63;

#[cfg(test)]
mod tests;
