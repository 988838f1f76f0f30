//! One attention head in f64, written from the definitions: whole matrices, no blocks, no shortcuts.

pub mod compare;

use attnscope::attention::{
    AttentionSpec, Bias, KeyDivisor, NoVisible, OfKeys, Scale, SoftmaxAxis, Window,
};
use half::bf16;

/// What a head is computed from, all heads side by side as the projections leave them.
#[derive(Debug, Clone)]
pub struct Case {
    pub spec: AttentionSpec,
    pub n: usize,
    /// [position, n_heads · d_head]
    pub q: Vec<f32>,
    /// [position, n_kv_heads · d_head]
    pub k: Vec<f32>,
    /// [position, n_kv_heads · d_value]
    pub v: Vec<f32>,
    pub real: Option<Vec<bool>>,
    /// [head]
    pub sinks: Option<Vec<f32>>,
    /// Of a bias by buckets. // [bucket, head]
    pub bucket_values: Option<Vec<f32>>,
    /// Positions where they are not indices; empty where they are.
    pub positions: Vec<usize>,
}

/// Everything a head gives, in f64.
#[derive(Debug)]
pub struct Expected {
    /// −inf where masked. // [query, key]
    pub scores: Vec<Vec<f64>>,
    /// scale·q·k, before softcap and bias, masked pairs included. // [query, key]
    pub raw: Vec<Vec<f64>>,
    /// [query, key]
    pub pattern: Vec<Vec<f64>>,
    /// [query, d_value]
    pub z: Vec<Vec<f64>>,
    /// Σ p·|v|: what rounding of an output is relative to. // [query, d_value]
    pub z_size: Vec<Vec<f64>>,
    /// [key]
    pub k_norms: Vec<f64>,
    /// [query]
    pub q_norms: Vec<f64>,
    /// log Σ exp(s) of each row, learned sink included. // [query]
    pub log_sum_exp: Vec<f64>,
    /// Indices of the keys each query sees. // [query]
    pub visible: Vec<Vec<usize>>,
    /// What multiplies q·k.
    /// What multiplies the products of each query. // [query]
    pub scales: Vec<f64>,
    /// What errors of f32 scores are relative to: the largest |score| and |scale·q·k| of a visible pair, an eighth of
    /// the largest scale·Σ|q||k|, whose terms may cancel, and at least 1.
    pub largest: f64,
}

impl Case {
    pub fn is_real(&self, position_idx: usize) -> bool {
        self.real.as_ref().is_none_or(|real| real[position_idx])
    }

    /// Whether a query sees a key, from the words of the spec: one condition after another.
    pub fn sees(&self, query_idx: usize, key_idx: usize) -> bool {
        let (query, key) = (query_idx as i64, key_idx as i64);
        let mask = self.spec.mask;
        let is_past_or_present = key <= query;
        let in_window = match mask.window {
            None => true,
            Some(Window::Back(width)) => is_past_or_present && query - key < width as i64,
            Some(Window::Around(reach)) => (query - key).abs() <= reach as i64,
        };
        (!mask.causal || is_past_or_present) && in_window && self.is_real(key_idx)
    }

    /// What multiplies the products of a query. // k_norms: [key]
    fn scale(&self, query_idx: usize, k_norms: &[f64]) -> f64 {
        let d_head = self.spec.d_head as f64;
        let seen = |power: f64| -> f64 {
            let visible = (0..self.n).filter(|key_idx| self.sees(query_idx, *key_idx));
            visible.map(|key_idx| k_norms[key_idx].powf(power)).sum()
        };
        match self.spec.scale {
            Scale::InvSqrtD => 1.0 / d_head.sqrt(),
            Scale::InvD => 1.0 / d_head,
            Scale::One => 1.0,
            Scale::Factor(factor) => f64::from(factor),
            Scale::OfKeys(OfKeys { divisor, factor }) => {
                let divisor = match divisor {
                    KeyDivisor::SumOfNorms => seen(1.0),
                    KeyDivisor::MeanNorm => seen(1.0) / seen(0.0),
                    KeyDivisor::RootOfSquares => seen(2.0).sqrt(),
                    KeyDivisor::PNorm(p) => seen(f64::from(p)).powf(1.0 / f64::from(p)),
                    KeyDivisor::NSqrtD => seen(0.0) * d_head.sqrt(),
                };
                f64::from(factor) / divisor
            }
        }
    }

    /// Computes one head.
    pub fn head(&self, head_idx: usize) -> Expected {
        let AttentionSpec {
            n_heads,
            n_kv_heads,
            d_head,
            d_value,
            ..
        } = self.spec;
        let n = self.n;
        // Query heads in a row share a key and value head.
        let kv_head_idx = head_idx * n_kv_heads / n_heads;
        let slice = |values: &[f32], n_all: usize, head_idx: usize, width: usize| {
            (0..n)
                .map(|position_idx| {
                    let at = position_idx * n_all * width + head_idx * width;
                    values[at..at + width]
                        .iter()
                        .map(|v| f64::from(*v))
                        .collect()
                })
                .collect::<Vec<Vec<f64>>>()
        };
        let q = slice(&self.q, n_heads, head_idx, d_head);
        let k = slice(&self.k, n_kv_heads, kv_head_idx, d_head);
        let v = slice(&self.v, n_kv_heads, kv_head_idx, d_value);
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let norms = |rows: &[Vec<f64>]| {
            rows.iter()
                .map(|row| dot(row, row).sqrt())
                .collect::<Vec<f64>>()
        };
        let k_norms = norms(&k);
        let scales: Vec<f64> = (0..n).map(|i| self.scale(i, &k_norms)).collect();
        let raw: Vec<Vec<f64>> = q
            .iter()
            .zip(&scales)
            .map(|(q, scale)| k.iter().map(|k| scale * dot(q, k)).collect())
            .collect();
        let scores: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                (0..n)
                    .map(|j| self.score(head_idx, i, j, raw[i][j]))
                    .collect()
            })
            .collect();
        let visible: Vec<Vec<usize>> = (0..n)
            .map(|i| (0..n).filter(|j| self.sees(i, *j)).collect())
            .collect();
        let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[head_idx]));
        let log_sum_exp: Vec<f64> = (0..n)
            .map(|i| log_of_sum(visible[i].iter().map(|j| scores[i][*j]).chain(sink)))
            .collect();
        let columns: Vec<f64> = (0..n)
            .map(|j| {
                let seen_by = (0..n).filter(|i| self.sees(*i, j));
                log_of_sum(seen_by.map(|i| scores[i][j]))
            })
            .collect();
        let pattern: Vec<Vec<f64>> = (0..n)
            .map(|i| {
                if visible[i].is_empty() {
                    let value = match self.spec.no_visible {
                        NoVisible::Zero => 0.0,
                        NoVisible::Uniform => 1.0 / n as f64,
                        NoVisible::Nan => f64::NAN,
                    };
                    return vec![value; n];
                }
                let normaliser = |j: usize| match self.spec.softmax_axis {
                    SoftmaxAxis::Keys => log_sum_exp[i],
                    SoftmaxAxis::Queries => columns[j],
                };
                let p = |j: usize| {
                    if self.sees(i, j) {
                        (scores[i][j] - normaliser(j)).exp()
                    } else {
                        0.0
                    }
                };
                (0..n).map(p).collect()
            })
            .collect();
        let mix = |weight: fn(f64) -> f64| {
            pattern
                .iter()
                .map(|row| {
                    (0..d_value)
                        .map(|c| row.iter().zip(&v).map(|(p, v)| p * weight(v[c])).sum())
                        .collect()
                })
                .collect::<Vec<Vec<f64>>>()
        };
        let (z, z_size) = (mix(|v| v), mix(f64::abs));
        let pairs = (0..n).flat_map(|i| visible[i].iter().map(move |j| (i, *j)));
        let terms = |i: usize, j: usize| -> f64 {
            let terms = q[i].iter().zip(&k[j]).map(|(q, k)| (q * k).abs());
            scales[i] * terms.sum::<f64>()
        };
        let largest = pairs.fold(1.0f64, |largest, (i, j)| {
            let of_pair = [scores[i][j].abs(), raw[i][j].abs(), terms(i, j) / 8.0];
            of_pair.into_iter().fold(largest, f64::max)
        });
        Expected {
            scores,
            raw,
            pattern,
            z,
            z_size,
            k_norms,
            q_norms: norms(&q),
            log_sum_exp,
            visible,
            scales,
            largest,
        }
    }

    fn score(&self, head_idx: usize, query_idx: usize, key_idx: usize, scaled: f64) -> f64 {
        if !self.sees(query_idx, key_idx) {
            return f64::NEG_INFINITY;
        }
        let capped = match self.spec.softcap {
            Some(cap) => f64::from(cap) * (scaled / f64::from(cap)).tanh(),
            None => scaled,
        };
        let bias = match &self.spec.bias {
            Bias::None => 0.0,
            Bias::Alibi(alibi) => {
                let at = |idx: usize| self.positions.get(idx).copied().unwrap_or(idx) as f64;
                let slope = alibi.slopes[head_idx];
                let bias = match alibi.rounds_to_bf16 {
                    // The products themselves are rounded: that is the definition.
                    true => {
                        let product = bf16::from_f32(slope).to_f32() * at(key_idx) as f32;
                        f64::from(bf16::from_f32(product).to_f32())
                    }
                    false => f64::from(slope) * (at(key_idx) - at(query_idx)),
                };
                // A scale that differs from row to row is none of the bias's.
                let scale = match self.spec.scale {
                    Scale::OfKeys(_) => 1.0 / (self.spec.d_head as f64).sqrt(),
                    _ => self.scale(query_idx, &[]),
                };
                bias * if alibi.is_scaled { scale } else { 1.0 }
            }
            Bias::Buckets(buckets) => {
                // Which bucket a distance falls into is for another test; here, where its value is added.
                let bucket = buckets.of(key_idx as isize - query_idx as isize);
                let values = self.bucket_values.as_ref().expect("values of buckets");
                f64::from(values[bucket * self.spec.n_heads + head_idx])
            }
        };
        capped + bias
    }
}

fn log_of_sum(values: impl Iterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.collect();
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max == f64::NEG_INFINITY {
        return max;
    }
    max + values.iter().map(|v| (v - max).exp()).sum::<f64>().ln()
}
