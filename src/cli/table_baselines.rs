//! Earlier statistics for comparison: a JSON report, or a table that a report or a merge wrote.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checks::Baseline;
use attnscope_checks::stats::STATISTICS;
use attnscope_report::read_baseline;
use attnscope_report::record::{Row, Table};

/// Baselines by prompt, for one checkpoint or several.
#[derive(Debug, Default)]
pub struct Baselines {
    /// By checkpoint name; the name is ignored for a JSON report, and where there is only one checkpoint.
    of: BTreeMap<String, BTreeMap<String, Baseline>>,
    file: String,
}

impl Baselines {
    /// Reads a report or a table.
    ///
    /// # Errors
    /// When it cannot be read, or is neither.
    pub fn read(path: &Path) -> Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let table = match ending {
            Some("parquet") => Table::read_parquet(path)?,
            Some("csv") => Table::read_csv(path)?,
            _ => return Ok(Self::of_one(read_baseline(path)?)),
        };
        let mut of: BTreeMap<String, BTreeMap<String, Baseline>> = BTreeMap::new();
        for row in &table.rows {
            let prompts = of.entry(row.checkpoint.clone()).or_default();
            let baseline = prompts
                .entry(row.prompt.clone())
                .or_insert_with(|| Baseline {
                    loss: row.loss,
                    places: BTreeMap::new(),
                });
            add(baseline, row);
        }
        if of.is_empty() {
            bail!("{}: expected a table with rows, found none", path.display());
        }
        Ok(Self {
            of,
            file: path.display().to_string(),
        })
    }

    /// Makes baselines of a report about one checkpoint.
    fn of_one(prompts: BTreeMap<String, Baseline>) -> Self {
        Self {
            of: BTreeMap::from([(String::new(), prompts)]),
            file: String::new(),
        }
    }

    /// Returns the baselines for a checkpoint: those of its name, or those of the only checkpoint.
    ///
    /// # Errors
    /// When a table of several checkpoints has none of that name.
    pub fn of_checkpoint(&self, name: &str) -> Result<BTreeMap<String, Baseline>> {
        if let Some(found) = self.of.get(name) {
            return Ok(found.clone());
        }
        match self.of.len() {
            0 => Ok(BTreeMap::new()),
            1 => Ok(self.of.values().next().cloned().unwrap_or_default()),
            n => {
                let known = self.of.keys().map(String::as_str);
                let meant = did_you_mean(name, known);
                bail!(
                    "{}: expected rows of the checkpoint {name}, found {n} others{meant}",
                    self.file
                )
            }
        }
    }
}

fn add(baseline: &mut Baseline, row: &Row) {
    let Some(place) = row.place() else { return };
    let values = STATISTICS.iter().zip(&row.stats);
    let values = values.filter_map(|(statistic, value)| Some((statistic.id.to_owned(), (*value)?)));
    let key = (
        place.grid(),
        row.layer as usize,
        row.head.map(|head| head as usize),
    );
    baseline.places.insert(key, values.collect());
}
