//! A comparison of log-probabilities as text and Markdown: what departs, from where, and why; then the figures.

use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_compare::logprobs::{LogProbComparison, LogProbs, SideJudgement};

use super::document::Document;
use crate::json::write_pretty;
use crate::plain::one_line;
use crate::text_table::text_table;

/// A comparison with the names of its sides.
pub struct LogProbDifference<'a> {
    pub a: &'a str,
    pub b: Option<&'a str>,
    pub reference: Option<&'a str>,
    pub comparison: &'a LogProbComparison,
    /// The tables that were compared; their tokens have text where it is known.
    pub tables: [Option<&'a LogProbs>; 2],
    pub notes: Vec<String>,
}

/// The mean difference of classes of tokens: name, tokens, nats.
pub(super) struct Distribution {
    pub title: String,
    pub column: &'static str,
    /// Empty if the classes of tokens are not known.
    pub rows: Vec<(String, usize, f64)>,
}

/// What is said of a distribution whose classes are not known.
pub(super) const NO_CLASSES: &str =
    "not available: the reference has no tokenizer here, and the table no text of its tokens";

impl Distribution {
    pub fn titles(&self) -> [&'static str; 3] {
        [self.column, "tokens", "mean |Δ|"]
    }

    /// The table as text, or why there is none.
    fn text(&self) -> String {
        if self.rows.is_empty() {
            return format!("{NO_CLASSES}\n");
        }
        let cells = |(name, n, mean): &(String, usize, f64)| {
            vec![one_line(name).into_owned(), n.to_string(), nats(*mean)]
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(cells).collect();
        text_table(&self.titles(), &rows)
    }
}

/// Most prompts in a list.
const MOST_PROMPTS: usize = 5;

pub(super) fn nats(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size < 1e-3 {
        format!("{value:.1e}")
    } else {
        format!("{value:.4}")
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl LogProbDifference<'_> {
    /// Writes JSON.
    ///
    /// # Errors
    /// When the target cannot be written.
    pub fn write_json(&self, to: &mut impl Write) -> io::Result<()> {
        write_pretty(&Document::of(self), to)
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = (&'static str, &str, &SideJudgement)> {
        let names = [Some(self.a), self.b];
        let judged = self.comparison.sides.iter();
        let sides = ["A", "B"].into_iter().zip(names).zip(judged);
        sides.filter_map(|((letter, name), judged)| Some((letter, name?, judged.as_ref()?)))
    }

    /// The lines that say what was found, most important first.
    pub(super) fn found(&self) -> Vec<String> {
        let compared = self.comparison;
        let mut lines = Vec::new();
        for apart in compared.ids.iter().take(MOST_PROMPTS) {
            lines.push(format!("prompt {}: {}", apart.prompt, apart.words()));
        }
        if compared.ids.len() > MOST_PROMPTS {
            lines.push(format!(
                "{} prompts more whose ids differ",
                compared.ids.len() - MOST_PROMPTS
            ));
        }
        for (letter, _, side) in self.sides() {
            lines.push(verdict(letter, side));
        }
        if self.sides().next().is_none()
            && let Some(both) = &compared.between
        {
            let limit = nats(compared.floor.limit());
            lines.push(if both.parts {
                let worst = both.worst.as_ref().map(|(prompt, at)| format!(", most at token {at} of prompt {prompt}"));
                format!(
                    "A and B differ by {} nats on average, more than the {limit} that bf16 usually explains{}; --reference CHECKPOINT tells who departs, and why",
                    nats(both.mean_abs),
                    worst.unwrap_or_default()
                )
            } else {
                format!("A and B agree: {} nats apart on average, within the {limit} of rounding", nats(both.mean_abs))
            });
        }
        lines
    }

    pub(super) fn figures(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let titles = vec![
            "",
            "tokens",
            "mean |Δ|",
            "largest |Δ|",
            "bias",
            "KL",
            "arithmetic",
            "beyond rounding",
        ];
        let mut rows: Vec<Vec<String>> = self
            .sides()
            .map(|(letter, _, side)| {
                vec![
                    format!("{letter} − reference"),
                    side.n_tokens.to_string(),
                    nats(side.mean_abs),
                    nats(side.max_abs),
                    nats(side.bias),
                    nats(side.kl.nats),
                    side.level.label().to_owned(),
                    side.n_beyond.to_string(),
                ]
            })
            .collect();
        if let Some(both) = &self.comparison.between {
            rows.push(vec![
                "B − A".to_owned(),
                both.n_tokens.to_string(),
                nats(both.mean_abs),
                nats(both.max_abs),
                String::new(),
                nats(both.kl.nats),
                String::new(),
                String::new(),
            ]);
        }
        (titles, rows)
    }

    /// Tables of where the sides depart: by position, by likelihood, by kind of token, by prompt.
    pub(super) fn distributions(&self) -> Vec<Distribution> {
        let mut all = Vec::new();
        for (letter, _, side) in self.sides().filter(|(.., side)| side.departs) {
            let positions = side.by_position.iter();
            let positions = positions.map(|(from, n, mean)| (from.to_string(), *n, *mean));
            all.push(Distribution {
                title: format!("{letter} by position"),
                column: "from token",
                rows: positions.collect(),
            });
            let mut most = String::new();
            let likelihoods = side.by_likelihood.iter().map(|(least, n, mean)| {
                let name = if *least > 0.0 {
                    format!("p ≥ {least}")
                } else {
                    format!("p < {most}")
                };
                most = least.to_string();
                (name, *n, *mean)
            });
            all.push(Distribution {
                title: format!("{letter} by the reference's p"),
                column: "p",
                rows: likelihoods.collect(),
            });
            let kinds = side.by_kind.iter().flatten();
            all.push(Distribution {
                title: format!("{letter} by kind of token"),
                column: "kind",
                rows: kinds
                    .map(|(kind, n, mean)| (kind.label().to_owned(), *n, *mean))
                    .collect(),
            });
            if side.by_prompt.len() > 1 {
                let mut prompts = side.by_prompt.clone();
                prompts.sort_by(|a, b| b.2.total_cmp(&a.2));
                prompts.truncate(MOST_PROMPTS);
                all.push(Distribution {
                    title: format!("{letter} by prompt, the largest first"),
                    column: "prompt",
                    rows: prompts,
                });
            }
        }
        all
    }

    pub(super) fn floor_line(&self) -> String {
        let floor = &self.comparison.floor;
        if let Some(given) = floor.given {
            return format!(
                "limit of the mean difference: {} nats, as given",
                nats(given)
            );
        }
        let how = if floor.is_measured {
            "measured on the reference with rounded residuals and logits"
        } else {
            "what is usual; --reference measures it"
        };
        format!(
            "rounding explains on average {} nats in f32, {} in f16, {} in bf16 ({how})",
            nats(floor.f32),
            nats(floor.f16),
            nats(floor.bf16)
        )
    }

    pub(super) fn names(&self) -> Vec<String> {
        let mut names = vec![format!("A: {}", self.a)];
        names.extend(self.b.map(|b| format!("B: {b}")));
        names.extend(
            self.reference
                .map(|reference| format!("reference: {reference}")),
        );
        names
    }

    /// Text for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in self.found() {
            let _ = writeln!(text, "{}", one_line(&line));
        }
        text.push('\n');
        for line in self.names() {
            let _ = writeln!(text, "{}", one_line(&line));
        }
        for note in &self.notes {
            let _ = writeln!(text, "{}", one_line(note));
        }
        let _ = writeln!(text, "{}", self.floor_line());
        text.push('\n');
        let (titles, rows) = self.figures();
        text += &text_table(&titles, &rows);
        if let Some(both) = &self.comparison.between {
            let [least, mean, most] = both.ratios;
            let _ = writeln!(
                text,
                "importance ratios p(B) / p(A): {least:.4} to {most:.4}, mean {mean:.4}"
            );
        }
        for own in self.distributions() {
            let _ = write!(text, "\n{}\n{}", own.title, own.text());
        }
        text
    }

    /// Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# Log-probabilities compared\n\n");
        for line in self.found() {
            let _ = writeln!(text, "- {}", one_line(&line));
        }
        text.push('\n');
        for line in self
            .names()
            .iter()
            .chain(&self.notes)
            .chain([&self.floor_line()])
        {
            let _ = writeln!(text, "- {}", one_line(line));
        }
        let (titles, rows) = self.figures();
        let _ = write!(text, "\n```\n{}```\n", text_table(&titles, &rows));
        for own in self.distributions() {
            let _ = write!(text, "\n## {}\n\n```\n{}```\n", own.title, own.text());
        }
        text
    }
}

/// One sentence about a side.
fn verdict(letter: &str, side: &SideJudgement) -> String {
    if !side.departs {
        let within = match side.within.as_deref() {
            Some("kv=f16") => " with an f16 cache".to_owned(),
            Some(words) => format!(" with {words}"),
            None => String::new(),
        };
        return format!(
            "{letter} agrees with the reference: {} nats apart on average, as {} arithmetic{within} is",
            nats(side.mean_abs),
            side.level.label()
        );
    }
    let from = side.first.as_ref().map(|first| {
        format!(
            " from token {} of prompt {} on",
            first.position, first.prompt
        )
    });
    let mut said = format!(
        "{letter} departs from the reference{}, by {} nats on average",
        from.unwrap_or_default(),
        nats(side.mean_abs)
    );
    if let Some(cause) = &side.cause {
        let begins = cause
            .first
            .as_ref()
            .map(|first| format!("; begins at token {}", first.position));
        let is = if cause.is_of_numbers {
            format!("{letter}:")
        } else {
            format!("{letter} = this model with")
        };
        let rest = if cause.leaves_rounding && cause.explains < 0.95 {
            ", the rest is rounding"
        } else {
            ""
        };
        let _ = write!(
            said,
            ". {is} {} (explains {} of the difference{rest}{})",
            cause.reading,
            percent(cause.explains),
            begins.unwrap_or_default()
        );
        if !cause.rivals.is_empty() {
            let _ = write!(said, "; as well explained by {}", cause.rivals.join(", "));
        }
        if !cause.advice.is_empty() {
            let _ = write!(said, ": {}", cause.advice);
        }
    } else if let Some(search) = &side.search {
        let left_out = match search.n_left_out {
            0 => String::new(),
            n => format!(" ({n} more were left out, since a search may not take longer)"),
        };
        let _ = match (&search.best, &search.not_tried) {
            _ if !search.like.is_empty() => write!(
                said,
                ". Cannot be told apart from 16-bit arithmetic with {}",
                search.like.join(", or with ")
            ),
            (_, Some(why)) => write!(said, ". No cause found: {why}"),
            (Some((name, share)), None) => write!(
                said,
                ". None of {} explanations holds{left_out}; the nearest, {name}, explains {}: another model, other weights, or something that was not tried",
                search.n_tried,
                percent(*share)
            ),
            (None, None) => write!(
                said,
                ". None of {} explanations takes anything away{left_out}: another model or other tokens",
                search.n_tried
            ),
        };
    }
    said
}
