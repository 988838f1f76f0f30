//! Measures the weights alone: every tensor once, layer by layer, before any text is run.

mod initial;
mod shards;
mod spectrum;
mod unread;
mod values;
mod zero;

use std::collections::{BTreeMap, BTreeSet};

use attnscope_checkpoint::{TensorView, Tensors};
use attnscope_checks::{LayerCopy, LayerWeights, SaturatedTensor, Weights, ZeroWeights};
use attnscope_compute::attention::Bias;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use attnscope_spec::{BlockSpec, Model, Place, ProjectionSpec};

use self::initial::{Initial, initial_values, is_default_bias};
use self::spectrum::{chance, edge_ratio};
use self::values::{Seen, seen};
use self::zero::zero_parts;

/// Most values of a large table that are converted to f32 at a time.
const AT_ONCE: usize = 1 << 24;

/// A ratio that proves a matrix was trained, so power iteration stops there.
const ENOUGH: f64 = 2.0;

/// Measures the weights of a model. `told` receives the number of layers done, and of all layers.
///
/// # Errors
/// When a tensor cannot be read, or the work is stopped.
pub(super) fn survey(
    model: &Model,
    told: &mut dyn FnMut(usize, usize),
    pace: &dyn Pace,
) -> Result<Weights> {
    let tensors = &model.checkpoint.tensors;
    let mut survey = Survey {
        tensors,
        pace,
        seen: BTreeMap::new(),
        hiding: hiding(model),
        found: Weights {
            n_files: tensors.files().count(),
            stale_shards: shards::stale(tensors),
            ..Weights::default()
        },
    };
    let n: usize = model
        .spec
        .stacks
        .iter()
        .map(|stack| stack.blocks().len())
        .sum();
    let mut n_done = 0;
    for stack in &model.spec.stacks {
        for (layer_idx, block) in stack.blocks().iter().enumerate() {
            survey.layer(Place::layer(stack.stack, layer_idx), block)?;
            n_done += 1;
            told(n_done, n);
        }
        let blocks: Vec<(Place, &BlockSpec)> = stack
            .blocks()
            .iter()
            .enumerate()
            .map(|(layer_idx, block)| (Place::layer(stack.stack, layer_idx), block))
            .collect();
        survey.copies(&blocks);
    }
    survey.others(model)?;
    let read = survey.seen.clone();
    survey.found.unread = unread::unread(model, &read, |name| survey.large(name))?;
    Ok(survey.found)
}

struct Survey<'a> {
    tensors: &'a Tensors,
    pace: &'a dyn Pace,
    /// Measured tensors, by name.
    seen: BTreeMap<String, Seen>,
    /// Tables of what is added to the score of each query and key: they hide keys by values that are infinite.
    hiding: BTreeSet<String>,
    found: Weights,
}

/// The names of tables of what is added to the score of each query and key.
fn hiding(model: &Model) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for stack in &model.spec.stacks {
        let owns = stack.blocks().iter().filter_map(BlockSpec::own);
        for own in owns.filter(|own| matches!(own.attention.bias, Bias::Pairs(_))) {
            let tables = [&own.projections.bucket_values, &stack.bucket_values];
            names.extend(
                tables
                    .into_iter()
                    .flatten()
                    .map(|table| table.tensor.clone()),
            );
        }
    }
    names
}

impl Survey<'_> {
    fn goes_on(&self) -> Result<()> {
        if self.pace.stops() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }

    /// Measures one layer.
    fn layer(&mut self, place: Place, block: &BlockSpec) -> Result<()> {
        let mut matrices = Vec::new();
        for (name, shape) in block.tensors() {
            self.goes_on()?;
            let is_matrix = shape.len() >= 2 && !self.hiding.contains(name);
            if is_matrix && !matrices.iter().any(|(known, _)| known == name) {
                matrices.push((name.to_owned(), shape.clone()));
            }
            if self.seen.contains_key(name) {
                continue;
            }
            let view = self.tensors.expect(name, &shape)?;
            let values = view.widen()?;
            let seen = self.note(name, place, &view, &values);
            if is_matrix && seen.is_zero() {
                self.zero(place, name, "");
            } else if is_matrix && seen.n_zero > 0 {
                for part in zero_parts(name, block, &values) {
                    self.zero(place, name, &part);
                }
            }
        }
        let initial = initial_values(block);
        let n_neutral = initial.len();
        let mut is_neutral = true;
        for (name, initial) in initial {
            is_neutral = is_neutral && self.is_initial(name, initial)?;
        }
        let edge = if is_neutral && !matrices.is_empty() {
            Some(self.edge(&matrices)?)
        } else {
            None
        };
        self.found.layers.push(LayerWeights {
            place,
            edge_ratio: edge.map(|(ratio, _)| ratio),
            chance: edge.map_or(0.0, |(_, chance)| chance),
            n_matrices: matrices.len(),
            n_neutral,
        });
        Ok(())
    }

    /// Measures the tensors outside of layers, and all others that are used.
    fn others(&mut self, model: &Model) -> Result<()> {
        let table = model
            .spec
            .stacks
            .iter()
            .map(|stack| stack.embed.tokens.tensor.as_str());
        let unembed = model
            .spec
            .head
            .iter()
            .map(|head| head.unembed.weight.as_str());
        let may_not_be_zero: Vec<&str> = table.chain(unembed).collect();
        for (name, _) in model.spec.needed_tensors() {
            if self.seen.contains_key(name) {
                continue;
            }
            let seen = self.large(name)?;
            let Some((view, seen)) = self.tensors.get(name).zip(seen) else {
                continue;
            };
            self.keep(name, Place::MODEL, &view, seen);
            if seen.is_zero() && may_not_be_zero.contains(&name) {
                self.zero(Place::MODEL, name, "");
            }
        }
        Ok(())
    }

    /// Measures a tensor of any size, some rows at a time; `None` if it does not exist or holds no floats.
    fn large(&self, name: &str) -> Result<Option<Seen>> {
        let view = self
            .tensors
            .get(name)
            .filter(|view| view.info.dtype.is_float());
        let Some(view) = view else {
            return Ok(None);
        };
        let dtype = view.info.dtype;
        let n_rows = view.shape().first().copied().unwrap_or(1);
        let width = view.info.n_elements() / n_rows.max(1);
        if !view.is_row_wise() || view.shape().is_empty() || view.info.n_elements() <= AT_ONCE {
            return Ok(Some(seen(&view.widen()?, dtype)));
        }
        let n_at_once = (AT_ONCE / width.max(1)).max(1);
        let mut all = Seen::default();
        for first in (0..n_rows).step_by(n_at_once) {
            self.goes_on()?;
            let rows = first..(first + n_at_once).min(n_rows);
            all = all.and(seen(&view.widen_rows(rows)?, dtype));
        }
        Ok(Some(all))
    }

    fn note(&mut self, name: &str, place: Place, view: &TensorView<'_>, values: &[f32]) -> Seen {
        let seen = seen(values, view.info.dtype);
        self.keep(name, place, view, seen);
        seen
    }

    fn keep(&mut self, name: &str, place: Place, view: &TensorView<'_>, seen: Seen) {
        let n_infinite = if self.hiding.contains(name) {
            0
        } else {
            seen.n_infinite
        };
        if seen.n_largest + n_infinite > 0 {
            let dtype = view.info.dtype;
            self.found.saturated.push(SaturatedTensor {
                place,
                tensor: name.to_owned(),
                dtype: dtype.to_string(),
                n_largest: seen.n_largest,
                n_infinite,
                n_values: seen.n,
                largest: values::largest(dtype).map_or(f64::INFINITY, f64::from),
            });
        }
        self.seen.insert(name.to_owned(), seen);
    }

    fn zero(&mut self, place: Place, tensor: &str, part: &str) {
        self.found.zeros.push(ZeroWeights {
            place,
            tensor: tensor.to_owned(),
            part: part.to_owned(),
        });
    }

    /// Whether a gain or a bias still has its initial value.
    fn is_initial(&self, name: &str, initial: Initial) -> Result<bool> {
        let Some(seen) = self.seen.get(name) else {
            return Ok(true);
        };
        Ok(match initial {
            Initial::One => seen.is_one(),
            Initial::Zero => seen.is_zero(),
            Initial::Bias { .. } if seen.is_zero() => true,
            Initial::Bias { n_in } => match self.tensors.get(name) {
                Some(view) => is_default_bias(&view.widen()?, n_in),
                None => true,
            },
        })
    }

    /// Largest ratio of any matrix to the edge of noise, and the deviation that chance adds for that matrix.
    fn edge(&self, matrices: &[(String, Vec<usize>)]) -> Result<(f64, f64)> {
        let mut worst = (0.0, 0.0);
        for (name, shape) in matrices {
            self.goes_on()?;
            let values = self.tensors.expect(name, shape)?.widen()?;
            let [.., n_rows, width] = *shape.as_slice() else {
                continue;
            };
            for matrix in values.chunks((n_rows * width).max(1)) {
                let chance = chance(n_rows, width);
                let ratio = edge_ratio(matrix, width, ENOUGH);
                if ratio - chance > worst.0 - worst.1 {
                    worst = (ratio, chance);
                }
                if ratio > ENOUGH {
                    return Ok(worst);
                }
            }
        }
        Ok(worst)
    }

    /// Finds layers whose matrices equal those of an earlier layer.
    fn copies(&mut self, blocks: &[(Place, &BlockSpec)]) {
        for (nth, (place, block)) in blocks.iter().enumerate() {
            let own = parts(block);
            let copy = blocks[..nth].iter().find_map(|(of, earlier)| {
                let theirs = parts(earlier);
                let equal = own
                    .iter()
                    .zip(&theirs)
                    .filter(|(a, b)| self.are_equal(a, b));
                let equal: Vec<&Vec<&str>> = equal.map(|(own, _)| own).collect();
                let n_parts = own.iter().filter(|part| !part.is_empty()).count();
                let names = equal.iter().copied().flatten();
                (!equal.is_empty()).then(|| LayerCopy {
                    place: *place,
                    of: *of,
                    tensors: names.map(|name| (*name).to_owned()).collect(),
                    is_whole: equal.len() == n_parts,
                })
            });
            self.found.copies.extend(copy);
        }
    }

    /// Whether two lists of matrices hold equal numbers stored separately in the files; matrices of zeros equal nothing.
    fn are_equal(&self, a: &[&str], b: &[&str]) -> bool {
        let pairs = || a.iter().zip(b);
        let is_shared = |(a, b): (&&str, &&str)| a == b || self.tensors.share_bytes(a, b);
        let are_same = |(a, b): (&&str, &&str)| match (self.seen.get(*a), self.seen.get(*b)) {
            (Some(a), Some(b)) => (a.n, a.hash) == (b.n, b.hash),
            _ => false,
        };
        let is_zero = |name: &&str| self.seen.get(*name).is_some_and(Seen::is_zero);
        !a.is_empty()
            && a.len() == b.len()
            && pairs().all(are_same)
            && !pairs().all(is_shared)
            && !a.iter().all(is_zero)
    }
}

/// Matrices of a layer's self-attention, of its cross-attention, and of its feed-forward block.
fn parts(block: &BlockSpec) -> [Vec<&str>; 3] {
    let names = |projections: Option<&ProjectionSpec>| -> Vec<String> {
        let four = projections.map(|p| [&p.q, &p.k, &p.v, &p.o].map(|map| map.weight.clone()));
        four.into_iter().flatten().collect()
    };
    let own = names(block.own().map(|own| &own.projections));
    let cross = names(block.cross_apart().map(|cross| &cross.projections));
    let mut of_block: Vec<&str> = block
        .tensors()
        .into_iter()
        .filter(|(_, shape)| shape.len() >= 2)
        .map(|(name, _)| name)
        .collect();
    of_block.dedup();
    let among = |names: &[String]| -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for name in &of_block {
            if names.iter().any(|known| known == name) && !found.contains(name) {
                found.push(name);
            }
        }
        found
    };
    let (own, cross) = (among(&own), among(&cross));
    let mut others: Vec<&str> = Vec::new();
    for name in &of_block {
        if !own.contains(name) && !cross.contains(name) && !others.contains(name) {
            others.push(name);
        }
    }
    [own, cross, others]
}
