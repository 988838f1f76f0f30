//! Findings of sudden changes: a loss that jumps, with what moved in attention at the same record, and layers whose statistics
//! change their level.

use attnscope_checks::Severity;
use attnscope_checks::stats::{STATISTICS, Span};
use attnscope_report::digits;
use attnscope_spec::Place;

use super::batch_moved::{batch_moved, lost_labels};
use super::judge::Finding;
use super::jumps::{Jump, Jumps, OF_LOSS, OF_SHARES, OF_STATISTICS};
use super::value::History;

const LOSS: &str = "loss-jump";
const ALIKE: &str = "rank-collapse";
const SPREAD: &str = "resid_spread";
const LEVEL: &str = "level-shift";

/// A rise of the loss by this share is an error if attention moved with it. Ours.
const GRAVE: f64 = 0.25;
/// Scores of a layer that grow so many times from one record to the next, or shrink as much more, are another scale. Ours.
const RESCALED: (f64, f64) = (4.0, 20.0);
/// A residual spread that falls below this share of its level, at the very record where the loss jumps, is a collapse. Ours: it is 0.50
/// without residual connections, and at least 0.83 at that record where labels or data changed.
const FALLEN: f64 = 0.7;
/// Records after a jump of the loss in which attention moves with it.
const WITH_LOSS: usize = 8;
/// Statistics named in a reason.
const MOST_NAMED: usize = 3;

/// Follows the loss and every statistic of every layer.
#[derive(Debug, Clone, Default)]
pub(super) struct Shifts {
    loss: Jumps,
    /// [statistic of the history × layer]
    layers: Vec<Jumps>,
}

impl Shifts {
    pub fn take(&mut self, history: &History, record_idx: usize) {
        let loss = history.records()[record_idx].loss();
        self.loss
            .take(record_idx, loss.unwrap_or(f64::NAN), &OF_LOSS);
        let n_layers = history.grid().layers().len();
        let n = history.statistics().len() * n_layers;
        self.layers.resize_with(n, Jumps::default);
        for (series, jumps) in self.layers.iter_mut().enumerate() {
            let (column, layer) = (series / n_layers, series % n_layers);
            let value = of_layer(history, record_idx, column, layer);
            let limits = match STATISTICS[history.statistics()[column]].span {
                Span::Share => &OF_SHARES,
                _ => &OF_STATISTICS,
            };
            jumps.take(record_idx, value, limits);
        }
    }

    pub fn findings(&self, history: &History) -> Vec<Finding> {
        let n_layers = history.grid().layers().len().max(1);
        let jumps = self.loss.found.iter();
        let mut findings: Vec<Finding> = jumps
            .map(|jump| {
                let moved = self.moved(history, |of| of.begin == jump.begin);
                let later = self.moved(history, |of| of.begin == jump.begin + 1);
                let found = of_loss(jump, &moved, &later, &batch_moved(history, jump));
                match lost_labels(history, jump) {
                    Some(next) => of_labels(found, next),
                    None => found,
                }
            })
            .collect();
        let rises = self.loss.found.iter().filter(|of| of.to > of.from);
        findings.extend(rises.filter_map(|rise| self.alike(history, rise)));
        for layer in 0..n_layers {
            let mut of: Vec<(&Jump, &'static str)> = Vec::new();
            for (series, jumps) in self.layers.iter().enumerate() {
                if series % n_layers == layer {
                    let id = STATISTICS[history.statistics()[series / n_layers]].id;
                    of.extend(jumps.found.iter().map(|jump| (jump, id)));
                }
            }
            of.sort_by(|a, b| {
                (a.0.begin, b.0.size)
                    .partial_cmp(&(b.0.begin, a.0.size))
                    .unwrap_or(std::cmp::Ordering::Equal)
            });
            for group in of.chunk_by(|a, b| a.0.begin == b.0.begin) {
                let finding = of_group(history, layer, group);
                // What a jump of the loss brings with it is told there.
                let is_told = self
                    .loss
                    .found
                    .iter()
                    .any(|loss| (loss.begin..loss.begin + WITH_LOSS).contains(&finding.begin));
                if !is_told || finding.severity > Severity::Info {
                    findings.push(finding);
                }
            }
        }
        findings
    }

    /// Layers whose tokens became alike at the record where the loss jumps up, told in the one where they did most.
    fn alike(&self, history: &History, rise: &Jump) -> Option<Finding> {
        let grid = history.grid();
        let n_layers = grid.layers().len();
        let column = history.column(SPREAD)?;
        let cell = |layer: usize| grid.n_heads() + layer;
        let fallen = (0..n_layers).filter_map(|layer| {
            let jumps = &self.layers.get(column * n_layers + layer)?.found;
            let jump = jumps.iter().find(|of| of.begin == rise.begin)?;
            // The record that confirmed the jump is the next one that has the statistic.
            let mut later = rise.begin + 1..history.records().len();
            let next = later.find_map(|idx| history.known(idx, column, cell(layer)))?;
            (jump.to.max(next) < FALLEN * jump.from).then_some((layer, jump))
        });
        let fallen: Vec<(usize, &Jump)> = fallen.collect();
        let share = |jump: &Jump| jump.to / jump.from;
        let (layer, jump) = *fallen
            .iter()
            .min_by(|a, b| share(a.1).total_cmp(&share(b.1)))?;
        let others = match fallen.len() - 1 {
            0 => String::new(),
            n => format!("; so do those of {n} more"),
        };
        Some(Finding {
            severity: Severity::Error,
            place: grid.layers()[layer].place(),
            cell: cell(layer),
            statistic: SPREAD,
            threshold: FALLEN * jump.from,
            why: format!(
                "the tokens of a text become alike in this layer{others}; at the same record the loss jumps from {} to {}",
                digits(rise.from),
                digits(rise.to)
            ),
            advice: "look at residual connections and norms: a change of weights would show in the next record only",
            ..of_jump(ALIKE, jump)
        })
    }

    /// Statistics that moved in some layer, those that moved furthest first, with the number of layers.
    fn moved(
        &self,
        history: &History,
        is_meant: impl Fn(&Jump) -> bool,
    ) -> Vec<(&'static str, usize)> {
        let n_layers = history.grid().layers().len().max(1);
        let mut moved: Vec<(f64, &'static str, usize)> = Vec::new();
        for (column, layers) in self.layers.chunks(n_layers).enumerate() {
            let sizes = layers.iter().filter_map(|jumps| {
                let found = jumps.found.iter().find(|jump| is_meant(jump));
                found.map(|jump| jump.size)
            });
            let sizes: Vec<f64> = sizes.collect();
            if let Some(largest) = sizes.iter().copied().max_by(f64::total_cmp) {
                let title = STATISTICS[history.statistics()[column]].title;
                moved.push((largest, title, sizes.len()));
            }
        }
        moved.sort_by(|a, b| b.0.total_cmp(&a.0));
        moved.into_iter().map(|(_, title, n)| (title, n)).collect()
    }
}

/// The mean of the heads of a layer, or the layer's own value; NaN if any is unknown.
fn of_layer(history: &History, record_idx: usize, column: usize, layer: usize) -> f64 {
    let grid = history.grid();
    let idx = history.statistics()[column];
    if !STATISTICS[idx].is_per_head() {
        return history.value(record_idx, column, grid.n_heads() + layer);
    }
    let heads = grid.heads_of(layer);
    let n = heads.len() as f64;
    let sum: f64 = heads
        .map(|cell| history.value(record_idx, column, cell))
        .sum();
    sum / n
}

fn of_loss(
    jump: &Jump,
    moved: &[(&'static str, usize)],
    later: &[(&'static str, usize)],
    batch: &[String],
) -> Finding {
    let named = |moved: &[(&'static str, usize)]| {
        let names = moved.iter().take(MOST_NAMED).map(|(title, n)| match n {
            1 => (*title).to_owned(),
            n => format!("{title} in {n} layers"),
        });
        names.collect::<Vec<String>>().join(", ")
    };
    let with = match (moved, later) {
        ([], []) => "nothing in attention moved".to_owned(),
        ([], later) => format!("attention moved only after it: {}", named(later)),
        (moved, _) => format!("at the same record attention moved: {}", named(moved)),
    };
    let with = [&[with], batch].concat().join("; ");
    let is_rise = jump.to > jump.from;
    let (severity, advice) = match (is_rise, !moved.is_empty()) {
        (true, true) => (
            if jump.to > (1.0 + GRAVE) * jump.from {
                Severity::Error
            } else {
                Severity::Warning
            },
            "go back to a record before it, and look at what changed there: masks, scale, residual connections, learning rate, or the \
             data",
        ),
        (true, false) => (
            Severity::Warning,
            "look at the data: other texts, shuffled labels or another tokenizer change attention only later",
        ),
        (false, true) => (
            Severity::Warning,
            "a loss that falls at once is too good to be true: look for later keys that became visible (later_mass), and for labels \
             among the inputs",
        ),
        (false, false) => (
            Severity::Info,
            "easier or repeated data, dropout that ended, or a larger batch; look at what the training reads",
        ),
    };
    Finding {
        severity,
        why: with,
        advice,
        ..of_jump(LOSS, jump)
    }
}

/// A jump of the loss that the predictions do not share.
fn of_labels(found: Finding, next: f64) -> Finding {
    Finding {
        severity: Severity::Error,
        why: format!(
            "labels are no longer the next tokens: the model still predicts those, with a loss of {}; {}",
            digits(next),
            found.why
        ),
        advice: "look at how labels are made: shuffled, shifted by another offset, or those of another batch",
        ..found
    }
}

/// What every finding says of its jump: at first of the loss of the whole model, for information.
fn of_jump(check: &'static str, jump: &Jump) -> Finding {
    Finding {
        check,
        severity: Severity::Info,
        place: Place::MODEL,
        cell: 0,
        statistic: "loss",
        threshold: jump.from,
        begin: jump.begin,
        to: jump.to,
        end: jump.end,
        from: Some((jump.since, jump.from)),
        changed: None,
        warned: None,
        why: String::new(),
        advice: "",
    }
}

/// The finding on a layer of which statistics moved at one record, the furthest first.
fn of_group(history: &History, layer: usize, group: &[(&Jump, &'static str)]) -> Finding {
    let scores = group
        .iter()
        .find(|(of, id)| *id == "score_std" && is_rescaled(of));
    let (jump, statistic) = *scores.unwrap_or(&group[0]);
    let others: Vec<String> = group
        .iter()
        .filter(|(_, id)| *id != statistic)
        .take(MOST_NAMED)
        .map(|(of, id)| format!("{id} {} → {}", digits(of.from), digits(of.to)))
        .collect();
    let why = match group.len() - 1 {
        0 => "mean over its heads; no other statistic moved".to_owned(),
        n if n <= MOST_NAMED => format!("mean over its heads; so did {}", others.join(", ")),
        n => format!(
            "mean over its heads; so did {n} others, among them {}",
            others.join(", ")
        ),
    };
    let (severity, advice) = if scores.is_some() {
        (
            Severity::Error,
            "the scale of the scores was changed: look at the factor of q·k, at temperature, at norms of queries and keys, and at the \
             learning rate",
        )
    } else {
        (
            Severity::Info,
            "attention changes slowly on its own: if nothing was meant to change at this step, look for what did",
        )
    };
    Finding {
        severity,
        place: history.grid().layers()[layer].place(),
        cell: history.grid().n_heads() + layer,
        statistic,
        why,
        advice,
        ..of_jump(LEVEL, jump)
    }
}

/// Whether scores became so much larger, or so much smaller, that no step of a training does it.
fn is_rescaled(jump: &Jump) -> bool {
    let (grown, shrunk) = RESCALED;
    jump.to > grown * jump.from || jump.to < jump.from / shrunk
}
