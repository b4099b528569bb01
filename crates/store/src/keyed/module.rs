//! Keys with values of modules: documents to read, series whose labels change, and pieces that a snapshot has of a
//! value.
//!
//! Called by the commands of documents and series, and by the loader of snapshots.

use darter_document::Doc;
use darter_series::Series;
use darter_slab::Handle;

use super::Keyed;
use crate::error::WrongType;
use crate::module::{self, Json};
use crate::object::Object;
use crate::rdb_primitives::{Corrupt, RdbSource};
use crate::record::{Record, RecordValue};
use crate::shard::Shard;
use crate::value_type::Type;

impl Keyed<'_> {
    /// The document at the key, to read: without a root if it has none.
    ///
    /// Errors: the value has another type.
    pub fn document(&self) -> Result<Option<Doc<'_>>, WrongType> {
        if let Some(RecordValue::Folded(Type::Json, block)) = self.record().map(Record::value) {
            let arena = &self.shard.arena;
            return Ok(Some(Doc::in_block(arena.seen(Handle::from_raw(block)), arena)));
        }
        Ok(self.view::<Json>()?.map(|view| view.root.doc(view.arena)))
    }

    /// Changes labels, rules or the source of the series at the key; `None` when the key is missing.
    ///
    /// Errors: the value has another type.
    pub fn reshape_series<R>(
        &mut self,
        change: impl FnOnce(&mut Series) -> R,
    ) -> Result<Option<R>, WrongType> {
        if self.kind().is_some_and(|kind| kind != Type::Series) {
            return Err(WrongType);
        }
        let Some(handle) = self.handle() else { return Ok(None) };
        self.shard.series_goes(self.db, handle);
        let edited = self.edit(|series: &mut Series, _, _| change(series));
        let (db, name) = (self.db, self.name());
        self.shard.series_came(db, name, handle);
        Ok(edited?.map(|edited| edited.result))
    }

    /// Returns true if the key has a series that is linked to others.
    pub fn has_links(&self) -> bool {
        match self.view::<Series>() {
            Ok(Some(view)) => view.root.source.is_some() || !view.root.rules.is_empty(),
            _ => false,
        }
    }

    /// Makes a series from another server forget its links to other series. Other values stay unchanged.
    pub fn forget_links(&mut self) {
        if self.has_links() {
            let forgotten = self.reshape_series(|series| {
                series.source = None;
                series.rules.clear();
            });
            debug_assert!(matches!(forgotten, Ok(Some(()))), "it was there");
        }
    }

    /// Adds a piece, as a snapshot has it, to the module's value at the key.
    ///
    /// Errors: there is no such value, or the piece is damaged.
    pub fn read_piece(&mut self, source: &mut RdbSource<'_>) -> Result<(), Corrupt> {
        let id = match self.record().map(Record::value) {
            Some(RecordValue::Object(_, id)) => id,
            _ => return Err(Corrupt),
        };
        let (db, name) = (self.db, self.name());
        let handle = self.handle().ok_or(Corrupt)?;
        self.shard.series_goes(db, handle);
        self.shard.keep_series(id);
        let Shard { objects, arena, .. } = &mut *self.shard;
        let read = match objects.get_mut(id) {
            Object::Module(value) => module::read_more(&mut **value, source, arena),
            _ => Err(Corrupt),
        };
        self.shard.series_came(db, name, handle);
        read
    }
}
