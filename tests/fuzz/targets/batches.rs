//! Directories of batches: a record or rows of a unit, and a digest of weights, as a merge and a worker read them.

use std::fs;
use std::path::Path;

use attnscope_history::batch::{Listing, Parts, Weights, merged};
use attnscope_report::UnitRecord;

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

fn read(path: &Path) -> Result<(), String> {
    let said = |e: attnscope_compute::error::Error| e.to_string();
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    let parts = Parts::open(directory.path()).map_err(said)?;
    let name = path.file_name().unwrap_or_default();
    if name == "unit.parquet" {
        let rows = fs::read(path).map_err(|e| e.to_string())?;
        parts.write(record(None), Some(&rows)).map_err(said)?;
    } else {
        let of_unit = directory.path().join("parts").join(format!("{UNIT}.json"));
        fs::copy(path, of_unit).map_err(|e| e.to_string())?;
        // The digest that a worker keeps lies under a name of its own.
        Weights::of(directory.path(), CHECKPOINT, &[]).map_err(said)?;
        let kept = fs::read_dir(directory.path().join("weights")).map_err(|e| e.to_string())?;
        for entry in kept.flatten() {
            fs::copy(path, entry.path()).map_err(|e| e.to_string())?;
        }
        let _ = Weights::kept(directory.path(), CHECKPOINT);
    }
    let state = parts.state(UNIT);
    drop(state);
    let listing = Listing::of(directory.path(), &|_, _| ()).map_err(said)?;
    merged(&listing.units, &mut || (), |_| Ok(())).map_err(said)?;
    match listing.damaged.first() {
        Some(name) => Err(format!("{name} is damaged")),
        None => Ok(()),
    }
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
    ],
    read,
};
