//! Filters, sketches, top-k lists, digests and time series as values: the types of `darter_sketch` and `darter_series`.

use darter_base::fields as base;
use darter_series::{CrossReferences, Series};
use darter_sketch::{Bloom, Cms, Cuckoo, Digest, TopK};
use darter_slab::Arena;

use super::{ModuleFieldSource, ModuleFields, ModuleKind, ModuleType, ModuleValue};
use crate::rdb_primitives::Corrupt;
use crate::value_type::Type;

/// Bytes of bits or cells in a piece of a snapshot.
const PIECE_BYTES: u64 = 64 << 10;

impl base::FieldSink for ModuleFields<'_> {
    fn unsigned(&mut self, value: u64) {
        ModuleFields::unsigned(self, value);
    }

    fn double(&mut self, value: f64) {
        ModuleFields::double(self, value);
    }

    fn string(&mut self, parts: &[&[u8]]) {
        match parts {
            [one] => self.text(one),
            many => self.text(&many.concat()),
        }
    }
}

impl base::FieldSource for ModuleFieldSource<'_, '_> {
    fn unsigned(&mut self) -> Result<u64, base::Malformed> {
        ModuleFieldSource::unsigned(self).map_err(|_| base::Malformed)
    }

    fn double(&mut self) -> Result<f64, base::Malformed> {
        ModuleFieldSource::double(self).map_err(|_| base::Malformed)
    }

    fn string(&mut self) -> Result<std::borrow::Cow<'_, [u8]>, base::Malformed> {
        self.text().map_err(|_| base::Malformed)
    }
}

/// A type whose bits or cells are one long text: written to a snapshot as a root and pieces of that text.
macro_rules! pieced {
    ($type:ident, $kind:ident, $row:ident, $letters:literal, $version:expr, $len:expr, $empty:expr, $root:expr, $of_root:expr) => {
        pub(super) const $row: ModuleKind = ModuleKind {
            kind: Type::$kind,
            letters: $letters,
            version: $version,
            read: |version, fields, arena| match $type::load(fields, version, arena) {
                Ok(value) => Ok(Box::new(value)),
                Err(_) => Err(Corrupt),
            },
            begin: Some(|| Box::new($empty)),
            unfold: None,
        };

        impl ModuleValue for $type {
            fn kind(&self) -> Type {
                Type::$kind
            }

            fn len(&self, _arena: &Arena) -> u64 {
                let len: fn(&$type) -> u64 = $len;
                len(self)
            }

            fn memory_bytes(&self) -> usize {
                size_of::<$type>() + $type::memory_bytes(self)
            }

            fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
                $type::free_step(self, arena, blocks_max)
            }

            fn write(&self, arena: &Arena, out: &mut ModuleFields<'_>) {
                self.save(arena, out);
            }

            fn frozen(&self) -> Option<Box<dyn ModuleValue>> {
                Some(Box::new($type::frozen(self)))
            }

            fn pieces(&self) -> u64 {
                1 + self.bytes().div_ceil(PIECE_BYTES)
            }

            fn write_piece(&self, number: u64, arena: &Arena, out: &mut ModuleFields<'_>) {
                if number == 0 {
                    let root: fn(&$type, &mut ModuleFields<'_>) = $root;
                    return root(self, out);
                }
                let bytes = self.read(arena, (number - 1) * PIECE_BYTES, PIECE_BYTES);
                let is_zero = bytes.iter().all(|&byte| byte == 0);
                out.text(if is_zero { &[] } else { &bytes });
            }

            fn read_piece(
                &mut self,
                number: u64,
                fields: &mut ModuleFieldSource<'_, '_>,
                arena: &mut Arena,
            ) -> Result<(), Corrupt> {
                if number == 0 {
                    $type::free_step(self, arena, usize::MAX);
                    let of_root: fn(&mut ModuleFieldSource<'_, '_>, &mut Arena) -> Option<$type> = $of_root;
                    *self = of_root(fields, arena).ok_or(Corrupt)?;
                    return Ok(());
                }
                let bytes = fields.text()?;
                let from = (number - 1).checked_mul(PIECE_BYTES).ok_or(Corrupt)?;
                $type::write(self, arena, from, &bytes).map_err(|_| Corrupt)
            }
        }

        impl ModuleType for $type {
            const KIND: Type = Type::$kind;
        }
    };
}

pieced!(
    Bloom,
    Bloom,
    BLOOM,
    b"MBbloom--",
    darter_sketch::bloom::VERSION,
    Bloom::items,
    Bloom::empty(),
    |bloom, out| out.text(&bloom.dump_header()),
    |fields, _| Bloom::of_header(&fields.text().ok()?).ok()
);

pieced!(
    Cuckoo,
    Cuckoo,
    CUCKOO,
    b"MBbloomCF",
    darter_sketch::cuckoo::VERSION,
    Cuckoo::items,
    Cuckoo::empty(),
    |cuckoo, out| out.text(&cuckoo.dump_header()),
    |fields, _| Cuckoo::of_header(&fields.text().ok()?).ok()
);

pieced!(
    Cms,
    CountMin,
    CMS,
    b"CMSk-TYPE",
    darter_sketch::cms::VERSION,
    Cms::count,
    Cms::empty(),
    |cms, out| cms.save_root(out),
    |fields, _| Cms::load_root(fields).ok()
);

pieced!(
    TopK,
    TopK,
    TOPK,
    b"TopK-TYPE",
    darter_sketch::topk::VERSION,
    |list| u64::from(list.k()),
    TopK::empty(),
    |list, out| list.save_root(out),
    |fields, arena| TopK::load_root(fields, arena).ok()
);

pub(super) const DIGEST: ModuleKind = ModuleKind {
    kind: Type::Digest,
    letters: b"TDIS-TYPE",
    version: darter_sketch::digest::VERSION,
    read: |version, fields, _| match Digest::load(fields, version) {
        Ok(digest) => Ok(Box::new(digest)),
        Err(_) => Err(Corrupt),
    },
    begin: None,
    unfold: None,
};

impl ModuleValue for Digest {
    fn kind(&self) -> Type {
        Type::Digest
    }

    fn len(&self, _arena: &Arena) -> u64 {
        Digest::len(self).unsigned_abs()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Digest>() + Digest::memory_bytes(self)
    }

    fn free_step(&mut self, _arena: &mut Arena, _blocks_max: usize) -> bool {
        true
    }

    fn write(&self, _arena: &Arena, out: &mut ModuleFields<'_>) {
        self.save(out);
    }
}

impl ModuleType for Digest {
    const KIND: Type = Type::Digest;
}

pub(super) const SERIES: ModuleKind = ModuleKind {
    kind: Type::Series,
    letters: b"TSDB-TYPE",
    version: darter_series::VERSION,
    read: |version, fields, arena| match Series::load(fields, version, arena) {
        Ok(series) => Ok(Box::new(series)),
        Err(_) => Err(Corrupt),
    },
    begin: Some(|| Box::new(Series::default())),
    unfold: None,
};

impl ModuleValue for Series {
    fn kind(&self) -> Type {
        Type::Series
    }

    fn len(&self, _arena: &Arena) -> u64 {
        Series::len(self)
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Series>() + Series::memory_bytes(self)
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        Series::free_step(self, arena, blocks_max)
    }

    fn write(&self, arena: &Arena, out: &mut ModuleFields<'_>) {
        self.save(CrossReferences::Kept, arena, out);
    }

    fn is_unswept(&self) -> bool {
        Series::is_unswept(self)
    }

    fn sweep(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        Series::sweep(self, arena, blocks_max)
    }

    fn frozen(&self) -> Option<Box<dyn ModuleValue>> {
        Some(Box::new(Series::frozen(self)))
    }

    fn frozen_to_read(&self) -> Option<Box<dyn ModuleValue>> {
        Some(Box::new(self.frozen_samples()))
    }

    fn pieces(&self) -> u64 {
        1 + self.pieces_len() as u64
    }

    fn write_piece(&self, number: u64, arena: &Arena, out: &mut ModuleFields<'_>) {
        match number.checked_sub(1) {
            None => self.save_root(out),
            Some(number) => self.save_piece(number, arena, out),
        }
    }

    fn read_piece(
        &mut self,
        number: u64,
        fields: &mut ModuleFieldSource<'_, '_>,
        arena: &mut Arena,
    ) -> Result<(), Corrupt> {
        if number > 0 {
            return self.load_piece(fields, arena).map_err(|_| Corrupt);
        }
        Series::free_step(self, arena, usize::MAX);
        *self = Series::load_root(fields).map_err(|_| Corrupt)?;
        Ok(())
    }
}

impl ModuleType for Series {
    const KIND: Type = Type::Series;
}
