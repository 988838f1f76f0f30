//! Vectors per distance, learned or computed, in the form that queries and keys are multiplied with.

use std::borrow::Cow;

use attnscope_compute::attention::RelativeTables;
use attnscope_compute::error::Result;
use attnscope_compute::kernels::NumberFormat;
use attnscope_compute::ops::Ops;
use attnscope_spec::{DistanceRows, LinearSource, QueryBiases, RelativeSource, Sines};

use super::embed::add_sinusoids;
use super::rounded::round_read;
use super::weights::WeightReader;

impl<'a, O: Ops> WeightReader<'a, O> {
    /// Reads learned relative-position vectors, in the form that queries and keys are multiplied with.
    pub(super) fn relative(
        self,
        source: &RelativeSource,
        format: Option<NumberFormat>,
    ) -> Result<RelativeTables> {
        let ops = self.ops;
        let (table, width) = match &source.embeddings {
            DistanceRows::Stored(stored) => (round_read(self.table(stored)?, format), stored.width),
            DistanceRows::Sines {
                n_rows,
                width,
                order,
            } => {
                let rows = sines_of_distances(*n_rows, *width, *order);
                (Cow::Owned(rows), *width)
            }
            DistanceRows::Shared {
                table,
                n_heads,
                middle,
                is_reversed,
                span,
                ..
            } => {
                let stored = round_read(self.table(table)?, format);
                let last = table.n_rows.saturating_sub(1) as isize;
                let row = |distance: isize| {
                    let turned = if *is_reversed { -distance } else { distance };
                    let at = (*middle as isize + turned).clamp(0, last) as usize;
                    stored[at * table.width..][..table.width].repeat(*n_heads)
                };
                let span = *span as isize;
                let keys: Vec<f32> = (-span..span).flat_map(row).collect();
                let of_rows = source.biases.as_ref();
                let of_rows = of_rows.map(|biases| self.bias_of_rows(biases, &keys, format));
                return Ok(RelativeTables {
                    of_rows: of_rows.transpose()?,
                    keys: Some(keys),
                    queries: None,
                    ..RelativeTables::default()
                });
            }
        };
        let mut rows = O::Buffer::default();
        ops.put(&table, width, &mut rows)?; // [row, d_model]
        if let Some(norm) = &source.norm {
            let mut normed = O::Buffer::default();
            ops.norm(&rows, &self.norm(norm)?, &mut normed)?;
            rows = normed;
        }
        let projected = |linear: &Option<LinearSource>| -> Result<Option<Vec<f32>>> {
            let Some(linear) = linear else {
                return Ok(None);
            };
            let mut projected = O::Buffer::default();
            ops.linear(&rows, &self.linear(linear)?, &mut projected, self.pace)?; // [row, n_heads · d_head]
            Ok(Some(ops.get(&projected)?.values.into_owned()))
        };
        let keys = projected(&source.key)?;
        let of_rows = match (&source.biases, &keys) {
            (Some(biases), Some(keys)) => Some(self.bias_of_rows(biases, keys, format)?),
            _ => None,
        };
        Ok(RelativeTables {
            keys,
            queries: projected(&source.query)?,
            of_rows,
            ..RelativeTables::default()
        })
    }

    /// What each row adds besides its product with queries, whose bias is that for keys. // [head, row]
    fn bias_of_rows(
        self,
        biases: &QueryBiases,
        keys: &[f32],
        format: Option<NumberFormat>,
    ) -> Result<Vec<f32>> {
        let (n_heads, d_head) = (biases.n_heads, biases.d_head);
        let read = |name: &str| -> Result<Cow<'a, [f32]>> {
            let stored = self.tensors.expect(name, &[n_heads, d_head])?.widen()?;
            Ok(round_read(stored, format))
        };
        let mut change = read(&biases.of_distances)?.into_owned();
        if let Some(name) = &biases.of_keys {
            let of_keys = read(name)?;
            change.iter_mut().zip(&*of_keys).for_each(|(a, b)| *a -= b);
        }
        let heads = change.chunks(d_head.max(1)).enumerate();
        Ok(heads
            .flat_map(|(head_idx, change)| {
                let rows = keys.chunks((n_heads * d_head).max(1));
                rows.map(move |row| {
                    let row = &row[head_idx * d_head..];
                    row.iter().zip(change).map(|(a, b)| a * b).sum::<f32>()
                })
            })
            .collect())
    }
}

/// Sines and cosines of the distances from −n_rows / 2 on. // [n_rows, width]
fn sines_of_distances(n_rows: usize, width: usize, order: Sines) -> Vec<f32> {
    let mut rows = vec![0.0; n_rows * width];
    let span = n_rows / 2;
    // A sine of a negative distance is that of the positive one with the other sign.
    for (row_idx, row) in rows.chunks_mut(width.max(1)).enumerate() {
        add_sinusoids(&[row_idx.abs_diff(span)], order, width, row);
        if row_idx < span {
            let (sines, apart) = match order {
                Sines::Interleaved => (0..width, 2),
                Sines::Halves | Sines::HalvesToEnd => (0..width.div_ceil(2), 1),
                Sines::CosinesToEnd => (width / 2..width, 1),
            };
            let sines = row[sines].iter_mut().step_by(apart);
            sines.for_each(|sine| *sine = -*sine);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sines_of_distances_before_a_token_have_the_other_sign() {
        let rows = sines_of_distances(4, 2, Sines::Halves);
        let at = |row: usize| (rows[2 * row], rows[2 * row + 1]);
        assert_eq!(at(2), (0.0, 1.0));
        assert_eq!(at(1), (-at(3).0, at(3).1));
        assert!((at(0).0 + 2f32.sin()).abs() < 1e-6 && (at(3).0 - 1f32.sin()).abs() < 1e-6);
        let in_turn = sines_of_distances(2, 4, Sines::Interleaved);
        for (found, expected) in in_turn.iter().zip([-1f32.sin(), 1f32.cos(), -0.01, 1.0]) {
            assert!((found - expected).abs() < 1e-4, "{in_turn:?}");
        }
    }
}
