//! A gathered result that is stored under a key: built as a draft in slices, and given its key when it is complete.
//!
//! While it is built, the keys of its sources are watched, as by WATCH. If one of them changes, the result is
//! discarded and the command restarts. The stored result therefore matches the sources at the moment of storing.
//! Called by `Incremental`, by the server for the last step, and by the command's body, which then finds the result
//! in its context.

use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry as MemberExpiry, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List, Zset};
use darter_store::change::Listeners;
use darter_store::draft::Draft;
use darter_store::{Collection, Event, Expiry, KeyView, Keyed, Object, SetValue, Shard};
use darter_txn::watch::WatchFlag;

use super::{FoundValue, Told, told_members};
use crate::slices::LEN_MAX;
use crate::{Ctx, Env, Fault};

/// The form in which a result is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StagedForm {
    /// A set; scores are left out.
    Set,
    /// A sorted set.
    Zset,
    /// A list, in the order of the result.
    List,
    /// A list, each member before those that came earlier.
    Stack,
    /// A hash: every second member is a value.
    Hash,
}

impl StagedForm {
    /// Members that are added in some 20 microseconds.
    pub(super) fn batch_len(self) -> usize {
        match self {
            StagedForm::Set | StagedForm::Hash => 64,
            StagedForm::Zset => 20,
            StagedForm::List | StagedForm::Stack => 256,
        }
    }

    fn empty(self) -> Object {
        match self {
            StagedForm::Set => SetValue::new().wrap(),
            StagedForm::Zset => Zset::new().wrap(),
            StagedForm::List | StagedForm::Stack => List::new().wrap(),
            StagedForm::Hash => Table::new(PackKind::KeysAndValues).wrap(),
        }
    }
}

/// The result so far, and its sources.
pub struct StagedWrite {
    form: StagedForm,
    /// The shard of the destination.
    pub(super) shard: u16,
    // The number of its draft there, once there is one.
    draft: Option<u32>,
    is_full: bool,
    // Members whose score has changed.
    updated: u64,
    db: usize,
    watched: Vec<Box<[u8]>>,
    flag: WatchFlag,
    /// Number of earlier attempts.
    pub(super) tries: u8,
}

impl StagedWrite {
    /// A result for the key `dest` from the keys `names`, whose shards are held.
    pub(super) fn new(ctx: &mut Ctx<'_>, dest: &[u8], form: StagedForm, names: &[&[u8]]) -> StagedWrite {
        let dest = ctx.key(dest);
        let shard = ctx.shards_mut().router().shard_of(dest.hash);
        let flag = WatchFlag::default();
        let db = ctx.db;
        for name in names {
            let key = ctx.key(name);
            let part = ctx.shards_mut().part_mut(key);
            if part.watches.add(db, name, &flag) {
                part.shard.changes.listen(Listeners::WATCH, true);
            }
        }
        let watched = names.iter().map(|name| Box::from(*name)).collect();
        StagedWrite { form, shard, draft: None, is_full: false, updated: 0, db, watched, flag, tries: 0 }
    }

    /// Has `object` for its draft.
    pub(super) fn with_draft(mut self, ctx: &mut Ctx<'_>, object: Object) -> StagedWrite {
        self.draft = ctx.part(self.shard).map(|part| part.shard.begin_draft(object));
        self
    }

    /// Returns true if a source has changed.
    pub(super) fn is_stale(&self) -> bool {
        self.flag.is_dirty()
    }

    /// Set when a source changes.
    pub(super) fn flag(&self) -> &WatchFlag {
        &self.flag
    }

    pub(super) fn form(&self) -> StagedForm {
        self.form
    }

    /// Its number in its shard.
    pub(super) fn draft(&self) -> Option<(u16, u32)> {
        Some((self.shard, self.draft?))
    }

    /// Adds some of the members in `told`, from byte `at` on; returns the start of the rest.
    pub(super) fn add(&mut self, shard: &mut Shard, told: &[u8], at: usize) -> usize {
        let form = self.form;
        let number = *self.draft.get_or_insert_with(|| shard.begin_draft(form.empty()));
        let Some(mut draft) = shard.draft_mut(number) else { return told.len() };
        let mut members = told_members(told.get(at..).unwrap_or_default());
        for _ in 0..form.batch_len() {
            let Some(member) = members.next() else { break };
            let value = if form == StagedForm::Hash { members.next() } else { None };
            match insert(&mut draft, form, &member, value.as_ref()) {
                Ok(is_updated) => self.updated += u64::from(is_updated),
                Err(_) => self.is_full = true,
            }
        }
        if self.is_full { told.len() } else { told.len() - members.rest().len() }
    }

    /// Looks up the sources, whose shards are held, so that expired ones are removed now.
    pub(super) fn look(&self, ctx: &mut Ctx<'_>) {
        for name in &self.watched {
            let (key, now_ms) = (ctx.key(name), ctx.now_ms);
            Keyed::find(&mut ctx.shards_mut().part_mut(key).shard, self.db, key, now_ms);
        }
    }

    /// Ends it, with the shards of its keys held. Returns the result for the command's body, unless a source has
    /// changed.
    pub(super) fn end(self, fault: Option<Fault>, ctx: &mut Ctx<'_>) -> Option<Staged> {
        for name in &self.watched {
            let key = ctx.key(name);
            let part = ctx.shards_mut().part_mut(key);
            part.watches.remove(self.db, name, &self.flag);
            part.shard.changes.listen(Listeners::WATCH, !part.watches.is_empty());
        }
        let fault = if self.is_full { Some(Fault::OutOfMemory) } else { fault };
        let kept = Staged { draft: self.draft(), fault, updated: self.updated, found: FoundValue::default() };
        if self.flag.is_dirty() {
            kept.give_up(ctx);
            return None;
        }
        Some(kept)
    }
}

/// Adds a member to a draft; returns true if it was there with another score.
fn insert(
    draft: &mut Draft<'_>,
    form: StagedForm,
    member: &Told<'_>,
    value: Option<&Told<'_>>,
) -> Result<bool, Fault> {
    const FULL: Fault = Fault::OutOfMemory;
    let Draft { object, arena, hasher } = draft;
    let item = Item::of(member.text);
    match object {
        Object::Set(set) => {
            set.insert(arena, *hasher, item, MemberExpiry::Keep).map_err(|_| FULL)?;
        }
        Object::Zset(zset) => {
            let is_new = |old| (old != Some(member.score)).then_some(member.score);
            let change = zset.update(arena, hasher, item, is_new).map_err(|_| FULL)?;
            return Ok(change.old.is_some() && change.new.is_some());
        }
        Object::List(list) => {
            let end = if form == StagedForm::Stack { ListEnd::Front } else { ListEnd::Back };
            list.push(arena, end, item).map_err(|_| FULL)?;
        }
        Object::Hash(table) => {
            let value = Item::of(value.map_or(&[][..], |value| value.text));
            let (hash, of_key) = (hasher.hash(member.text), |key: &[u8]| hasher.hash(key));
            let expiry = MemberExpiry::Keep;
            table.insert(arena, hash, member.text, value, expiry, &of_key).map_err(|_| FULL)?;
        }
        Object::Stream(_) | Object::Module(_) => debug_assert!(false, "such a value is built by its command"),
    }
    Ok(false)
}

/// A complete result that has no key yet.
#[derive(Default, Debug)]
pub struct Staged {
    // Its shard and the number of its draft; `None` if it is empty.
    draft: Option<(u16, u32)>,
    fault: Option<Fault>,
    /// Members whose score has changed.
    pub updated: u64,
    /// The results of a search, if nothing is built.
    pub found: FoundValue,
}

impl Staged {
    /// The result, `None` if it is empty; its shard is held.
    ///
    /// Errors: the fault found while it was made.
    pub fn take(self, ctx: &mut Ctx<'_>) -> Result<Option<Object>, Fault> {
        if let Some(fault) = self.fault.clone() {
            self.give_up(ctx);
            return Err(fault);
        }
        let Some((shard, number)) = self.draft else { return Ok(None) };
        Ok(ctx.part(shard).and_then(|part| part.shard.take_draft(number)))
    }

    /// Stores the result at `dest`, replacing any value; an empty one removes the key. Returns its length.
    ///
    /// Errors: the fault found while it was made, or no room; the old value stays.
    pub fn put(self, ctx: &mut Ctx<'_>, dest: &[u8], event: Event) -> Result<u64, Fault> {
        let object = self.take(ctx)?;
        let env = ctx.env;
        let mut place = ctx.at(dest);
        let Some(mut object) = object else {
            if place.remove() {
                place.changed(Event::DEL);
            }
            return Ok(0);
        };
        if let Object::Zset(zset) = &mut object {
            shed_signs(zset, &mut place, env);
        }
        let len = len_of(&object);
        place.put_object(object, Expiry::None)?;
        place.changed(event);
        Ok(len)
    }

    /// Stores the result, a copy of the value at `from` in the selected database, at `dest` of database `db` with the
    /// deadline and marks of `from`. Returns true if both existed.
    ///
    /// Errors: as [`Staged::put`].
    pub fn put_copy(self, ctx: &mut Ctx<'_>, from: &[u8], (db, dest): (usize, &[u8])) -> Result<bool, Fault> {
        let Some(head) = ctx.at(from).head() else {
            self.give_up(ctx);
            return Ok(false);
        };
        let Some(object) = self.take(ctx)? else { return Ok(false) };
        ctx.at_db(db, dest).put_built(object, &head)?;
        Ok(true)
    }

    /// Replaces the value at `name` by the result, its remaining members; its deadline stays.
    ///
    /// Errors: as [`Staged::put`].
    pub fn put_back(self, ctx: &mut Ctx<'_>, name: &[u8]) -> Result<(), Fault> {
        if let Some(object) = self.take(ctx)? {
            ctx.at(name).put_object(object, Expiry::Keep)?;
        }
        Ok(())
    }

    /// The length of the result, whose shard is held.
    pub fn len(&self, ctx: &mut Ctx<'_>) -> u64 {
        let draft = self.draft.and_then(|(shard, number)| ctx.part(shard)?.shard.draft_mut(number));
        draft.map_or(0, |draft| len_of(draft.object))
    }

    /// Returns true if something was built.
    pub fn has_draft(&self) -> bool {
        self.draft.is_some()
    }

    /// Returns true if a fault was found while it was made.
    pub fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Frees the result, whose shard is held.
    pub fn give_up(self, ctx: &mut Ctx<'_>) {
        if let Some((shard, number)) = self.draft
            && let Some(part) = ctx.part(shard)
        {
            part.shard.drop_draft(number);
        }
    }
}

fn len_of(object: &Object) -> u64 {
    match object {
        Object::Set(set) => set.len(),
        Object::Zset(zset) => zset.len(),
        Object::List(list) => list.len(),
        Object::Hash(table) => table.len() as u64,
        Object::Stream(stream) => stream.len(),
        Object::Module(_) => 1,
    }
}

/// Returns true if sorted sets that Redis keeps in a listpack are short enough to be walked when they are stored.
pub fn may_keep_scores(env: &Env) -> bool {
    env.zset_max_listpack_entries <= LEN_MAX
}

/// Removes the sign of negative zeros, which a listpack does not have.
fn shed_signs(zset: &mut Zset, place: &mut Keyed<'_>, env: &Env) {
    if zset.len() > env.zset_max_listpack_entries {
        return;
    }
    let hasher = place.hasher();
    let view = KeyView { root: &*zset, arena: place.arena(), hasher };
    let mut zeros = Vec::new();
    for (member, score) in view.root.iter(view.arena, 0, Direction::Up) {
        if member.len() as u64 > env.zset_max_listpack_value {
            return;
        }
        if score == 0.0 && score.is_sign_negative() {
            zeros.push(member.to_vec());
        }
    }
    for member in zeros {
        // The new score has the same width: there is room.
        let _ = zset.insert(place.arena_mut(), &hasher, Item::of(&member), 0.0);
    }
}
