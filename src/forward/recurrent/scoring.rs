//! Raw scores of decoder states with encoder states, before scale, cap and softmax.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::sum_of_squares;
use attnscope_compute::ops::{HostLinear, Ops};
use attnscope_spec::recurrent::{RecurrentDecoderSpec, ScoreSource};

use crate::context::BlockContext;

/// Added to the mean square, as in norms without weights.
const EPS: f64 = 1e-6;

/// The keys of one source, ready to be scored.
pub(super) struct Scoring<'a, O: Ops> {
    ops: &'a O,
    pace: &'a dyn attnscope_compute::pace::Pace,
    rule: Rule<'a, O>,
    qk_norm: bool,
    /// [key, width]
    pub keys: Vec<f32>,
    /// Width of a query and of a key.
    pub width: usize,
}

enum Rule<'a, O: Ops> {
    Product,
    /// The query projection, and the vector multiplied with tanh of the sum.
    Additive {
        query: O::Linear<'a>,
        vector: Vec<f32>,
        mapped: O::Buffer,
    },
}

impl<'a, O: Ops> Scoring<'a, O> {
    /// # Errors
    /// When a tensor differs from its spec, or the device fails; also for the functions below.
    pub fn of(
        context: &BlockContext<'a, O>,
        spec: &RecurrentDecoderSpec,
        states: &O::Buffer,
    ) -> Result<Self> {
        let (ops, pace, shelf) = (context.ops, context.pace, context.shelf());
        let mapped = |linear| -> Result<(Vec<f32>, usize)> {
            let mut to = O::Buffer::default();
            ops.linear(states, &shelf.linear(linear)?, &mut to, pace)?;
            let host = ops.get(&to)?;
            Ok((host.values.into_owned(), host.width))
        };
        let (rule, (mut keys, width)) = match &spec.scores {
            ScoreSource::Dot => {
                let host = ops.get(states)?;
                (Rule::Product, (host.values.into_owned(), host.width))
            }
            ScoreSource::General(key) => (Rule::Product, mapped(key)?),
            ScoreSource::Additive(maps) => {
                let host: HostLinear<'a> = shelf.on_host(&maps.vector)?;
                let rule = Rule::Additive {
                    query: shelf.by_row().linear(&maps.query)?,
                    vector: host.widened().into_owned(),
                    mapped: O::Buffer::default(),
                };
                (rule, mapped(&maps.key)?)
            }
        };
        let qk_norm = spec.qk_norm && matches!(rule, Rule::Product);
        if qk_norm {
            keys.chunks_mut(width).for_each(norm);
        }
        Ok(Self {
            ops,
            pace,
            rule,
            qk_norm,
            keys,
            width,
        })
    }

    /// Whether a raw score is a dot product, so that lengths and angle of its vectors are meaningful.
    pub fn is_product(&self) -> bool {
        matches!(self.rule, Rule::Product)
    }

    /// Returns the query of a decoder state. // [width]
    pub fn query(&mut self, state: &[f32]) -> Result<Vec<f32>> {
        let mut query = match &mut self.rule {
            Rule::Product => state.to_vec(),
            Rule::Additive { query, mapped, .. } => {
                let mut from = O::Buffer::default();
                self.ops.put(state, state.len(), &mut from)?;
                self.ops.linear(&from, query, mapped, self.pace)?;
                self.ops.get(mapped)?.values.into_owned()
            }
        };
        if self.qk_norm {
            norm(&mut query);
        }
        Ok(query)
    }

    /// Computes the raw scores of a query. // out: [key]
    pub fn products(&self, query: &[f32], out: &mut [f32]) {
        for (key, out) in self.keys.chunks(self.width).zip(out) {
            // Sums are in f64: a saturated softmax can amplify a rounding error, and input feeding carries it on.
            let pairs = query.iter().zip(key);
            let sum: f64 = match &self.rule {
                Rule::Product => pairs.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum(),
                Rule::Additive { vector, .. } => {
                    let terms = pairs.zip(vector);
                    terms
                        .map(|((q, k), v)| f64::from(*v) * f64::from(q + k).tanh())
                        .sum()
                }
            };
            *out = sum as f32;
        }
    }
}

/// Divides by the root mean square.
fn norm(values: &mut [f32]) {
    let mean_square = sum_of_squares(values) / values.len() as f64;
    let factor = (1.0 / (mean_square + EPS).sqrt()) as f32;
    values.iter_mut().for_each(|value| *value *= factor);
}
