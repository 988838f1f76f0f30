//! The tensors of two checkpoints, one pair at a time: which are missing, which differ, and how the differing ones relate.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::floors::{Floors, Precision, storage_floor};
use super::relation::{Part, Relation, alike, is_rounded, relation};
use super::roles::{Division, Role, Source, roles, transposed};
use super::stored::{StoredDifference, StoredPair, by_name, is_buffer};
use crate::checkpoint::{Dtype, Tensors};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::pace::Pace;

/// A tensor that two checkpoints have different values of.
#[derive(Debug, Clone, PartialEq)]
pub struct TensorDifference {
    /// The name in A; the name in B where one tensor of A is two of B.
    pub name: String,
    /// What the tensor is for, in the words of every family; empty for one that no model reads.
    pub roles: Vec<String>,
    /// ‖a − b‖/‖a‖; infinite where the shapes differ, or only one side is finite.
    pub relative: f64,
    pub max_abs: f64,
    pub relation: Option<Relation>,
    /// What B is multiplied by, where the relation is a factor.
    pub factor: Option<f64>,
    /// Rows that differ, as ranges; outputs for a matrix, tokens or positions for a table. At most [`MOST_ROWS`] ranges.
    pub rows: Vec<Range<usize>>,
    /// Heads that differ, where the tensor belongs to heads.
    pub heads: Vec<usize>,
    /// Whether the models compute different values because of it: not for tensors that no model reads, and not within the noise
    /// that the way of storing leaves.
    pub counts: bool,
}

/// Ranges of rows that a difference lists at most.
pub const MOST_ROWS: usize = 16;

/// The tensors of two checkpoints, compared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeightDifferences {
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
    /// In the order of execution; tensors that no model reads come last.
    pub differ: Vec<TensorDifference>,
    /// Layers that read a tensor that differs, or that only one side has: the prefix of their roles, `L3` or `cross.L3`.
    pub layers: BTreeSet<String>,
    /// Tensors that a model reads and the other side lacks: the name, and what the tensor is for.
    pub missing_roles: Vec<(String, String)>,
    /// Whether a tensor that a model reads differs by no more than its way of storing rounds away.
    pub has_rounding: bool,
}

impl WeightDifferences {
    /// Whether some tensor differs, and rounding explains every one that does.
    pub fn is_rounding(&self) -> bool {
        let of_models = || self.differ.iter().filter(|tensor| !tensor.roles.is_empty());
        self.missing_roles.is_empty()
            && of_models().next().is_some()
            && of_models().all(|tensor| tensor.relation == Some(Relation::Rounded))
    }

    /// Whether some tensor that a model reads is on one side only, or differs beyond the noise of storage.
    pub fn count(&self) -> bool {
        !self.missing_roles.is_empty() || self.differ.iter().any(|tensor| tensor.counts)
    }
}

impl WeightDifferences {
    /// Notes a role that only one side has.
    fn lacks(&mut self, role: &Role, is_of_a: bool) {
        let name = role.tensor().to_owned();
        self.missing_roles.push((name.clone(), role.key.clone()));
        let only = if is_of_a {
            &mut self.only_a
        } else {
            &mut self.only_b
        };
        if !only.contains(&name) {
            only.push(name);
        }
        self.layers.insert(layer_of(&role.key));
    }
}

/// Which layer of B stands for each layer of A, as the prefix of a role: `L3` → `L5`; `None` drops the layer.
pub(super) type Renamed<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Compares all tensors of two models. `told` hears how many are done, and of how many.
///
/// # Errors
/// When a tensor cannot be read, or the pace stops it.
pub fn compare_weights(
    a: &Model,
    b: &Model,
    floors: &Floors,
    told: &mut dyn FnMut(usize, usize),
    pace: &dyn Pace,
) -> Result<WeightDifferences> {
    compare_mapped(a, b, floors, &|key| Some(key.to_owned()), told, pace)
}

/// Compares the tensors of two models of which the layers correspond as `renamed` says.
///
/// # Errors
/// As for [`compare_weights`].
pub(super) fn compare_mapped(
    a: &Model,
    b: &Model,
    floors: &Floors,
    renamed: Renamed<'_>,
    told: &mut dyn FnMut(usize, usize),
    pace: &dyn Pace,
) -> Result<WeightDifferences> {
    let (roles_a, roles_b) = (roles(&a.spec), roles(&b.spec));
    let of_key: BTreeMap<&str, &Role> = roles_b.iter().map(|r| (r.key.as_str(), r)).collect();
    let mut found = WeightDifferences::default();
    let mut met: BTreeSet<&str> = BTreeSet::new();
    // By stored tensors, in the order of A's execution.
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut alone: Vec<(&Role, String)> = Vec::new();
    for role in &roles_a {
        let Some(key) = renamed(&role.key) else {
            continue;
        };
        let Some(other) = of_key.get(key.as_str()) else {
            alone.push((role, layer_of(&key)));
            continue;
        };
        met.insert(other.key.as_str());
        let names = (role.tensor(), other.tensor());
        match pairs.iter_mut().rev().find(|pair| pair.names == names) {
            Some(pair) => pair.roles.push((role, other)),
            None => pairs.push(Pair {
                names,
                roles: vec![(role, other)],
            }),
        }
    }
    for (role, layer) in alone {
        // A norm that stands elsewhere keeps its name: it is one tensor for two purposes, not two tensors.
        let is_it = |other: &&Role| {
            let is_moved = other.tensor() == role.tensor() && other.shape() == role.shape();
            is_moved && layer_of(&other.key) == layer && !met.contains(other.key.as_str())
        };
        match roles_b.iter().find(is_it) {
            Some(other) => {
                met.insert(other.key.as_str());
                pairs.push(Pair {
                    names: (role.tensor(), other.tensor()),
                    roles: vec![(role, other)],
                });
            }
            None => found.lacks(role, true),
        }
    }
    for role in &roles_b {
        let is_mapped = renamed_back(&roles_a, renamed, &role.key);
        if !met.contains(role.key.as_str()) && is_mapped {
            found.lacks(role, false);
        }
    }
    let work = Work {
        a: &a.checkpoint.tensors,
        b: &b.checkpoint.tensors,
        floors,
        roles_a: roles_a.iter().map(|r| (r.key.as_str(), r)).collect(),
        of_key: &of_key,
        pace,
    };
    let n = pairs.len();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (nth, pair) in pairs.iter().enumerate() {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        told(nth, n);
        let (difference, is_rounding) = work.pair(pair)?;
        found.has_rounding |= is_rounding;
        let Some(mut difference) = difference else {
            continue;
        };
        if !used.insert(pair.names.0) {
            difference.name = pair.names.1.to_owned();
        }
        // What rounding alone moves is no layer that differs by itself.
        let keys = pair.roles.iter().map(|(role, _)| layer_of(&role.key));
        found.layers.extend(keys.filter(|_| !is_rounding));
        found.differ.push(difference);
    }
    told(n, n);
    unread(&work, (a, b), &mut found)?;
    Ok(found)
}

/// Whether a role of B belongs to a layer that stands for one of A, or to no layer.
fn renamed_back(roles_a: &[Role], renamed: Renamed<'_>, key: &str) -> bool {
    let layer = layer_of(key);
    layer.is_empty()
        || roles_a
            .iter()
            .filter_map(|role| renamed(&role.key))
            .any(|other| layer_of(&other) == layer)
}

/// The layer of a role: `L3`, `encoder.L3`; empty outside of layers.
pub(super) fn layer_of(key: &str) -> String {
    let mut prefix: Vec<&str> = Vec::new();
    for part in key.split('.') {
        let is_layer = part
            .strip_prefix('L')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|digit| digit.is_ascii_digit()));
        prefix.push(part);
        if is_layer {
            return prefix.join(".");
        }
        if prefix.len() == 2 {
            break;
        }
    }
    String::new()
}

/// Tensors that neither model reads, by their names.
fn unread(work: &Work<'_>, (a, b): (&Model, &Model), found: &mut WeightDifferences) -> Result<()> {
    let names = |model: &Model| -> Vec<String> {
        let tensors = &model.checkpoint.tensors;
        let unused = model.spec.unused_tensors(tensors).into_iter();
        let kept = unused.filter(|name| !is_buffer(name) && is_float(tensors, name));
        kept.map(str::to_owned).collect()
    };
    let (of_a, of_b) = (names(a), names(b));
    for name in &of_a {
        if !work.b.contains(name) {
            found.only_a.push(name.clone());
        } else if of_b.contains(name)
            && let Some(difference) = by_name((work.a, work.b), name, work.pace)?
        {
            found.differ.push(difference);
        }
    }
    let only_b = of_b.into_iter().filter(|name| !work.a.contains(name));
    found.only_b.extend(only_b);
    Ok(())
}

fn is_float(tensors: &Tensors, name: &str) -> bool {
    tensors.info(name).is_some_and(|info| info.dtype.is_float())
}

/// The tensors of two checkpoints of other shapes, by their names alone.
///
/// # Errors
/// When a tensor cannot be read, or the pace stops it.
pub fn compare_names(a: &Model, b: &Model, pace: &dyn Pace) -> Result<WeightDifferences> {
    let (a, b) = (&a.checkpoint.tensors, &b.checkpoint.tensors);
    let mut found = WeightDifferences::default();
    let floats = |tensors: &Tensors| -> Vec<String> {
        let all = tensors.iter();
        let kept = all.filter(|(name, info)| info.dtype.is_float() && !is_buffer(name));
        kept.map(|(name, _)| name.to_owned()).collect()
    };
    for name in floats(a) {
        if pace.stops() {
            return Err(Error::Cancelled);
        }
        if !is_float(b, &name) {
            found.only_a.push(name);
        } else if let Some(mut difference) = by_name((a, b), &name, pace)? {
            difference.counts = true;
            found.differ.push(difference);
        }
    }
    let only_b = floats(b).into_iter().filter(|name| !is_float(a, name));
    found.only_b.extend(only_b);
    Ok(found)
}

/// A stored tensor of A, its counterpart in B, and everything that they are both read for.
pub(super) struct Pair<'a> {
    names: (&'a str, &'a str),
    pub roles: Vec<(&'a Role, &'a Role)>,
}

pub(super) struct Work<'a> {
    pub a: &'a Tensors,
    pub b: &'a Tensors,
    floors: &'a Floors,
    roles_a: BTreeMap<&'a str, &'a Role>,
    of_key: &'a BTreeMap<&'a str, &'a Role>,
    pace: &'a dyn Pace,
}

/// What is found of one role of a pair.
pub(super) struct Found {
    pub relation: Option<(Relation, Option<f64>)>,
    pub is_equal: bool,
}

impl Work<'_> {
    fn dtypes(&self, pair: &Pair<'_>) -> (Dtype, Dtype) {
        let of = |tensors: &Tensors, name: &str| {
            tensors.info(name).map_or(Dtype::F32, |info| info.dtype)
        };
        (of(self.a, pair.names.0), of(self.b, pair.names.1))
    }

    /// Compares a pair; `None` where nothing differs but what the storage of quantised numbers rounds away. Tells also whether
    /// rounding explains all that differs.
    fn pair(&self, pair: &Pair<'_>) -> Result<(Option<TensorDifference>, bool)> {
        let (dtype_a, dtype_b) = self.dtypes(pair);
        let floor = storage_floor(dtype_a, dtype_b);
        let is_as_stored = pair.roles.iter().all(|(a, b)| a.reads_as(b));
        let shapes = (self.a.info(pair.names.0), self.b.info(pair.names.1));
        let is_one_shape = shapes
            .0
            .zip(shapes.1)
            .is_some_and(|(a, b)| a.shape == b.shape);
        let stored = (is_as_stored && is_one_shape)
            .then(|| StoredPair::of((self.a, self.b), pair.names, self.pace))
            .flatten();
        if let Some(stored) = &stored
            && (self.a.is_same_place(pair.names.0, self.b, pair.names.1) || stored.is_equal()?)
        {
            return Ok((None, false));
        }
        let is_table = |role: &Role| matches!(role.source, Source::Table(_));
        let is_large = pair.roles.iter().all(|(a, _)| is_table(a) || is_large(a));
        let mut parts = Parts::default();
        match stored {
            Some(stored) if is_large => parts.take_stored(&stored.difference()?),
            Some(stored) if self.matrices(pair, &stored, floor, &mut parts)? => {}
            _ => {
                let n_stored = shapes.0.map_or(0, |info| info.n_elements());
                let mut n_read = 0;
                for (a, b) in &pair.roles {
                    // A table that is the output map too is read once.
                    if n_read >= n_stored {
                        break;
                    }
                    n_read += a.shape().0 * a.shape().1;
                    self.role((a, b), floor, &mut parts)?;
                }
            }
        }
        if parts.difference.is_equal() {
            return Ok((None, false));
        }
        let is_quantised = [dtype_a, dtype_b]
            .iter()
            .any(|dtype| Precision::of(*dtype) == Precision::Quantised);
        let relative = parts.difference.relative();
        let is_noise = dtype_a != dtype_b && relative <= floor;
        let is_half = self.floors.precision != Precision::Single;
        if is_quantised && relative <= floor {
            return Ok((None, true));
        }
        let mut related = parts.relation();
        if related.is_none() && is_noise {
            related = Some((Relation::Rounded, None));
        }
        let is_rounded = related.is_some_and(|(relation, _)| relation == Relation::Rounded);
        let limit = self.floors.precision.tolerance().min(1.0).max(floor);
        let most = parts.difference.worst_row().max(relative);
        let is_rounding = is_half && (is_rounded || relative <= floor);
        let found = TensorDifference {
            name: pair.names.0.to_owned(),
            roles: pair.roles.iter().map(|(a, _)| a.key.clone()).collect(),
            relative,
            max_abs: parts.difference.max_abs,
            relation: related.map(|(relation, _)| relation),
            factor: related.and_then(|(_, factor)| factor),
            rows: parts.difference.rows.clone(),
            heads: parts.heads,
            counts: most > limit && !(is_rounded && most <= floor.max(1e-2) && dtype_a != dtype_b),
        };
        Ok((Some(found), is_rounding))
    }

    /// Compares what one role reads on both sides.
    fn role(&self, (a, b): (&Role, &Role), floor: f64, parts: &mut Parts) -> Result<()> {
        let (values_a, values_b) = (a.read(self.a, self.pace)?, b.read(self.b, self.pace)?);
        let (n_out, n_in) = a.shape();
        if a.shape() != b.shape() || values_a.len() != values_b.len() {
            parts.difference.is_mismatched = true;
            parts.found.push(Found {
                relation: None,
                is_equal: false,
            });
            return Ok(());
        }
        let mut here = StoredDifference::default();
        here.add_in_parallel(parts.first_row, n_in, &values_a, &values_b);
        let is_equal = here.is_equal();
        if !is_equal {
            parts.heads_of(a.division, &here);
        }
        let part = |values| Part {
            values,
            n_out,
            n_in,
        };
        let mut related = None;
        if !is_equal {
            related = relation(part(&values_a), part(&values_b), a.division, floor);
            if related.is_none() && self.is_swapped((a, b), (&values_a, &values_b), floor)? {
                related = Some((Relation::GateUpSwapped, None));
            }
        }
        parts.first_row += n_out;
        parts.difference.join(&here);
        parts.found.push(Found {
            relation: related,
            is_equal,
        });
        Ok(())
    }

    /// The up-projections that stand beside two gates, or the gates beside two up-projections: of A, and of B.
    pub(super) fn counterparts(&self, a: &Role, b: &Role) -> Option<(&Role, &Role)> {
        let other = |key: &str| {
            let ends = [(".gate", ".up"), (".gate.bias", ".up.bias")];
            ends.iter().find_map(|(gate, up)| {
                let swapped =
                    |from: &str, to: &str| key.strip_suffix(from).map(|stem| format!("{stem}{to}"));
                swapped(gate, up).or_else(|| swapped(up, gate))
            })
        };
        let of_a = self.roles_a.get(other(&a.key)?.as_str())?;
        Some((of_a, self.of_key.get(other(&b.key)?.as_str())?))
    }

    /// Whether gate and up-projection have changed places.
    fn is_swapped(
        &self,
        (a, b): (&Role, &Role),
        (values_a, values_b): (&[f32], &[f32]),
        floor: f64,
    ) -> Result<bool> {
        let Some((other_a, other_b)) = self.counterparts(a, b) else {
            return Ok(false);
        };
        let of_b = other_b.read(self.b, self.pace)?;
        if !alike(values_a, &of_b, floor) {
            return Ok(false);
        }
        drop(of_b);
        let of_a = other_a.read(self.a, self.pace)?;
        Ok(alike(&of_a, values_b, floor))
    }
}

/// Values beyond which a matrix is compared as it is stored: what is in no layer can be far larger than a layer.
const LARGE: usize = 1 << 25;

/// Whether a role lies outside of layers and is too large to be held twice.
fn is_large(role: &Role) -> bool {
    let (n_out, n_in) = role.shape();
    layer_of(&role.key).is_empty() && n_out * n_in > LARGE
}

/// What is found of all roles of a pair.
#[derive(Default)]
pub(super) struct Parts {
    pub difference: StoredDifference,
    pub found: Vec<Found>,
    heads: Vec<usize>,
    pub first_row: usize,
}

impl Parts {
    /// Takes what the stored tensors tell without their roles.
    fn take_stored(&mut self, whole: &StoredDifference) {
        let relation = whole.relation();
        self.difference.join(whole);
        self.found.push(Found {
            relation,
            is_equal: false,
        });
    }

    /// The relation that all parts that differ have in common.
    fn relation(&self) -> Option<(Relation, Option<f64>)> {
        let mut differing = self.found.iter().filter(|found| !found.is_equal);
        let first = differing.next()?.relation?;
        let is_same = |found: &Found| found.relation.is_some_and(|(other, _)| other == first.0);
        differing.all(is_same).then_some(first)
    }

    /// Notes the heads that differ.
    pub(super) fn heads_of(&mut self, division: Division, here: &StoredDifference) {
        let (Division::Rotating(heads) | Division::Outputs(heads)) = division else {
            return;
        };
        for rows in &here.rows {
            let rows = rows.start - self.first_row..rows.end - self.first_row;
            let of_head = heads.width.max(1);
            for head in rows.start / of_head..rows.end.div_ceil(of_head) {
                if !self.heads.contains(&head) {
                    self.heads.push(head);
                }
            }
        }
    }
}

/// Whether a tensor is another one with its axes exchanged.
pub(super) fn is_turned(a: (&[usize], &[f32]), b: (&[usize], &[f32])) -> bool {
    let ([rows, columns], [rows_b, columns_b]) = (a.0, b.0) else {
        return false;
    };
    (rows, columns) == (columns_b, rows_b) && {
        let turned = transposed(a.1, *rows, *columns);
        alike(&turned, b.1, 1e-6) || is_rounded(&turned, b.1)
    }
}
