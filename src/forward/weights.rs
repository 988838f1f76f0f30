//! Reads maps and norms from their sources, in the form that a device takes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use attnscope_checkpoint::{TensorView, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::scale_assign;
use attnscope_compute::ops::{HostLinear, HostWeight, Lent, Ops, lend, lend_bits};
use attnscope_compute::pace::Pace;
use attnscope_spec::{LinearSource, MapScale, NormSource, Part, TableSource};
use rayon::prelude::*;

use super::low_rank::with_low_rank;
use super::norms::read_norm;
use super::rounded::{largest_beside, rounded};
use super::stored_forms::{followed, for_both_halves, whole_of, with_last_inputs};

/// Reader of weights for one device.
pub(super) struct WeightReader<'a, O> {
    pub ops: &'a O,
    pub tensors: &'a Tensors,
    pub pace: &'a dyn Pace,
    /// Whether weights are laid out for multiplying a few rows at a time.
    pub for_few_rows: bool,
    /// Whether maps are multiplied once, so that a device may read them when they are.
    pub for_one_run: bool,
}

impl<O> Clone for WeightReader<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for WeightReader<'_, O> {}

impl<'a, O: Ops> WeightReader<'a, O> {
    pub fn new(ops: &'a O, tensors: &'a Tensors, pace: &'a dyn Pace) -> Self {
        Self {
            ops,
            tensors,
            pace,
            for_few_rows: false,
            for_one_run: false,
        }
    }

    /// Reads weights in a layout for multiplying single rows many times.
    pub fn by_row(self) -> Self {
        Self {
            for_few_rows: true,
            ..self
        }
    }

    /// # Errors
    /// When a tensor is missing, has the wrong shape, or the device refuses it; also for the functions below.
    pub fn linear(self, source: &LinearSource) -> Result<O::Linear<'a>> {
        self.linear_of(source, &Fused::default())
    }

    /// Reads one of several maps that may be parts of one stored matrix.
    pub(super) fn linear_of(self, source: &LinearSource, fused: &Fused) -> Result<O::Linear<'a>> {
        if self.for_one_run
            && let Some(later) = self.later(source)?
        {
            return self.ops.linear_later(later);
        }
        let takes_bf16 = self.ops.takes_bf16();
        let mut host = read_linear(self.tensors, source, takes_bf16, fused, self.pace)?;
        if self.for_few_rows {
            host = self.ops.for_few_rows(host);
        }
        self.ops.linear_weights(host)
    }

    pub fn on_host(self, source: &LinearSource) -> Result<HostLinear<'a>> {
        read_linear(self.tensors, source, false, &Fused::default(), self.pace)
    }

    pub fn norm(self, source: &NormSource) -> Result<O::Norm<'a>> {
        self.ops.norm_weights(read_norm(self.tensors, source)?)
    }

    pub(super) fn optional_norm(self, source: &Option<NormSource>) -> Result<Option<O::Norm<'a>>> {
        source.as_ref().map(|source| self.norm(source)).transpose()
    }

    /// Reads all rows of a table.
    pub fn table(self, table: &TableSource) -> Result<Cow<'a, [f32]>> {
        let shape = [table.n_rows, table.width];
        self.tensors.expect(&table.tensor, &shape)?.widen()
    }

    pub fn vector(self, name: &str, n: usize) -> Result<Cow<'a, [f32]>> {
        self.tensors.expect(name, &[n])?.widen()
    }
}

/// Reads an affine map: as f32, or as bf16 if it is stored so and `takes_bf16` allows it.
pub(super) fn read_linear<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    takes_bf16: bool,
    fused: &Fused,
    pace: &dyn Pace,
) -> Result<HostLinear<'a>> {
    let takes_bf16 = takes_bf16 && source.factors.is_none() && source.rounded.is_none();
    if let Some(half) = source.half_map() {
        let once = read_linear(tensors, &half, false, fused, pace)?;
        return Ok(for_both_halves(once));
    }
    if let Some((first, last)) = source.before_last() {
        let first = read_linear(tensors, &first, false, fused, pace)?;
        let (n_out, outputs) = (source.n_stored_out, 0..source.n_out());
        let whole = with_last_inputs(tensors, first, (last, n_out), outputs)?;
        return Ok(scaled(rounded(whole, source.rounded, None), source.scale));
    }
    if let Some((first, then)) = source.before_then() {
        let first = read_linear(tensors, &first, false, fused, pace)?;
        let then = read_linear(tensors, then, false, &Fused::default(), pace)?;
        return Ok(followed(&first, &then));
    }
    let stored = tensors.expect(&source.weight, &source.stored_shape())?;
    let takes_bf16 = takes_bf16 && source.scale == MapScale::ONE && source.low_rank.is_none();
    let apart = source.slab.filter(|slab| !slab.is_joined);
    let weight = match (source.slab, apart.and_then(|slab| stored.slab(slab.idx))) {
        (None, _) if source.groups.is_some() || source.inputs.is_some() => {
            HostWeight::F32(Cow::Owned(whole_of(&stored.widen()?, source)))
        }
        (None, _) => read_matrix(&stored, source, takes_bf16, fused, pace)?,
        (_, Some(slab)) => read_matrix(&slab, source, takes_bf16, fused, pace)?,
        (Some(slab), None) => {
            let n_values = stored.shape().first().copied().unwrap_or_default();
            let rows = source.slab_rows(slab, n_values);
            HostWeight::F32(chosen(stored.widen_rows(rows)?, source))
        }
    };
    let weight = match &source.low_rank {
        Some(added) => HostWeight::F32(Cow::Owned(with_low_rank(tensors, source, added, &weight)?)),
        None => weight,
    };
    let bias = match &source.bias {
        Some(name) => {
            let stored = tensors.expect(name, &source.stored_bias_shape())?;
            let bias = match source.slab {
                Some(slab) => stored.widen_rows(slab.idx..slab.idx + 1)?,
                None => stored.widen()?,
            };
            if source.bias_is_of_part {
                Some(bias)
            } else {
                Some(choose(bias, 1, source.n_stored_out, source.part))
            }
        }
        None => None,
    };
    let bias = match &source.second_bias {
        Some((name, shape)) => {
            let second = tensors.expect(name, shape)?.widen()?;
            Some(sum_of(bias, spread(second, source.n_out())))
        }
        None => bias,
    };
    let linear = HostLinear {
        n_out: source.n_out(),
        n_in: source.n_in,
        weight,
        is_input_major: source.is_input_major != source.is_transposed,
        bias,
        grams: Default::default(),
    };
    let largest = largest_beside(tensors, source, pace)?;
    let linear = scaled(rounded(linear, source.rounded, largest), source.scale);
    match &source.factors {
        Some(factors) => {
            let shape = factors.stored_shape(source.n_out());
            let stored = tensors.expect(&factors.tensor, &shape)?.widen()?;
            Ok(multiplied(linear, &factors.of(&stored, source.n_out())))
        }
        None => Ok(linear),
    }
}

/// Repeats each value of a vector that is shorter than `n`, as often as makes it that long.
fn spread(values: Cow<'_, [f32]>, n: usize) -> Cow<'_, [f32]> {
    let times = n / values.len().max(1);
    if times < 2 {
        return values;
    }
    let each = values
        .iter()
        .flat_map(|value| std::iter::repeat_n(*value, times));
    Cow::Owned(each.collect())
}

/// The sum of a bias, if there is one, and a vector.
fn sum_of<'a>(bias: Option<Cow<'a, [f32]>>, second: Cow<'a, [f32]>) -> Cow<'a, [f32]> {
    match bias {
        Some(bias) => bias.iter().zip(&*second).map(|(a, b)| a + b).collect(),
        None => second,
    }
}

/// Applies a map's declared factors.
fn scaled(mut linear: HostLinear<'_>, scale: MapScale) -> HostLinear<'_> {
    if scale == MapScale::ONE {
        return linear;
    }
    let mut values = linear.widened().into_owned();
    scale_assign(&mut values, scale.of_weight());
    linear.weight = HostWeight::F32(Cow::Owned(values));
    if let Some(bias) = &mut linear.bias {
        scale_assign(bias.to_mut(), scale.output);
    }
    linear
}

/// Multiplies a map's outputs. // factors: [n_out]
fn multiplied<'a>(host: HostLinear<'a>, factors: &[f32]) -> HostLinear<'a> {
    let mut values = host.widened().into_owned();
    let (n_in, n_out) = (host.n_in.max(1), host.n_out.max(1));
    if host.is_input_major {
        for row in values.chunks_mut(n_out) {
            row.iter_mut().zip(factors).for_each(|(v, by)| *v *= by);
        }
    } else {
        for (row, by) in values.chunks_mut(n_in).zip(factors) {
            row.iter_mut().for_each(|v| *v *= by);
        }
    }
    let bias = host.bias.map(|bias| {
        let both = bias.iter().zip(factors);
        both.map(|(v, by)| v * by).collect()
    });
    HostLinear {
        n_out: host.n_out,
        n_in: host.n_in,
        weight: HostWeight::F32(Cow::Owned(values)),
        is_input_major: host.is_input_major,
        bias,
        grams: Default::default(),
    }
}

/// Reads the matrix of the outputs in `source.part`, as bf16 if it is stored so and `takes_bf16` allows it.
fn read_matrix<'a>(
    stored: &TensorView<'a>,
    source: &LinearSource,
    takes_bf16: bool,
    fused: &Fused,
    pace: &dyn Pace,
) -> Result<HostWeight<'a>> {
    let is_whole = source.part.len == source.part.group;
    if takes_bf16 && let Some(elements) = bf16_elements(stored, source) {
        return read_bf16(stored, elements, pace);
    }
    if is_whole && let Some(values) = stored.borrowed() {
        return Ok(HostWeight::F32(Cow::Borrowed(values)));
    }
    // Reading one row of a transposed matrix costs as much as reading all of them.
    if stored.is_row_wise() && stored.shape().len() == 2 {
        if source.is_input_major && !is_whole {
            return fused.columns(stored, source, pace);
        }
        return read_rows(stored, source, pace).map(HostWeight::Lent);
    }
    Ok(HostWeight::F32(chosen(stored.widen()?, source)))
}

/// Returns the element range of a bf16 matrix in its tensor, if it is contiguous.
fn bf16_elements(stored: &TensorView<'_>, source: &LinearSource) -> Option<Range<usize>> {
    let part = source.part;
    let is_whole = part.len == part.group;
    let is_in_one_piece = part.group == source.n_stored_out && !source.is_input_major;
    if !stored.is_plain_bf16() || !(is_whole || is_in_one_piece) {
        return None;
    }
    if is_whole {
        return Some(0..source.n_in * source.n_stored_out);
    }
    let start = part.offset * source.n_in;
    Some(start..start + part.len * source.n_in)
}

/// Reads a contiguous matrix as bf16 bits.
fn read_bf16<'a>(
    stored: &TensorView<'_>,
    elements: Range<usize>,
    pace: &dyn Pace,
) -> Result<HostWeight<'a>> {
    let mut bits = lend_bits(elements.len());
    let parts = bits.par_chunks_mut(READ_AT_ONCE).enumerate();
    parts.try_for_each(|(idx, to)| {
        goes_on(pace)?;
        stored.bf16_into(elements.start + idx * READ_AT_ONCE, to)
    })?;
    Ok(HostWeight::Bf16(bits))
}

/// Selects the source's outputs from a whole matrix.
fn chosen<'a>(whole: Cow<'a, [f32]>, source: &LinearSource) -> Cow<'a, [f32]> {
    if source.is_input_major {
        choose(whole, source.n_in, source.n_stored_out, source.part)
    } else {
        choose_rows(whole, source.n_in, source.part)
    }
}

/// Number of values read by one task between two checks whether to stop.
const READ_AT_ONCE: usize = 1 << 18;

fn goes_on(pace: &dyn Pace) -> Result<()> {
    if pace.stops() {
        Err(Error::Cancelled)
    } else {
        Ok(())
    }
}

/// Reads and widens a part of a matrix, a selection of its rows or all its columns, in parallel.
fn read_rows(stored: &TensorView<'_>, source: &LinearSource, pace: &dyn Pace) -> Result<Lent> {
    let part = source.part;
    let is_whole = part.len == part.group || source.is_input_major;
    let (n_rows, width) = if source.is_input_major {
        (source.n_in, source.n_stored_out)
    } else {
        (source.n_out(), source.n_in)
    };
    // Selected rows that are contiguous in the file are read together.
    let together = if is_whole { n_rows } else { part.len };
    let n_at_once = (READ_AT_ONCE / width.max(1)).clamp(1, together.max(1));
    let mut wide = lend(n_rows * width);
    let mut tasks: Vec<(Range<usize>, &mut [f32])> = Vec::new();
    for (group_idx, mut to) in wide.chunks_mut((together * width).max(1)).enumerate() {
        let mut first = if is_whole {
            0
        } else {
            group_idx * part.group + part.offset
        };
        while !to.is_empty() {
            let n = n_at_once.min(to.len() / width);
            let (here, rest) = to.split_at_mut(n * width);
            tasks.push((first..first + n, here));
            (to, first) = (rest, first + n);
        }
    }
    tasks.into_par_iter().try_for_each(|(rows, to)| {
        goes_on(pace)?;
        stored.widen_rows_into(rows, to)
    })?;
    goes_on(pace)?;
    Ok(wide)
}

/// A matrix whose columns hold several maps; it is read once for all of them.
#[derive(Default)]
pub(super) struct Fused(RefCell<Option<(String, Arc<Lent>)>>);

impl Fused {
    /// Returns the columns of `part`.
    fn columns<'a>(
        &self,
        stored: &TensorView<'_>,
        source: &LinearSource,
        pace: &dyn Pace,
    ) -> Result<HostWeight<'a>> {
        let mut held = self.0.borrow_mut();
        // The previous matrix is dropped first, so that its buffer can be reused.
        let found = held.take().filter(|(name, _)| *name == source.weight);
        let (_, whole) = held.insert(match found {
            Some(found) => found,
            None => {
                let whole = read_rows(stored, source, pace)?;
                (source.weight.clone(), Arc::new(whole))
            }
        });
        let (part, width) = (source.part, source.n_out());
        if part.group == source.n_stored_out {
            return Ok(HostWeight::Columns {
                whole: Arc::clone(whole),
                width: source.n_stored_out,
                first: part.offset,
            });
        }
        let mut wide = lend(source.n_in * width);
        let n_at_once = (READ_AT_ONCE / source.n_stored_out.max(1)).max(1);
        let from = whole.par_chunks((n_at_once * source.n_stored_out).max(1));
        let to = wide.par_chunks_mut((n_at_once * width).max(1));
        to.zip(from).for_each(|(to, from)| {
            for (to, group) in to.chunks_mut(part.len).zip(from.chunks(part.group)) {
                to.copy_from_slice(&group[part.offset..part.offset + part.len]);
            }
        });
        Ok(HostWeight::Lent(wide))
    }
}

/// Reads some outputs of an unfused affine map stored as [n_out, n_in].
///
/// # Errors
/// When a tensor is missing or has the wrong shape.
pub(super) fn read_linear_rows<'a>(
    tensors: &'a Tensors,
    source: &LinearSource,
    rows: Range<usize>,
    takes_bf16: bool,
    pace: &dyn Pace,
) -> Result<HostLinear<'a>> {
    if let Some((first, last)) = source.before_last() {
        let first = read_linear_rows(tensors, &first, rows.clone(), false, pace)?;
        let whole = with_last_inputs(tensors, first, (last, source.n_stored_out), rows)?;
        return Ok(scaled(rounded(whole, source.rounded, None), source.scale));
    }
    let stored = tensors.expect(&source.weight, &source.stored_shape())?;
    let n_in = source.n_in;
    let is_plain =
        source.scale == MapScale::ONE && source.rounded.is_none() && source.factors.is_none();
    let weight = if takes_bf16 && is_plain && stored.is_plain_bf16() {
        read_bf16(&stored, rows.start * n_in..rows.end * n_in, pace)?
    } else if let Some(values) = stored.borrowed() {
        HostWeight::F32(Cow::Borrowed(&values[rows.start * n_in..rows.end * n_in]))
    } else if stored.is_row_wise() {
        let n_at_once = (READ_AT_ONCE / n_in.max(1)).max(1);
        let mut wide = lend(rows.len() * n_in);
        let tasks = wide.par_chunks_mut((n_at_once * n_in).max(1)).enumerate();
        tasks.try_for_each(|(idx, to)| {
            goes_on(pace)?;
            let first = rows.start + idx * n_at_once;
            stored.widen_rows_into(first..first + to.len() / n_in, to)
        })?;
        HostWeight::Lent(wide)
    } else {
        HostWeight::F32(stored.widen_rows(rows.clone())?)
    };
    let bias = match &source.bias {
        Some(name) => Some(
            tensors
                .expect(name, &[source.n_stored_out])?
                .widen_rows(rows.clone())?,
        ),
        None => None,
    };
    let linear = HostLinear {
        n_out: rows.len(),
        n_in: source.n_in,
        weight,
        is_input_major: false,
        bias,
        grams: Default::default(),
    };
    let linear = scaled(rounded(linear, source.rounded, None), source.scale);
    match &source.factors {
        Some(factors) => {
            let shape = factors.stored_shape(source.n_stored_out);
            let stored = tensors.expect(&factors.tensor, &shape)?.widen()?;
            let all = factors.of(&stored, source.n_stored_out);
            Ok(multiplied(linear, &all[rows]))
        }
        None => Ok(linear),
    }
}

/// Selects the values of `part` from each row of `n_stored` values.
fn choose(values: Cow<'_, [f32]>, n_rows: usize, n_stored: usize, part: Part) -> Cow<'_, [f32]> {
    if part.len == part.group {
        return values;
    }
    let mut chosen = Vec::with_capacity(n_rows * n_stored / part.group * part.len);
    for group in values.chunks(part.group) {
        chosen.extend_from_slice(&group[part.offset..part.offset + part.len]);
    }
    Cow::Owned(chosen)
}

/// Selects the rows of `part`, each of width `n_in`.
pub(super) fn choose_rows(values: Cow<'_, [f32]>, n_in: usize, part: Part) -> Cow<'_, [f32]> {
    if part.len == part.group {
        return values;
    }
    let in_values = Part {
        group: part.group * n_in,
        offset: part.offset * n_in,
        len: part.len * n_in,
    };
    let n_values = values.len();
    choose(values, 1, n_values, in_values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_interleaved_rows_is_taken_from_every_group() {
        // Two heads of [q k v], one row each, of width 2.
        let stored: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let part = Part {
            group: 3,
            offset: 1,
            len: 1,
        };
        assert_eq!(
            choose_rows(Cow::Borrowed(&stored), 2, part).as_ref(),
            [2.0, 3.0, 8.0, 9.0]
        );
        assert_eq!(
            choose(Cow::Borrowed(&stored), 2, 6, part).as_ref(),
            [1.0, 4.0, 7.0, 10.0]
        );
    }
}
