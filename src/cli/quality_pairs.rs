//! Sentence pairs with references and alignments: one JSON object per line.

use std::path::Path;

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{Request, Source};
use attnscope_studies::quality::{GoldAlignment, parse_alignment};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    text: Option<String>,
    tokens: Option<Vec<u32>>,
    reference: Option<References>,
    alignment: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum References {
    One(String),
    Several(Vec<String>),
}

/// A sentence with its reference translations and gold alignment.
#[derive(Debug, Clone)]
pub struct Pair {
    pub id: String,
    pub request: Request,
    /// At least one.
    pub references: Vec<String>,
    /// Alignment with the first reference.
    pub gold: Option<GoldAlignment>,
}

/// Reads pairs; `usual` provides what a line leaves out.
///
/// # Errors
/// Names the line that is not such an object, lacks a reference or repeats an id.
pub fn read_pairs(path: &Path, usual: &Request) -> Result<Vec<Pair>> {
    let text = read_text(path, DOCUMENT)?;
    let mut pairs: Vec<Pair> = Vec::new();
    let lines = text.lines().enumerate();
    for (line_idx, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let at = |problem: String| Error::file(path, format!("line {}: {problem}", line_idx + 1));
        let line: Line = serde_json::from_str(line).map_err(|e| {
            let said = e.to_string();
            let said = said.split(" at line").next().unwrap_or(&said).to_owned();
            at(format!(
                "{said}; expected an object with text or tokens, reference, and perhaps id and alignment"
            ))
        })?;
        let id = line.id.unwrap_or_else(|| pairs.len().to_string());
        if pairs.iter().any(|pair| pair.id == id) {
            return Err(at(format!("the id {id:?} is used twice")));
        }
        let source = match (line.text, line.tokens) {
            (Some(text), None) => Source::Text(text),
            (None, Some(ids)) => Source::Ids(ids),
            _ => return Err(at("expected either text or tokens".to_owned())),
        };
        let references = match line.reference {
            Some(References::One(one)) => vec![one],
            Some(References::Several(several)) => several,
            None => Vec::new(),
        };
        if references.is_empty() {
            return Err(at("expected a reference to compare with".to_owned()));
        }
        let gold = line.alignment.as_deref().map(parse_alignment).transpose();
        pairs.push(Pair {
            id,
            request: Request {
                source,
                ..usual.clone()
            },
            references,
            gold: gold.map_err(at)?,
        });
    }
    if pairs.is_empty() {
        let problem = "holds no pair: expected one JSON object per line, found none";
        return Err(Error::file(path, problem));
    }
    Ok(pairs)
}
