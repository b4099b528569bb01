//! The name of a block: its distance from the arena's base in 8-byte granules.

/// A block of one arena. Four bytes, so that an index slot holds ten of them per cache line.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Hash, Default)]
#[repr(transparent)]
pub struct Handle(u32);

impl Handle {
    /// No block. Never returned by `Arena::alloc`.
    pub const NONE: Handle = Handle(0);

    /// Returns true if this is [`Handle::NONE`].
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The number of 8-byte granules from the arena's base.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The inverse of [`Handle::raw`]. Any number is accepted; the arena checks it when it is used.
    #[inline]
    pub const fn from_raw(raw: u32) -> Handle {
        Handle(raw)
    }
}
