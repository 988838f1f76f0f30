//! Contents of a batch directory: the units to merge in the order of the table, failed units and missing ones.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use attnscope_compute::error::Result;
use attnscope_report::UnitRecord;
use attnscope_report::record::{ParquetReader, natural, step_of_name};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::digest;
use super::parts::Parts;
use super::plan::Plan;
use super::weights::Weights;

/// A unit that has ended.
#[derive(Debug, Clone)]
pub struct Unit {
    pub record: UnitRecord,
    /// The file of its rows; `None` if it has none.
    pub rows: Option<PathBuf>,
    pub step: Option<u64>,
    /// Index of its checkpoint in the plan, and of its chunk of prompts.
    pub nth: (usize, usize),
    /// The prompts whose rows to use; `None` for all.
    pub takes: Option<BTreeSet<String>>,
}

/// A unit without any files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingUnit {
    pub checkpoint: String,
    pub prompts: Vec<String>,
}

/// Contents of a batch directory.
#[derive(Debug, Default)]
pub struct Listing {
    /// Finished and failed units, in the order of the table.
    pub units: Vec<Unit>,
    pub missing: Vec<MissingUnit>,
    /// Records that cannot be read.
    pub damaged: Vec<String>,
    /// Number of units of other weights, prompts, options or versions that newer units replace.
    pub n_superseded: usize,
}

/// A unit as planned.
struct Planned {
    nth: (usize, usize),
    takes: Option<BTreeSet<String>>,
}

impl Listing {
    /// Lists the directory of a batch. `told` is called with the number of records checked so far and in all.
    ///
    /// # Errors
    /// When it cannot be listed, or a plan cannot be read.
    pub fn of(batch: &Path, told: &(dyn Fn(usize, usize) + Sync)) -> Result<Self> {
        let parts = Parts::of(batch);
        let (records, damaged) = parts.records()?;
        let plans = Plan::read_all(batch)?;
        let mut expected = Expected::of(batch, &plans);
        let mut listing = Self {
            damaged,
            ..Self::default()
        };
        // Each file of rows is read for its digest; reading several at once is faster.
        let n_looked_at = AtomicUsize::new(0);
        let are_whole: Vec<bool> = records
            .par_iter()
            .map(|record| {
                let is_whole = parts.has_rows_of(record);
                told(n_looked_at.fetch_add(1, Relaxed) + 1, records.len());
                is_whole
            })
            .collect();
        for (record, is_whole) in records.into_iter().zip(are_whole) {
            let planned = expected.units.get_mut(&record.id);
            let (nth, takes) = match planned {
                Some(None) => {
                    listing.n_superseded += 1;
                    continue;
                }
                Some(Some(planned)) => (planned.nth, planned.takes.take()),
                None if expected
                    .covered
                    .contains(&key(&record.checkpoint, &record.prompts)) =>
                {
                    listing.n_superseded += 1;
                    continue;
                }
                // Unplanned units come after planned ones.
                None => ((usize::MAX, usize::MAX), None),
            };
            if !is_whole {
                // Planned units are reported missing by their plan.
                if nth.0 == usize::MAX {
                    expected.not_begun.push(MissingUnit {
                        checkpoint: record.checkpoint,
                        prompts: record.prompts,
                    });
                }
                continue;
            }
            expected.found.insert(record.id.clone());
            let rows = record.digest.as_ref().map(|_| parts.rows(&record.id));
            listing.units.push(Unit {
                step: step_of_name(&record.checkpoint).or_else(|| step_of_rows(rows.as_deref())),
                rows,
                nth,
                takes,
                record,
            });
        }
        listing.units.sort_by(in_order);
        listing.missing = expected.missing();
        Ok(listing)
    }

    /// Returns the failed units.
    pub fn failed(&self) -> impl Iterator<Item = &UnitRecord> {
        let records = self.units.iter().map(|unit| &unit.record);
        records.filter(|record| !record.is_done())
    }

    /// Whether every planned unit is complete.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.damaged.is_empty() && self.failed().next().is_none()
    }
}

fn in_order(a: &Unit, b: &Unit) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.record.checkpoint, &b.record.checkpoint))
        .then_with(|| a.nth.cmp(&b.nth))
        .then_with(|| a.record.id.cmp(&b.record.id))
}

/// Reads the step from the rows, for checkpoints whose name does not contain it.
fn step_of_rows(path: Option<&Path>) -> Option<u64> {
    let mut reader = ParquetReader::open(path?).ok()?;
    reader.next_rows().ok()??.first()?.step
}

/// Returns a key for the checkpoint and prompts of a record, independent of its id.
fn key(checkpoint: &str, prompts: &[String]) -> String {
    let prompts = prompts.iter().map(String::as_bytes);
    digest::of_parts(std::iter::once(checkpoint.as_bytes()).chain(prompts))
}

/// Units that the plans of a batch ask for.
#[derive(Default)]
struct Expected {
    /// Units by id; `None` if a later plan has all of a unit's prompts.
    units: BTreeMap<String, Option<Planned>>,
    /// Missing units that cannot be found by id: no worker has started the checkpoint, so that the id is unknown, or a unit
    /// that is in no plan has lost its rows.
    not_begun: Vec<MissingUnit>,
    names: BTreeMap<String, MissingUnit>,
    /// Planned pairs of checkpoint and prompts: records about them with another id are out of date.
    covered: BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Expected {
    /// If several plans contain a checkpoint, the last one written provides the rows of a shared prompt.
    fn of(batch: &Path, plans: &[Plan]) -> Self {
        let mut expected = Self::default();
        let mut taken: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut n_before = 0;
        for plan in plans {
            for (target_idx, target) in plan.targets.iter().enumerate() {
                let weights = Weights::kept(batch, &target.target);
                let taken = taken.entry(target.target.as_str()).or_default();
                let before = taken.clone();
                for (chunk_idx, chunk) in plan.chunks.iter().enumerate() {
                    let free = || {
                        let prompts = chunk.prompts.iter().map(String::as_str);
                        prompts.filter(|prompt| !before.contains(prompt))
                    };
                    let n_free = free().count();
                    taken.extend(free());
                    let absent = || MissingUnit {
                        checkpoint: target.checkpoint.clone(),
                        prompts: chunk.prompts.clone(),
                    };
                    expected
                        .covered
                        .insert(key(&target.checkpoint, &chunk.prompts));
                    let Some(weights) = &weights else {
                        if n_free > 0 {
                            expected.not_begun.push(absent());
                        }
                        continue;
                    };
                    let id = plan.id(&weights.digest, target, chunk);
                    if n_free == 0 {
                        expected.units.entry(id).or_insert(None);
                        continue;
                    }
                    let is_all = n_free == chunk.prompts.len();
                    let takes = (!is_all).then(|| free().map(str::to_owned).collect());
                    let planned = Planned {
                        nth: (n_before + target_idx, chunk_idx),
                        takes,
                    };
                    expected.names.entry(id.clone()).or_insert_with(absent);
                    expected.units.entry(id).or_insert(Some(planned));
                }
            }
            n_before += plan.targets.len();
        }
        expected
    }

    fn missing(self) -> Vec<MissingUnit> {
        let names = self.names.into_iter();
        let absent = names.filter(|(id, _)| !self.found.contains(id));
        let mut missing = self.not_begun;
        missing.extend(absent.map(|(_, absent)| absent));
        missing.sort_by(|a, b| {
            natural(&a.checkpoint, &b.checkpoint).then_with(|| a.prompts.cmp(&b.prompts))
        });
        missing
    }
}
