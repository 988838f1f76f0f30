//! A checkpoint does not belong to the training that its neighbours are of.
//!
//! ## What it does
//! Looks, in a history of checkpoints, for a step that lies far from the one before and the one after, which lie near each other.
//!
//! ## Why it matters
//! A step that was saved before weights were loaded, copied from another run, or written by a process that had failed is found
//! only when somebody starts from it.
//!
//! ## How it is measured
//! For every statistic of every head: a value is off if it is further from both neighbours than four times their distance, and than
//! a fifth of their size. A finding where most of all values are off, and at least 12. Value: the share of values that are off.
//!
//! ## False alarms
//! Steps far apart, with a learning rate that was raised and lowered between them. Two foreign steps side by side are not found, nor the
//! first or the last one.
//!
//! ## Example
//! `foreign-step begins at step 200 (0.81): 81 % of 304 values lie far from steps 150 and 250`

use super::verdict::{Severity, Verdict};
use super::{Check, Needs};

pub static CHECK: Check = Check {
    id: "foreign-step",
    severity: Severity::Warning,
    needs: Needs::History,
    source: include_str!("foreign_step.rs"),
    judge: |_, _| Verdict::not_applicable("needs the records of a training: attnscope history"),
};
