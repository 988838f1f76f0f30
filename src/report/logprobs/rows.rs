//! One row a token: JSON Lines, CSV and Parquet.

use std::io::{self, Write};

use attnscope_run::TokenLogProb;
use serde::Serialize;

use crate::number::Number;
use crate::table::Table;
use crate::table_row;

table_row! {
    /// A token of a prompt, as a row of a table.
    struct Row {
        prompt: String, "", "name of the prompt";
        position: usize, "", "place in the prompt, from 0";
        id: usize, "", "token id";
        piece: String, "", "the token as the vocabulary writes it";
        logprob: Option<f64>, "nats", "ln p of the token given all before it; empty for the first token";
        rank: Option<usize>, "", "1 for the likeliest token";
        entropy: Option<f64>, "nats", "entropy of the prediction";
        top: String, "nats", "the likeliest tokens as a JSON list of [id, ln p]";
    }
}

/// What a model says of one token of a prompt.
#[derive(Debug, Clone, Serialize)]
pub struct LogProbRow {
    prompt: String,
    position: usize,
    id: u32,
    piece: String,
    logprob: Option<Number>,
    rank: Option<u32>,
    entropy: Option<Number>,
    top: Vec<(u32, Number)>,
}

impl LogProbRow {
    pub fn new(prompt: &str, position: usize, piece: String, token: &TokenLogProb) -> Self {
        Self {
            prompt: prompt.to_owned(),
            position,
            id: token.id,
            piece,
            logprob: token.logprob.map(Number),
            rank: token.rank,
            entropy: token.entropy.map(Number),
            top: token
                .top
                .iter()
                .map(|(id, log)| (*id, Number(*log)))
                .collect(),
        }
    }

    fn top_as_text(&self) -> String {
        serde_json::to_string(&self.top).unwrap_or_default()
    }
}

/// All rows of a command.
#[derive(Debug, Clone, Default)]
pub struct LogProbTable {
    pub rows: Vec<LogProbRow>,
}

impl LogProbTable {
    fn table(&self) -> Table {
        Table::of(self.rows.iter().map(|row| Row {
            prompt: row.prompt.clone(),
            position: row.position,
            id: row.id as usize,
            piece: row.piece.clone(),
            logprob: row.logprob.map(|value| value.0),
            rank: row.rank.map(|rank| rank as usize),
            entropy: row.entropy.map(|value| value.0),
            top: row.top_as_text(),
        }))
    }

    /// Writes one JSON object a line.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_jsonl(&self, to: &mut impl Write) -> io::Result<()> {
        for row in &self.rows {
            serde_json::to_writer(&mut *to, row)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Writes CSV with a header. Unless `is_raw`, texts that a spreadsheet would run get an apostrophe.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_csv(&self, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
        self.table().write_csv(is_raw, to)
    }

    /// Writes Parquet.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_parquet(&self, to: &mut (impl Write + Send)) -> io::Result<()> {
        self.table()
            .write_parquet(&[], to)
            .map_err(io::Error::other)
    }
}
