//! Packed keys and values of one kv head. They can be kept, so that for a following token only its own key and value are packed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::head::{Head, HeadInput};
use super::run::Run;
use crate::kernels::simd::{Keys, Level, Values, row_norms};

/// Total size of packed keys and values held at once.
pub(super) const PACKED_BYTES: usize = 32 << 20;

/// Packed keys and values of a kv head, and key statistics that all its query heads need.
#[derive(Debug, Default)]
pub(super) struct KvHead {
    pub keys: Keys,
    pub values: Values,
    /// ‖k‖. // [key]
    pub norms: Vec<f32>,
    /// 1/‖k‖, padded to the length of a row of scores.
    pub inverse_norms: Vec<f32>,
    /// Σ ‖k‖² of the visible keys before each. // [key + 1]
    pub squares_before: Vec<f64>,
}

/// Packed keys of one attention, kept for later queries. Later calls must pass the same keys and values, optionally followed by
/// new ones.
#[derive(Debug, Default)]
pub struct KeptKeys(Mutex<BTreeMap<usize, KvHead>>);

impl KeptKeys {
    /// Whether nothing is packed.
    pub fn is_empty(&self) -> bool {
        self.heads().is_empty()
    }

    fn take(&self, kv_head_idx: usize) -> Option<KvHead> {
        self.heads().remove(&kv_head_idx)
    }

    fn heads(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, KvHead>> {
        // A head is removed while it is changed, so a panic leaves only whole heads behind.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Packed buffers kept between attentions, to avoid allocating them again.
static ASIDE: Mutex<Vec<(Keys, Values)>> = Mutex::new(Vec::new());

impl KvHead {
    /// Packs one kv head, or only the new keys of a kept one; `None` if a value is not finite.
    pub(super) fn of(
        run: &Run<'_>,
        input: HeadInput<'_>,
        level: Level,
        kv_head_idx: usize,
    ) -> Option<Self> {
        let spec = run.spec;
        let n_keys = run.visibility.n_keys;
        let head = Head::new(spec, input, kv_head_idx * (spec.n_heads / spec.n_kv_heads));
        let kept = run.kept.and_then(|kept| kept.take(kv_head_idx));
        let kept = kept.filter(|kept| kept.norms.len() <= n_keys);
        let n_before = kept.as_ref().map_or(0, |kept| kept.norms.len());
        if !head.has_finite_values(n_before..n_keys) {
            return None;
        }
        let mut all = kept.unwrap_or_default();
        let (from, stride) = head.keys_from();
        let (of_values, values_stride) = head.values_from();
        if n_before > 0 {
            all.keys.extend(from, stride, n_keys);
            let d_value = spec.d_value;
            all.values.extend(of_values, values_stride, n_keys, d_value);
        } else {
            if run.kept.is_none() {
                let aside = ASIDE.lock().unwrap_or_else(PoisonError::into_inner).pop();
                (all.keys, all.values) = aside.unwrap_or_default();
            }
            all.keys.pack(level, from, stride, n_keys, spec.d_head);
            let (values, d_value) = (&mut all.values, spec.d_value);
            values.pack(level, of_values, values_stride, n_keys, d_value);
            all.squares_before.push(0.0);
        }
        if n_before < n_keys {
            let new = &from[n_before * stride..];
            let norms = row_norms(level, new, stride, n_keys - n_before, spec.d_head);
            all.norms.extend(norms);
        }
        all.inverse_norms.truncate(n_before);
        let new = &all.norms[n_before..];
        all.inverse_norms.extend(new.iter().map(|norm| 1.0 / norm));
        all.inverse_norms.resize(all.keys.width(), 0.0);
        let mut sum = all.squares_before.last().copied().unwrap_or(0.0);
        for (key_idx, norm) in (n_before..).zip(new) {
            if run.visibility.is_real_key(key_idx) {
                sum += f64::from(*norm) * f64::from(*norm);
            }
            all.squares_before.push(sum);
        }
        Some(all)
    }

    /// Stores the head in `kept`, if given. Otherwise leaves its buffers to the next attention, unless as many as one attention
    /// holds at once are stored already.
    pub(super) fn put_aside(self, kept: Option<&KeptKeys>, kv_head_idx: usize) {
        if let Some(kept) = kept {
            kept.heads().insert(kv_head_idx, self);
            return;
        }
        let mut aside = ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
        let held: usize = aside.iter().map(|(k, v)| k.held() + v.held()).sum();
        if held + self.keys.held() + self.values.held() <= PACKED_BYTES {
            aside.push((self.keys, self.values));
        }
    }
}
