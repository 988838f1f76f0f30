//! Contents of a batch directory: finished units by checkpoint, in the order of the table, and what is missing.
//!
//! Records are read checkpoint by checkpoint and not kept: of a batch of any size, what remains in memory is what the merged
//! document says of each checkpoint, and where its rows are.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use attnscope_compute::error::Result;
use attnscope_report::record::natural;
use attnscope_report::{FailedUnit, FindingRecord, MissingUnit, Slow};
use rayon::iter::{IntoParallelIterator, IntoParallelRefIterator, ParallelIterator};

use super::expected::{Plans, number_of};
use super::findings::Findings;
use super::of_checkpoint::{self, Source};
use super::parts::{Parts, RowsPlace, key_of};
use super::shard::Shard;

/// Number of units kept as the slowest.
pub(super) const N_SLOWEST: usize = 20;

/// The ended units of a checkpoint.
#[derive(Debug, Default)]
pub struct Group {
    pub checkpoint: String,
    pub step: Option<u64>,
    pub n_units: usize,
    /// How long all of them took.
    pub seconds: f64,
    /// The worst finding at each place.
    pub findings: Vec<FindingRecord>,
    pub failed: Vec<FailedUnit>,
    pub blocks: Vec<Block>,
}

/// Rows of some units of a checkpoint, in the order of the table.
#[derive(Debug, Clone)]
pub struct Block {
    pub place: RowsPlace,
    /// Index of its checkpoint among those of all plans.
    pub target: usize,
    /// First and last prompt, in the order of the table.
    pub span: (String, String),
    /// The prompts whose rows to use; `None` for all.
    pub takes: Option<BTreeSet<String>>,
    pub n_units: usize,
}

/// Contents of a batch directory, or of a share of its checkpoints.
#[derive(Debug, Default)]
pub struct Listing {
    /// Checkpoints with ended units, in the order of the table.
    pub groups: Vec<Group>,
    pub missing: Vec<MissingUnit>,
    /// Names of records that cannot be read.
    pub damaged: Vec<String>,
    /// Blocks of packed parts that cannot be used, one sentence each; their units count as missing.
    pub notes: Vec<String>,
    /// Number of units of other weights, prompts, options or versions that newer units replace.
    pub n_superseded: usize,
    /// The units that took longest, the slowest first.
    pub slowest: Vec<Slow>,
}

impl Listing {
    /// Lists a share of the directory of a batch. `told` is called with the number of checkpoints looked at so far and in all.
    ///
    /// # Errors
    /// When it cannot be listed, or a plan cannot be read.
    pub fn of(batch: &Path, shard: Shard, told: &(dyn Fn(usize, usize) + Sync)) -> Result<Self> {
        let parts = Parts::of(batch);
        let plans = Plans::read(batch)?;
        let (sources, damaged) = sources(&parts, &plans, shard)?;
        let n_looked_at = AtomicUsize::new(0);
        let n = sources.len();
        let mut listing = sources
            .into_par_iter()
            .map(|source| {
                let listed = of_checkpoint::list(&parts, &plans, &source);
                told(n_looked_at.fetch_add(1, Relaxed) + 1, n);
                listed
            })
            .reduce(Self::default, Self::with);
        listing.damaged.extend(damaged);
        listing.order();
        Ok(listing)
    }

    /// Adds other checkpoints; [`Listing::order`] has to follow.
    pub(super) fn with(mut self, more: Self) -> Self {
        self.groups.extend(more.groups);
        self.missing.extend(more.missing);
        self.damaged.extend(more.damaged);
        self.notes.extend(more.notes);
        self.n_superseded += more.n_superseded;
        self.slowest.extend(more.slowest);
        self.slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        self.slowest.truncate(N_SLOWEST);
        self
    }

    /// Brings everything into its order, and puts together what is of one checkpoint.
    pub(super) fn order(&mut self) {
        self.groups.sort_by(in_order);
        let mut groups: Vec<Group> = Vec::new();
        for group in self.groups.drain(..) {
            match groups.last_mut() {
                Some(last) if last.is_with(&group) => last.add(group),
                _ => groups.push(group),
            }
        }
        self.groups = groups;
        self.missing.sort_by(|a, b| {
            natural(&a.checkpoint, &b.checkpoint).then_with(|| a.prompts.cmp(&b.prompts))
        });
        self.damaged.sort();
        self.notes.sort();
    }

    /// Returns the failed units.
    pub fn failed(&self) -> impl Iterator<Item = &FailedUnit> {
        self.groups.iter().flat_map(|group| &group.failed)
    }

    /// Returns the number of finished and failed units.
    pub fn n_units(&self) -> usize {
        self.groups.iter().map(|group| group.n_units).sum()
    }

    /// Whether every planned unit is complete.
    pub fn is_whole(&self) -> bool {
        self.missing.is_empty() && self.damaged.is_empty() && self.failed().next().is_none()
    }
}

impl Group {
    fn is_with(&self, other: &Self) -> bool {
        (self.step, &self.checkpoint) == (other.step, &other.checkpoint)
    }

    fn add(&mut self, other: Self) {
        self.n_units += other.n_units;
        self.seconds += other.seconds;
        let mut findings = Findings::default();
        let all = self.findings.drain(..).chain(other.findings);
        all.for_each(|finding| findings.add(finding));
        self.findings = findings.into_vec();
        self.failed.extend(other.failed);
        self.blocks.extend(other.blocks);
    }
}

fn in_order(a: &Group, b: &Group) -> Ordering {
    let by_name = || natural(&a.checkpoint, &b.checkpoint);
    a.step.cmp(&b.step).then_with(by_name)
}

/// Key of the checkpoint of a unit; the name of its record if that is damaged.
type KeyOfUnit = std::result::Result<String, String>;

/// Returns where the units of each checkpoint of a share are, and the names of damaged records whose checkpoint is unknown.
fn sources(parts: &Parts, plans: &Plans, shard: Shard) -> Result<(Vec<Source>, Vec<String>)> {
    let contents = parts.contents()?;
    let planned: Vec<&String> = plans.keys().collect();
    let mut sources: BTreeMap<String, Source> = BTreeMap::new();
    for key in planned
        .iter()
        .map(|key| (*key).clone())
        .chain(contents.keys)
    {
        sources
            .entry(key.clone())
            .or_insert_with(|| Source::of(key));
    }
    let ids = if contents.own.is_empty() {
        Vec::new()
    } else {
        plans.ids()
    };
    let key_of_unit = |(id, layout): &(Box<str>, _)| -> KeyOfUnit {
        let of_plan = number_of(id).and_then(|id| {
            let at = ids.binary_search_by_key(&id, |(known, _)| *known).ok()?;
            Some(planned[ids[at].1 as usize].clone())
        });
        match of_plan {
            Some(key) => Ok(key),
            None => parts
                .own(id, *layout)
                .map(|(record, _)| key_of(&record.checkpoint)),
        }
    };
    let keys: Vec<KeyOfUnit> = contents.own.par_iter().map(key_of_unit).collect();
    let mut damaged = Vec::new();
    for (unit, key) in contents.own.into_iter().zip(keys) {
        match key {
            Ok(key) => {
                let source = sources
                    .entry(key.clone())
                    .or_insert_with(|| Source::of(key));
                source.own.push(unit);
            }
            Err(name) => damaged.push(name),
        }
    }
    // Of planned checkpoints every share has equally many, whatever else there is.
    let takes = |source: &Source| {
        let nth = planned.binary_search(&&source.key).ok();
        let nth = nth.or_else(|| usize::from_str_radix(source.key.get(..15)?, 16).ok());
        shard.takes(nth.unwrap_or_default())
    };
    let own = sources.into_values().filter(takes).collect();
    if !shard.takes(0) {
        damaged.clear();
    }
    Ok((own, damaged))
}
