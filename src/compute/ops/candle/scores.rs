//! Scores of a row block on a candle device: products, scale, softcap, bias, and visibility.

use std::ops::Range;
use std::sync::OnceLock;

use candle_core::{Device, Result, Tensor};

use super::group::{BiasTable, Group};
use crate::attention::{Run, Scale, Visibility, row_scale};

/// Some queries × all keys: data shared by all heads.
pub(super) struct Block {
    pub queries: Range<usize>,
    pub n_keys: usize,
    /// First and last visible key, and the hole between them, of each query. // [row]
    ranges: Vec<[Range<usize>; 2]>,
    /// 1 for keys that are not padding; `None` if no key is padding. // [key]
    real: Option<Vec<u8>>,
    /// What [`Self::seen`] returned.
    seen: OnceLock<Tensor>,
    /// [row, 1]
    pub query_idx: Tensor,
    /// [1, key]
    pub key_idx: Tensor,
    /// Number of keys that each query sees. // [row]
    pub n_visible: Vec<usize>,
}

impl Block {
    pub fn new(group: &Group<'_>, queries: Range<usize>) -> Result<Self> {
        let (device, visibility) = (group.q.device(), group.run.visibility);
        let (n_rows, n_keys) = (queries.len(), visibility.n_keys);
        let column = |of: &dyn Fn(usize) -> f32| {
            let values: Vec<f32> = queries.clone().map(of).collect();
            Tensor::from_vec(values, (n_rows, 1), device)
        };
        // f32 represents every index up to 16 million exactly.
        let query_idx = column(&|query_idx| query_idx as f32)?;
        let keys: Vec<f32> = (0..n_keys).map(|key_idx| key_idx as f32).collect();
        let key_idx = Tensor::from_vec(keys, (1, n_keys), device)?;
        let ranges = |query_idx| [visibility.range(query_idx), visibility.hole(query_idx)];
        let real = visibility.real_keys().map(|real| {
            let real = real.iter().map(|real| u8::from(*real));
            real.collect::<Vec<u8>>()
        });
        let n_visible = queries.clone().map(|query_idx| group.n_visible(query_idx));
        Ok(Self {
            n_visible: n_visible.collect(),
            ranges: queries.clone().map(ranges).collect(),
            queries,
            n_keys,
            real,
            seen: OnceLock::new(),
            query_idx,
            key_idx,
        })
    }

    pub fn n_rows(&self) -> usize {
        self.queries.len()
    }

    /// 1 where the query sees the key. Computed once: the kernels of `fused` look at ranges instead. // [1, row, key]
    fn seen(&self) -> Result<Tensor> {
        if let Some(seen) = self.seen.get() {
            return Ok(seen.clone());
        }
        let (device, key_idx) = (self.key_idx.device(), &self.key_idx);
        let column = |of: &dyn Fn(&[Range<usize>; 2]) -> usize| {
            let values: Vec<f32> = self.ranges.iter().map(|ranges| of(ranges) as f32).collect();
            Tensor::from_vec(values, (self.n_rows(), 1), device)
        };
        let (start, end) = (column(&|of| of[0].start)?, column(&|of| of[0].end)?);
        let mut seen = key_idx
            .broadcast_ge(&start)?
            .mul(&key_idx.broadcast_lt(&end)?)?; // [row, key]
        if self.ranges.iter().any(|[_, hole]| !hole.is_empty()) {
            let (start, end) = (column(&|of| of[1].start)?, column(&|of| of[1].end)?);
            let is_before = key_idx.broadcast_lt(&start)?;
            let is_kept = is_before.add(&key_idx.broadcast_ge(&end)?)?;
            seen = seen.mul(&is_kept)?;
        }
        if let Some(real) = &self.real {
            let real = Tensor::from_slice(real, (1, self.n_keys), device)?;
            seen = seen.broadcast_mul(&real)?;
        }
        let seen = seen.unsqueeze(0)?;
        Ok(self.seen.get_or_init(|| seen).clone())
    }

    /// `values` where the query sees the key, `elsewhere` where it does not. // [head, row, key]
    pub fn where_seen(&self, values: &Tensor, elsewhere: f32) -> Result<Tensor> {
        let shape = values.shape();
        let elsewhere = Tensor::full(elsewhere, (1, 1, 1), values.device())?.broadcast_as(shape)?;
        self.seen()?
            .broadcast_as(shape)?
            .where_cond(values, &elsewhere)
    }

    /// One value per row. // [1, row, 1]
    pub fn of_rows(&self, of: impl Fn(usize) -> f32, device: &Device) -> Result<Tensor> {
        let values: Vec<f32> = (0..self.n_rows()).map(of).collect();
        Tensor::from_vec(values, (1, self.n_rows(), 1), device)
    }

    /// Of each row: the range of its visible keys, the hole in it, and how many keys are visible. // [row, 5]
    #[cfg(feature = "cuda")]
    pub fn visible_ranges(&self) -> Vec<u32> {
        let rows = self.ranges.iter().zip(&self.n_visible);
        let of_row = |([range, hole], n_visible): (&[Range<usize>; 2], &usize)| {
            [range.start, range.end, hole.start, hole.end, *n_visible].map(|n| n as u32)
        };
        rows.flat_map(of_row).collect()
    }

    /// Flags of keys that are not padding; `None` if no key is padding. // [key]
    #[cfg(feature = "cuda")]
    pub fn real_keys(&self) -> Option<&[u8]> {
        self.real.as_deref()
    }

    /// Of each row: the first key, the query's own, and the one before it. If there is no such key, another one is named
    /// and what is read there is not used. // [row, 3]
    pub fn chosen_keys(&self, visibility: &Visibility) -> Vec<u32> {
        let last = self.n_keys - 1;
        let first = visibility.first_real_key().unwrap_or(0);
        let previous = |query_idx| visibility.previous_real_key(query_idx).unwrap_or(0);
        let of_query = |query_idx: usize| [first, query_idx, previous(query_idx)];
        let keys = self.queries.clone().flat_map(of_query);
        keys.map(|key_idx| key_idx.min(last) as u32).collect()
    }

    /// Whether some query has no visible key.
    pub fn has_unseeing(&self) -> bool {
        self.n_visible.contains(&0)
    }
}

/// What the products of each row are multiplied with. // [head · row]
pub(super) fn row_scales(group: &Group<'_>, block: &Block) -> Vec<f32> {
    let (spec, visibility) = (group.run.spec, group.run.visibility);
    if !matches!(spec.scale, Scale::OfKeys(_)) {
        return vec![spec.scale.factor(spec.d_head); group.n_heads() * block.n_rows()];
    }
    let of_head = |idx: usize| {
        let k_norms = &group.k_norms[group.kv_of(idx)];
        let queries = block.queries.clone();
        queries.map(move |query_idx| row_scale(spec, visibility, k_norms, query_idx))
    };
    (0..group.n_heads()).flat_map(of_head).collect()
}

/// Products times the scale of their rows. // [head, row, key]
pub(super) fn scaled(group: &Group<'_>, block: &Block, products: &Tensor) -> Result<Tensor> {
    let shape = (group.n_heads(), block.n_rows(), 1);
    let scales = Tensor::from_vec(row_scales(group, block), shape, products.device())?;
    products.broadcast_mul(&scales)
}

/// q·k of a block. // [head, row, key]
pub(super) fn products(group: &Group<'_>, block: &Block) -> Result<Tensor> {
    let (n_kv, _, d_head) = group.k.dims3()?;
    let n_heads = group.n_heads();
    let q = group.q.narrow(1, block.queries.start, block.n_rows())?;
    // Heads of one kv head are stacked along the rows, so that one product covers all of them.
    let q = q
        .contiguous()?
        .reshape((n_kv, n_heads / n_kv * block.n_rows(), d_head))?;
    let products = q.matmul(&group.k.transpose(1, 2)?)?;
    products.reshape((n_heads, block.n_rows(), block.n_keys))
}

/// Scores before the mask, from scale·q·k. // [head, row, key]
pub(super) fn scores(group: &Group<'_>, block: &Block, scaled: &Tensor) -> Result<Tensor> {
    let spec = group.run.spec;
    let capped = |scores: &Tensor| match spec.softcap {
        Some(cap) => {
            let cap = f64::from(cap);
            scores.affine(1.0 / cap, 0.0)?.tanh()?.affine(cap, 0.0)
        }
        None => Ok(scores.clone()),
    };
    if spec.caps_bias {
        capped(&biased(group, block, scaled)?)
    } else {
        biased(group, block, &capped(scaled)?)
    }
}

/// Scores with their position bias. // [head, row, key]
fn biased(group: &Group<'_>, block: &Block, scores: &Tensor) -> Result<Tensor> {
    match &group.bias {
        BiasTable::None => Ok(scores.clone()),
        BiasTable::Slopes(slopes) => {
            let distances = distances(group.run, block, scores.device())?;
            scores.add(&slopes.broadcast_mul(&distances)?)
        }
        BiasTable::OfKeys(bias) => scores.broadcast_add(bias),
        BiasTable::OfPairs(bias) => {
            scores.add(&bias.narrow(1, block.queries.start, block.n_rows())?)
        }
        BiasTable::OfDistances(table) => {
            let n_queries = group.run.visibility.n_queries;
            let (n_rows, n_keys) = (block.n_rows(), block.n_keys);
            let nth = |query_idx: usize| {
                (0..n_keys).map(move |key_idx| (n_queries - 1 - query_idx + key_idx) as u32)
            };
            let nth: Vec<u32> = block.queries.clone().flat_map(nth).collect();
            let nth = Tensor::from_vec(nth, n_rows * n_keys, scores.device())?;
            let bias = table.index_select(&nth, 1)?;
            scores.add(&bias.reshape((group.n_heads(), n_rows, n_keys))?)
        }
    }
}

/// Position of the key minus that of the query. // [1, row, key]
fn distances(run: &Run<'_>, block: &Block, device: &Device) -> Result<Tensor> {
    let at = |idx: usize| run.positions.get(idx).copied().unwrap_or(idx) as f32;
    let queries: Vec<f32> = block.queries.clone().map(at).collect();
    let keys: Vec<f32> = (0..block.n_keys).map(at).collect();
    let queries = Tensor::from_vec(queries, (1, block.n_rows(), 1), device)?;
    Tensor::from_vec(keys, (1, 1, block.n_keys), device)?.broadcast_sub(&queries)
}
