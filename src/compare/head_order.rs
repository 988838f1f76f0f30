//! Finds out whether a recording has the model's heads in another order, or repeats the heads of keys and values in another way.

use attnscope_compute::attention::{AttentionSpec, Bias};
use attnscope_compute::error::Result;
use attnscope_forward::{Hook, Sequence};
use attnscope_spec::Stack;

use super::knob::{KnobKind, KnobValue};
use super::knobs::KnobDifference;
use super::model_and_recording::ModelAndRecording;
use super::recording::Form;

/// The hooks whose values are one vector for each head.
pub(super) const OF_HEADS: [Hook; 6] = [Hook::Q, Hook::K, Hook::V, Hook::RotQ, Hook::RotK, Hook::Z];

/// Values of heads. // [position, head · width]
#[derive(Clone, Copy)]
pub(super) struct Heads<'a> {
    pub values: &'a [f32],
    pub n_heads: usize,
}

impl Heads<'_> {
    /// Returns ‖a − b‖/‖a‖ of a head and one of other heads, over the real positions.
    fn apart(&self, head_idx: usize, other: &Self, other_idx: usize, sequence: &Sequence) -> f64 {
        let n = sequence.len().max(1);
        let [width, other_width] = [self, other].map(|heads| heads.values.len() / n);
        let d = width / self.n_heads;
        let (mut squares, mut size) = (0.0f64, 0.0f64);
        for position_idx in (0..n).filter(|idx| sequence.is_real(*idx)) {
            let a = &self.values[position_idx * width + head_idx * d..][..d];
            let b = &other.values[position_idx * other_width + other_idx * d..][..d];
            for (a, b) in a.iter().zip(b) {
                let (a, b) = (f64::from(*a), f64::from(*b));
                squares += (a - b) * (a - b);
                size += a * a;
            }
        }
        (squares / size).sqrt()
    }
}

/// For each recorded head, the model's head that it holds; `None` if one of them holds none within the tolerance.
fn held(
    model: Heads<'_>,
    recorded: Heads<'_>,
    sequence: &Sequence,
    tolerance: f64,
) -> Option<Vec<usize>> {
    let nearest = |recorded_idx: usize| {
        let all = 0..model.n_heads;
        let distances = all.map(|idx| (model.apart(idx, &recorded, recorded_idx, sequence), idx));
        let (distance, idx) = distances.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (distance <= tolerance).then_some(idx)
    };
    (0..recorded.n_heads).map(nearest).collect()
}

/// Formats the order of heads; of many heads, the first ones.
fn order(heads: impl ExactSizeIterator<Item = usize>) -> String {
    const MOST: usize = 8;
    let more = if heads.len() > MOST { " …" } else { "" };
    let words: Vec<String> = heads.take(MOST).map(|idx| idx.to_string()).collect();
    format!("{}{more}", words.join(" "))
}

fn difference(knob: &str, a: String, b: String) -> KnobDifference {
    KnobDifference {
        knob: knob.to_owned(),
        kind: KnobKind::Computation,
        a: KnobValue::Word(a),
        b: KnobValue::Word(b),
    }
}

/// The knob of recorded heads that are the model's heads in another order; `None` if they are not.
fn knob_of(held: &[usize], n_heads: usize) -> Option<KnobDifference> {
    let times = held.len() / n_heads.max(1);
    let mut sorted = held.to_vec();
    sorted.sort_unstable();
    let is_whole = times > 0
        && sorted
            .iter()
            .enumerate()
            .all(|(nth, idx)| *idx == nth / times);
    let own = |nth: usize| nth / times;
    if !is_whole || held.iter().enumerate().all(|(nth, idx)| *idx == own(nth)) {
        return None;
    }
    let is_tiled = times > 1
        && held
            .iter()
            .enumerate()
            .all(|(nth, idx)| *idx == nth % n_heads);
    let words = [order((0..held.len()).map(own)), order(held.iter().copied())];
    let [mine, found] = words;
    Some(if is_tiled {
        tiled(mine, found)
    } else {
        difference("head_order", mine, found)
    })
}

fn tiled(mine: String, found: String) -> KnobDifference {
    difference(
        "kv_head_order",
        format!("{mine} (repeat_interleave)"),
        format!("{found} (repeat)"),
    )
}

/// Returns the order of heads that explains a differing hook of vectors: all heads then agree within the tolerance.
pub(super) fn of_vectors(
    of: ModelAndRecording<'_>,
    (stack, layer_idx, hook): (Stack, usize, Hook),
    values: &[f32],
    tolerance: f64,
) -> Result<Option<KnobDifference>> {
    let Some(attention) = of.model.spec.attention(stack, layer_idx) else {
        return Ok(None);
    };
    let (queries, keys) = of.sequences((stack, layer_idx));
    let is_of_keys = matches!(hook, Hook::K | Hook::V | Hook::RotK);
    let (n_heads, sequence) = if is_of_keys {
        (attention.n_kv_heads, keys)
    } else {
        (attention.n_heads, queries)
    };
    let place = (Some(stack), Some(layer_idx), hook);
    let n = sequence.len();
    if n == 0 || n_heads == 0 || !values.len().is_multiple_of(n * n_heads) {
        return Ok(None);
    }
    let d = values.len() / n / n_heads;
    // All heads as they were written, which may be several copies of each.
    let n_written = match of.recording.form(place) {
        Some(Form::Vectors {
            n_heads: Some(n_written),
            ..
        }) if n_written.is_multiple_of(n_heads) => n_written,
        _ => n_heads,
    };
    let form = Form::Vectors {
        n_heads: Some(n_written),
        n_positions: n,
        width: n_written * d,
    };
    if of.recording.slack(place, form)?.is_some() {
        return Ok(None);
    }
    let Ok(Some(recorded)) = of.recording.values(place, form) else {
        return Ok(None);
    };
    let [model, recorded] = [(values, n_heads), (recorded.as_slice(), n_written)]
        .map(|(values, n_heads)| Heads { values, n_heads });
    let held = held(model, recorded, &sequence, tolerance);
    let Some(held) = held else { return Ok(None) };
    // A recorder that keeps one copy of each key head takes these of heads that were repeated as a whole.
    let times = attention.n_heads / attention.n_kv_heads.max(1);
    let mut all = held.iter().enumerate();
    let is_tiled = is_of_keys
        && n_written == n_heads
        && times > 1
        && all.all(|(nth, idx)| *idx == nth * times % n_heads);
    if is_tiled {
        return Ok(Some(repeated(attention)));
    }
    Ok(knob_of(&held, n_heads))
}

/// The knob of key heads that are repeated as a whole.
fn repeated(attention: &AttentionSpec) -> KnobDifference {
    let (n_heads, n_kv_heads) = (attention.n_heads, attention.n_kv_heads.max(1));
    let times = (n_heads / n_kv_heads).max(1);
    tiled(
        order((0..n_heads).map(|idx| idx / times)),
        order((0..n_heads).map(|idx| idx % n_kv_heads)),
    )
}

/// Returns the repetition of key heads that explains differing scores, or a differing pattern: with it, what all queries give to
/// the keys that they see agrees within the tolerance.
///
/// `q` and `k` are the model's values after rotation.
pub(super) fn of_scores(
    of: ModelAndRecording<'_>,
    (stack, layer_idx, hook): (Stack, usize, Hook),
    [q, k]: [&[f32]; 2],
    tolerance: f64,
) -> Result<Option<KnobDifference>> {
    let Some(attention) = of.model.spec.attention(stack, layer_idx) else {
        return Ok(None);
    };
    let AttentionSpec {
        n_heads,
        n_kv_heads,
        d_head,
        ..
    } = *attention;
    let is_plain = attention.softcap.is_none() && attention.bias == Bias::None;
    let may_be = n_kv_heads > 1 && n_heads > n_kv_heads && n_heads.is_multiple_of(n_kv_heads);
    let (queries, keys) = of.sequences((stack, layer_idx));
    let form = Form::Cells {
        n_heads,
        n_queries: queries.len(),
        n_keys: keys.len(),
    };
    let place = (Some(stack), Some(layer_idx), hook);
    let fits =
        q.len() == queries.len() * n_heads * d_head && k.len() == keys.len() * n_kv_heads * d_head;
    if !is_plain || !may_be || !fits || of.recording.slack(place, form)?.is_some() {
        return Ok(None);
    }
    let Some(recorded) = of.recording.values(place, form)? else {
        return Ok(None);
    };
    let factor = f64::from(attention.scale.factor(d_head));
    let visibility = (!attention.is_cross).then(|| queries.visibility(attention));
    let sees = |query_idx: usize, key_idx: usize| match &visibility {
        Some(visibility) => visibility.sees(query_idx, key_idx),
        None => keys.is_real(key_idx),
    };
    let (mut squares, mut size) = (0.0f64, 0.0f64);
    let n_cells = queries.len() * keys.len();
    for head_idx in 0..n_heads {
        let kv_head_idx = head_idx % n_kv_heads;
        for query_idx in (0..queries.len()).filter(|idx| queries.is_real(*idx)) {
            let q = &q[(query_idx * n_heads + head_idx) * d_head..][..d_head];
            let row = &recorded[head_idx * n_cells + query_idx * keys.len()..][..keys.len()];
            let seen: Vec<usize> = (0..keys.len())
                .filter(|key_idx| sees(query_idx, *key_idx))
                .collect();
            let score = |key_idx: &usize| {
                let k = &k[(key_idx * n_kv_heads + kv_head_idx) * d_head..][..d_head];
                let products = q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k));
                factor * products.sum::<f64>()
            };
            let mut values: Vec<f64> = seen.iter().map(score).collect();
            if hook == Hook::Pattern {
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                values.iter_mut().for_each(|v| *v = (*v - most).exp());
                let sum: f64 = values.iter().sum();
                values.iter_mut().for_each(|v| *v /= sum);
            }
            for (key_idx, value) in seen.iter().zip(values) {
                squares += (value - f64::from(row[*key_idx])).powi(2);
                size += value * value;
            }
        }
    }
    let agrees = size > 0.0 && (squares / size).sqrt() <= tolerance;
    Ok(agrees.then(|| repeated(attention)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The knob of a recording whose heads are these of the model's.
    fn found(heads: &[usize], n_heads: usize, noise: f32) -> Option<String> {
        let (n, d) = (5, 3);
        let value = |position: usize, head: usize, i: usize| {
            ((position * 31 + head * 17 + i * 7) % 13) as f32 - 6.0
        };
        let of = |heads: &[usize], noise: f32| -> Vec<f32> {
            let places =
                (0..n).flat_map(|position| heads.iter().map(move |head| (position, *head)));
            places
                .flat_map(|(position, head)| (0..d).map(move |i| value(position, head, i) + noise))
                .collect()
        };
        let own: Vec<usize> = (0..n_heads).collect();
        let (model, recorded) = (of(&own, 0.0), of(heads, noise));
        let sequence = Sequence::of_text(vec![1, 2, 3, 4, 5], (0..5).collect());
        let model = Heads {
            values: &model,
            n_heads,
        };
        let recorded = Heads {
            values: &recorded,
            n_heads: heads.len(),
        };
        let held = held(model, recorded, &sequence, 1e-3)?;
        knob_of(&held, n_heads).map(|knob| knob.to_string())
    }

    #[test]
    fn heads_in_another_order_are_named_only_if_all_of_them_are_found() {
        assert_eq!(found(&[0, 1, 2], 3, 0.0), None);
        assert_eq!(
            found(&[2, 0, 1], 3, 0.0).as_deref(),
            Some("head_order 0 1 2 → 2 0 1")
        );
        assert_eq!(
            found(&[0, 1, 0, 1], 2, 0.0).as_deref(),
            Some("kv_head_order 0 0 1 1 (repeat_interleave) → 0 1 0 1 (repeat)")
        );
        assert_eq!(found(&[0, 0, 1, 1], 2, 0.0), None);
        assert_eq!(found(&[2, 0, 0], 3, 0.0), None, "one head is missing");
        assert_eq!(found(&[2, 0, 1], 3, 0.5), None, "beyond the tolerance");
    }
}
