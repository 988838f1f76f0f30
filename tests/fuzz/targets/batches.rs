//! Directories of batches: a record or rows of a unit, a packed part, and a digest of weights, as a merge and a worker read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use attnscope_history::batch::{Layout, Listing, Parts, Shard, Weights, digest, merged};
use attnscope_report::UnitRecord;
use attnscope_report::record::Table;

use super::Target;
use super::records::parquet;
use crate::seeds::{Kind, Seed};

/// The unit, and the checkpoint of its digest.
const UNIT: &str = "a";
const CHECKPOINT: &str = "step-1";

fn record(error: Option<&str>) -> UnitRecord {
    UnitRecord::ended(
        UNIT.to_owned(),
        CHECKPOINT.to_owned(),
        vec!["p".to_owned()],
        error.map(str::to_owned),
    )
}

/// Writes a packed part with the unit; returns its place.
fn pack(batch: &Path) -> attnscope_compute::error::Result<PathBuf> {
    let layout = Layout::Packed(Duration::ZERO);
    let parts = Parts::open(batch, layout)?;
    let mut writer = parts.writer(CHECKPOINT);
    writer.add(record(None), Some(Table::default()))?;
    let key = &digest::of_bytes(CHECKPOINT.as_bytes())[..32];
    let entries = fs::read_dir(batch.join("parts").join(key));
    let path = entries.into_iter().flatten().flatten().next();
    Ok(path.expect("a packed part").path())
}

fn read(path: &Path) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let parts = Parts::open(directory.path(), Layout::Files).map_err(said)?;
    let name = path.file_name().unwrap_or_default();
    let of_unit = |ending: &str| directory.path().join(format!("parts/{UNIT}.{ending}"));
    if name == "unit.parquet" {
        let rows = fs::read(path).map_err(|e| e.to_string())?;
        let mut record = record(None);
        record.digest = Some(digest::of_bytes(&rows));
        let record = serde_json::to_vec(&record).map_err(|e| e.to_string())?;
        fs::write(of_unit("parquet"), rows).map_err(|e| e.to_string())?;
        fs::write(of_unit("json"), record).map_err(|e| e.to_string())?;
    } else if name == "a.units" {
        let place = pack(directory.path()).map_err(said)?;
        fs::copy(path, place).map_err(|e| e.to_string())?;
    } else {
        fs::copy(path, of_unit("json")).map_err(|e| e.to_string())?;
        // The digest that a worker keeps lies under a name of its own.
        Weights::of(directory.path(), CHECKPOINT, &[]).map_err(said)?;
        let kept = fs::read_dir(directory.path().join("weights")).map_err(|e| e.to_string())?;
        for entry in kept.flatten() {
            fs::copy(path, entry.path()).map_err(|e| e.to_string())?;
        }
        let _ = Weights::kept(directory.path(), CHECKPOINT);
    }
    let state = parts.of_checkpoint(CHECKPOINT).state(UNIT);
    drop(state);
    let _ = parts.measured();
    let listing = Listing::of(directory.path(), Shard::WHOLE, &|_, _| ()).map_err(said)?;
    merged(&listing.groups, &|_| (), |_| Ok(())).map_err(said)?;
    match listing.damaged.first().or(listing.notes.first()) {
        Some(name) => Err(format!("{name}: is damaged")),
        None => Ok(()),
    }
}

fn packed() -> Vec<u8> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = pack(directory.path()).expect("is written");
    fs::read(path).expect("reads")
}

pub const BATCHES: Target = Target {
    name: "batches",
    n_quick: 1_000,
    seeds: || {
        let of = |record: &UnitRecord| {
            let bytes = serde_json::to_vec_pretty(record).expect("JSON");
            Seed::named(Kind::Json, "unit.json", bytes)
        };
        vec![
            of(&record(None)),
            of(&record(Some("cannot be read"))),
            Seed::named(Kind::Bytes, "unit.parquet", parquet()),
            Seed::named(Kind::Bytes, "a.units", packed()),
        ]
    },
    tokens: &[
        "version",
        "id",
        "checkpoint",
        "prompts",
        "status",
        "done",
        "failed",
        "error",
        "digest",
        "target",
        "seen",
        "null",
        "[]",
        "a",
        "step-1",
        "PAR1",
        "attnscope-units 1 ",
        "9999999999999999",
    ],
    read,
};
