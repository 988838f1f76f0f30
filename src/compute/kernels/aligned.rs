//! Numbers that begin where a cache line does.

use std::ops::{Deref, DerefMut};

use bytemuck::{Pod, Zeroable};

/// Values in a cache line, and in the widest vector.
const PER_LINE: usize = 16;

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([f32; PER_LINE]);

/// Numbers that kernels read as whole vectors: as the first begins a cache line, no vector lies in two of them, which takes two reads.
#[derive(Debug, Clone, Default)]
pub struct Aligned {
    lines: Vec<CacheLine>,
    n_values: usize,
}

impl Aligned {
    pub fn zeros(n_values: usize) -> Self {
        let mut all = Self::default();
        all.resize(n_values);
        all
    }

    pub fn clear(&mut self) {
        self.resize(0);
    }

    /// Keeps the first values; new ones are 0.
    pub fn resize(&mut self, n_values: usize) {
        let held = self.n_values;
        let n_lines = n_values.div_ceil(PER_LINE);
        self.lines.resize(n_lines, CacheLine::zeroed());
        self.n_values = n_values;
        if held < n_values {
            let end = n_values.min(held.next_multiple_of(PER_LINE));
            self[held..end].fill(0.0);
        }
    }

    /// Size of its memory in bytes.
    pub fn held(&self) -> usize {
        self.lines.capacity() * size_of::<CacheLine>()
    }
}

impl Deref for Aligned {
    type Target = [f32];

    #[inline(always)]
    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.n_values]
    }
}

impl DerefMut for Aligned {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.n_values]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_begin_a_line_and_new_ones_are_0() {
        let mut all = Aligned::zeros(40);
        all.fill(1.0);
        all.resize(21);
        all.resize(35);
        assert_eq!(all.len(), 35);
        assert_eq!(all[..21], [1.0; 21]);
        assert_eq!(all[21..], [0.0; 14]);
        assert_eq!(all.as_ptr().align_offset(64), 0);
        all.clear();
        all.resize(1000);
        assert!(all.iter().all(|value| *value == 0.0));
        assert_eq!(all.as_ptr().align_offset(64), 0);
        assert!(all.held() >= 4000);
    }
}
