//! The prompt of a model that reads rows of numbers: one position per row, labelled with its number.

use std::path::Path;
use std::sync::Arc;

use attnscope_checkpoint::values::Values;
use attnscope_compute::error::{Error, Result};

use super::given::BUILT_IN_SOUND;
use super::rule::{Sound, SoundRule};
use crate::limits::Limits;
use crate::prompt::Prompt;
use crate::request::{Request, Source, Target};

/// The start of error messages about a prompt that is not a table.
const READS: &str =
    "the model reads rows of numbers: expected a CSV or npy file with --values FILE";

/// The start of error messages about a target that is not a table.
const DECODER_READS: &str =
    "the decoder reads rows of numbers: expected a CSV or npy file with --target-text FILE";

/// Number of the built-in rows.
const N_BUILT_IN: usize = 24;

/// The prompt of some rows of numbers.
///
/// # Errors
/// When something else was given, the rows have another width, or there are more rows than positions.
pub(crate) fn given_rows(request: &Request, rule: SoundRule, limits: Limits) -> Result<Prompt> {
    let found = |found: &str| Err(Error::Prompt(format!("{READS}, found {found}")));
    if request.attention_mask.is_some() {
        return found("an attention mask too: no row is masked");
    }
    let table = match &request.source {
        Source::Values(values) => Some(values.clone()),
        Source::Text(text) if text == BUILT_IN_SOUND => None,
        Source::Text(text) => Some(table_at(text, READS)?),
        Source::Ids(_) => return found("token ids"),
        Source::Picture(picture) => return found(&format!("the picture {picture}")),
    };
    prompt_of(table, rule, (limits.hard_n_ctx(), request.truncate))
}

/// The rows of numbers that a decoder reads in place of tokens; built-in ones if none are given.
///
/// # Errors
/// When the target is no table, or its rows have another width.
pub(crate) fn target_rows(request: &Request, rule: SoundRule) -> Result<Prompt> {
    let table = match &request.target {
        Target::Text(text) => Some(table_at(text, DECODER_READS)?),
        Target::Ids(_) => {
            let problem = format!("{DECODER_READS}, found token ids");
            return Err(Error::Prompt(problem));
        }
        Target::Generate(_) => None,
    };
    prompt_of(table, rule, (None, false))
}

/// The table of a path, which is refused with these words if it cannot be one.
fn table_at(text: &str, reads: &str) -> Result<Values> {
    let path = Path::new(text.trim());
    let ending = path.extension().and_then(|ending| ending.to_str());
    if !ending.is_some_and(|ending| ["csv", "npy"].contains(&ending)) {
        return Err(Error::Prompt(format!("{reads}, found a text")));
    }
    Values::read(path)
}

/// The prompt of a table, or of built-in rows, of which there may be at most so many; more are cut off, or refused.
fn prompt_of(
    table: Option<Values>,
    rule: SoundRule,
    (most, truncates): (Option<usize>, bool),
) -> Result<Prompt> {
    let mut rows: Vec<Vec<f32>> = match &table {
        Some(table) => {
            let rows = table.rows().iter();
            rows.map(|row| row.iter().map(|value| *value as f32).collect())
                .collect()
        }
        None => built_in(rule.n_mels, most.unwrap_or(N_BUILT_IN)),
    };
    let (width, expected) = (rows.first().map_or(0, Vec::len), rule.n_mels);
    if width != expected {
        let problem =
            format!("expected {expected} numbers in a row, which the model reads, found {width}");
        return Err(match &table {
            Some(table) => Error::file(table.path(), problem),
            None => Error::Prompt(problem),
        });
    }
    let mut n_cut = 0;
    let n_ctx = most.unwrap_or(usize::MAX).min(rule.n_frames);
    if rows.len() > n_ctx {
        if !truncates {
            let found = rows.len();
            return Err(Error::Prompt(format!(
                "{found} rows were given, the model has {n_ctx} positions: give fewer or pass --truncate"
            )));
        }
        n_cut = rows.len() - n_ctx;
        rows.truncate(n_ctx);
    }
    let n = rows.len();
    let sound = Sound {
        asked: BUILT_IN_SOUND.to_owned(),
        values: rows.concat(),
        n_mels: expected,
        n_real: n,
        said: None,
        rows: table,
    };
    Ok(Prompt {
        tokens: (0..n as u32).collect(),
        labels: (0..n).map(|row| format!("row {row}")).collect(),
        positions: (0..n).collect(),
        n_cut,
        sound: Some(Arc::new(sound)),
        ..Prompt::default()
    })
}

/// The rows used if none are given: a wave per column, each faster than the one before.
fn built_in(width: usize, n_ctx: usize) -> Vec<Vec<f32>> {
    let value = |row: usize, column: usize| (row as f32 * 0.3 * (1.0 + column as f32)).sin();
    let row = |row| (0..width).map(|column| value(row, column)).collect();
    (0..n_ctx.min(N_BUILT_IN)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_rows_fit_the_model() {
        let rows = built_in(3, 5);
        assert_eq!((rows.len(), rows[0].len()), (5, 3));
        assert!(rows.concat().iter().all(|value| value.abs() <= 1.0));
        assert_eq!(built_in(1, 1_000).len(), N_BUILT_IN);
    }
}
