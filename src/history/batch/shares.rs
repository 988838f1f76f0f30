//! A merge by shares: each share is a table of some checkpoints with what is known of their units, and a last step joins them.
//!
//! A share lies in `merged/I-of-N.parquet` and `merged/I-of-N.json`. The tables joined are the table that a merge in one go
//! writes, byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use attnscope_report::record::About;
use attnscope_report::{FailedUnit, FindingRecord, MissingUnit, Slow};
use serde::{Deserialize, Serialize};

use super::digest;
use super::listing::{Group, Listing};
use super::parts::Parts;
use super::rows::Origin;
use super::shard::Shard;
use super::whole_files::put;

/// Version of the shares' files.
const VERSION: u32 = 1;
/// Directory of shares, below the batch directory.
const MERGED: &str = "merged";

/// What is known of the units of a share.
#[derive(Debug, Default)]
pub struct Share {
    /// Without the places of rows.
    pub listing: Listing,
    pub origins: Vec<Origin>,
}

/// A share as written.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    /// SHA-256 of the table.
    table: String,
    checkpoints: Vec<WrittenGroup>,
    /// Lists of prompts that missing units name.
    prompts: Vec<Vec<String>>,
    /// Checkpoint of each missing unit, and the index of its list of prompts.
    missing: Vec<(String, usize)>,
    damaged: Vec<String>,
    notes: Vec<String>,
    superseded: usize,
    slowest: Vec<(String, Vec<String>)>,
    origins: Vec<WrittenOrigin>,
    /// Bits of all numbers that are not whole, in the order of [`numbers`]: as text they may change in the last digit.
    numbers: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
struct WrittenGroup {
    checkpoint: String,
    step: Option<u64>,
    units: usize,
    findings: Vec<FindingRecord>,
    failed: Vec<FailedUnit>,
}

#[derive(Serialize, Deserialize)]
struct WrittenOrigin {
    checkpoint: String,
    step: Option<u64>,
    target: usize,
    models: String,
    what_if: Vec<String>,
}

impl Share {
    /// Returns the place of a share's table, whose directory is created if it is missing. What a former table was described by
    /// is removed.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn begin(batch: &Path, shard: Shard) -> Result<PathBuf> {
        let directory = batch.join(MERGED);
        let cannot = |e| Error::file(&directory, format!("cannot be written ({e})"));
        fs::create_dir_all(&directory).map_err(cannot)?;
        let [table, about] = places(batch, shard);
        let _ = fs::remove_file(about);
        Ok(table)
    }

    /// Writes what is known of a share, after its table.
    ///
    /// # Errors
    /// When it cannot be written, or the table cannot be read.
    pub fn write(mut self, batch: &Path, shard: Shard) -> Result<()> {
        let [table, about] = places(batch, shard);
        let cannot = |e| Error::file(&table, format!("cannot be read ({e})"));
        let digest = digest::of_file(&table).map_err(cannot)?;
        let numbers = numbers(&mut self.listing).map(|number| number.to_bits());
        let numbers = numbers.collect();
        let Listing {
            groups,
            missing,
            damaged,
            notes,
            n_superseded,
            slowest,
        } = self.listing;
        let mut lists: BTreeMap<Arc<[String]>, usize> = BTreeMap::new();
        let mut prompts = Vec::new();
        let missing = missing.into_iter().map(|unit| {
            let idx = *lists.entry(Arc::clone(&unit.prompts)).or_insert_with(|| {
                prompts.push(unit.prompts.to_vec());
                prompts.len() - 1
            });
            (unit.checkpoint, idx)
        });
        let missing = missing.collect();
        let group = |group: Group| WrittenGroup {
            checkpoint: group.checkpoint,
            step: group.step,
            units: group.n_units,
            findings: group.findings,
            failed: group.failed,
        };
        let origin = |origin: Origin| WrittenOrigin {
            checkpoint: origin.checkpoint,
            step: origin.step,
            target: origin.target,
            models: origin.about.models,
            what_if: origin.about.what_if,
        };
        let written = Written {
            version: VERSION,
            table: digest,
            checkpoints: groups.into_iter().map(group).collect(),
            prompts,
            missing,
            damaged,
            notes,
            superseded: n_superseded,
            slowest: slowest
                .into_iter()
                .map(|of| (of.checkpoint, of.prompts))
                .collect(),
            origins: self.origins.into_iter().map(origin).collect(),
            numbers,
        };
        let content = serde_json::to_vec(&written)
            .map_err(|e| Error::file(&about, format!("a share that cannot be written ({e})")))?;
        let name = about.file_name().unwrap_or_default().to_string_lossy();
        put(&batch.join(MERGED), &name, &content)
    }

    /// Reads all of `n` shares. Returns what is known of all units, the tables of the shares, and which shares were merged
    /// before units were added.
    ///
    /// # Errors
    /// When one is missing or cannot be read.
    pub fn joined(batch: &Path, n: usize) -> Result<(Self, Vec<PathBuf>, Vec<usize>)> {
        let changed = Parts::of(batch).last_change();
        let (mut all, mut tables, mut early) = (Self::default(), Vec::new(), Vec::new());
        for idx in 0..n {
            let shard = Shard { idx, n };
            let [table, about] = places(batch, shard);
            let share = Self::read(&table, &about, shard)?;
            all.listing = all.listing.with(share.listing);
            all.origins.extend(share.origins);
            let written = about.metadata().and_then(|about| about.modified()).ok();
            early.extend((written < changed).then_some(idx));
            tables.push(table);
        }
        all.listing.order();
        // In the order of the table, as a merge in one go finds them.
        let groups = all.listing.groups.iter().enumerate();
        let nth_of: BTreeMap<(&str, Option<u64>), usize> = groups
            .map(|(nth, group)| ((group.checkpoint.as_str(), group.step), nth))
            .collect();
        all.origins.sort_by_key(|origin| {
            let of = (origin.checkpoint.as_str(), origin.step);
            nth_of.get(&of).copied()
        });
        Ok((all, tables, early))
    }

    fn read(table: &Path, about: &Path, shard: Shard) -> Result<Self> {
        let Shard { idx, n } = shard;
        let again = format!("attnscope merge --shard {idx}/{n} writes it");
        if !about.exists() {
            let problem = format!("expected a share of a merge, found none: {again}");
            return Err(Error::file(about, problem));
        }
        let damaged = |e: &dyn std::fmt::Display| {
            Error::file(about, format!("expected a share of a merge: {e}; {again}"))
        };
        let text = read_text(about, DOCUMENT)?;
        let written: Written = serde_json::from_str(&text).map_err(|e| damaged(&e))?;
        if written.version != VERSION {
            return Err(damaged(&format!(
                "version {VERSION}, found {}",
                written.version
            )));
        }
        if digest::of_file(table).ok().as_ref() != Some(&written.table) {
            let problem = format!("expected the table of a share, found another file: {again}");
            return Err(Error::file(table, problem));
        }
        let lists: Vec<Arc<[String]>> = written.prompts.into_iter().map(Arc::from).collect();
        let missing = written.missing.into_iter().map(|(checkpoint, idx)| {
            let prompts = lists.get(idx).map(Arc::clone)?;
            Some(MissingUnit {
                checkpoint,
                prompts,
            })
        });
        let missing: Option<Vec<MissingUnit>> = missing.collect();
        let group = |group: WrittenGroup| Group {
            checkpoint: group.checkpoint,
            step: group.step,
            n_units: group.units,
            findings: group.findings,
            failed: group.failed,
            ..Group::default()
        };
        let slow = |(checkpoint, prompts)| Slow {
            checkpoint,
            prompts,
            seconds: 0.0,
        };
        let mut listing = Listing {
            groups: written.checkpoints.into_iter().map(group).collect(),
            missing: missing.ok_or_else(|| damaged(&"prompts that are not there"))?,
            damaged: written.damaged,
            notes: written.notes,
            n_superseded: written.superseded,
            slowest: written.slowest.into_iter().map(slow).collect(),
        };
        let n_numbers = numbers(&mut listing).count();
        if n_numbers != written.numbers.len() {
            let found = written.numbers.len();
            return Err(damaged(&format!("{n_numbers} numbers, found {found}")));
        }
        let read = numbers(&mut listing).zip(&written.numbers);
        read.for_each(|(number, bits)| *number = f64::from_bits(*bits));
        let origin = |origin: WrittenOrigin| Origin {
            checkpoint: origin.checkpoint,
            step: origin.step,
            target: origin.target,
            about: About {
                version: String::new(),
                models: origin.models,
                what_if: origin.what_if,
            },
        };
        Ok(Self {
            listing,
            origins: written.origins.into_iter().map(origin).collect(),
        })
    }
}

/// Returns the places of a share's table and of what is known of it.
fn places(batch: &Path, Shard { idx, n }: Shard) -> [PathBuf; 2] {
    ["parquet", "json"].map(|ending| batch.join(MERGED).join(format!("{idx}-of-{n}.{ending}")))
}

/// Goes through all numbers that are not whole, in a fixed order.
fn numbers(listing: &mut Listing) -> impl Iterator<Item = &mut f64> {
    let groups = listing.groups.iter_mut().flat_map(numbers_of_group);
    groups.chain(listing.slowest.iter_mut().map(|of| &mut of.seconds))
}

fn numbers_of_group(group: &mut Group) -> impl Iterator<Item = &mut f64> {
    let findings = group.findings.iter_mut().flat_map(numbers_of_finding);
    std::iter::once(&mut group.seconds).chain(findings)
}

fn numbers_of_finding(finding: &mut FindingRecord) -> impl Iterator<Item = &mut f64> {
    let explains = finding.explains.as_mut();
    let explains = explains.map(|explains| [&mut explains.nats.0, &mut explains.of.0]);
    let own = [&mut finding.value.0, &mut finding.threshold.0];
    own.into_iter().chain(explains.into_iter().flatten())
}
