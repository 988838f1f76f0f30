//! The table as a value: rows of heads and of whole layers, and metadata about the run.

use std::cmp::Ordering;

use attnscope_checks::stats::{STATISTICS, Values};
use attnscope_spec::{Place, Stack};

use super::natural::natural;
use crate::table::{Cell, CellValue};
use crate::{LayerRecord, ModelRecord, PromptRecord};

/// Metadata about the origin of the rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// Version of the program.
    pub version: String,
    /// One entry per checkpoint: name, family and sizes, as JSON.
    pub models: String,
    /// What-ifs that were on, in the order they were given.
    pub what_if: Vec<String>,
}

/// One head, or one whole layer, on one prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub checkpoint: String,
    pub step: Option<u64>,
    pub prompt: String,
    pub n_tokens: u64,
    /// In nats; `None` for models that predict no next token.
    pub loss: Option<f64>,
    /// The label of the stack; `None` for models with one stack.
    pub stack: Option<String>,
    pub layer: u64,
    /// `None` for the whole layer.
    pub head: Option<u64>,
    /// Values in the order of [`STATISTICS`]; `None` if the head or layer does not have the statistic.
    pub stats: Vec<Option<f64>>,
}

/// Rows of any number of checkpoints and prompts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    pub about: About,
    pub rows: Vec<Row>,
}

/// A checkpoint whose prompts become rows.
#[derive(Debug)]
pub struct Source<'a> {
    pub model: &'a ModelRecord,
    pub step: Option<u64>,
    pub prompts: &'a [PromptRecord],
}

impl Table {
    /// Makes the rows of several checkpoints, in the order of the table.
    pub fn of(sources: &[Source<'_>], what_if: Vec<String>) -> Self {
        let models: Vec<&ModelRecord> = sources.iter().map(|source| source.model).collect();
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Plain names and numbers: serialisation cannot fail.
            models: serde_json::to_string(&models).unwrap_or_default(),
            what_if,
        };
        let mut rows = Vec::new();
        for source in sources {
            for prompt in source.prompts {
                for layer in &prompt.layers {
                    rows.extend(rows_of(source, prompt, layer));
                }
            }
        }
        let mut table = Self { about, rows };
        table.sort();
        table
    }

    /// Inserts rows in order.
    pub fn add(&mut self, rows: impl Iterator<Item = Row>) {
        let n = self.rows.len();
        self.rows.extend(rows);
        if self.rows.len() > n {
            self.sort();
        }
    }

    /// Sorts by step, checkpoint, prompt, stack, layer and head; checkpoints without a step by their names, before the others.
    pub fn sort(&mut self) {
        self.rows.sort_by(in_order);
    }
}

/// The order of rows: by step, checkpoint, prompt, stack, layer and head.
pub fn in_order(a: &Row, b: &Row) -> Ordering {
    a.step
        .cmp(&b.step)
        .then_with(|| natural(&a.checkpoint, &b.checkpoint))
        .then_with(|| a.prompt.cmp(&b.prompt))
        .then_with(|| order_of(a).cmp(&order_of(b)))
}

/// Order within a prompt: stacks as they run, layers, and the whole layer before its heads.
fn order_of(row: &Row) -> (usize, u64, Option<u64>) {
    let stacks = ["encoder", "decoder", "cross"];
    let stack = row.stack.as_deref();
    let nth = stack.map_or(0, |stack| {
        let known = stacks.iter().position(|known| *known == stack);
        1 + known.unwrap_or(stacks.len())
    });
    (nth, row.layer, row.head)
}

fn rows_of<'a>(
    source: &'a Source<'_>,
    prompt: &'a PromptRecord,
    layer: &'a LayerRecord,
) -> impl Iterator<Item = Row> + 'a {
    let n_tokens = prompt.tokens.len() + prompt.decoder_tokens.as_ref().map_or(0, Vec::len);
    let row = move |head: Option<usize>, stats: &Values| Row {
        checkpoint: source.model.name.clone(),
        step: source.step,
        prompt: prompt.id.clone(),
        n_tokens: n_tokens as u64,
        loss: prompt.loss,
        stack: label(layer.stack),
        layer: layer.layer as u64,
        head: head.map(|head| head as u64),
        stats: stats_of(stats, head.is_some()),
    };
    let whole = std::iter::once(row(None, &layer.stats));
    whole.chain(
        layer
            .heads
            .iter()
            .map(move |head| row(Some(head.head), &head.stats)),
    )
}

fn label(stack: Stack) -> Option<String> {
    stack.label().map(str::to_owned)
}

fn stats_of(values: &Values, is_head: bool) -> Vec<Option<f64>> {
    let statistics = STATISTICS.iter().enumerate();
    let value = |(idx, statistic): (usize, &&attnscope_checks::stats::Statistic)| {
        let is_known = !is_head || statistic.is_per_head();
        values.measured(idx).filter(|_| is_known)
    };
    statistics.map(value).collect()
}

impl Row {
    /// Returns the row's cells, one for each column.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![
            self.checkpoint.as_str().cell(),
            self.step.cell(),
            self.prompt.as_str().cell(),
            self.n_tokens.cell(),
            self.loss.cell(),
            self.stack.as_deref().cell(),
            self.layer.cell(),
            self.head.cell(),
        ];
        cells.extend(self.stats.iter().map(|value| value.cell()));
        cells
    }

    /// Returns the row's place; `None` if its stack is unknown.
    pub fn place(&self) -> Option<Place> {
        let stacks = [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross];
        let stack = stacks
            .into_iter()
            .find(|stack| stack.label() == self.stack.as_deref())?;
        let layer = Place::layer(stack, self.layer as usize);
        Some(self.head.map_or(layer, |head| layer.head(head as usize)))
    }
}
