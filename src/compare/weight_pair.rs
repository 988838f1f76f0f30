//! Compares a stored tensor with its counterpart: the difference, and the relation.

use std::collections::BTreeMap;

use attnscope_checkpoint::{Dtype, Tensors};
use attnscope_compute::error::Result;
use attnscope_compute::pace::Pace;

use super::floors::{Floors, Precision, storage_floor};
use super::relation::{Part, Relation, alike, relation};
use super::roles::{Division, Role, Source, layer_of};
use super::stored::{StoredDifference, StoredPair};
use super::tensor_difference::TensorDifference;

/// A stored tensor of A, its counterpart in B, and the roles that both are read for.
pub(super) struct Pair<'a> {
    pub names: (&'a str, &'a str),
    pub roles: Vec<(&'a Role<'a>, &'a Role<'a>)>,
}

pub(super) struct Work<'a> {
    pub a: &'a Tensors,
    pub b: &'a Tensors,
    pub floors: &'a Floors,
    pub roles_a: BTreeMap<&'a str, &'a Role<'a>>,
    pub of_key: &'a BTreeMap<&'a str, &'a Role<'a>>,
    pub pace: &'a dyn Pace,
}

/// Result for one role of a pair.
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

    /// Compares a pair; `None` if nothing differs beyond the rounding of quantised storage. Also returns whether rounding
    /// explains the whole difference.
    pub fn pair(&self, pair: &Pair<'_>) -> Result<(Option<TensorDifference>, bool)> {
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
        let is_table = |role: &Role<'_>| matches!(role.source, Source::Table(_));
        let is_large = pair.roles.iter().all(|(a, _)| is_table(a) || is_large(a));
        let mut parts = Parts::default();
        match stored {
            Some(stored) if is_large => parts.take_stored(&stored.difference()?),
            Some(stored) if self.matrices(pair, &stored, floor, &mut parts)? => {}
            _ => {
                let n_stored = shapes.0.map_or(0, |info| info.n_elements());
                let mut n_read = 0;
                for (a, b) in &pair.roles {
                    // An embedding table that is also the output map is read once.
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

    /// Compares one role's values on both sides.
    fn role(&self, (a, b): (&Role<'_>, &Role<'_>), floor: f64, parts: &mut Parts) -> Result<()> {
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

    /// Returns the up-projections next to two gates, or the gates next to two up-projections: of A, and of B.
    pub(super) fn counterparts(
        &self,
        a: &Role<'_>,
        b: &Role<'_>,
    ) -> Option<(&Role<'_>, &Role<'_>)> {
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

    /// Whether gate and up-projection are swapped.
    fn is_swapped(
        &self,
        (a, b): (&Role<'_>, &Role<'_>),
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

/// Size above which a matrix outside of layers, which can be far larger than a layer, is compared as stored.
const LARGE: usize = 1 << 25;

/// Whether a role is outside of layers and too large to be held twice.
fn is_large(role: &Role<'_>) -> bool {
    let (n_out, n_in) = role.shape();
    layer_of(&role.key).is_empty() && n_out * n_in > LARGE
}

/// Result for all roles of a pair.
#[derive(Default)]
pub(super) struct Parts {
    pub difference: StoredDifference,
    pub found: Vec<Found>,
    heads: Vec<usize>,
    pub first_row: usize,
}

impl Parts {
    /// Adds the comparison of the stored tensors, without roles.
    fn take_stored(&mut self, whole: &StoredDifference) {
        let relation = whole.relation();
        self.difference.join(whole);
        self.found.push(Found {
            relation,
            is_equal: false,
        });
    }

    /// Returns the relation that all differing parts have in common.
    fn relation(&self) -> Option<(Relation, Option<f64>)> {
        let mut differing = self.found.iter().filter(|found| !found.is_equal);
        let first = differing.next()?.relation?;
        let is_same = |found: &Found| found.relation.is_some_and(|(other, _)| other == first.0);
        differing.all(is_same).then_some(first)
    }

    /// Records the heads that differ.
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
