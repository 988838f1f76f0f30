//! The loss of a training jumped from one record to the next.
//!
//! ## What it does
//! Looks, in a history with losses, for a level that changes at once and stays, up or down, and says what moved in attention at
//! the same record.
//!
//! ## Why it matters
//! A loss that drops at once is too good to be true: a mask that was lost lets every position read the answer. A loss that rises at
//! once has lost something: labels, scores, a learning rate, or the data it was trained on.
//!
//! ## How it is measured
//! The level before is the median of up to eight losses, the noise that of their neighbours' differences. Two records in a row have
//! to lie beyond it on the same side, by 10 times the noise (13 where only five losses are known) and by a tenth of the level, and further than the loss was
//! falling anyway. A statistic moved if at the same record the mean of a layer's heads left its own level by 11 times its noise
//! and stayed. A rise is an error if attention moved at the same record and the loss is a quarter higher, otherwise a warning. A fall is a
//! warning if attention moved at the same record, otherwise information. A rise is an error too if the loss was that of the next
//! token before, by the logits that the monitor saw, and the logits still predict that token: labels changed. Value: the loss after it.
//!
//! ## False alarms
//! Other data has another loss: where nothing in attention moved, look at what the training reads. Repeated batches are learned
//! by heart, slowly. On noise without a change, with a correlation of neighbours up to 0.8, less than one record of 5 000 is reported.
//!
//! ## Example
//! `loss-jump begins at step 250 (2.13 → 3.50): nothing in attention moved: look at the data`

use super::verdict::{Severity, Verdict};
use super::{Check, Needs};

pub static CHECK: Check = Check {
    id: "loss-jump",
    severity: Severity::Error,
    needs: Needs::History,
    source: include_str!("loss_jump.rs"),
    judge: |_, _| Verdict::not_applicable("needs the records of a training: attnscope history"),
};
