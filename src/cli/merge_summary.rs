//! Summary of a merged batch: checkpoints with their findings, and missing units.

use attnscope_history::batch::Listing;
use attnscope_report::record::Row;
use attnscope_report::{Merged, MergedCheckpoint, Strip, UnitCounts};

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
    /// Makes the summary of a listing, which keeps only the places of rows.
    pub fn of(listing: &mut Listing) -> Self {
        let n_units = listing.n_units();
        let mut merged = Merged::default();
        for group in &mut listing.groups {
            merged.checkpoints.push(MergedCheckpoint {
                checkpoint: group.checkpoint.clone(),
                step: group.step,
                units: group.n_units,
                seconds: group.seconds,
                findings: std::mem::take(&mut group.findings),
            });
            merged.failed.append(&mut group.failed);
        }
        merged.units = UnitCounts {
            done: n_units - merged.failed.len(),
            failed: merged.failed.len(),
            missing: listing.missing.len() + listing.damaged.len(),
        };
        merged.missing = std::mem::take(&mut listing.missing);
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
