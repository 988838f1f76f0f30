//! Contribution (Kobayashi et al. 2020): attention weighted by the norm of the value that it moves, α · ‖v W_O‖.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use attnscope_compute::attention::{AttentionSpec, BlockSink, GlobalKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::{Matrix, MatrixMut, Threads, product};
use attnscope_compute::ops::Ops;
use attnscope_compute::pace::Pace;
use attnscope_forward::{Hook, Input, linear_on_host};
use attnscope_run::Tap;
use attnscope_spec::{LinearSource, Model, Place, Stack};
use rayon::prelude::*;

use super::capture::{of_blocks, sequence_of};
use super::watched::run_watched;

/// Contribution of a head, over the real queries of a prompt.
#[derive(Debug, Clone)]
pub struct Contribution {
    pub place: Place,
    /// Share of the total contribution that comes from the first key.
    pub first_share: f64,
    /// Share of attention on the first key, for comparison.
    pub first_attention: f64,
    /// Mean entropy of contribution/Σ contribution, in nats.
    pub entropy: f64,
    /// Mean sum of norms: the length of the output if nothing cancelled.
    pub total: f64,
    /// Mean norm of the head's output.
    pub added: f64,
    /// ‖v W_O‖ of every key.
    pub value_norms: Vec<f32>,
}

/// Sums over the queries of one head.
#[derive(Debug, Clone, Default)]
struct Sums {
    first: f64,
    first_attention: f64,
    attention: f64,
    total: f64,
    entropy: f64,
    n_rows: usize,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.first += other.first;
        self.first_attention += other.first_attention;
        self.attention += other.attention;
        self.total += other.total;
        self.entropy += other.entropy;
        self.n_rows += other.n_rows;
    }
}

/// State of the attention that is running.
struct Now {
    /// [head][key]
    norms: Vec<Vec<f32>>,
    /// Keys and values that global tokens attend to.
    globals: Option<GlobalKeys>,
    real: Vec<bool>,
    /// By head and first query, so that sums do not depend on the order in which threads finish.
    parts: Mutex<BTreeMap<(usize, usize), Sums>>,
}

impl BlockSink for Now {
    fn block(&self, head_idx: usize, first_query: usize, _: &[f32], pattern: &[f32]) {
        let Some(norms) = self.norms.get(head_idx) else {
            return;
        };
        let mut own = Sums::default();
        for (offset, row) in pattern.chunks(norms.len().max(1)).enumerate() {
            if !self
                .real
                .get(first_query + offset)
                .copied()
                .unwrap_or(false)
            {
                continue;
            }
            let (mut total, mut weighed) = (0.0f64, 0.0f64);
            let globals = self.globals.as_ref();
            let global =
                globals.and_then(|keys| keys.norms_of_query(head_idx, first_query + offset));
            let norms = global.unwrap_or(norms);
            for (p, norm) in row.iter().zip(norms) {
                let c = f64::from(p * norm);
                if c > 0.0 {
                    total += c;
                    weighed += c * c.ln();
                }
            }
            own.first += f64::from(row[0] * norms[0]);
            own.first_attention += f64::from(row[0]);
            own.attention += row.iter().map(|p| f64::from(*p)).sum::<f64>();
            own.total += total;
            // −Σ (c/t) log (c/t) = log t − Σ c log c / t.
            own.entropy += if total > 0.0 {
                total.ln() - weighed / total
            } else {
                0.0
            };
            own.n_rows += 1;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert((head_idx, first_query), own);
    }
}

/// Computes the norm of each head's output for each row of values. Heads of a group share values but not W_O.
/// // values: [row, n · d_value] → [head][row]
struct Written {
    /// W_Oᵀ W_O of each head. // [head][d_value, d_value]
    grams: Vec<Vec<f32>>,
    d_value: usize,
}

impl Written {
    fn read(model: &Model, source: &LinearSource, spec: &AttentionSpec) -> Result<Self> {
        let linear = linear_on_host(&model.checkpoint.tensors, source, &|| false)?;
        let values = linear.widened();
        let (n_out, n_in, width) = (linear.n_out, linear.n_in, spec.d_value);
        let whole = if linear.is_input_major {
            Matrix::new(&values, n_in, n_out, n_out, 1).transposed()
        } else {
            Matrix::new(&values, n_out, n_in, n_in, 1)
        }; // [d_model, n_heads · d_value]
        let grams = (0..spec.n_heads).map(|head_idx| {
            let own = whole.columns(head_idx * width..(head_idx + 1) * width);
            let mut gram = vec![0.0; width * width];
            let mut to = MatrixMut::new(&mut gram, width, width, width);
            product(&mut to, own.transposed(), own, false, Threads::One);
            gram
        });
        Ok(Self {
            grams: grams.collect(),
            d_value: width,
        })
    }

    /// `column_of` gives the column where a head's values begin in a row.
    fn norms(
        &self,
        values: &[f32],
        width: usize,
        column_of: impl Fn(usize) -> usize + Sync,
    ) -> Vec<Vec<f32>> {
        let d = self.d_value;
        let n_rows = values.len() / width.max(1);
        let of_head = |(head_idx, gram): (usize, &Vec<f32>)| {
            let own = Matrix::new(&values[column_of(head_idx)..], n_rows, d, width, 1);
            let mut image = vec![0.0; n_rows * d];
            let mut to = MatrixMut::new(&mut image, n_rows, d, d);
            product(
                &mut to,
                own,
                Matrix::row_major(gram, d, d),
                false,
                Threads::One,
            );
            let rows = image.chunks(d).enumerate();
            rows.map(|(row_idx, image)| {
                let value = &values[row_idx * width + column_of(head_idx)..][..d];
                let pairs = value.iter().zip(image);
                let squared: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                squared.max(0.0).sqrt() as f32
            })
            .collect()
        };
        self.grams.par_iter().enumerate().map(of_head).collect()
    }
}

struct Weighing<'a> {
    model: &'a Model,
    input: &'a Input,
    now: BTreeMap<Stack, (Now, Written)>,
    found: Vec<Contribution>,
}

impl Weighing<'_> {
    /// Finishes one attention; `z` is the output of its heads before W_O. // [position, n_heads · d_value]
    fn close(&mut self, grid: Stack, layer_idx: usize, z: &[f32], width: usize) {
        let Some((now, written)) = self.now.remove(&grid) else {
            return;
        };
        let d_value = written.d_value;
        let added = written.norms(z, width, |head_idx| head_idx * d_value);
        let parts = now.parts.into_inner();
        let mut sums = vec![Sums::default(); now.norms.len()];
        for ((head_idx, _), part) in parts.unwrap_or_else(PoisonError::into_inner) {
            sums[head_idx].add(&part);
        }
        let heads = sums.into_iter().zip(now.norms).zip(added).enumerate();
        self.found
            .extend(heads.map(|(head_idx, ((sums, norms), added))| {
                let n = sums.n_rows as f64;
                let real = added.iter().zip(&now.real).filter(|(_, real)| **real);
                Contribution {
                    place: Place::layer(grid, layer_idx).head(head_idx),
                    first_share: sums.first / sums.total,
                    first_attention: sums.first_attention / sums.attention,
                    entropy: sums.entropy / n,
                    total: sums.total / n,
                    added: real.map(|(norm, _)| f64::from(*norm)).sum::<f64>() / n,
                    value_norms: norms,
                }
            }));
    }
}

impl Tap for Weighing<'_> {
    fn wants(&self, _: Stack, _: usize, hook: Hook) -> bool {
        matches!(hook, Hook::V | Hook::Z)
    }

    fn values(
        &mut self,
        grid: Stack,
        layer_idx: usize,
        hook: Hook,
        values: &[f32],
        width: usize,
    ) -> Result<()> {
        if hook == Hook::Z {
            self.close(grid, layer_idx, values, width);
            return Ok(());
        }
        let block = self.model.spec.stack_of(grid).blocks().get(layer_idx);
        let of_cross = || {
            let cross = block?.cross.as_ref()?;
            Some((&cross.attention, &cross.projections))
        };
        let of_own = || {
            let own = block?.own()?;
            Some((&own.attention, &own.projections))
        };
        let found = if grid == Stack::Cross {
            of_cross()
        } else {
            of_own()
        };
        let Some((attention, projections)) = found else {
            return Ok(());
        };
        if !projections.weighs_values() {
            let problem = format!(
                "{}: a norm of all heads stands between their outputs and the output map, a query's own value is taken out of them, experts map them, or class tokens share what they get, so that a value has no length of its own behind it",
                self.model.spec.family
            );
            return Err(Error::Setting(problem));
        }
        let written = Written::read(self.model, &projections.o, attention)?;
        let column = |head_idx: usize| attention.kv_head_of(head_idx) * attention.d_value;
        let sequence = sequence_of(self.input, grid);
        let now = Now {
            norms: written.norms(values, width, column),
            globals: None,
            real: (0..sequence.len())
                .map(|idx| sequence.is_real(idx))
                .collect(),
            parts: Mutex::default(),
        };
        self.now.insert(grid, (now, written));
        Ok(())
    }

    fn wants_globals(&self) -> bool {
        true
    }

    fn globals(&mut self, grid: Stack, keys: &GlobalKeys) {
        if let Some((now, _)) = self.now.get_mut(&grid) {
            now.globals = Some(keys.clone());
        }
    }

    fn blocks(&self, grid: Stack, _: usize) -> Option<&dyn BlockSink> {
        let (now, _) = self.now.get(&grid)?;
        Some(now)
    }
}

/// Contributions of every head of a model on one prompt, in the order in which heads run.
///
/// # Errors
/// When a layer is not a block, a norm stands between heads and output map, a tensor contradicts the spec, or the model cannot run.
pub fn contributions<O: Ops>(
    ops: &O,
    model: &Model,
    input: &Input,
    pace: &dyn Pace,
) -> Result<Vec<Contribution>> {
    of_blocks(model)?;
    let mut weighing = Weighing {
        model,
        input,
        now: BTreeMap::new(),
        found: Vec::new(),
    };
    run_watched(ops, model, input, &mut weighing, pace)?;
    Ok(weighing.found)
}
