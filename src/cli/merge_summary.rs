//! Summary of a merged batch: checkpoints with their findings, missing units, and the slowest ones.

use attnscope_history::batch::{Findings, Listing, Unit};
use attnscope_report::record::Row;
use attnscope_report::{
    FailedUnit, Merged, MergedCheckpoint, MissingUnit, Slow, Strip, UnitCounts,
};

/// Number of units listed as the slowest.
const N_SLOWEST: usize = 20;

/// A summary built up from rows.
pub struct Summary {
    pub merged: Merged,
    strips: Vec<Growing>,
}

/// A strip under construction, with sums instead of means.
struct Growing {
    strip: Strip,
    prompt: String,
    n_losses: usize,
    /// Number of prompts with data for each layer.
    n_of_layer: Vec<usize>,
}

impl Summary {
    pub fn of(listing: &Listing) -> Self {
        let failed: Vec<FailedUnit> = listing
            .failed()
            .map(|record| FailedUnit {
                id: record.id.clone(),
                checkpoint: record.checkpoint.clone(),
                prompts: record.prompts.clone(),
                error: record.error.clone().unwrap_or_default(),
            })
            .collect();
        let missing = listing.missing.iter().map(|absent| MissingUnit {
            checkpoint: absent.checkpoint.clone(),
            prompts: absent.prompts.clone(),
        });
        let of_checkpoint =
            |a: &Unit, b: &Unit| (a.step, &a.record.checkpoint) == (b.step, &b.record.checkpoint);
        let checkpoints = listing.units.chunk_by(of_checkpoint).map(|units| {
            let mut findings = Findings::default();
            for unit in units {
                unit.record
                    .findings
                    .iter()
                    .for_each(|finding| findings.add(finding.clone()));
            }
            MergedCheckpoint {
                checkpoint: units[0].record.checkpoint.clone(),
                step: units[0].step,
                units: units.len(),
                seconds: units.iter().map(|unit| unit.record.seconds).sum(),
                findings: findings.into_vec(),
            }
        });
        let mut merged = Merged::default();
        merged.units = UnitCounts {
            done: listing.units.len() - failed.len(),
            failed: failed.len(),
            missing: listing.missing.len() + listing.damaged.len(),
        };
        merged.checkpoints = checkpoints.collect();
        merged.missing = missing.collect();
        merged.failed = failed;
        Self {
            merged,
            strips: Vec::new(),
        }
    }

    /// Adds a row; rows come in the order of the table.
    pub fn add(&mut self, row: &Row) {
        if row.head.is_some() {
            return;
        }
        let is_new = self.strips.last().is_none_or(|growing| {
            (growing.strip.step, &growing.strip.checkpoint) != (row.step, &row.checkpoint)
        });
        if is_new {
            self.strips.push(Growing::of(row));
        }
        if let Some(growing) = self.strips.last_mut() {
            growing.add(row);
        }
    }

    /// Returns a strip for each checkpoint.
    pub fn strips(&self) -> Vec<Strip> {
        self.strips.iter().map(Growing::mean).collect()
    }

    /// Returns the units that took longest, the slowest first.
    pub fn slowest(&self, listing: &Listing) -> Vec<Slow> {
        let mut units: Vec<&Unit> = listing.units.iter().collect();
        units.sort_by(|a, b| b.record.seconds.total_cmp(&a.record.seconds));
        let slowest = units.into_iter().take(N_SLOWEST).map(|unit| Slow {
            checkpoint: unit.record.checkpoint.clone(),
            prompts: unit.record.prompts.clone(),
            seconds: unit.record.seconds,
        });
        slowest.collect()
    }
}

impl Growing {
    fn of(row: &Row) -> Self {
        Self {
            strip: Strip {
                checkpoint: row.checkpoint.clone(),
                step: row.step,
                n_prompts: 0,
                loss: None,
                layers: Vec::new(),
            },
            prompt: String::new(),
            n_losses: 0,
            n_of_layer: Vec::new(),
        }
    }

    fn add(&mut self, row: &Row) {
        if self.strip.n_prompts == 0 || self.prompt != row.prompt {
            self.strip.n_prompts += 1;
            self.prompt.clone_from(&row.prompt);
            if let Some(loss) = row.loss {
                self.n_losses += 1;
                *self.strip.loss.get_or_insert(0.0) += loss;
            }
        }
        let stack = row
            .stack
            .as_ref()
            .map_or(String::new(), |stack| format!("{stack}."));
        let place = format!("{stack}L{}", row.layer);
        let value = row.stats.get(Strip::STAT.idx()).copied().flatten();
        let value = value.unwrap_or(f64::NAN);
        match self
            .strip
            .layers
            .iter()
            .position(|(known, _)| *known == place)
        {
            Some(at) => {
                self.strip.layers[at].1 += value;
                self.n_of_layer[at] += 1;
            }
            None => {
                self.strip.layers.push((place, value));
                self.n_of_layer.push(1);
            }
        }
    }

    fn mean(&self) -> Strip {
        let mut strip = self.strip.clone();
        strip.loss = strip.loss.map(|sum| sum / self.n_losses.max(1) as f64);
        for ((_, sum), n) in strip.layers.iter_mut().zip(&self.n_of_layer) {
            *sum /= *n as f64;
        }
        strip
    }
}
