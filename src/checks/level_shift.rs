//! A statistic of a layer has changed its level from one record of a training to the next.
//!
//! ## What it does
//! Looks, in a history, for layers whose heads all of a sudden attend otherwise than before, whatever statistic shows it.
//!
//! ## Why it matters
//! Attention changes slowly. What changes between two records was changed: a mask, a scale, a learning rate, the length or kind
//! of the data. It may be meant.
//!
//! ## How it is measured
//! For every statistic, the mean of a layer's heads: two records in a row have to leave the median of the twelve before them on the
//! same side, by 11 times the noise of these (12 of eight records) and by a twentieth of their size. One finding a layer and record names the
//! statistic that moved furthest and counts the others. It is information: whether the change did harm is what `loss-jump` and the named
//! checks say. Scores whose spread grows four times or more from one record to the next, or falls to a twentieth, are an error: their scale
//! was changed. Shares have to move by 0.05. What a leak or a jump of the loss explains is not repeated. Value: the statistic after it.
//!
//! ## False alarms
//! Longer texts, larger batches and a new schedule move statistics too. On noise without a change, with a correlation of neighbours up to
//! 0.8, less than one record of 5 000 is reported.
//!
//! ## Example
//! `level-shift L1 begins at step 250 (0.12 → 0.31): previous token; 5 other statistics moved too`

use super::verdict::{Severity, Verdict};
use super::{Check, Needs};

pub static CHECK: Check = Check {
    id: "level-shift",
    severity: Severity::Error,
    needs: Needs::History,
    source: include_str!("level_shift.rs"),
    judge: |_, _| Verdict::not_applicable("needs the records of a training: attnscope history"),
};
