//! Heads that run together on a candle device, and the data that their rows share.

use std::ops::Range;

use candle_core::{DType, Result, Tensor};

use super::buffer::host;
use super::input::Input;
use crate::attention::{AttentionSpec, Bias, HeadBias, HeadInput, Run};
use crate::kernels::simd::unit_of;

/// The heads that run together: those of consecutive kv heads, or some of one kv head.
#[derive(Debug, Clone)]
pub(super) struct HeadGroup {
    pub heads: Range<usize>,
    pub kv_heads: Range<usize>,
}

impl HeadGroup {
    /// All heads of an attention, whichever of them are to be run.
    pub fn whole(spec: &AttentionSpec) -> Self {
        Self {
            heads: 0..spec.n_heads,
            kv_heads: 0..spec.n_kv_heads,
        }
    }

    /// Splits the heads of a run into groups whose rows fit in a block of `most_values`; heads of one kv head stay together
    /// if possible. A sink may ask for fewer heads at once.
    pub fn all(run: &Run<'_>, most_values: usize) -> Vec<Self> {
        let spec = run.spec;
        let per_kv = spec.n_heads / spec.n_kv_heads;
        let whole = run.visibility.n_queries * run.visibility.n_keys * per_kv;
        let most_heads = run.sink.and_then(|sink| sink.n_heads_at_once());
        let most_heads = most_heads.unwrap_or(usize::MAX).max(1);
        let n_at_once = (most_values / whole.max(1)).max(1);
        let n_at_once = n_at_once.min((most_heads / per_kv).max(1));
        if run.heads == (0..spec.n_heads) && most_heads >= per_kv {
            let starts = (0..spec.n_kv_heads).step_by(n_at_once);
            let part = |first: usize| {
                let end = (first + n_at_once).min(spec.n_kv_heads);
                Self {
                    heads: first * per_kv..end * per_kv,
                    kv_heads: first..end,
                }
            };
            return starts.map(part).collect();
        }
        let of_kv_head = |kv_head_idx: usize| {
            let first = (kv_head_idx * per_kv).max(run.heads.start);
            let end = ((kv_head_idx + 1) * per_kv).min(run.heads.end);
            let starts = (first..end).step_by(most_heads.min(per_kv));
            starts.map(move |first| Self {
                heads: first..(first + most_heads.min(per_kv)).min(end),
                kv_heads: kv_head_idx..kv_head_idx + 1,
            })
        };
        (0..spec.n_kv_heads).flat_map(of_kv_head).collect()
    }
}

/// The position bias of some heads.
pub(super) enum BiasTable {
    None,
    /// slope · (key − query). // [head, 1, 1]
    Slopes(Tensor),
    /// One value per key, whatever the query. // [head, 1, key]
    OfKeys(Tensor),
    /// One value per distance, from −(n_queries − 1) on. // [head, distance]
    OfDistances(Tensor),
    /// One value per pair. // [head, query, key]
    OfPairs(Tensor),
}

/// Queries, keys and values of heads that run together.
pub(super) struct Group<'a> {
    pub run: &'a Run<'a>,
    pub together: HeadGroup,
    /// [head, query, d_head]
    pub q: Tensor,
    /// [kv_head, key, d_head]
    pub k: Tensor,
    /// [kv_head, key, d_value]
    pub v: Tensor,
    /// 1/‖k‖. // [head, 1, key]
    pub inverse_k_norms: Tensor,
    /// ‖v W_O‖ divided by the head's largest, if known. // [head, 1, key]
    pub value_norms: Option<Tensor>,
    /// The head's largest ‖v W_O‖. // [head]
    pub value_units: Vec<f32>,
    /// Learned sink logits. // [head, 1, 1]
    pub sinks: Option<Tensor>,
    pub bias: BiasTable,
    /// [head · query]
    pub q_norms: Vec<f32>,
    /// One list per kv head. // [key]
    pub k_norms: Vec<Vec<f32>>,
    /// The learned bias of each head.
    pub learned: Vec<HeadBias>,
    /// Σ ‖k‖² of the real keys before each key, per kv head. // [key + 1]
    k_norm_sq_before: Vec<Vec<f64>>,
    /// Number of real keys before each key. // [key + 1]
    n_real_before: Vec<usize>,
}

impl<'a> Group<'a> {
    pub fn new(run: &'a Run<'a>, input: Input<'_>, together: HeadGroup) -> Result<Self> {
        let spec = run.spec;
        let (heads, kv_heads) = (together.heads.clone(), together.kv_heads.clone());
        let q = by_heads(input.q, spec.n_heads, &heads)?;
        let k = by_heads(input.k, spec.n_kv_heads, &kv_heads)?;
        let v = by_heads(input.v, spec.n_kv_heads, &kv_heads)?;
        let (n_heads, n_keys) = (heads.len(), run.visibility.n_keys);
        let k_norms = norms(&k)?; // [kv_head, key]
        let per_kv = n_heads / kv_heads.len();
        let inverse = k_norms.recip()?.unsqueeze(1)?;
        let inverse = inverse.broadcast_as((kv_heads.len(), per_kv, n_keys))?;
        let k_norms: Vec<Vec<f32>> = k_norms.to_vec2()?;
        let real = |key_idx: usize| run.visibility.is_real_key(key_idx);
        let mut n_real_before = vec![0; n_keys + 1];
        for key_idx in 0..n_keys {
            n_real_before[key_idx + 1] = n_real_before[key_idx] + usize::from(real(key_idx));
        }
        let sums = |norms: &Vec<f32>| {
            let mut before = vec![0.0; n_keys + 1];
            for (key_idx, norm) in norms.iter().enumerate() {
                let square = f64::from(*norm) * f64::from(*norm);
                before[key_idx + 1] = before[key_idx] + if real(key_idx) { square } else { 0.0 };
            }
            before
        };
        let k_norm_sq_before = k_norms.iter().map(sums).collect();
        let learned = learned(run, input, &heads)?;
        let sinks = match run.sinks {
            Some(sinks) => Some(Tensor::from_slice(
                &sinks[heads.clone()],
                (n_heads, 1, 1),
                q.device(),
            )?),
            None => None,
        };
        let of_heads = run.value_norms.map(|norms| &norms[heads.clone()]);
        let value_units: Vec<f32> = of_heads
            .into_iter()
            .flatten()
            .map(|of| unit_of(of))
            .collect();
        let value_norms = match of_heads {
            Some(norms) => {
                let in_units = norms.iter().zip(&value_units);
                let in_units =
                    in_units.flat_map(|(norms, unit)| norms.iter().map(move |n| n / unit));
                let in_units: Vec<f32> = in_units.collect();
                Some(Tensor::from_vec(
                    in_units,
                    (n_heads, 1, n_keys),
                    q.device(),
                )?)
            }
            None => None,
        };
        Ok(Self {
            run,
            value_norms,
            value_units,
            inverse_k_norms: inverse.reshape((n_heads, 1, n_keys))?,
            sinks,
            bias: bias_table(run, &heads, &learned, &q)?,
            q_norms: host(&norms(&q)?)?,
            q,
            k,
            v,
            k_norms,
            learned,
            k_norm_sq_before,
            n_real_before,
            together,
        })
    }

    pub fn n_heads(&self) -> usize {
        self.together.heads.len()
    }

    /// The kv head of a head; both are indices within the group.
    pub fn kv_of(&self, head_idx: usize) -> usize {
        head_idx / (self.n_heads() / self.together.kv_heads.len())
    }

    /// Number of keys that a query sees.
    pub fn n_visible(&self, query_idx: usize) -> usize {
        let visibility = self.run.visibility;
        let before = &self.n_real_before;
        let n_real = |keys: Range<usize>| before[keys.end] - before[keys.start];
        n_real(visibility.range(query_idx)) - n_real(visibility.hole(query_idx))
    }

    /// Σ ‖k‖² over the keys that a query sees.
    pub fn k_norm_sq_sum(&self, head_idx: usize, query_idx: usize) -> f32 {
        let kv_head_idx = self.kv_of(head_idx);
        let (range, before) = (
            self.run.visibility.range(query_idx),
            &self.k_norm_sq_before[kv_head_idx],
        );
        if before.last().is_some_and(|sum| sum.is_finite()) {
            let hole = self.run.visibility.hole(query_idx);
            let sum = |keys: Range<usize>| before[keys.end] - before[keys.start];
            return (sum(range) - sum(hole)) as f32;
        }
        // A NaN before the range would remain in a difference of prefix sums.
        let seen = range.filter(|key_idx| self.run.visibility.sees(query_idx, *key_idx));
        let squares = seen.map(|key_idx| f64::from(self.k_norms[kv_head_idx][key_idx]).powi(2));
        squares.sum::<f64>() as f32
    }
}

/// Selects the vectors of some heads from a projection's output. // [position, n_heads · width] → [head, position, width]
fn by_heads(values: &Tensor, n_heads: usize, heads: &Range<usize>) -> Result<Tensor> {
    let (n, width) = values.dims2()?;
    let all = values.reshape((n, n_heads, width / n_heads))?;
    all.narrow(1, heads.start, heads.len())?
        .transpose(0, 1)?
        .contiguous()
}

/// The length of each vector, its squares summed in f64. // [head, position, width] → [head, position]
fn norms(vectors: &Tensor) -> Result<Tensor> {
    let squares = vectors.to_dtype(DType::F64)?.sqr()?;
    squares.sum(2)?.sqrt()?.to_dtype(DType::F32)
}

/// The learned bias of each head; queries, keys and values are copied to the host if it depends on them.
fn learned(run: &Run<'_>, input: Input<'_>, heads: &Range<usize>) -> Result<Vec<HeadBias>> {
    let depends = matches!(run.spec.bias, Bias::Relative(_) | Bias::Steps(_));
    let on_host = |values: &Tensor, depends: bool| {
        if depends {
            host(values)
        } else {
            Ok(Vec::new())
        }
    };
    let (q, k) = (on_host(input.q, depends)?, on_host(input.k, depends)?);
    let v = on_host(input.v, run.spec.bias == Bias::OfValues)?;
    let input = HeadInput {
        q: &q,
        k: &k,
        v: &v,
    };
    let of_head = |head_idx| HeadBias::of(run, input, head_idx);
    Ok(heads.clone().map(of_head).collect())
}

fn bias_table(
    run: &Run<'_>,
    heads: &Range<usize>,
    learned: &[HeadBias],
    like: &Tensor,
) -> Result<BiasTable> {
    let (spec, device, n_heads) = (run.spec, like.device(), heads.len());
    let scale = spec.scale.of_bias(spec.d_head);
    Ok(match &spec.bias {
        Bias::None => BiasTable::None,
        Bias::Alibi(alibi) if alibi.rounds_to_bf16 => {
            let n_keys = run.visibility.n_keys;
            let at = |idx: usize| run.positions.get(idx).copied().unwrap_or(idx);
            let of_head = |head_idx: usize| {
                (0..n_keys).map(move |key_idx| alibi.of(head_idx, 0, at(key_idx), scale))
            };
            let values: Vec<f32> = heads.clone().flat_map(of_head).collect();
            BiasTable::OfKeys(Tensor::from_vec(values, (n_heads, 1, n_keys), device)?)
        }
        Bias::Alibi(alibi) if alibi.is_both_ways => {
            let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
            let at = |idx: usize| run.positions.get(idx).copied().unwrap_or(idx);
            let of_head = |head_idx: usize| {
                let pair =
                    move |nth: usize| alibi.of(head_idx, at(nth / n_keys), at(nth % n_keys), scale);
                (0..n_queries * n_keys).map(pair)
            };
            let values: Vec<f32> = heads.clone().flat_map(of_head).collect();
            BiasTable::OfPairs(Tensor::from_vec(
                values,
                (n_heads, n_queries, n_keys),
                device,
            )?)
        }
        Bias::Alibi(alibi) => {
            let factor = if alibi.is_scaled { scale } else { 1.0 };
            let slopes: Vec<f32> = alibi.slopes[heads.clone()]
                .iter()
                .map(|slope| slope * factor)
                .collect();
            BiasTable::Slopes(Tensor::from_vec(slopes, (n_heads, 1, 1), device)?)
        }
        Bias::Buckets(buckets) if run.bias_factors.is_none() && buckets.across.is_none() => {
            let of_head = |bias: &HeadBias| match bias {
                HeadBias::ByDistance(values) => values.clone(),
                _ => Vec::new(),
            };
            let values: Vec<f32> = learned.iter().flat_map(of_head).collect();
            let n_distances = values.len() / n_heads.max(1);
            BiasTable::OfDistances(Tensor::from_vec(values, (n_heads, n_distances), device)?)
        }
        Bias::OfValues => {
            let n_keys = run.visibility.n_keys;
            let of_head = |bias: &HeadBias| match bias {
                HeadBias::ByKey(values) => values.clone(),
                _ => vec![0.0; n_keys],
            };
            let values: Vec<f32> = learned.iter().flat_map(of_head).collect();
            BiasTable::OfKeys(Tensor::from_vec(values, (n_heads, 1, n_keys), device)?)
        }
        Bias::Buckets(_)
        | Bias::Relative(_)
        | Bias::Grid(_)
        | Bias::Pairs(_)
        | Bias::Steps(_)
        | Bias::Profiles(_) => {
            let (n_queries, n_keys) = (run.visibility.n_queries, run.visibility.n_keys);
            let of_head = |bias: &HeadBias| -> Vec<f32> {
                let pair = |nth: usize| bias.at(nth / n_keys, nth % n_keys, n_queries, scale);
                (0..n_queries * n_keys).map(pair).collect()
            };
            let values: Vec<f32> = learned.iter().flat_map(of_head).collect();
            BiasTable::OfPairs(Tensor::from_vec(
                values,
                (n_heads, n_queries, n_keys),
                device,
            )?)
        }
    })
}
