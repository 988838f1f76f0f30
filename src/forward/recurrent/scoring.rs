//! Products of decoder states with encoder states, as the spec scores them: what scale, cap and softmax are applied to.

use attnscope_compute::error::Result;
use attnscope_compute::kernels::sum_of_squares;
use attnscope_compute::ops::{HostLinear, Ops};
use attnscope_spec::recurrent::{ScoreSource, WriterSpec};

use crate::context::BlockContext;

/// Added to a mean square, as norms without weights do.
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
    /// The map of queries, and the vector that is multiplied with tanh of the sum.
    Additive {
        query: O::Linear<'a>,
        vector: Vec<f32>,
        mapped: O::Buffer,
    },
}

impl<'a, O: Ops> Scoring<'a, O> {
    /// # Errors
    /// When a tensor is not as the spec says, or the device fails; so for what follows.
    pub fn of(
        context: &BlockContext<'a, O>,
        spec: &WriterSpec,
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

    /// Whether a product is that of two vectors, so that their lengths and angle say something of it.
    pub fn is_product(&self) -> bool {
        matches!(self.rule, Rule::Product)
    }

    /// A state as it is scored. // [width]
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

    /// What scale and softmax are applied to. // out: [key]
    pub fn products(&self, query: &[f32], out: &mut [f32]) {
        for (key, out) in self.keys.chunks(self.width).zip(out) {
            // Sums in f64: what a saturated softmax makes of a last digit comes back through input feeding.
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
