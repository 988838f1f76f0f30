//! The units that the plans of a batch ask for, checkpoint by checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_compute::error::Result;
use attnscope_report::{MissingUnit, UnitRecord};

use super::digest;
use super::parts::key_of;
use super::plan::Plan;
use super::weights::Weights;

/// All plans of a batch, the last one written first.
pub(super) struct Plans {
    batch: PathBuf,
    plans: Vec<Plan>,
    /// The prompts of each plan's chunks, shared by all units that name them.
    prompts: Vec<Vec<Arc<[String]>>>,
    /// Plan and target of every planned checkpoint, by the key of its name.
    by_key: BTreeMap<String, Vec<(usize, usize)>>,
}

/// A unit as planned.
pub(super) struct Planned {
    /// Index of its checkpoint among those of all plans, and of its chunk of prompts.
    pub nth: (usize, usize),
    /// The prompts whose rows to use; `None` for all.
    pub takes: Option<BTreeSet<String>>,
    absent: MissingUnit,
}

/// What plans say of a finished unit.
pub(super) enum Asked {
    Planned {
        nth: (usize, usize),
        takes: Option<BTreeSet<String>>,
    },
    /// Newer units replace it.
    Superseded,
    Unplanned,
}

/// The planned units of the checkpoints of one name.
#[derive(Default)]
pub(super) struct Expected {
    /// Units by id; `None` if a later plan has all of a unit's prompts.
    units: BTreeMap<String, Option<Planned>>,
    /// Missing units without an id, since no worker has started the checkpoint.
    not_begun: Vec<MissingUnit>,
    /// Planned pairs of checkpoint and prompts: records about them with another id are out of date.
    covered: BTreeSet<String>,
}

impl Plans {
    /// Reads the plans of a batch.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn read(batch: &Path) -> Result<Self> {
        let plans = Plan::read_all(batch)?;
        let shared = |plan: &Plan| {
            let chunks = plan.chunks.iter();
            chunks.map(|chunk| chunk.prompts.clone().into()).collect()
        };
        let mut by_key: BTreeMap<String, Vec<(usize, usize)>> = BTreeMap::new();
        for (plan_idx, plan) in plans.iter().enumerate() {
            for (target_idx, target) in plan.targets.iter().enumerate() {
                let of_name = by_key.entry(key_of(&target.checkpoint)).or_default();
                of_name.push((plan_idx, target_idx));
            }
        }
        Ok(Self {
            batch: batch.to_path_buf(),
            prompts: plans.iter().map(shared).collect(),
            plans,
            by_key,
        })
    }

    /// Returns the keys of all planned checkpoints, in order.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.by_key.keys()
    }

    /// Returns the ids of all planned units whose checkpoint was started, in order, each with the index of its checkpoint's key.
    pub fn ids(&self) -> Vec<(u128, u32)> {
        let mut ids = Vec::new();
        for (key_idx, entries) in self.by_key.values().enumerate() {
            for (plan_idx, target_idx) in entries {
                let plan = &self.plans[*plan_idx];
                let target = &plan.targets[*target_idx];
                let Some(weights) = Weights::kept(&self.batch, &target.target) else {
                    continue;
                };
                let of_target = plan
                    .chunks
                    .iter()
                    .filter_map(|chunk| number_of(&plan.id(&weights.digest, target, chunk)));
                ids.extend(of_target.map(|id| (id, key_idx as u32)));
            }
        }
        ids.sort_unstable();
        ids
    }

    /// Returns the units of the checkpoints of one key. If several plans contain a checkpoint, the last one written provides
    /// the rows of a shared prompt.
    pub fn expected(&self, key: &str) -> Expected {
        let mut expected = Expected::default();
        let entries = self.by_key.get(key).map_or(&[][..], Vec::as_slice);
        let target_of =
            |(plan_idx, target_idx): &(usize, usize)| &self.plans[*plan_idx].targets[*target_idx];
        let mut taken: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for entry in entries {
            let (plan_idx, target_idx) = *entry;
            let (plan, target) = (&self.plans[plan_idx], target_of(entry));
            let n_before: usize = self.plans[..plan_idx]
                .iter()
                .map(|plan| plan.targets.len())
                .sum();
            let weights = Weights::kept(&self.batch, &target.target);
            let is_again = |other: &&(usize, usize)| target_of(other).target == target.target;
            let is_shared = entries.iter().filter(is_again).count() > 1;
            let taken = taken.entry(target.target.as_str()).or_default();
            let before = taken.clone();
            for (chunk_idx, chunk) in plan.chunks.iter().enumerate() {
                let free = || {
                    let prompts = chunk.prompts.iter().map(String::as_str);
                    prompts.filter(|prompt| !before.contains(prompt))
                };
                let n_free = if before.is_empty() {
                    chunk.prompts.len()
                } else {
                    free().count()
                };
                if is_shared {
                    taken.extend(free());
                }
                let absent = MissingUnit {
                    checkpoint: target.checkpoint.clone(),
                    prompts: Arc::clone(&self.prompts[plan_idx][chunk_idx]),
                };
                let covered = pair(&target.checkpoint, &chunk.prompts);
                expected.covered.insert(covered);
                let Some(weights) = &weights else {
                    expected.not_begun.extend((n_free > 0).then_some(absent));
                    continue;
                };
                let is_all = n_free == chunk.prompts.len();
                let planned = (n_free > 0).then(|| Planned {
                    nth: (n_before + target_idx, chunk_idx),
                    takes: (!is_all).then(|| free().map(str::to_owned).collect()),
                    absent,
                });
                let id = plan.id(&weights.digest, target, chunk);
                expected.units.entry(id).or_insert(planned);
            }
        }
        expected
    }
}

impl Expected {
    /// Returns what plans say of a record.
    pub fn of(&self, record: &UnitRecord) -> Asked {
        match self.units.get(&record.id) {
            Some(Some(planned)) => Asked::Planned {
                nth: planned.nth,
                takes: planned.takes.clone(),
            },
            Some(None) => Asked::Superseded,
            None if self
                .covered
                .contains(&pair(&record.checkpoint, &record.prompts)) =>
            {
                Asked::Superseded
            }
            None => Asked::Unplanned,
        }
    }

    /// Returns the units that are not among those found.
    pub fn missing(self, is_found: impl Fn(&str) -> bool) -> Vec<MissingUnit> {
        let units = self.units.into_iter();
        let absent = units.filter(|(id, _)| !is_found(id));
        let mut missing = self.not_begun;
        missing.extend(absent.filter_map(|(_, planned)| Some(planned?.absent)));
        missing
    }
}

/// Returns a number for an id of a plan; `None` for other names.
pub(super) fn number_of(id: &str) -> Option<u128> {
    u128::from_str_radix(id, 16).ok()
}

/// Returns a key for the checkpoint and prompts of a record, independent of its id.
fn pair(checkpoint: &str, prompts: &[String]) -> String {
    let prompts = prompts.iter().map(String::as_bytes);
    digest::of_parts(std::iter::once(checkpoint.as_bytes()).chain(prompts))
}
