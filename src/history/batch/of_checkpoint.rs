//! The ended units of the checkpoints of one name: which of them count, and where their rows are.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use attnscope_report::record::{ParquetReader, natural, step_of_name};
use attnscope_report::{FailedUnit, MissingUnit, Slow, UnitRecord, named};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::expected::{Asked, Plans};
use super::findings::Findings;
use super::listing::{Block, Group, Listing, N_SLOWEST};
use super::pack;
use super::parts::{Layout, OwnUnit, Parts, RowsPlace};

/// Where units of the checkpoints of one name are.
pub(super) struct Source {
    /// Key of the name.
    pub key: String,
    /// Units with files of their own.
    pub own: Vec<(Box<str>, Layout)>,
}

/// A unit that ended.
struct Ended {
    record: UnitRecord,
    /// Index of the block with its rows; `None` if it has none.
    block_idx: Option<usize>,
    step: Option<u64>,
    nth: (usize, usize),
    takes: Option<BTreeSet<String>>,
}

/// A place of rows as found.
struct FoundBlock {
    place: RowsPlace,
    digest: String,
    /// Number of units with rows in it.
    n_units: usize,
    /// Whether the rows have that digest.
    is_whole: bool,
}

/// What is found of the checkpoints of one name, before it is judged.
#[derive(Default)]
struct Found {
    records: Vec<(UnitRecord, Option<usize>)>,
    blocks: Vec<FoundBlock>,
    damaged: Vec<String>,
    /// Damaged blocks of packed parts: name and offset, and units as far as they are known.
    lost: Vec<(String, Vec<UnitRecord>)>,
}

impl Source {
    pub fn of(key: String) -> Self {
        let own = Vec::new();
        Self { key, own }
    }
}

/// Lists the units of one name.
pub(super) fn list(parts: &Parts, plans: &Plans, source: &Source) -> Listing {
    let mut found = Found::of(parts, source);
    let expected = plans.expected(&source.key);
    let mut superseded = BTreeSet::new();
    let mut units: Vec<Ended> = Vec::new();
    for (record, block_idx) in std::mem::take(&mut found.records) {
        let (nth, takes) = match expected.of(&record) {
            Asked::Superseded => {
                superseded.insert(record.id);
                continue;
            }
            Asked::Planned { nth, takes } => (nth, takes),
            // Unplanned units come after planned ones.
            Asked::Unplanned => ((usize::MAX, usize::MAX), None),
        };
        units.push(Ended {
            step: step_of_name(&record.checkpoint),
            record,
            block_idx,
            nth,
            takes,
        });
    }
    found.verify(&units);
    let mut listing = Listing {
        damaged: std::mem::take(&mut found.damaged),
        n_superseded: superseded.len(),
        ..Listing::default()
    };
    let units = found.whole(parts, units, &mut listing);
    let ids: BTreeSet<&str> = units.iter().map(|unit| unit.record.id.as_str()).collect();
    listing
        .missing
        .extend(expected.missing(|id| ids.contains(id)));
    listing.notes = found.notes(&ids);
    listing.slowest = slowest(&units);
    listing.groups = found.groups(units);
    listing
}

impl Found {
    fn of(parts: &Parts, source: &Source) -> Self {
        let mut found = Self::default();
        let read: Vec<OwnUnit> = source
            .own
            .par_iter()
            .map(|(id, layout)| parts.own(id, *layout))
            .collect();
        for read in read {
            match read {
                Ok((record, place)) => found.add(place, vec![record]),
                Err(name) => found.damaged.push(name),
            }
        }
        for path in parts.packs_of_key(&source.key) {
            let name = parts.name_of(&path);
            let Ok((blocks, damaged)) = pack::read(&path) else {
                found.lost.push((name, Vec::new()));
                continue;
            };
            for block in blocks {
                let place = RowsPlace {
                    path: path.clone(),
                    part: Some(block.rows),
                };
                found.add(place, block.records);
            }
            for block in damaged {
                let place = format!("{name}: the block at byte {}", block.at);
                found.lost.push((place, block.records));
            }
        }
        found
    }

    /// Adds the units of a block.
    fn add(&mut self, place: RowsPlace, records: Vec<UnitRecord>) {
        let digest = records.iter().find_map(|record| record.digest.clone());
        let n_units = records.iter().filter(|of| of.digest.is_some()).count();
        let block_idx = self.blocks.len();
        self.blocks.extend(digest.map(|digest| FoundBlock {
            place,
            digest,
            n_units,
            is_whole: true,
        }));
        let records = records.into_iter().map(|record| {
            let has_rows = record.digest.is_some();
            (record, has_rows.then_some(block_idx))
        });
        self.records.extend(records);
    }

    /// Compares the rows of all blocks in use with their digests. Reading several at once is faster.
    fn verify(&mut self, units: &[Ended]) {
        let in_use: BTreeSet<usize> = units.iter().filter_map(|unit| unit.block_idx).collect();
        let are_whole: Vec<(usize, bool)> = in_use
            .par_iter()
            .map(|idx| {
                let block = &self.blocks[*idx];
                (*idx, block.place.has(&block.digest))
            })
            .collect();
        for (idx, is_whole) in are_whole {
            self.blocks[idx].is_whole = is_whole;
        }
    }

    /// Returns each unit once, without those whose rows are not whole: one that is done rather than one that failed, and of
    /// several failures the last.
    fn whole(&mut self, parts: &Parts, units: Vec<Ended>, listing: &mut Listing) -> Vec<Ended> {
        let mut whole: BTreeMap<String, Ended> = BTreeMap::new();
        let mut lost = Vec::new();
        let mut lost_blocks: BTreeMap<usize, Vec<UnitRecord>> = BTreeMap::new();
        for unit in units {
            let damaged = unit.block_idx.filter(|idx| !self.blocks[*idx].is_whole);
            if let Some(idx) = damaged {
                // Planned units are reported missing by their plan.
                if unit.nth.0 == usize::MAX {
                    lost.push(unit.record.clone());
                }
                if self.blocks[idx].place.part.is_some() {
                    lost_blocks.entry(idx).or_default().push(unit.record);
                }
                continue;
            }
            let known = whole.get(&unit.record.id);
            if known.is_none_or(|known| !known.record.is_done()) {
                whole.insert(unit.record.id.clone(), unit);
            }
        }
        lost.retain(|record| !whole.contains_key(&record.id));
        listing
            .missing
            .extend(lost.into_iter().map(|record| MissingUnit {
                checkpoint: record.checkpoint,
                prompts: record.prompts.into(),
            }));
        for (idx, records) in lost_blocks {
            let place = &self.blocks[idx].place;
            let (start, _) = place.part.unwrap_or_default();
            let place = format!("{}: the rows at byte {start}", parts.name_of(&place.path));
            self.lost.push((place, records));
        }
        whole.into_values().collect()
    }

    /// Names the damaged blocks of packed parts, unless all their units are there again.
    fn notes(&self, ids: &BTreeSet<&str>) -> Vec<String> {
        let note = |(place, records): &(String, Vec<UnitRecord>)| {
            let mut lost = records.iter().filter(|of| !ids.contains(of.id.as_str()));
            let units = match (records.is_empty(), lost.next(), lost.count()) {
                (true, ..) => "its units".to_owned(),
                (false, None, _) => return None,
                (false, Some(first), 0) => named(&first.checkpoint, &first.prompts),
                (false, Some(first), n) => {
                    let first = named(&first.checkpoint, &first.prompts);
                    format!("{first}, and {n} more of its units")
                }
            };
            Some(format!(
                "{place} is damaged, and counts as not done: {units}"
            ))
        };
        self.lost.iter().filter_map(note).collect()
    }

    /// Puts units together by step and name.
    fn groups(&self, mut units: Vec<Ended>) -> Vec<Group> {
        let mut steps: BTreeMap<usize, Option<u64>> = BTreeMap::new();
        for unit in &mut units {
            if let (None, Some(idx)) = (unit.step, unit.block_idx) {
                let step = || step_of_rows(&self.blocks[idx].place);
                unit.step = *steps.entry(idx).or_insert_with(step);
            }
        }
        units.sort_by(in_order);
        let is_one =
            |a: &Ended, b: &Ended| (a.step, &a.record.checkpoint) == (b.step, &b.record.checkpoint);
        let groups = units.chunk_by(is_one);
        groups.map(|units| self.group(units)).collect()
    }

    fn group(&self, units: &[Ended]) -> Group {
        let mut findings = Findings::default();
        let mut group = Group {
            checkpoint: units[0].record.checkpoint.clone(),
            step: units[0].step,
            n_units: units.len(),
            seconds: units.iter().map(|unit| unit.record.seconds).sum(),
            ..Group::default()
        };
        let mut of_blocks: Vec<(usize, Vec<&Ended>)> = Vec::new();
        let mut place_of: BTreeMap<usize, usize> = BTreeMap::new();
        for unit in units {
            let record = &unit.record;
            for finding in &record.findings {
                findings.add(finding.clone());
            }
            if !record.is_done() {
                group.failed.push(FailedUnit {
                    id: record.id.clone(),
                    checkpoint: record.checkpoint.clone(),
                    prompts: record.prompts.clone(),
                    error: record.error.clone().unwrap_or_default(),
                });
            }
            if let Some(idx) = unit.block_idx {
                let at = *place_of.entry(idx).or_insert_with(|| {
                    of_blocks.push((idx, Vec::new()));
                    of_blocks.len() - 1
                });
                of_blocks[at].1.push(unit);
            }
        }
        group.findings = findings.into_vec();
        let blocks = of_blocks.into_iter();
        group.blocks = blocks.map(|(idx, units)| self.block(idx, &units)).collect();
        group
    }

    /// Makes the block of units that count; other units may have rows in it too.
    fn block(&self, idx: usize, units: &[&Ended]) -> Block {
        let found = &self.blocks[idx];
        let prompts = || units.iter().flat_map(|unit| &unit.record.prompts);
        let bound = |prompt: Option<&String>| prompt.cloned().unwrap_or_default();
        let is_all = units.len() == found.n_units && units.iter().all(|unit| unit.takes.is_none());
        let takes = |unit: &&Ended| match &unit.takes {
            Some(takes) => takes.clone(),
            None => unit.record.prompts.iter().cloned().collect(),
        };
        Block {
            place: found.place.clone(),
            target: units[0].nth.0,
            span: (bound(prompts().min()), bound(prompts().max())),
            takes: (!is_all).then(|| units.iter().flat_map(takes).collect()),
            n_units: units.len(),
        }
    }
}

/// Returns the units that took longest.
fn slowest(units: &[Ended]) -> Vec<Slow> {
    let mut units: Vec<&UnitRecord> = units.iter().map(|unit| &unit.record).collect();
    units.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let slowest = units.into_iter().take(N_SLOWEST).map(|record| Slow {
        checkpoint: record.checkpoint.clone(),
        prompts: record.prompts.clone(),
        seconds: record.seconds,
    });
    slowest.collect()
}

fn in_order(a: &Ended, b: &Ended) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.record.checkpoint, &b.record.checkpoint))
        .then_with(|| a.nth.cmp(&b.nth))
        .then_with(|| a.record.id.cmp(&b.record.id))
}

/// Reads the step from the rows, for checkpoints whose name does not contain it.
fn step_of_rows(place: &RowsPlace) -> Option<u64> {
    let mut reader = ParquetReader::open_part(&place.path, place.part).ok()?;
    reader.next_rows().ok()??.first()?.step
}
