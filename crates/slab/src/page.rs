//! The records of each 4 KiB unit of the arena. They lie apart from the data, so that data blocks stay contiguous and
//! empty pages can be given back whole.

/// Bytes of one unit, the kernel's page.
pub(crate) const UNIT_BYTES: usize = 4096;
/// Granules of 8 bytes in one unit.
pub(crate) const UNIT_GRANULES: u32 = (UNIT_BYTES / 8) as u32;
/// No free block in the list, or no block left that was never used.
pub(crate) const NOTHING: u16 = u16::MAX;
/// `class` of a unit that was never used: the zero of untouched memory.
pub(crate) const UNUSED: u8 = 0;
/// `class` of both ends of a run that is one block longer than any class; its length is kept as an empty run's.
pub(crate) const LARGE: u8 = 0xfd;
/// `class` of both ends of an empty run whose bytes are still resident.
pub(crate) const DIRTY: u8 = 0xfe;
/// `class` of both ends of an empty run that was given back to the kernel.
pub(crate) const CLEAN: u8 = 0xff;
/// Flag in `span`: not the first unit of its run. The low bits are the distance back to the first unit.
const INNER: u8 = 0x80;
/// Flag in `span` of a run's first unit: the run is being emptied and gives no blocks.
const EMPTYING: u8 = 0x40;

/// One unit. In the first unit of a run every field speaks of the whole run.
#[derive(Copy, Clone)]
#[repr(C)]
pub(crate) struct Page {
    /// The next run of the list this run is in, 0 = none.
    pub next: u32,
    /// The previous run of that list, 0 = this is the first.
    pub prev: u32,
    /// Granule of the first free block, counted from the run's start. In an empty run: low half of its units.
    pub free: u16,
    /// Granule of the first block never used. In an empty run: high half of its units.
    pub fresh: u16,
    /// Live blocks. 1 <= live while the run belongs to a class.
    pub live: u16,
    /// Size class, or `UNUSED`, `DIRTY`, `CLEAN`. Set in every unit of a used run.
    pub class: u8,
    /// Units of the run, maybe with `EMPTYING`, or `INNER` and the distance back to its first unit.
    pub span: u8,
}

impl Page {
    /// The unit that speaks for the run of `unit`.
    #[inline]
    pub(crate) fn first(&self, unit: u32) -> u32 {
        if self.span & INNER == 0 { unit } else { unit.wrapping_sub(u32::from(self.span & !INNER)) }
    }

    /// Units of the run, of its first unit.
    #[inline]
    pub(crate) fn units(&self) -> u8 {
        self.span & !EMPTYING
    }

    /// Returns true if the run is being emptied.
    pub(crate) fn is_emptying(&self) -> bool {
        self.span & (EMPTYING | INNER) == EMPTYING
    }

    /// Marks the run as being emptied.
    pub(crate) fn start_emptying(&mut self) {
        self.span |= EMPTYING;
    }

    /// Takes that mark back.
    pub(crate) fn stop_emptying(&mut self) {
        self.span &= !EMPTYING;
    }

    /// Returns true if no block of the run can be handed out.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.free & self.fresh == NOTHING
    }

    /// Units of an empty run or of a large block, valid at both of its ends.
    pub(crate) fn empty_units(&self) -> u32 {
        u32::from(self.free) | u32::from(self.fresh) << 16
    }

    /// An end of an empty run, or of a large block, of `units` units.
    pub(crate) fn empty(units: u32, class: u8) -> Page {
        Page { next: 0, prev: 0, free: units as u16, fresh: (units >> 16) as u16, live: 0, class, span: 0 }
    }

    /// The first unit of a used run without blocks.
    pub(crate) fn used(units: u8, class: u8) -> Page {
        Page { next: 0, prev: 0, free: NOTHING, fresh: 0, live: 0, class, span: units }
    }

    /// A later unit of a used run, `back` units after the first.
    pub(crate) fn inner(back: u8, class: u8) -> Page {
        Page { next: 0, prev: 0, free: 0, fresh: 0, live: 0, class, span: INNER | back }
    }
}
