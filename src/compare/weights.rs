//! Compares the tensors of two checkpoints, one pair at a time: which are missing, which differ, and how they are related.

use std::collections::{BTreeMap, BTreeSet};

use attnscope_checkpoint::Tensors;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::pace::Pace;
use attnscope_spec::Model;

use super::floors::Floors;
use super::relation::Relation;
use super::role_list::roles;
use super::roles::{Role, layer_of};
use super::stored::{by_name, is_buffer};
use super::tensor_difference::TensorDifference;
use super::weight_pair::{Pair, Work};

/// Comparison of the tensors of two checkpoints.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeightDifferences {
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
    /// In the order of execution; unread tensors come last.
    pub differ: Vec<TensorDifference>,
    /// Layers that read a differing or missing tensor: the prefix of their roles, `L3` or `cross.L3`.
    pub layers: BTreeSet<String>,
    /// Tensors that a model reads and the other side lacks: name and role.
    pub missing_roles: Vec<(String, String)>,
    /// Whether a tensor that a model reads differs only by storage rounding.
    pub has_rounding: bool,
}

impl WeightDifferences {
    /// Whether some tensor differs, and rounding explains every difference.
    pub fn is_rounding(&self) -> bool {
        let of_models = || self.differ.iter().filter(|tensor| !tensor.roles.is_empty());
        self.missing_roles.is_empty()
            && of_models().next().is_some()
            && of_models().all(|tensor| tensor.relation == Some(Relation::Rounded))
    }

    /// Whether some tensor that a model reads is on one side only, or differs beyond storage noise.
    pub fn count(&self) -> bool {
        !self.missing_roles.is_empty() || self.differ.iter().any(|tensor| tensor.counts)
    }
}

impl WeightDifferences {
    /// Records a role that only one side has.
    fn lacks(&mut self, role: &Role<'_>, is_of_a: bool) {
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

/// Maps a role of A to its counterpart in B by the layer prefix: `L3` → `L5`; `None` drops the layer.
pub(super) type Renamed<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Compares all tensors of two models. `told` receives the number done and the total.
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

/// Compares the tensors of two models whose layers correspond as in `renamed`.
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
    let of_key: BTreeMap<&str, &Role<'_>> = roles_b.iter().map(|r| (r.key.as_str(), r)).collect();
    let mut found = WeightDifferences::default();
    let mut met: BTreeSet<&str> = BTreeSet::new();
    // One pair per stored tensor, in the order of A's execution.
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut alone: Vec<(&Role<'_>, String)> = Vec::new();
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
        // A norm at another place keeps its tensor name: one tensor with two roles, not two tensors.
        let is_it = |other: &&Role<'_>| {
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
        // A layer that differs only by rounding does not count as differing on its own.
        let keys = pair.roles.iter().map(|(role, _)| layer_of(&role.key));
        found.layers.extend(keys.filter(|_| !is_rounding));
        found.differ.push(difference);
    }
    told(n, n);
    unread(&work, (a, b), &mut found)?;
    Ok(found)
}

/// Whether a role of B belongs to a mapped layer, or to no layer.
fn renamed_back(roles_a: &[Role<'_>], renamed: Renamed<'_>, key: &str) -> bool {
    let layer = layer_of(key);
    layer.is_empty()
        || roles_a
            .iter()
            .filter_map(|role| renamed(&role.key))
            .any(|other| layer_of(&other) == layer)
}

/// Compares tensors that neither model reads, by name.
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

/// Compares the tensors of two checkpoints of different architecture, by name only.
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
