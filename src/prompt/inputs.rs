//! A set of prompts in a file with one JSON object per line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{DOCUMENT, read_text};
use attnscope_compute::error::{Error, Result};
use serde::Deserialize;

use super::request::{Request, Source, Target};

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<String>,
    text: Option<String>,
    tokens: Option<Vec<u32>>,
    image: Option<PathBuf>,
    target: Option<String>,
    target_tokens: Option<Vec<u32>>,
    attention_mask: Option<Vec<u8>>,
}

/// Reads a prompt set; fields that a line does not set come from `usual`. A line without an id is identified by its number, from
/// 0.
///
/// # Errors
/// When a line is not such an object, has no source or more than one, or repeats an id; the error names the line.
pub fn read_inputs(path: &Path, usual: &Request) -> Result<Vec<(String, Request)>> {
    parse_inputs(path, &read_text(path, DOCUMENT)?, usual)
}

/// Parses a prompt set; `path` is only used in messages.
///
/// # Errors
/// As for [`read_inputs`].
pub fn parse_inputs(path: &Path, text: &str, usual: &Request) -> Result<Vec<(String, Request)>> {
    let mut ids = BTreeSet::new();
    let mut inputs = Vec::new();
    let lines = text.lines().enumerate();
    for (line_idx, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let at = |problem: String| Error::file(path, format!("line {}: {problem}", line_idx + 1));
        let line: Line = serde_json::from_str(line).map_err(|e| {
            // The parser's own position is relative to the line.
            let said = e.to_string();
            let said = said.split(" at line").next().unwrap_or(&said).to_owned();
            at(format!(
                "{said}; expected an object with text, tokens or image, and perhaps id, target, target_tokens, attention_mask"
            ))
        })?;
        let id = line.id.clone().unwrap_or_else(|| inputs.len().to_string());
        if !ids.insert(id.clone()) {
            return Err(at(format!("the id {id:?} is used twice")));
        }
        inputs.push((id, request(line, usual, path).map_err(at)?));
    }
    if inputs.is_empty() {
        return Err(Error::file(
            path,
            "holds no prompt: expected one JSON object per line, found none",
        ));
    }
    Ok(inputs)
}

fn request(line: Line, usual: &Request, file: &Path) -> std::result::Result<Request, String> {
    let source = match (line.text, line.tokens, line.image) {
        (Some(text), None, None) => Source::Text(text),
        (None, Some(ids), None) => Source::Ids(ids),
        // The path as given, or relative to the set's file.
        (None, None, Some(image)) => {
            let relative = file.with_file_name(&image);
            Source::picture(if image.exists() { image } else { relative })
        }
        (None, None, None) => {
            return Err("expected text, tokens or image, found neither".to_owned());
        }
        (Some(_), Some(_), None) => return Err("expected text or tokens, found both".to_owned()),
        _ => return Err("expected one of text, tokens and image, found several".to_owned()),
    };
    let target = match (line.target, line.target_tokens) {
        (Some(text), None) => Target::Text(text),
        (None, Some(ids)) => Target::Ids(ids),
        (Some(_), Some(_)) => {
            return Err("expected target or target_tokens, found both".to_owned());
        }
        (None, None) => usual.target.clone(),
    };
    let attention_mask = match line.attention_mask {
        Some(mask) if mask.iter().any(|m| *m > 1) => {
            return Err("attention_mask: expected 0 and 1 only".to_owned());
        }
        Some(mask) => Some(mask.into_iter().map(|m| m == 1).collect()),
        None => usual.attention_mask.clone(),
    };
    Ok(Request {
        source,
        target,
        attention_mask,
        ..usual.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(lines: &str) -> Result<Vec<(String, Request)>> {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(lines.as_bytes()).expect("written");
        read_inputs(file.path(), &Request::text(""))
    }

    #[test]
    fn a_line_is_a_prompt_and_its_number_is_the_default_id() {
        let inputs = read(
            "{\"text\": \"a b\"}\n\n{\"id\": \"x\", \"tokens\": [1, 2], \"attention_mask\": [0, 1], \"target_tokens\": [3]}\n",
        )
        .expect("reads");
        assert_eq!((inputs[0].0.as_str(), inputs[1].0.as_str()), ("0", "x"));
        assert_eq!(inputs[0].1, Request::text("a b"));
        assert_eq!(inputs[1].1.source, Source::Ids(vec![1, 2]));
        assert_eq!(inputs[1].1.attention_mask, Some(vec![false, true]));
        assert_eq!(inputs[1].1.target, Target::Ids(vec![3]));
    }

    #[test]
    fn the_error_for_a_bad_line_names_the_line_and_the_problem() {
        for (lines, parts) in [
            ("{\"text\": \"a\"}\n{\"txt\": \"b\"}", ["line 2", "txt"]),
            ("not json", ["line 1", "expected"]),
            ("{}", ["line 1", "neither"]),
            ("{\"text\": \"a\", \"tokens\": [1]}", ["line 1", "both"]),
            ("{\"tokens\": [-1]}", ["line 1", "-1"]),
            (
                "{\"tokens\": [1], \"attention_mask\": [2]}",
                ["line 1", "attention_mask"],
            ),
            (
                "{\"id\": \"0\", \"text\": \"a\"}\n{\"id\": \"0\", \"text\": \"b\"}",
                ["line 2", "twice"],
            ),
            ("\n\n", ["holds no prompt", "none"]),
        ] {
            let said = read(lines).expect_err("must be refused").to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        }
    }
}
