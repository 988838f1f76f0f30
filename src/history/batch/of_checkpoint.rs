//! The ended units of the checkpoints of one name: which of them count, and where their rows are.
//!
//! Places of units are judged one after another, and of a unit that counts only what the table and the document need is kept:
//! its findings go into those of its checkpoint at once.

use std::cell::LazyCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use attnscope_report::record::{ParquetReader, natural, step_of_name};
use attnscope_report::{FailedUnit, FindingRecord, MissingUnit, Slow, UnitRecord, named};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::expected::{Asked, Expected, Plans};
use super::findings::Findings;
use super::listing::{Block, Group, Listing, N_SLOWEST};
use super::pack::{self, Damaged, Packed};
use super::parts::{Layout, OwnUnit, Parts, RowsPlace};

/// Units with files of their own that are read at a time. Reading several at once is faster.
const N_AT_ONCE: usize = 1024;

/// Where units of the checkpoints of one name are.
pub(super) struct Source {
    /// Key of the name.
    pub key: String,
    /// Units with files of their own.
    pub own: Vec<(Box<str>, Layout)>,
}

/// Units of one place, with what plans say of each.
struct Judged {
    place: RowsPlace,
    records: Vec<(UnitRecord, Asked)>,
    has_rows: bool,
    /// Whether the rows have the digest that the records name. Those that nobody asks for are not looked at.
    is_whole: bool,
}

/// A unit that counts, but for its name.
struct Ended {
    checkpoint: String,
    prompts: Vec<String>,
    seconds: f64,
    /// Why it failed, and what was found all the same; `None` if it is done.
    failed: Option<(String, Vec<FindingRecord>)>,
    /// Index of the block with its rows; `None` if it has none.
    block_idx: Option<usize>,
    step: Option<u64>,
    nth: (usize, usize),
    takes: Option<BTreeSet<String>>,
}

/// A place of whole rows.
struct FoundBlock {
    place: RowsPlace,
    /// Number of units with rows in it.
    n_units: usize,
}

/// Step and name of a checkpoint.
type Name = (Option<u64>, String);

/// What is found of the checkpoints of one name.
#[derive(Default)]
struct Found {
    /// Each unit once, by its id: one that is done rather than one that failed, and of several failures the last.
    units: BTreeMap<String, Ended>,
    /// Of the units that are done.
    findings: BTreeMap<Name, Findings>,
    blocks: Vec<FoundBlock>,
    /// Ids of units that newer ones replace.
    superseded: BTreeSet<String>,
    /// Names of records that cannot be read.
    damaged: Vec<String>,
    /// Units without a plan whose rows are not whole. Planned ones are reported missing by their plan.
    unplanned: Vec<UnitRecord>,
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
    let expected = plans.expected(&source.key);
    let mut found = Found::default();
    found.read_own(parts, source, &expected);
    found.read_packs(parts, source, &expected);
    let is_found = |id: &str| found.units.contains_key(id);
    let mut missing: Vec<MissingUnit> = take(&mut found.unplanned)
        .into_iter()
        .filter(|record| !is_found(&record.id))
        .map(|record| MissingUnit {
            checkpoint: record.checkpoint,
            prompts: record.prompts.into(),
        })
        .collect();
    missing.extend(expected.missing(is_found));
    Listing {
        missing,
        damaged: take(&mut found.damaged),
        n_superseded: found.superseded.len(),
        notes: found.notes(),
        slowest: found.slowest(),
        groups: found.groups(),
    }
}

impl Judged {
    fn of(expected: &Expected, place: RowsPlace, records: Vec<UnitRecord>) -> Self {
        let digest = records.iter().find_map(|record| record.digest.clone());
        let records = records.into_iter().map(|record| {
            let asked = expected.of(&record);
            (record, asked)
        });
        let records: Vec<(UnitRecord, Asked)> = records.collect();
        let is_in_use = records
            .iter()
            .any(|(record, asked)| record.digest.is_some() && !matches!(asked, Asked::Superseded));
        let is_whole = |digest: &String| !is_in_use || place.has(digest);
        Self {
            has_rows: digest.is_some(),
            is_whole: digest.as_ref().is_none_or(is_whole),
            place,
            records,
        }
    }
}

impl Found {
    fn read_own(&mut self, parts: &Parts, source: &Source, expected: &Expected) {
        for own in source.own.chunks(N_AT_ONCE) {
            let judged = |(id, layout): &(Box<str>, Layout)| {
                let read: OwnUnit = parts.own(id, *layout);
                read.map(|(record, place)| Judged::of(expected, place, vec![record]))
            };
            let read: Vec<Result<Judged, String>> = own.par_iter().map(judged).collect();
            for read in read {
                match read {
                    Ok(judged) => self.add(parts, judged),
                    Err(name) => self.damaged.push(name),
                }
            }
        }
    }

    /// Reads packed parts block by block. Their rows are compared one block after the other: that is little beside merging them.
    fn read_packs(&mut self, parts: &Parts, source: &Source, expected: &Expected) {
        for path in parts.packs_of_key(&source.key) {
            let name = parts.name_of(&path);
            let read = pack::read_each(&path, |block| match block {
                Ok(Packed { records, rows, .. }) => {
                    let place = RowsPlace {
                        path: path.clone(),
                        part: Some(rows),
                    };
                    self.add(parts, Judged::of(expected, place, records));
                }
                Err(Damaged { at, records }) => {
                    let place = format!("{name}: the block at byte {at}");
                    self.lost.push((place, records));
                }
            });
            if read.is_err() {
                let rest = format!("{name}: what follows its last block that can be read");
                self.lost.push((rest, Vec::new()));
            }
        }
    }

    /// Adds the units of a place.
    fn add(&mut self, parts: &Parts, judged: Judged) {
        let Judged { place, records, .. } = judged;
        let block_idx = self.blocks.len();
        let n_units = records.iter().filter(|(of, _)| of.digest.is_some()).count();
        let step_of_place = LazyCell::new(|| step_of_rows(&place));
        let mut lost = Vec::new();
        for (record, asked) in records {
            let (nth, takes) = match asked {
                Asked::Superseded => {
                    self.superseded.insert(record.id);
                    continue;
                }
                Asked::Planned { nth, takes } => (nth, takes),
                // Unplanned units come after planned ones.
                Asked::Unplanned => ((usize::MAX, usize::MAX), None),
            };
            let has_rows = record.digest.is_some();
            if has_rows && !judged.is_whole {
                if nth.0 == usize::MAX {
                    self.unplanned.push(record.clone());
                }
                lost.push(record);
                continue;
            }
            let known = self.units.get(&record.id);
            if known.is_some_and(|known| known.failed.is_none()) {
                continue;
            }
            let step = step_of_name(&record.checkpoint);
            let step = step.or_else(|| has_rows.then(|| *step_of_place).flatten());
            let is_done = record.is_done();
            let UnitRecord {
                id,
                checkpoint,
                prompts,
                error,
                findings,
                seconds,
                ..
            } = record;
            let failed = if is_done {
                self.add_findings(step, &checkpoint, findings);
                None
            } else {
                Some((error.unwrap_or_default(), findings))
            };
            let unit = Ended {
                checkpoint,
                prompts,
                seconds,
                failed,
                block_idx: has_rows.then_some(block_idx),
                step,
                nth,
                takes,
            };
            self.units.insert(id, unit);
        }
        if let (false, Some((start, _))) = (lost.is_empty(), place.part) {
            let name = format!("{}: the rows at byte {start}", parts.name_of(&place.path));
            self.lost.push((name, lost));
        }
        if judged.has_rows {
            self.blocks.push(FoundBlock { place, n_units });
        }
    }

    /// Adds findings to those of a checkpoint.
    fn add_findings(&mut self, step: Option<u64>, checkpoint: &str, findings: Vec<FindingRecord>) {
        if !findings.is_empty() {
            let name = (step, checkpoint.to_owned());
            let of_checkpoint = self.findings.entry(name).or_default();
            findings.into_iter().for_each(|one| of_checkpoint.add(one));
        }
    }

    /// Names the damaged blocks of packed parts, unless all their units are there again.
    fn notes(&self) -> Vec<String> {
        let note = |(place, records): &(String, Vec<UnitRecord>)| {
            let mut lost = records.iter().filter(|of| !self.units.contains_key(&of.id));
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

    /// Returns the units that took longest.
    fn slowest(&self) -> Vec<Slow> {
        let mut units: Vec<&Ended> = self.units.values().collect();
        units.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        let slowest = units.into_iter().take(N_SLOWEST).map(|unit| Slow {
            checkpoint: unit.checkpoint.clone(),
            prompts: unit.prompts.clone(),
            seconds: unit.seconds,
        });
        slowest.collect()
    }

    /// Puts units together by step and name.
    fn groups(mut self) -> Vec<Group> {
        let mut units: Vec<(String, Ended)> = take(&mut self.units).into_iter().collect();
        units.sort_by(in_order);
        for (_, unit) in &mut units {
            let failed = unit.failed.as_mut();
            let findings = failed.map_or_else(Vec::new, |(_, findings)| take(findings));
            self.add_findings(unit.step, &unit.checkpoint, findings);
        }
        let is_one = |(_, a): &(String, Ended), (_, b): &(String, Ended)| {
            (a.step, &a.checkpoint) == (b.step, &b.checkpoint)
        };
        let groups = units.chunk_by(is_one);
        groups.map(|units| self.group(units)).collect()
    }

    fn group(&self, units: &[(String, Ended)]) -> Group {
        let first = &units[0].1;
        let (checkpoint, step) = (first.checkpoint.clone(), first.step);
        let findings = self.findings.get(&(step, checkpoint.clone())).cloned();
        let mut group = Group {
            checkpoint,
            step,
            n_units: units.len(),
            seconds: units.iter().map(|(_, unit)| unit.seconds).sum(),
            findings: findings.unwrap_or_default().into_vec(),
            ..Group::default()
        };
        let mut of_blocks: Vec<(usize, Vec<&Ended>)> = Vec::new();
        let mut place_of: BTreeMap<usize, usize> = BTreeMap::new();
        for (id, unit) in units {
            if let Some((error, _)) = &unit.failed {
                group.failed.push(FailedUnit {
                    id: id.clone(),
                    checkpoint: unit.checkpoint.clone(),
                    prompts: unit.prompts.clone(),
                    error: error.clone(),
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
        let blocks = of_blocks.into_iter();
        group.blocks = blocks.map(|(idx, units)| self.block(idx, &units)).collect();
        group
    }

    /// Makes the block of units that count; other units may have rows in it too.
    fn block(&self, idx: usize, units: &[&Ended]) -> Block {
        let found = &self.blocks[idx];
        let prompts = || units.iter().flat_map(|unit| &unit.prompts);
        let bound = |prompt: Option<&String>| prompt.cloned().unwrap_or_default();
        let is_all = units.len() == found.n_units && units.iter().all(|unit| unit.takes.is_none());
        let takes = |unit: &&Ended| match &unit.takes {
            Some(takes) => takes.clone(),
            None => unit.prompts.iter().cloned().collect(),
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

fn in_order((a_id, a): &(String, Ended), (b_id, b): &(String, Ended)) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.checkpoint, &b.checkpoint))
        .then_with(|| a.nth.cmp(&b.nth))
        .then_with(|| a_id.cmp(b_id))
}

/// Reads the step from the rows, for checkpoints whose name does not contain it.
fn step_of_rows(place: &RowsPlace) -> Option<u64> {
    let mut reader = ParquetReader::open_part(&place.path, place.part).ok()?;
    reader.next_rows().ok()??.first()?.step
}
