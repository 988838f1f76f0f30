//! Buffers for widened weights, passed from one layer to the next.
//!
//! A layer of a large model takes hundreds of megabytes when widened. Allocating them in every layer costs a page fault per 4
//! KiB, and freeing them takes longer than a user who stopped a run should wait. So buffers are kept while something runs, and
//! freed by a separate thread.

use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Unused buffers, kept while any run is active.
#[derive(Debug, Default)]
pub struct Spare(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    n_runs: usize,
    buffers: Vec<Vec<f32>>,
}

/// The buffers of this process.
static SPARE: Spare = Spare(Mutex::new(Waiting {
    n_runs: 0,
    buffers: Vec::new(),
}));

/// Keeps weight buffers for the next layer while it lives.
#[must_use = "buffers are kept while it lives"]
#[derive(Debug)]
pub struct Reuse(&'static Spare);

/// f32 values in a buffer that is returned for reuse on drop.
#[derive(Debug)]
pub struct Lent {
    buffer: Vec<f32>,
    len: usize,
    from: &'static Spare,
}

/// The bits of bf16 numbers, in a buffer that is returned for reuse on drop.
#[derive(Debug)]
pub struct LentBits {
    buffer: Lent,
    len: usize,
}

/// Keeps weight buffers for the next layer until the returned guard is dropped.
pub fn reuse_buffers() -> Reuse {
    SPARE.begin()
}

/// Returns a buffer for the caller to overwrite; it may contain old values of another layer.
pub fn lend(len: usize) -> Lent {
    SPARE.lend(len)
}

/// Returns a buffer of bf16 bits for the caller to overwrite.
pub fn lend_bits(len: usize) -> LentBits {
    LentBits {
        buffer: lend(len.div_ceil(2)),
        len,
    }
}

impl Spare {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&'static self) -> Reuse {
        self.waiting().n_runs += 1;
        Reuse(self)
    }

    fn lend(&'static self, len: usize) -> Lent {
        let found = self.waiting().take(len);
        let fits = found.filter(|buffer| buffer.len() >= len);
        let buffer = fits.unwrap_or_else(|| vec![0.0; len]);
        Lent {
            buffer,
            len,
            from: self,
        }
    }
}

impl Waiting {
    /// The smallest buffer that holds `len` values; otherwise the largest, which is freed to make room for a new one.
    fn take(&mut self, len: usize) -> Option<Vec<f32>> {
        let buffers = || self.buffers.iter().enumerate();
        let fitting = buffers().filter(|(_, buffer)| buffer.len() >= len);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.len());
        let chosen = smallest.or_else(|| buffers().max_by_key(|(_, buffer)| buffer.len()));
        let idx = chosen?.0;
        Some(self.buffers.swap_remove(idx))
    }
}

impl Drop for Reuse {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.n_runs -= 1;
        if waiting.n_runs > 0 || waiting.buffers.is_empty() {
            return;
        }
        let buffers = std::mem::take(&mut waiting.buffers);
        drop(waiting);
        // If no thread can be started, the buffers are freed here.
        let _ = std::thread::Builder::new().spawn(move || drop(buffers));
    }
}

impl Deref for Lent {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.buffer[..self.len]
    }
}

impl std::ops::DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.buffer[..self.len]
    }
}

impl Deref for LentBits {
    type Target = [u16];

    fn deref(&self) -> &[u16] {
        &bytemuck::cast_slice(&self.buffer)[..self.len]
    }
}

impl std::ops::DerefMut for LentBits {
    fn deref_mut(&mut self) -> &mut [u16] {
        &mut bytemuck::cast_slice_mut(&mut self.buffer)[..self.len]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut waiting = self.from.waiting();
        if waiting.n_runs > 0 {
            waiting.buffers.push(std::mem::take(&mut self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare() -> &'static Spare {
        Box::leak(Box::default())
    }

    #[test]
    fn a_layer_reuses_the_buffers_of_the_previous_one() {
        let spare = spare();
        let _reuse = spare.begin();
        let first = [spare.lend(300), spare.lend(100)];
        let at = first.each_ref().map(|lent| lent.as_ptr());
        drop(first);
        let second = [spare.lend(90), spare.lend(300)];
        assert_eq!(
            second.each_ref().map(|lent| lent.as_ptr()),
            [at[1], at[0]],
            "the smallest that fits"
        );
        assert_eq!(second.each_ref().map(|lent| lent.len()), [90, 300]);
    }

    #[test]
    fn unused_buffers_never_exceed_what_was_lent_at_once() {
        let spare = spare();
        let _reuse = spare.begin();
        for len in 1..50 {
            drop(spare.lend(len));
            let waiting: Vec<usize> = spare.waiting().buffers.iter().map(Vec::len).collect();
            assert_eq!(waiting, [len]);
        }
    }

    #[test]
    fn no_buffers_are_kept_when_nothing_runs() {
        let spare = spare();
        drop(spare.lend(10));
        assert!(spare.waiting().buffers.is_empty(), "nobody runs yet");
        let (one, other) = (spare.begin(), spare.begin());
        drop(spare.lend(10));
        drop(one);
        assert_eq!(spare.waiting().buffers.len(), 1, "another still runs");
        drop(other);
        assert!(spare.waiting().buffers.is_empty());
    }
}
