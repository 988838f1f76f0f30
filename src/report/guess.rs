//! A guessed architecture as `attnscope.toml`, each line with its evidence, and as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_studies::guess::{Guess, Kind, Line, Rival};
use schemars::JsonSchema;
use serde::Serialize;

use super::json::write_pretty;
use super::number::Number;
use super::plain::one_line;

/// The version of the shape in this file.
const VERSION: u32 = 1;

/// What weights may be.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GuessReport {
    #[schemars(extend("const" = VERSION))]
    version: u32,
    /// The file of weights.
    weights: String,
    /// `decoder`, which tells the next token, or `encoder`, which tells hidden ones.
    kind: &'static str,
    /// The token that stands for a hidden one.
    mask_token: Option<u32>,
    /// Mean loss in nats per token.
    loss: Number,
    /// What guessing by the texts' own frequencies would lose.
    unigram_loss: Number,
    /// Whether the model loses clearly less than word frequencies do.
    understood: bool,
    /// Whether the texts decide: the loss is near what they allow a trained model, and no other answer is within noise.
    decided: bool,
    /// The loss up to which a model counts as trained on such texts, in nats per token.
    most_loss: Number,
    /// Other answers that may be right as well, one a question.
    undecided: Vec<RivalRecord>,
    /// Positions that the loss is a mean of.
    positions: usize,
    /// Candidates that were run.
    tried: usize,
    /// How the layers were found.
    layers: String,
    /// Tensors that no part takes.
    unused: Vec<String>,
    /// What explains the texts better and cannot be described, as the check `trained-otherwise` finds it; null where nothing does.
    trained_otherwise: Option<String>,
    lines: Vec<LineRecord>,
    /// The file `attnscope.toml`.
    toml: String,
}

/// An answer that may be right as well as the one that was chosen.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct RivalRecord {
    /// What is asked: the key of a line, or `axes` for how matrices lie.
    question: &'static str,
    /// The other answer.
    rival: String,
    /// How much more it loses than the chosen one, in nats per token; less than 0 where it loses less.
    ahead: Number,
    /// The 99 % interval of `ahead`.
    low: Number,
    high: Number,
    /// So many more tokens would make `ahead` certain.
    more_tokens: usize,
}

/// A line of `attnscope.toml`.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct LineRecord {
    section: &'static str,
    key: &'static str,
    /// As TOML writes it.
    value: String,
    evidence: String,
    /// By how much the second answer loses more, in nats per token; null where names and shapes leave no other.
    ahead: Option<Number>,
    /// The second answer.
    second: Option<String>,
}

impl From<&(&'static str, Rival)> for RivalRecord {
    fn from((question, rival): &(&'static str, Rival)) -> Self {
        Self {
            question,
            rival: rival.words.clone(),
            ahead: Number(rival.ahead.mean),
            low: Number(rival.ahead.low),
            high: Number(rival.ahead.high),
            more_tokens: rival.ahead.n_more,
        }
    }
}

impl From<&Line> for LineRecord {
    fn from(line: &Line) -> Self {
        let margin = line.margin.as_ref();
        Self {
            section: line.section,
            key: line.key,
            value: line.value.clone(),
            evidence: line.evidence.clone(),
            ahead: margin.map(|margin| Number(margin.ahead)),
            second: margin.map(|margin| margin.second.clone()),
        }
    }
}

impl GuessReport {
    /// `weights` is the name of the file of weights; `tokenizer` the value of the `tokenizer` key, if any.
    pub fn of(guess: &Guess, weights: &str, tokenizer: Option<&str>) -> Self {
        Self {
            version: VERSION,
            weights: weights.to_owned(),
            kind: match guess.kind {
                Kind::Decoder => "decoder",
                Kind::Encoder => "encoder",
            },
            mask_token: guess.mask_token,
            loss: Number(guess.loss),
            unigram_loss: Number(guess.unigram_loss),
            understood: guess.is_understood(),
            decided: guess.is_decided(),
            most_loss: Number(guess.most_loss()),
            undecided: guess.open.iter().map(RivalRecord::from).collect(),
            positions: guess.n_positions,
            tried: guess.n_tried,
            layers: guess.layers.clone(),
            unused: guess.left.clone(),
            trained_otherwise: guess.otherwise.clone(),
            lines: guess.lines.iter().map(LineRecord::from).collect(),
            toml: toml_of(guess, weights, tokenizer),
        }
    }

    /// Returns the content of `attnscope.toml`.
    pub fn toml(&self) -> &str {
        &self.toml
    }

    /// Writes the document, indented, with a newline at the end.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(self, to)
    }
}

/// Lists the reasons why a guess is not decided, one per sentence; empty if it is.
pub fn undecided(guess: &Guess) -> Vec<String> {
    let mut reasons = Vec::new();
    if !guess.is_understood() {
        return reasons;
    }
    if !guess.is_near() {
        reasons.push(format!(
            "loss {:.4} is far from what such text allows: a model that was trained on it loses at most about {:.4}. The text is of \
             another kind, or the weights are none of the models that guess knows: text that the model was trained on would decide",
            guess.loss,
            guess.most_loss()
        ));
    }
    for (question, rival) in &guess.open {
        let ahead = rival.ahead;
        let more = if ahead.mean < 0.0 { "less" } else { "more" };
        let value = guess.lines.iter().find(|line| line.key == *question);
        let value = value.map_or("what is written", |line| line.value.as_str());
        reasons.push(format!(
            "{question}: {value}, or {}, which loses {:.4} nats per token {} (99 % interval {:.4}…{:.4}): about {} more tokens of such \
             text would decide",
            rival.words, ahead.mean.abs(), more, ahead.low, ahead.high, ahead.n_more
        ));
    }
    reasons
}

fn toml_of(guess: &Guess, weights: &str, tokenizer: Option<&str>) -> String {
    let mut text = String::new();
    let quoted = attnscope_families::description::quoted;
    let told = match (guess.kind, guess.mask_token) {
        (Kind::Encoder, Some(id)) => {
            let hidden = counted(guess.n_positions, "token");
            format!("{hidden} hidden by token {id}")
        }
        _ => counted(guess.n_positions, "token"),
    };
    let loss = format!("loss {:.4} on {told}", guess.loss);
    let weights = one_line(weights);
    let _ = writeln!(text, "# What attnscope guess made of {weights}.");
    let _ = writeln!(
        text,
        "# {loss}; word frequencies alone lose {:.4}. {} candidates were run.",
        guess.unigram_loss, guess.n_tried
    );
    if !guess.is_understood() {
        let _ = writeln!(
            text,
            "# NOT UNDERSTOOD: the model hardly tells more than word frequencies do. Do not trust any line."
        );
    }
    for reason in undecided(guess) {
        let _ = writeln!(text, "# NOT DECIDED: {}.", one_line(&reason));
    }
    let _ = writeln!(
        text,
        "# Each comment says how much more the second answer loses, in nats per token."
    );
    let _ = writeln!(text, "# Layers: {}.", one_line(&guess.layers));
    if !guess.left.is_empty() {
        let _ = writeln!(
            text,
            "# No part takes: {}.",
            one_line(&guess.left.join(", "))
        );
    }
    if let Some(said) = &guess.otherwise {
        let _ = writeln!(
            text,
            "# TRAINED OTHERWISE: {}.",
            one_line(said).trim_end_matches('.')
        );
    }
    let _ = writeln!(text, "guessed = {}", quoted(&loss));
    if let Some(tokenizer) = tokenizer {
        let _ = writeln!(text, "tokenizer = {}", quoted(tokenizer));
    }
    for section in ["set", "tensors"] {
        let _ = writeln!(text, "\n[{section}]");
        let lines: Vec<&Line> = guess
            .lines
            .iter()
            .filter(|line| line.section == section)
            .collect();
        let written = |line: &Line| format!("{} = {}", line.key, line.value);
        let widths = lines.iter().map(|line| written(line).chars().count());
        let width = widths.filter(|width| *width <= 60).max().unwrap_or(0);
        for line in lines {
            let _ = writeln!(
                text,
                "{:width$}  # {}",
                written(line),
                one_line(&line.evidence)
            );
        }
    }
    text
}
