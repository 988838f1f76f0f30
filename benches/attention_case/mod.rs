//! One layer's attention on random queries, keys and values: the only place here that knows how a `Run` is built.

use attnscope_compute::attention::{
    AttentionSpec, HeadSummary, Repeats, Run, SoftmaxAxis, Visibility,
};
use attnscope_compute::ops::{Cpu, Ops, Values};

/// A layer to run, with buffers that are kept between calls.
pub struct Case {
    spec: AttentionSpec,
    visibility: Visibility,
    repeats: Repeats,
    positions: Vec<usize>,
    /// [query, n_heads · d_head], [key, n_kv_heads · d_head], [key, n_kv_heads · d_value]
    q: Values,
    k: Values,
    v: Values,
    z: Values,
}

impl Case {
    /// Queries deviate by 1.5, keys and values by 1: scores are spread as in a trained layer, not uniform.
    pub fn new(spec: AttentionSpec, n: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(0);
        let mut filled = |width: usize, deviation: f32| Values {
            width,
            data: (0..n * width)
                .map(|_| normal(&mut random) * deviation)
                .collect(),
        };
        let tokens: Vec<u32> = (0..n).map(token).collect();
        Self {
            visibility: Visibility::of_self(spec.mask, n, None),
            repeats: Repeats::of(&tokens),
            positions: (0..n).collect(),
            q: filled(spec.n_heads * spec.d_head, 1.5),
            k: filled(spec.n_kv_heads * spec.d_head, 1.0),
            v: filled(spec.n_kv_heads * spec.d_value, 1.0),
            z: Values::default(),
            spec,
        }
    }

    /// Scores, pattern, every statistic of every row, and Σ p·v.
    pub fn attend(&mut self) -> Vec<HeadSummary> {
        let run = Run {
            spec: &self.spec,
            visibility: &self.visibility,
            heads: 0..self.spec.n_heads,
            sinks: None,
            beside: None,
            bucket_values: None,
            bias_factors: None,
            relative: None,
            positions: &self.positions,
            grid: None,
            repeats: Some(&self.repeats),
            value_norms: None,
            globals: None,
            sink: None,
            kept: None,
            pace: &|| false,
        };
        let ran = Cpu.attend(&run, &self.q, &self.k, &self.v, &mut self.z);
        ran.expect("nobody stops it")
    }

    /// Multiplications and additions of Q·Kᵀ and P·V over visible pairs; a softmax over queries scores twice.
    pub fn flops(&self) -> f64 {
        let n_visible: usize = (0..self.visibility.n_queries)
            .map(|query_idx| self.visibility.range(query_idx).len())
            .sum();
        let n_passes = match self.spec.softmax_axis {
            SoftmaxAxis::Keys => 1,
            SoftmaxAxis::Queries | SoftmaxAxis::Heads => 2,
        };
        let per_pair = 2 * (n_passes * self.spec.d_head + self.spec.d_value);
        (self.spec.n_heads * n_visible * per_pair) as f64
    }
}

/// Ids that repeat now and then, as words of a text do.
fn token(position_idx: usize) -> u32 {
    (position_idx * 7919 + 13) as u32 % 389
}

/// A sum of uniform numbers is near enough to normal, and has deviation 1.
fn normal(random: &mut fastrand::Rng) -> f32 {
    (0..12).map(|_| random.f32()).sum::<f32>() - 6.0
}
