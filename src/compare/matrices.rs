//! Compares matrices of equal storage layout in one pass over the two files. Values are reordered to logical order only if a
//! sample suggests that the two are related.

use std::ops::Range;

use attnscope_compute::error::Result;
use attnscope_spec::LinearSource;

use super::by_output::ByOutput;
use super::relation::{Relation, alike, factor, of_heads, transposed_begins};
use super::roles::{Division, Role, SAMPLED, Source, transposed};
use super::rounding::Roundings;
use super::stored::{StoredDifference, StoredPair};
use super::weight_pair::{Found, Pair, Parts, Work};

/// Factor by which a sample may differ more than the whole matrix.
const LOOSE: f64 = 4.0;

/// Storage layout of a pair of matrices, and the outputs of each role.
struct Layout<'a> {
    is_input_major: bool,
    n_in: usize,
    parts: Vec<(&'a Role<'a>, &'a Role<'a>, attnscope_spec::Part)>,
}

impl<'a> Layout<'a> {
    /// Returns the layout of a pair whose roles cover every output once; `None` for other tensors.
    fn of(pair: &Pair<'a>) -> Option<Self> {
        let (first, _) = pair.roles.first()?;
        let (is_input_major, n_in, n_stored_out) = match &first.source {
            Source::Matrix(linear) => (linear.is_input_major, linear.n_in, linear.n_stored_out),
            Source::Table(table) => (false, table.width, table.n_rows),
            _ => return None,
        };
        let whole = attnscope_spec::Part {
            group: n_stored_out,
            offset: 0,
            len: n_stored_out,
        };
        let (mut parts, mut n_met) = (Vec::new(), 0);
        for (a, b) in &pair.roles {
            // An embedding table that is also the output map counts once.
            if n_met >= n_stored_out {
                break;
            }
            let part = match &a.source {
                Source::Matrix(linear) if is_plain(linear) => linear.part,
                Source::Table(_) => whole,
                _ => return None,
            };
            n_met += n_stored_out / part.group.max(1) * part.len;
            parts.push((*a, *b, part));
        }
        (n_met == n_stored_out && n_in > 0 && n_met > 0).then_some(Self {
            is_input_major,
            n_in,
            parts,
        })
    }
}

/// Whether the stored matrix has the inputs of the map, and one of its own.
fn is_plain(linear: &LinearSource) -> bool {
    let is_whole = linear.slab.is_none() && linear.groups.is_none() && linear.inputs.is_none();
    is_whole && !linear.is_transposed
}

/// Returns the stored outputs of a part.
fn outputs(part: attnscope_spec::Part, n_stored: usize) -> impl Iterator<Item = usize> {
    let firsts = (0..n_stored).step_by(part.group.max(1));
    firsts.flat_map(move |first| first + part.offset..first + part.offset + part.len)
}

/// Sampled values of one role on one side.
struct Sample {
    /// The first inputs of every output. // [n_out, SAMPLED or less]
    of_outputs: Vec<f32>,
    /// Some of the first outputs, complete. // [SAMPLED or less, n_in]
    of_inputs: Vec<f32>,
}

impl Work<'_> {
    /// Compares a pair of equal layout; returns false if the comparison needs values in logical order.
    pub(super) fn matrices(
        &self,
        pair: &Pair<'_>,
        stored: &StoredPair<'_>,
        floor: f64,
        parts: &mut Parts,
    ) -> Result<bool> {
        let Some(layout) = Layout::of(pair) else {
            return Ok(false);
        };
        let columns: Vec<Range<usize>> = if layout.is_input_major {
            let firsts = layout.parts.iter();
            firsts
                .map(|(.., part)| part.offset..part.offset + part.len.min(SAMPLED))
                .collect()
        } else {
            std::iter::once(0..layout.n_in.min(SAMPLED)).collect()
        };
        let Some(by_output) = stored.by_output(layout.is_input_major, &columns)? else {
            return Ok(false);
        };
        let n_stored = by_output.apart.len();
        let mut first_row = parts.first_row;
        let mut found = Vec::new();
        for (nth, (a, b, part)) in layout.parts.iter().enumerate() {
            let mut here = StoredDifference::default();
            for (row, output) in outputs(*part, n_stored).enumerate() {
                here.take_row(first_row + row, by_output.apart[output]);
            }
            let mut related = None;
            if !here.is_equal() {
                if by_output.is_rounded {
                    related = Some((Relation::Rounded, None));
                } else {
                    let columns = columns[..nth.min(columns.len())]
                        .iter()
                        .map(Range::len)
                        .sum();
                    let samples = self.samples((a, b), (&layout, *part), &by_output, columns)?;
                    let Some([of_a, of_b]) = samples else {
                        return Ok(false);
                    };
                    let shape = (a.shape().0, layout.n_in);
                    if may_relate((&of_a, &of_b), shape, a.division, floor)
                        || self.may_be_swapped((a, b), floor)?
                    {
                        return Ok(false);
                    }
                }
            }
            first_row += a.shape().0;
            found.push((here, related.take(), a.division));
        }
        for (here, related, division) in found {
            let is_equal = here.is_equal();
            if !is_equal {
                parts.heads_of(division, &here);
            }
            parts.first_row += here.n_rows();
            parts.difference.join(&here);
            parts.found.push(Found {
                relation: related,
                is_equal,
            });
        }
        Ok(true)
    }

    /// Samples one role on both sides. `first` is the column of its first output among the kept columns.
    fn samples(
        &self,
        (a, b): (&Role<'_>, &Role<'_>),
        (layout, part): (&Layout<'_>, attnscope_spec::Part),
        by_output: &ByOutput,
        first: usize,
    ) -> Result<Option<[Sample; 2]>> {
        let (Some(top_a), Some(top_b)) = (a.top(self.a)?, b.top(self.b)?) else {
            return Ok(None);
        };
        let n_kept = by_output.n_kept;
        let of = |top: Vec<f32>, kept: &[f32]| {
            if layout.is_input_major {
                // [input, n_out] and [input, kept columns]
                let n_out = a.shape().0;
                let n = part.len.min(SAMPLED);
                let columns = kept.chunks(n_kept).flat_map(|row| &row[first..first + n]);
                let columns: Vec<f32> = columns.copied().collect();
                Sample {
                    of_outputs: transposed(&top, top.len() / n_out.max(1), n_out),
                    of_inputs: transposed(&columns, layout.n_in, n),
                }
            } else {
                let n_stored = kept.len() / n_kept.max(1);
                let rows = outputs(part, n_stored).flat_map(|row| &kept[row * n_kept..][..n_kept]);
                Sample {
                    of_outputs: rows.copied().collect(),
                    of_inputs: top,
                }
            }
        };
        let [kept_a, kept_b] = &by_output.kept;
        Ok(Some([of(top_a, kept_a), of(top_b, kept_b)]))
    }

    /// Whether gate and up-projection may be swapped, judging by the first values.
    fn may_be_swapped(&self, (a, b): (&Role<'_>, &Role<'_>), floor: f64) -> Result<bool> {
        let Some((_, other_b)) = self.counterparts(a, b) else {
            return Ok(false);
        };
        let tops = (a.top(self.a)?, other_b.top(self.b)?);
        Ok(match tops {
            (Some(of_a), Some(of_b)) => alike(&of_a, &of_b, LOOSE * floor),
            _ => true,
        })
    }
}

/// Whether a relation other than rounding may hold between two matrices, judging by samples.
fn may_relate(
    (a, b): (&Sample, &Sample),
    (n_out, n_in): (usize, usize),
    division: Division,
    floor: f64,
) -> bool {
    let loose = LOOSE * floor;
    let (of_a, of_b) = (&a.of_outputs, &b.of_outputs);
    let n_inputs = of_a.len() / n_out.max(1);
    let n_outputs = a.of_inputs.len() / n_in.max(1);
    // Samples of zeros rule out nothing.
    let is_zero = |values: &[f32]| values.iter().all(|value| *value == 0.0);
    if is_zero(of_a) || is_zero(of_b) {
        return true;
    }
    if Roundings::ALL.after(of_a, of_b).are_possible() || factor(of_a, of_b, loose / 2.0).is_some()
    {
        return true;
    }
    let part = |sample: &Sample| {
        let column = sample.of_outputs.iter().step_by(n_inputs.max(1));
        column.copied().collect::<Vec<f32>>()
    };
    let is_matrix = n_out > 1 && n_in > 1;
    if is_matrix
        && (transposed_begins(&part(a), &b.of_inputs, floor)
            || transposed_begins(&part(b), &a.of_inputs, floor))
    {
        return true;
    }
    let found = match division {
        Division::None => None,
        Division::Inputs(heads) => {
            let turned = [a, b].map(|sample| transposed(&sample.of_inputs, n_outputs, n_in));
            of_heads((&turned[0], &turned[1]), n_outputs, heads, false, loose)
        }
        Division::Outputs(heads) => of_heads((of_a, of_b), n_inputs, heads, false, loose),
        Division::Rotating(heads) => of_heads((of_a, of_b), n_inputs, heads, true, loose),
    };
    found.is_some()
}
