//! Reads tables of log-probabilities: JSON, JSON Lines, CSV, Parquet, `.npz` and safetensors, of this program, of engines and of trainers.
//!
//! What is read does not depend on the kind of file: each gives records, and a record is an answer of an engine (`engines`), a text with lists of
//! ids and values, or one token (`records`).

mod arrays;
mod assembled;
mod engines;
mod parquet_rows;
mod records;
mod tree;

use std::io::Read;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::captured::{Captured, holds};
use attnscope_checkpoint::{DOCUMENT, open_regular, read_text};
use attnscope_compare::logprobs::{LogProbs, ScoredPrompt};
use attnscope_compute::error::{Error, Result};

use self::tree::Tree;

/// Bytes of a file that are looked at to tell what it is.
const BEGINNING: u64 = 1 << 20;

/// Words of which a JSON or CSV file of log-probabilities has one.
const WORDS: &[&str] = &["logprob", "log_prob", "logps", "completion_probabilities"];

/// Splits `FILE#NAME` into the file and the column or array that is meant.
fn chosen(path: &Path) -> (PathBuf, Option<String>) {
    if path.exists() {
        return (path.to_path_buf(), None);
    }
    let text = path.to_string_lossy();
    match text.rsplit_once('#') {
        Some((file, name)) if Path::new(file).is_file() => {
            (PathBuf::from(file), Some(name.to_owned()))
        }
        _ => (path.to_path_buf(), None),
    }
}

/// The first bytes of a file as text; empty if it cannot be read.
fn beginning(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes));
    read.map_or_else(
        |_| String::new(),
        |_| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

fn ending(path: &Path) -> String {
    path.extension()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase()
}

/// Whether a file holds log-probabilities of tokens, by its content.
pub fn is_logprobs(path: &Path) -> bool {
    let (path, column) = chosen(path);
    if !path.is_file() {
        return false;
    }
    match ending(&path).as_str() {
        "json" | "jsonl" | "ndjson" => {
            let text = beginning(&path);
            column.is_some() || WORDS.iter().any(|word| text.contains(word))
        }
        "csv" => {
            let text = beginning(&path);
            let header = text.lines().next().unwrap_or_default();
            WORDS.iter().any(|word| header.contains(word))
        }
        "parquet" => {
            let wants = |name: &str| {
                records::LOGPROBS.contains(&name)
                    || name == "logprob"
                    || Some(name) == column.as_deref()
            };
            parquet_rows::has_column(&path, &wants)
        }
        "npz" => Captured::open(&path)
            .is_ok_and(|captured| arrays::are_logprobs(captured.names().into_iter())),
        "safetensors" => {
            holds(&path, |name| {
                name.ends_with("ids") || name.ends_with("tokens")
            }) && Captured::open(&path)
                .is_ok_and(|captured| arrays::are_logprobs(captured.names().into_iter()))
        }
        _ => false,
    }
}

/// Reads a table.
///
/// # Errors
/// When the file cannot be read, or holds no log-probabilities.
pub fn read_logprobs(path: &Path) -> Result<LogProbs> {
    let (file, column) = chosen(path);
    let column = column.as_deref();
    let kind = ending(&file);
    if matches!(kind.as_str(), "npz" | "safetensors") {
        let captured = Captured::open(&file)?;
        let prompts = arrays::prompts(&captured, column)?;
        return finished(&file, "arrays", prompts);
    }
    let trees = match kind.as_str() {
        "parquet" => parquet_rows::records(&file, &|_| true)?,
        "csv" => csv_records(&file)?,
        _ => return read_logprobs_text(&file, &read_text(&file, DOCUMENT)?, column),
    };
    of_records(&file, &trees, column)
}

/// Reads a table from the text of a JSON or JSON Lines document; `path` names it in errors.
///
/// # Errors
/// When it is no JSON, or holds no log-probabilities.
pub fn read_logprobs_text(path: &Path, text: &str, column: Option<&str>) -> Result<LogProbs> {
    let trees = match Tree::parse(text) {
        Ok(Tree::List(list)) => list,
        Ok(tree) => vec![tree],
        Err(problem) => lines(text).ok_or_else(|| {
            Error::file(
                path,
                format!("expected JSON or one object a line, found {problem}"),
            )
        })?,
    };
    of_records(path, &trees, column)
}

/// The objects of JSON Lines; `None` if some line is none.
fn lines(text: &str) -> Option<Vec<Tree>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| Tree::parse(line).ok()).collect()
}

/// The rows of a CSV file as objects; lists stand in cells as JSON.
fn csv_records(path: &Path) -> Result<Vec<Tree>> {
    let text = read_text(path, DOCUMENT)?;
    let damaged = |e: csv::Error| Error::file(path, format!("expected CSV, found {e}"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header: Vec<String> = reader
        .headers()
        .map_err(damaged)?
        .iter()
        .map(str::to_owned)
        .collect();
    let mut records = Vec::new();
    for row in reader.records() {
        let row = row.map_err(damaged)?;
        let cells = header.iter().zip(row.iter());
        let entries = cells.map(|(name, cell)| {
            let value = match cell {
                "" => Tree::Null,
                _ if cell.starts_with('[') => {
                    Tree::parse(cell).unwrap_or_else(|_| Tree::Text(cell.to_owned()))
                }
                _ => match cell.parse() {
                    Ok(number) => Tree::Number(number),
                    Err(_) => Tree::Text(cell.to_owned()),
                },
            };
            (name.clone(), value)
        });
        records.push(Tree::Object(entries.collect()));
    }
    Ok(records)
}

/// Makes a table of records.
fn of_records(path: &Path, trees: &[Tree], column: Option<&str>) -> Result<LogProbs> {
    if trees.first().is_some_and(records::is_token) {
        return finished(path, "one row per token", records::rows(trees));
    }
    let mut prompts = Vec::new();
    let mut form = "records of ids and log-probabilities";
    for (idx, tree) in trees.iter().enumerate() {
        let name = if trees.len() == 1 {
            "prompt".to_owned()
        } else {
            idx.to_string()
        };
        let found = found(tree, &name, column)
            .map_err(|problem| Error::file(path, format!("record {}: {problem}", idx + 1)))?;
        if let Some((of, found)) = found {
            form = of;
            prompts.extend(found);
        }
    }
    finished(path, form, prompts)
}

type Found = Option<(&'static str, Vec<ScoredPrompt>)>;

/// Most objects inside each other that are looked through for an answer.
const DEEPEST: usize = 3;

/// What a record holds, itself or in one of its values: answers are often kept under a key such as `response`.
fn found(tree: &Tree, name: &str, column: Option<&str>) -> std::result::Result<Found, String> {
    inside(tree, name, column, DEEPEST)
}

fn inside(
    tree: &Tree,
    name: &str,
    column: Option<&str>,
    depth: usize,
) -> std::result::Result<Found, String> {
    let name = match tree
        .any(&["custom_id", "request_id", "prompt_id"])
        .and_then(|(_, own)| own.text())
    {
        Some(own) if own.len() <= 64 => own,
        _ => name,
    };
    if column.is_none()
        && let Some(found) = engines::answer(tree, name)
    {
        return Ok(Some(found));
    }
    if let Some(found) = records::record(tree, name, column)? {
        return Ok(Some(("records of ids and log-probabilities", found)));
    }
    let Some(entries) = tree.object().filter(|_| depth > 0) else {
        return Ok(None);
    };
    for (_, value) in entries {
        if value.object().is_some()
            && let Some(found) = inside(value, name, column, depth - 1)?
        {
            return Ok(Some(found));
        }
        if let Some(list) = value
            .list()
            .filter(|list| list.first().is_some_and(|one| one.object().is_some()))
        {
            if list.first().is_some_and(records::is_token) {
                return Ok(Some(("one row per token", records::rows(list))));
            }
            let (mut prompts, mut form) = (Vec::new(), None);
            for (idx, one) in list.iter().enumerate() {
                if let Some((of, found)) = inside(one, &format!("{name}.{idx}"), column, depth - 1)?
                {
                    form = Some(of);
                    prompts.extend(found);
                }
            }
            if let Some(form) = form {
                return Ok(Some((form, prompts)));
            }
        }
    }
    Ok(None)
}

/// Checks what was read.
fn finished(path: &Path, form: &str, mut prompts: Vec<ScoredPrompt>) -> Result<LogProbs> {
    let n = prompts.len();
    prompts.retain(|prompt| prompt.n_scored() > 0);
    if prompts.is_empty() {
        let forms =
            "answers of engines with logprobs, records of ids and logprobs, or one row per token";
        return Err(Error::file(
            path,
            format!("expected log-probabilities of tokens ({forms}), found none"),
        ));
    }
    let mut seen = std::collections::HashMap::new();
    for prompt in &mut prompts {
        let nth = seen.entry(prompt.name.clone()).or_insert(0usize);
        *nth += 1;
        if *nth > 1 {
            prompt.name = format!("{} ({nth})", prompt.name);
        }
    }
    let mut table = LogProbs {
        form: form.to_owned(),
        prompts,
        quantum: 0.0,
        notes: Vec::new(),
    };
    let n_left = n - table.prompts.len();
    if n_left > 0 {
        table
            .notes
            .push(format!("{n_left} of {n} prompts have no log-probability"));
    }
    table.find_quantum();
    Ok(table)
}
