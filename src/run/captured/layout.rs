//! Finds out which axis of an array is which: code differs in the order of head, query and key.

use attnscope_checkpoint::captured::{Array, Captured};
use attnscope_compute::error::Result;

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
}

const ALL: [Axes; 4] = [
    Axes::BatchHeadQueryKey,
    Axes::HeadBatchQueryKey,
    Axes::BatchQueryKeyHead,
    Axes::QueryKeyBatchHead,
];

impl Axes {
    /// Index of batch, head, query and key among the four axes.
    fn places(self) -> [usize; 4] {
        match self {
            Self::BatchHeadQueryKey => [0, 1, 2, 3],
            Self::HeadBatchQueryKey => [1, 0, 2, 3],
            Self::BatchQueryKeyHead => [0, 3, 1, 2],
            Self::QueryKeyBatchHead => [2, 3, 0, 1],
        }
    }

    /// Name of the order in messages and in the metadata that declares it.
    pub fn words(self) -> &'static str {
        match self {
            Self::BatchHeadQueryKey => "batch, head, query, key",
            Self::HeadBatchQueryKey => "head, batch, query, key",
            Self::BatchQueryKeyHead => "batch, query, key, head",
            Self::QueryKeyBatchHead => "query, key, batch, head",
        }
    }

    /// Parses an order that the user declares.
    pub fn parse(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|c| c.is_ascii_alphabetic()).collect();
        ALL.into_iter().find(|axes| {
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

/// An array with its axes in the order [batch, head, query, key].
pub struct Ordered {
    pub dims: [usize; 4],
    values: Vec<f32>,
}

impl Ordered {
    /// # Errors
    /// When the array has a number of axes that scores cannot have, or is empty.
    pub fn of(captured: &Captured, name: &str, array: Array, axes: Axes) -> Result<Self> {
        let Array { shape, values } = array;
        let four = four_axes(&shape, axes).ok_or_else(|| {
            let problem = format!(
                "expected [head, query, key] or [batch, head, query, key], found shape {shape:?}"
            );
            captured.at(name, &problem)
        })?;
        let places = axes.places();
        let dims = places.map(|axis| four[axis]);
        if dims.contains(&0) {
            return Err(captured.at(
                name,
                &format!("expected at least one head, query and key, found shape {shape:?}"),
            ));
        }
        if axes == Axes::BatchHeadQueryKey {
            return Ok(Self { dims, values });
        }
        let mut strides = [1; 4];
        for axis in (0..3).rev() {
            strides[axis] = strides[axis + 1] * four[axis + 1];
        }
        let [of_batch, of_head, of_query, of_key] = places.map(|axis| strides[axis]);
        let mut ordered = Vec::with_capacity(values.len());
        for batch_idx in 0..dims[0] {
            for head_idx in 0..dims[1] {
                for query_idx in 0..dims[2] {
                    let at = batch_idx * of_batch + head_idx * of_head + query_idx * of_query;
                    ordered.extend((0..dims[3]).map(|key_idx| values[at + key_idx * of_key]));
                }
            }
        }
        Ok(Self {
            dims,
            values: ordered,
        })
    }

    /// Keeps only the first sequence of the batch.
    pub fn first(mut self) -> Heads {
        let [_, n_heads, n_queries, n_keys] = self.dims;
        self.values.truncate(n_heads * n_queries * n_keys);
        Heads {
            dims: [n_heads, n_queries, n_keys],
            values: self.values,
        }
    }

    /// Largest |Σ over the batch − 1| of a nonzero cell; `None` for a batch of one.
    pub fn batch_axis_deviation(&self) -> Option<f64> {
        let [n_batch, ..] = self.dims;
        if n_batch < 2 {
            return None;
        }
        let n = self.values.len() / n_batch;
        let (mut worst, mut n_used) = (0.0f64, 0);
        for at in 0..n {
            let column = (0..n_batch).map(|batch_idx| f64::from(self.values[batch_idx * n + at]));
            let sum: f64 = column.sum();
            if sum != 0.0 {
                n_used += 1;
                worst = worst.max((sum - 1.0).abs());
            }
        }
        (n_used > 0 && worst.is_finite()).then_some(worst)
    }
}

/// Shape with an axis each for batch, head, query and key; missing axes have length 1.
fn four_axes(shape: &[usize], axes: Axes) -> Option<[usize; 4]> {
    match (shape, axes) {
        (&[n_queries, n_keys], _) => Some([1, 1, n_queries, n_keys]),
        (&[n_queries, n_keys, n_heads], Axes::QueryKeyBatchHead) => {
            Some([n_queries, n_keys, 1, n_heads])
        }
        (&[n_queries, n_keys, n_heads], Axes::BatchQueryKeyHead) => {
            Some([1, n_queries, n_keys, n_heads])
        }
        (&[n_heads, n_queries, n_keys], _) => Some([1, n_heads, n_queries, n_keys]),
        (&[a, b, c, d], _) if a > 0 => Some([a, b, c, d]),
        (&[n_batch, n_kv_heads, n_group, n_queries, n_keys], Axes::BatchHeadQueryKey)
            if n_batch > 0 =>
        {
            Some([n_batch, n_kv_heads * n_group, n_queries, n_keys])
        }
        _ => None,
    }
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
    let shape = four_axes(&array.shape, usual)?;
    let may = |axes: &Axes| {
        n_axes == 4 || matches!(axes, Axes::BatchHeadQueryKey | Axes::BatchQueryKeyHead)
    };
    let seen: Vec<Seen> = ALL
        .into_iter()
        .filter(may)
        .map(|axes| Seen::of(axes, array, known))
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
    fn of(axes: Axes, array: &Array, known: &Known) -> Self {
        let none = Self {
            axes,
            fits: false,
            holds: false,
            is_causal: false,
        };
        let Some(four) = four_axes(&array.shape, axes) else {
            return none;
        };
        let places = axes.places();
        let [_, _, n_queries, n_keys] = places.map(|axis| four[axis]);
        let mut strides = [1; 4];
        for axis in (0..3).rev() {
            strides[axis] = strides[axis + 1] * four[axis + 1];
        }
        let [of_batch, of_head, of_query, of_key] = places.map(|axis| strides[axis]);
        let (mut n_rows, mut n_held) = (0usize, 0usize);
        let mut is_causal = n_queries == n_keys && n_keys > 1;
        for batch_idx in 0..four[places[0]] {
            for head_idx in 0..four[places[1]] {
                for query_idx in 0..n_queries {
                    let at = batch_idx * of_batch + head_idx * of_head + query_idx * of_query;
                    let cell = |key_idx: usize| f64::from(array.values[at + key_idx * of_key]);
                    let sum: f64 = (0..n_keys).map(cell).sum();
                    if sum != 0.0 && sum.is_finite() {
                        n_rows += 1;
                        n_held += usize::from((sum - 1.0).abs() <= SUM);
                    }
                    is_causal &= (query_idx + 1..n_keys).all(|key_idx| cell(key_idx) == 0.0);
                }
            }
        }
        let fits = if known.lengths.is_empty() {
            n_queries == n_keys
        } else {
            known.lengths.contains(&n_keys)
                && (known.lengths.contains(&n_queries) || n_queries < n_keys)
        };
        Self {
            axes,
            fits,
            holds: n_rows > 0 && n_held as f64 >= MOST * n_rows as f64 && n_keys > 1,
            is_causal,
        }
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
            for axes in ALL {
                let array = array(axes, dims, causal, 3);
                let found = axes_of(&array, &known(&[7], Some(2)));
                assert_eq!(found, Some(axes), "{causal}");
                let captured = Array { ..array.clone() };
                let read = Ordered {
                    dims,
                    values: plain.values.clone(),
                };
                let places = axes.places();
                let at = |idx: [usize; 4]| {
                    let mut there = [0; 4];
                    (0..4).for_each(|name| there[places[name]] = idx[name]);
                    let flat = there.iter().zip(&captured.shape);
                    captured.values[flat.fold(0, |flat, (idx, n)| flat * n + idx)]
                };
                assert_eq!(at([0, 2, 5, 3]), read.first().head(2)[5 * 7 + 3]);
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
