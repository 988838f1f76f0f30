//! KV cache of one attention.

use attnscope_compute::attention::KeptKeys;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Ops;

use super::mixer::MixerMemory;

/// KV cache of one attention, with positions applied, and the state of another mixer that replaces or accompanies it.
pub struct KeysAndValues<O: Ops> {
    k: O::Buffer,
    v: O::Buffer,
    /// Keys of the indexer, if there is one.
    index_k: O::Buffer,
    /// State of a mixer other than attention.
    pub(super) mixed: MixerMemory,
    /// Latest inputs of convolutions: of keys, of values, and of what both branches give.
    pub(super) convolved: [MixerMemory; 4],
    /// Norms of the head outputs of each key's value; empty where unknown. // [head][key]
    norms: Vec<Vec<f32>>,
    /// A second copy of keys and values in attention's packed layout, if memory allows.
    packed: Option<KeptKeys>,
    /// Complete, as the encoder's keys and values are after the first run.
    pub(super) is_whole: bool,
}

impl<O: Ops> Default for KeysAndValues<O> {
    fn default() -> Self {
        Self {
            k: O::Buffer::default(),
            v: O::Buffer::default(),
            index_k: O::Buffer::default(),
            mixed: MixerMemory::default(),
            convolved: Default::default(),
            norms: Vec::new(),
            packed: None,
            is_whole: false,
        }
    }
}

impl<O: Ops> KeysAndValues<O> {
    /// Appends keys and values of new tokens, and leaves the whole cache in `k` and `v`.
    pub(super) fn join(
        &mut self,
        ops: &O,
        is_cross: bool,
        k: &mut O::Buffer,
        v: &mut O::Buffer,
    ) -> Result<()> {
        if !self.is_whole {
            ops.append(&mut self.k, k)?;
            ops.append(&mut self.v, v)?;
            self.is_whole = is_cross;
        }
        self.take_back(k, v);
        Ok(())
    }

    /// Appends the indexer's keys of new tokens, and leaves all of them in `k`.
    pub(super) fn join_index(&mut self, ops: &O, k: &mut O::Buffer) -> Result<()> {
        ops.append(&mut self.index_k, k)?;
        ops.copy(&self.index_k, k)
    }

    /// Appends norms of new tokens, and returns all of them. // [head][key]
    pub(super) fn join_norms(&mut self, new: Option<Vec<Vec<f32>>>) -> Option<Vec<Vec<f32>>> {
        if let Some(new) = new {
            if self.norms.is_empty() {
                self.norms = new;
            } else {
                let heads = self.norms.iter_mut().zip(&new);
                heads.for_each(|(all, new)| all.extend_from_slice(new));
            }
        }
        (!self.norms.is_empty()).then(|| self.norms.clone())
    }

    /// Swaps the buffers back after attention has run on them.
    pub(super) fn take_back(&mut self, k: &mut O::Buffer, v: &mut O::Buffer) {
        std::mem::swap(&mut self.k, k);
        std::mem::swap(&mut self.v, v);
    }

    /// Whether it holds states of a last token, which are not kept for earlier ones.
    pub(super) fn has_states(&self) -> bool {
        !self.mixed.is_empty() || self.convolved.iter().any(|of| !of.is_empty())
    }

    /// Returns the packed copy.
    pub(super) fn packed(&self) -> Option<&KeptKeys> {
        self.packed.as_ref()
    }

    pub(super) fn packs(&mut self, packs: bool) {
        if !packs {
            self.packed = None;
        } else if self.packed.is_none() {
            self.packed = Some(KeptKeys::default());
        }
    }

    pub(super) fn n_bytes(&self, ops: &O) -> Result<HeldBytes> {
        let n_values = ops.get(&self.k)?.values.len() + ops.get(&self.v)?.values.len();
        let n_index = ops.get(&self.index_k)?.values.len();
        let n_norms: usize = self.norms.iter().map(Vec::len).sum();
        let n_convolved: usize = self.convolved.iter().map(MixerMemory::n_values).sum();
        let n_states = self.mixed.n_values() + n_convolved;
        let packed = self.packed.as_ref().filter(|packed| !packed.is_empty());
        Ok(HeldBytes {
            values: (n_values + n_index + n_states + n_norms) * size_of::<f32>(),
            packed: packed.map_or(0, |_| n_values * size_of::<f32>()),
        })
    }

    /// Keeps only the first `n` tokens.
    pub(super) fn shorten(&mut self, ops: &O, n: usize) -> Result<()> {
        for buffer in [&mut self.k, &mut self.v, &mut self.index_k] {
            let host = ops.get(buffer)?;
            let (width, n_values) = (host.width, n * host.width);
            if n_values < host.values.len() {
                let kept = host.values[..n_values].to_vec();
                ops.put(&kept, width, buffer)?;
            }
        }
        self.norms.iter_mut().for_each(|head| head.truncate(n));
        if self.packed.is_some() {
            self.packed = Some(KeptKeys::default());
        }
        Ok(())
    }
}

/// Memory held by the cache, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeldBytes {
    pub values: usize,
    /// The packed copy of keys and values.
    pub packed: usize,
}
