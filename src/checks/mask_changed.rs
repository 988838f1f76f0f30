//! The mask of a layer or a head changed during a training.
//!
//! ## What it does
//! Compares, in a log of the monitor, which keys the sampled queries of each head see: causal, a window and its width, bidirectional,
//! a prefix, documents, or something else. It tells the record where that becomes another mask.
//!
//! ## Why it matters
//! A mask decides what a model is. A window that is lost, an `is_causal` that a new kernel ignores or a warm-up under another mask
//! changes what every later layer reads, and the loss may hardly show it: a wider mask makes it better.
//!
//! ## How it is measured
//! Exactly: a key is visible or hidden, and no statistics are involved. Two records differ if no single mask can have given both.
//! A text that is shorter than a window proves no window, so that a batch of short texts is never a change. Padding, and other
//! documents where the batch tells of documents, do not count. The next record must confirm a change. Heads that change together are
//! one finding, and masks that come and go are told once. Where later keys, padding or documents begin to leak at the
//! same record, that finding names the change instead. Value: the mean number of keys that sampled queries see after it.
//!
//! ## False alarms
//! A change that was meant: a longer window from some step on, or sparse attention after a dense warm-up. The number of keys in a prefix
//! belongs to the text, and is not compared. Packing that begins without `position_ids` or boundaries among the arguments is told as
//! a change.
//!
//! ## Example
//! `mask-changed L1 begins at step 250 (causal → window 16): sampled queries see 16 keys instead of 31.5 on average`

use super::verdict::{Severity, Verdict};
use super::{Check, Needs};

pub static CHECK: Check = Check {
    id: "mask-changed",
    severity: Severity::Warning,
    needs: Needs::History,
    source: include_str!("mask_changed.rs"),
    judge: |_, _| Verdict::not_applicable("needs the records of a training: attnscope history"),
};
