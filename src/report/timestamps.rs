//! Times of each token in a transcript, as a table, as CSV and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_prompt::Prompt;
use attnscope_run::TokenTimes;
use schemars::JsonSchema;
use serde::Serialize;

use super::ModelRecord;
use super::json::write_pretty;
use super::plain::{cell, one_line};
use super::text_table::text_table;

/// The version of the shape in this file.
const VERSION: u32 = 1;

/// When the tokens of some transcripts were said.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Timestamps {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    model: ModelRecord,
    prompts: Vec<Transcript>,
}

/// When the tokens of one transcript were said.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Transcript {
    /// Id of the prompt.
    id: String,
    /// Path of the sound, or the name of the built-in one.
    sound: String,
    /// Seconds of the sound that were heard.
    seconds: f64,
    /// What the model wrote; empty for a text that was given.
    text: String,
    /// Layer and head of the cross-attention that tells the time.
    heads: Vec<[usize; 2]>,
    /// Who says that these heads tell it: the checkpoint, the one who asked, or nobody (all of the later half of the layers).
    heads_by: &'static str,
    tokens: Vec<TimedToken>,
}

/// A token and when it was said.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TimedToken {
    position: usize,
    id: u32,
    token: String,
    /// The second at which it begins; null for tokens that only tell the decoder what to do.
    start: Option<f64>,
    /// The second at which the next one begins, or the sound ends.
    end: Option<f64>,
}

impl Transcript {
    pub fn new(id: &str, prompt: &Prompt, times: &TokenTimes) -> Self {
        let token = |position: usize| {
            let is_said = position >= times.n_start;
            // Times are multiples of a key's duration: remove what rounding left.
            let second = |at: f64| is_said.then(|| (at * 1e6).round() / 1e6);
            TimedToken {
                position,
                id: prompt.tokens[position],
                token: prompt.labels[position].clone(),
                start: second(times.start(position)),
                end: second(times.end(position)),
            }
        };
        let sound = prompt.given().sound.as_deref();
        Self {
            id: id.to_owned(),
            sound: sound.map_or_else(String::new, |sound| sound.asked.clone()),
            seconds: times.n_keys as f64 * times.seconds_a_key,
            text: prompt.written.clone(),
            heads: times.heads.clone(),
            heads_by: times.chosen.label(),
            tokens: (0..prompt.tokens.len()).map(token).collect(),
        }
    }
}

impl Timestamps {
    pub fn new(model: ModelRecord, prompts: Vec<Transcript>) -> Self {
        Self {
            version: VERSION,
            model,
            prompts,
        }
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }

    /// Writes one row per prompt and token. `is_raw` leaves texts unescaped, even those that a spreadsheet would compute.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_csv(&self, is_raw: bool, to: &mut impl Write) -> io::Result<()> {
        let mut writer = ::csv::Writer::from_writer(to);
        writer.write_record(["prompt", "position", "id", "token", "start", "end"])?;
        let plain = |text: &str| {
            if is_raw {
                text.to_owned()
            } else {
                cell(text).into_owned()
            }
        };
        for prompt in &self.prompts {
            for token in &prompt.tokens {
                let second = |at: Option<f64>| at.map_or_else(String::new, |at| at.to_string());
                writer.write_record([
                    plain(&prompt.id),
                    token.position.to_string(),
                    token.id.to_string(),
                    plain(&token.token),
                    second(token.start),
                    second(token.end),
                ])?;
            }
        }
        writer.flush()
    }

    /// Returns a table for each prompt: the token, its id, and its times.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (nth, prompt) in self.prompts.iter().enumerate() {
            if nth > 0 {
                text.push('\n');
            }
            let heads: Vec<String> = prompt
                .heads
                .iter()
                .map(|[layer, head]| format!("cross.L{layer}H{head}"))
                .collect();
            let by = match prompt.heads_by {
                "checkpoint" => "alignment heads",
                "asked" => "heads",
                _ => "no alignment heads are named, later half of the layers",
            };
            let _ = writeln!(
                text,
                "{}: {:.2} s; {by}: {}",
                one_line(&prompt.sound),
                prompt.seconds,
                heads.join(", ")
            );
            if !prompt.text.is_empty() {
                let _ = writeln!(text, "written: {}", one_line(&prompt.text));
            }
            text.push('\n');
            let second =
                |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.2}"));
            let row = |token: &TimedToken| {
                vec![
                    one_line(&token.token).into_owned(),
                    token.id.to_string(),
                    second(token.start),
                    second(token.end),
                ]
            };
            let rows: Vec<Vec<String>> = prompt.tokens.iter().map(row).collect();
            text += &text_table(&["token", "id", "start", "end"], &rows);
        }
        text
    }
}
