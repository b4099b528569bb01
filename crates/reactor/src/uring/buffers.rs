//! The receive buffers lent to the kernel: a ring of entries it takes from the front, we give back at the end.
//!
//! Called by the io_uring driver. A buffer is the kernel's from `give_back` until a completion names it, then ours.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// `len` buffers of `buffer_bytes` in one mapping, the ring of entries in front of them.
#[derive(Debug)]
pub(super) struct Buffers {
    block: NonNull<u8>,
    block_bytes: usize,
    // Offset of buffer 0; the entries take the bytes before it.
    first_offset: usize,
    buffer_bytes: u32,
    len: u16, // a power of two, 1..=32_768
    tail: u16,
}

// SAFETY: the block is owned like a Box; nothing in it belongs to a thread.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Maps the block; pages are touched only as data arrives. `InvalidInput` for sizes out of range.
    pub(super) fn new(len: u16, buffer_bytes: usize) -> io::Result<Buffers> {
        if !len.is_power_of_two() || !(1..=BUFFER_BYTES_MAX).contains(&buffer_bytes) {
            let text = "receive buffer number or size out of range";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let first_offset = (usize::from(len) * size_of::<BufRingEntry>()).next_multiple_of(PAGE_BYTES);
        let block_bytes = first_offset + usize::from(len) * buffer_bytes;
        // Mapped rather than allocated: an aligned allocation is cleared by hand, which would make it all resident.
        // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(ptr::null_mut(), block_bytes, access, kind, -1, 0)
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let block = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffers =
            Buffers { block, block_bytes, first_offset, buffer_bytes: buffer_bytes as u32, len, tail: 0 };
        for id in 0..len {
            buffers.give_back(id);
        }
        Ok(buffers)
    }

    /// Tells the kernel of the ring, as group `GROUP`.
    ///
    /// # Safety
    /// The block must outlive every operation of that ring that selects from the group.
    pub(super) unsafe fn lend(&self, submitter: &Submitter<'_>) -> io::Result<()> {
        // SAFETY: the entries begin at the block's page-aligned start; the caller keeps the block alive.
        unsafe { submitter.register_buf_ring_with_flags(self.block.as_ptr() as u64, self.len, GROUP, 0) }
    }

    /// The first `bytes_len` bytes of a buffer that a completion named; `None` for numbers the kernel cannot mean.
    #[inline]
    pub(super) fn bytes(&self, id: u16, bytes_len: usize) -> Option<&[u8]> {
        if id >= self.len || bytes_len > self.buffer_bytes as usize {
            return None;
        }
        let offset = self.first_offset + usize::from(id) * self.buffer_bytes as usize;
        // SAFETY: in the block by the check above, zero since mapped, and not the kernel's until
        // `give_back`, which needs `&mut self` and so ends this borrow first.
        Some(unsafe { std::slice::from_raw_parts(self.block.as_ptr().add(offset), bytes_len) })
    }

    /// Returns a buffer to the kernel. `id` must come from a completion, once for each.
    #[inline]
    pub(super) fn give_back(&mut self, id: u16) {
        if id >= self.len {
            return;
        }
        let offset = self.first_offset + usize::from(id) * self.buffer_bytes as usize;
        let entries = self.block.as_ptr().cast::<BufRingEntry>();
        let mask = self.len - 1;
        // SAFETY: `tail & mask` is below `len`, so the entry is in the block. The kernel reads it only after the new
        // tail below is stored. The setters do not touch the field that holds the tail in entry 0.
        unsafe {
            let entry = &mut *entries.add(usize::from(self.tail & mask));
            entry.set_addr(self.block.as_ptr().add(offset) as u64);
            entry.set_len(self.buffer_bytes);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: entry 0 is at the block's start and initialised; the kernel only reads the tail.
        let shared_tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        shared_tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // Unmapping a whole mapping of ours cannot fail.
        // SAFETY: mapped in `new` with this length; the driver forgets us while the kernel could still write.
        let _ = unsafe { libc::munmap(self.block.as_ptr().cast(), self.block_bytes) };
    }
}

/// The only buffer group of a ring.
pub(super) const GROUP: u16 = 0;
const PAGE_BYTES: usize = 4096;
const BUFFER_BYTES_MAX: usize = 16 << 20;
