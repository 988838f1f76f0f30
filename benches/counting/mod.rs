//! An allocator that counts: how many bytes were asked for at once, at most.
//!
//! Resident memory would do, but it counts mapped files too, and never shrinks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

#[global_allocator]
static COUNTING: Counting = Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn took(n_bytes: usize) {
    let held = HELD.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

fn gave(n_bytes: usize) {
    HELD.fetch_sub(n_bytes, Ordering::Relaxed);
}

#[expect(
    unsafe_code,
    reason = "an allocator cannot be written without it; nothing of it leaves the benchmarks"
)]
// SAFETY: every call goes to the system's allocator unchanged, which keeps the contract; counting touches atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as above. The system gives fresh pages without writing them, which a default implementation would.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, from: *mut u8, layout: Layout, n_bytes: usize) -> *mut u8 {
        took(n_bytes);
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(from, layout, n_bytes) }
    }

    unsafe fn dealloc(&self, from: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(from, layout) }
    }
}

/// Runs something once; gives how many bytes it held beyond those held before, at most.
pub fn peak_of(work: impl FnOnce()) -> usize {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}
