//! Finds out which axis of an array is which: code differs in the order of head, query and key.

use attnscope_checkpoint::captured::Array;

use super::heads::Heads;

/// The order of the axes of an array of scores or probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Axes {
    /// [batch, head, query, key], the same with leading axes missing, and [batch, kv_head, group, query, key].
    #[default]
    BatchHeadQueryKey,
    HeadBatchQueryKey,
    BatchQueryKeyHead,
    QueryKeyBatchHead,
    /// [batch, position, head, d_head]; only for vectors, never for scores or probabilities.
    BatchQueryHeadKey,
}

impl Axes {
    /// The orders that scores and probabilities are stored in.
    const OF_CELLS: [Self; 4] = [
        Self::BatchHeadQueryKey,
        Self::HeadBatchQueryKey,
        Self::BatchQueryKeyHead,
        Self::QueryKeyBatchHead,
    ];

    /// Order of an array of vectors by its name: TransformerLens's `hook_q` is [batch, position, head, d_head].
    pub fn of_vectors(name: &str) -> Self {
        if name.contains(".hook_") {
            Self::BatchQueryHeadKey
        } else {
            Self::BatchHeadQueryKey
        }
    }

    /// Index of batch, head, query and key among the four axes.
    fn places(self) -> [usize; 4] {
        match self {
            Self::BatchHeadQueryKey => [0, 1, 2, 3],
            Self::HeadBatchQueryKey => [1, 0, 2, 3],
            Self::BatchQueryKeyHead => [0, 3, 1, 2],
            Self::QueryKeyBatchHead => [2, 3, 0, 1],
            Self::BatchQueryHeadKey => [0, 2, 1, 3],
        }
    }

    /// Name of the order in messages and in the metadata that declares it.
    pub fn words(self) -> &'static str {
        match self {
            Self::BatchHeadQueryKey => "batch, head, query, key",
            Self::HeadBatchQueryKey => "head, batch, query, key",
            Self::BatchQueryKeyHead => "batch, query, key, head",
            Self::QueryKeyBatchHead => "query, key, batch, head",
            Self::BatchQueryHeadKey => "batch, position, head, d_head",
        }
    }

    /// Parses an order that the user declares.
    pub fn parse(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|c| c.is_ascii_alphabetic()).collect();
        Self::OF_CELLS.into_iter().find(|axes| {
            let words: String = axes.words().split(", ").collect();
            let letters: String = axes
                .words()
                .split(", ")
                .filter_map(|w| w.chars().next())
                .collect();
            plain == words || plain == letters
        })
    }
}

/// What is known about the sequences from other arrays.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Possible numbers of queries and keys; empty if no tokens were recorded.
    pub lengths: Vec<usize>,
    pub n_batch: Option<usize>,
}

/// Where the cells of an array are. For vectors, queries are positions and keys are components.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// Sizes of batch, head, query and key; 1 for an axis that the array does not have.
    pub dims: [usize; 4],
    /// Distance between neighbours along each of them.
    strides: [usize; 4],
}

impl Layout {
    /// Returns `None` for an empty array, and for one whose number of axes does not fit.
    pub fn of(shape: &[usize], axes: Axes) -> Option<Self> {
        let places = axes.places();
        let mut four = [1; 4];
        match *shape {
            _ if shape.contains(&0) => return None,
            [n_batch, n_kv_heads, n_group, n_queries, n_keys] if axes == Axes::default() => {
                four = [n_batch, n_kv_heads * n_group, n_queries, n_keys];
            }
            [_, _] | [_, _, _] | [_, _, _, _] => {
                // The batch is the first axis to be missing, then the heads.
                let n_missing = 4 - shape.len();
                let has = |axis: &usize| !places[..n_missing].contains(axis);
                for (axis, n) in (0..4).filter(has).zip(shape) {
                    four[axis] = *n;
                }
            }
            _ => return None,
        }
        let mut strides = [1; 4];
        for axis in (0..3).rev() {
            strides[axis] = strides[axis + 1] * four[axis + 1];
        }
        Some(Self {
            dims: places.map(|axis| four[axis]),
            strides: places.map(|axis| strides[axis]),
        })
    }

    /// Takes the first sequence of the batch.
    pub fn first(&self, mut values: Vec<f32>) -> Heads {
        let [_, n_heads, n_queries, n_keys] = self.dims;
        let dims = [n_heads, n_queries, n_keys];
        let [_, strides @ ..] = self.strides;
        if strides == [n_queries * n_keys, n_keys, 1] {
            values.truncate(dims.iter().product());
        } else {
            values = gathered(&values, dims, strides);
        }
        Heads { dims, values }
    }

    /// Returns the vectors of the first sequence in the layout of a run. If the array has a multiple of `n_heads` heads, each
    /// head is repeated in a row, and its first copy is taken. // [position, head · d_head]
    pub fn by_position(&self, values: &[f32], n_heads: usize) -> Vec<f32> {
        let [_, n_stored, n_positions, d_head] = self.dims;
        let [_, of_head, of_position, of_value] = self.strides;
        let strides = [of_position, of_head * (n_stored / n_heads), of_value];
        gathered(values, [n_positions, n_heads, d_head], strides)
    }

    /// Largest |Σ over the batch − 1| of a nonzero cell; `None` for a batch of one.
    pub fn batch_axis_deviation(&self, values: &[f32]) -> Option<f64> {
        let ([n_batch, dims @ ..], [of_batch, strides @ ..]) = (self.dims, self.strides);
        if n_batch < 2 {
            return None;
        }
        let (mut worst, mut n_used) = (0.0f64, 0);
        for at in cells(dims, strides) {
            let column = (0..n_batch).map(|batch_idx| f64::from(values[at + batch_idx * of_batch]));
            let sum: f64 = column.sum();
            if sum != 0.0 {
                n_used += 1;
                worst = worst.max((sum - 1.0).abs());
            }
        }
        (n_used > 0 && worst.is_finite()).then_some(worst)
    }
}

/// Where the cells of three axes are, the last axis counting fastest.
fn cells([a, b, c]: [usize; 3], [of_a, of_b, of_c]: [usize; 3]) -> impl Iterator<Item = usize> {
    let rows = (0..a).flat_map(move |a| (0..b).map(move |b| a * of_a + b * of_b));
    rows.flat_map(move |at| (0..c).map(move |c| at + c * of_c))
}

fn gathered(values: &[f32], dims: [usize; 3], strides: [usize; 3]) -> Vec<f32> {
    let mut found = Vec::with_capacity(dims.iter().product());
    // `for_each` becomes three plain loops; `collect` does not.
    cells(dims, strides).for_each(|at| found.push(values[at]));
    found
}

/// Infers the order of the axes from an array's shape and sums; `None` if they do not decide.
///
/// It looks first at the sums along each axis, since the softmax usually runs over keys, then at the sequence lengths, then at
/// exact zeros above the diagonal.
pub fn axes_of(array: &Array, known: &Known) -> Option<Axes> {
    let n_axes = array.shape.len();
    let usual = Axes::BatchHeadQueryKey;
    if !(3..=4).contains(&n_axes) {
        return Some(usual);
    }
    let Some(Layout { dims: shape, .. }) = Layout::of(&array.shape, usual) else {
        return Some(usual);
    };
    let may = |axes: &Axes| {
        n_axes == 4 || matches!(axes, Axes::BatchHeadQueryKey | Axes::BatchQueryKeyHead)
    };
    let seen: Vec<Seen> = Axes::OF_CELLS
        .into_iter()
        .filter(may)
        .filter_map(|axes| Seen::of(axes, array, known))
        .collect();
    let of = |axes: Axes| seen.iter().find(|seen| seen.axes == axes);
    let is_batch = |axis: usize| known.n_batch == Some(shape[axis]);
    let first = of(usual)?;
    if first.holds && first.fits {
        let is_swapped = n_axes == 4 && known.n_batch.is_some() && !is_batch(0) && is_batch(1);
        return Some(if is_swapped {
            Axes::HeadBatchQueryKey
        } else {
            usual
        });
    }
    let others = seen
        .iter()
        .filter(|seen| !matches!(seen.axes, Axes::BatchHeadQueryKey | Axes::HeadBatchQueryKey));
    let fitting: Vec<&Seen> = others.filter(|seen| seen.holds && seen.fits).collect();
    match fitting.as_slice() {
        [] if first.holds || first.fits => Some(usual),
        [] => Some(usual),
        [one] if !first.fits => Some(one.axes),
        [one] if one.is_causal && !first.is_causal => Some(one.axes),
        [one] if first.is_causal && !one.is_causal => Some(usual),
        // As many heads as sequences in the batch, and no known lengths: take the longer axes for the sequence.
        [one] if one.axes == Axes::QueryKeyBatchHead && shape[0] != shape[2] => {
            Some(if shape[0] > shape[2] { one.axes } else { usual })
        }
        // Undecided, as with as many heads as tokens: a softmax over queries in one order looks healthy in another.
        _ => None,
    }
}

/// How well one order of axes fits an array.
struct Seen {
    axes: Axes,
    /// Whether the numbers of queries and keys are among the known lengths.
    fits: bool,
    /// Whether the sums over the supposed key axis are 1.
    holds: bool,
    /// Whether later keys get exactly 0.
    is_causal: bool,
}

/// Tolerance of a row sum, for every float type.
const SUM: f64 = 2e-2;
/// Share of nonzero rows whose sum must be 1.
const MOST: f64 = 0.95;

impl Seen {
    fn of(axes: Axes, array: &Array, known: &Known) -> Option<Self> {
        let Layout { dims, strides } = Layout::of(&array.shape, axes)?;
        let [n_batch, n_heads, n_queries, n_keys] = dims;
        let [of_batch, of_head, of_query, of_key] = strides;
        let (mut n_rows, mut n_held) = (0usize, 0usize);
        let mut is_causal = n_queries == n_keys && n_keys > 1;
        let rows = cells([n_batch, n_heads, n_queries], [of_batch, of_head, of_query]);
        for (row_idx, at) in rows.enumerate() {
            let cell = |key_idx: usize| f64::from(array.values[at + key_idx * of_key]);
            let sum: f64 = (0..n_keys).map(cell).sum();
            if sum != 0.0 && sum.is_finite() {
                n_rows += 1;
                n_held += usize::from((sum - 1.0).abs() <= SUM);
            }
            let query_idx = row_idx % n_queries;
            is_causal &= (query_idx + 1..n_keys).all(|key_idx| cell(key_idx) == 0.0);
        }
        let fits = if known.lengths.is_empty() {
            n_queries == n_keys
        } else {
            known.lengths.contains(&n_keys)
                && (known.lengths.contains(&n_queries) || n_queries < n_keys)
        };
        Some(Self {
            axes,
            fits,
            holds: n_rows > 0 && n_held as f64 >= MOST * n_rows as f64 && n_keys > 1,
            is_causal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Softmax over one axis of random scores, stored in an order of axes. // dims: batch, head, query, key
    fn array(axes: Axes, dims: [usize; 4], causal: bool, over: usize) -> Array {
        let n: usize = dims.iter().product();
        let [_, n_heads, n_queries, n_keys] = dims;
        let of = |at: usize| {
            [
                at / (n_keys * n_queries * n_heads),
                at / (n_keys * n_queries) % n_heads,
                at / n_keys % n_queries,
                at % n_keys,
            ]
        };
        let weight = |at: usize| {
            let [_, _, query_idx, key_idx] = of(at);
            let is_hidden = causal && key_idx > query_idx;
            let score = ((at * 7919 + 13) % 101) as f64 / 25.0;
            if is_hidden { 0.0 } else { score.exp() }
        };
        let mut sums = std::collections::BTreeMap::new();
        for at in 0..n {
            let mut group = of(at);
            group[over] = 0;
            *sums.entry(group).or_insert(0.0) += weight(at);
        }
        let places = axes.places();
        let mut shape = [0; 4];
        for (name, axis) in places.iter().enumerate() {
            shape[*axis] = dims[name];
        }
        let mut values = vec![0.0; n];
        for at in 0..n {
            let idx = of(at);
            let mut group = idx;
            group[over] = 0;
            let mut there = [0; 4];
            for (name, axis) in places.iter().enumerate() {
                there[*axis] = idx[name];
            }
            let flat = there
                .iter()
                .zip(shape)
                .fold(0, |flat, (idx, n)| flat * n + idx);
            values[flat] = (weight(at) / sums[&group]) as f32;
        }
        Array {
            shape: shape.to_vec(),
            values,
        }
    }

    fn known(lengths: &[usize], n_batch: Option<usize>) -> Known {
        Known {
            lengths: lengths.to_vec(),
            n_batch,
        }
    }

    #[test]
    fn every_axis_order_is_inferred_and_read_back_alike() {
        for causal in [false, true] {
            let dims = [2, 3, 7, 7];
            let plain = array(Axes::BatchHeadQueryKey, dims, causal, 3);
            for axes in Axes::OF_CELLS {
                let array = array(axes, dims, causal, 3);
                let found = axes_of(&array, &known(&[7], Some(2)));
                assert_eq!(found, Some(axes), "{causal}");
                let layout = Layout::of(&array.shape, axes).expect("a layout");
                let of_first = &plain.values[..3 * 7 * 7];
                assert_eq!(layout.first(array.values).values, of_first);
            }
        }
    }

    #[test]
    fn softmax_over_a_wrong_axis_is_not_taken_for_another_axis_order() {
        for over in [0, 1, 2] {
            let wrong = array(Axes::BatchHeadQueryKey, [2, 3, 7, 7], true, over);
            for known in [known(&[7], Some(2)), known(&[7], None), known(&[], None)] {
                assert_eq!(
                    axes_of(&wrong, &known),
                    Some(Axes::BatchHeadQueryKey),
                    "{over}"
                );
            }
        }
    }

    #[test]
    fn with_as_many_heads_as_tokens_only_a_causal_mask_decides_the_axis_order() {
        let of = |axes, causal, over| {
            axes_of(&array(axes, [1, 6, 6, 6], causal, over), &known(&[6], None))
        };
        assert_eq!(
            of(Axes::BatchQueryKeyHead, true, 3),
            Some(Axes::BatchQueryKeyHead)
        );
        assert_eq!(
            of(Axes::BatchHeadQueryKey, true, 2),
            Some(Axes::BatchHeadQueryKey)
        );
        assert_eq!(
            of(Axes::BatchHeadQueryKey, true, 3),
            Some(Axes::BatchHeadQueryKey)
        );
        // Without a mask, a softmax over queries and this order give the same numbers.
        assert_eq!(of(Axes::BatchQueryKeyHead, false, 3), None);
    }

    #[test]
    fn axis_order_is_parsed_from_words_or_letters() {
        for (text, axes) in [
            ("bqkh", Axes::BatchQueryKeyHead),
            ("[head, batch, query, key]", Axes::HeadBatchQueryKey),
        ] {
            assert_eq!(Axes::parse(text), Some(axes));
        }
        assert_eq!(Axes::parse("khqb"), None);
    }
}
