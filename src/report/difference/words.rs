//! A comparison in words: a one-line answer first, then tables.

use std::fmt::Write as _;

use attnscope_checkpoint::counted::counted;
use attnscope_compare::{Cause, HookDifference, KnobKind, KnobValue, Side, TensorDifference};
use attnscope_forward::Hook;
use attnscope_run::Randomness;
use attnscope_spec::{Place, Stack};

use super::Difference;
use super::prompt_words::{heads, predictions, statistics};
use crate::text_table::{digits, text_table};

/// Most tensors listed in text; the JSON has all of them.
const MOST_TENSORS: usize = 12;

/// Longest value of a setting in a table, in characters.
const LONGEST_VALUE: usize = 60;

/// Most causes named in the first line.
const MOST_CAUSES: usize = 3;

/// A table with its title.
pub(super) struct Section {
    pub title: String,
    /// A sentence under the title; empty where there is none.
    pub said: String,
    pub titles: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Difference<'_> {
    /// One line: where the two sides first differ and why, or that they are the same.
    pub fn headline(&self) -> String {
        if let Some(unjudged) = self.unjudged() {
            return format!("{unjudged} · {}", self.where_first());
        }
        let why = self.why();
        match why.as_str() {
            "" => self.where_first(),
            why => format!("{} · {why}", self.where_first()),
        }
    }

    /// Returns ever shorter versions of the headline, for a line with little room; the omitted parts are shown next to it.
    pub fn headlines(&self) -> Vec<String> {
        let mut all = vec![self.headline()];
        if let Some(unjudged) = self.unjudged() {
            all.extend([
                unjudged,
                "cannot be judged: recorded with dropout".to_owned(),
            ]);
            return all;
        }
        let where_first = self.where_first();
        match self.comparison.first().filter(|_| self.refused.is_none()) {
            Some(first) => {
                let place = place(first);
                let sizes = match (first.nonfinite, first.n_one_sided) {
                    (None, 0) => {
                        let sizes = [first.relative, first.tolerance].map(digits);
                        format!(": {} > {}", sizes[0], sizes[1])
                    }
                    _ => String::new(),
                };
                let short = format!("first at {place}{sizes}");
                let why = self.why();
                if !why.is_empty() {
                    all.push(format!("{short} · {why}"));
                }
                all.extend([where_first, short]);
                let place = place.split(" (").next().unwrap_or_default();
                all.push(format!("first at {place}{sizes}"));
            }
            None => {
                let short = where_first.split(": ").next().unwrap_or_default();
                all.push(short.to_owned());
            }
        }
        all
    }

    /// Says where the two sides first differ, or that they are the same.
    fn where_first(&self) -> String {
        let found = self.comparison;
        if let Some(refused) = &self.refused {
            return format!("cannot be run side by side: {refused}");
        }
        let Some(first) = found.first() else {
            return self.headline_of_same();
        };
        let mut line = format!("differs first at {}", place(first));
        match first.nonfinite {
            Some(side) => {
                let side = if side == Side::A { "A" } else { "B" };
                let _ = write!(line, ": {side} holds a NaN or an infinity there");
            }
            None if first.n_one_sided > 0 => {
                let _ = write!(
                    line,
                    ": {} visible on one side only",
                    counted(first.n_one_sided, "cell")
                );
            }
            None => {
                let _ = write!(
                    line,
                    ": relative {}, tolerance {}",
                    digits(first.relative),
                    digits(first.tolerance)
                );
            }
        }
        line
    }

    /// Says what may cause the first difference; empty if nothing is known.
    fn why(&self) -> String {
        if self.refused.is_some() {
            return String::new();
        }
        let causes = self.comparison.causes();
        let mut said: Vec<String> = causes.iter().take(MOST_CAUSES).map(cause).collect();
        if self.comparison.first().is_some() {
            let random = self
                .randomness_by_side()
                .filter(|(_, randomness)| randomness.is_random());
            let told = random.filter_map(|(side, randomness)| Some((side, randomness.words()?)));
            said.extend(told.map(|(side, words)| format!("{side} was {words}")));
        }
        let mut line = said.join(", ");
        if causes.len() > MOST_CAUSES {
            let _ = write!(line, " and {} more", causes.len() - MOST_CAUSES);
        }
        line
    }

    /// Returns both sides with what is known about dropout in them.
    fn randomness_by_side(&self) -> impl Iterator<Item = (&'static str, &Randomness)> {
        ["A", "B"].into_iter().zip(&self.comparison.randomness)
    }

    /// Says why a difference is not judged: dropout alone may explain it.
    fn unjudged(&self) -> Option<String> {
        let (side, randomness) = self.comparison.random_side()?;
        let side = if side == Side::A { "A" } else { "B" };
        Some(format!(
            "cannot be judged: {side} was {}",
            randomness.words()?
        ))
    }

    /// Returns all remarks: those passed in, and notes about dropout in recordings.
    pub(super) fn all_notes(&self) -> Vec<String> {
        let told = self.randomness_by_side().filter_map(|(side, randomness)| {
            let words = randomness.words()?;
            Some(match randomness.advice() {
                Some(advice) => format!("{side} was {words}: {advice}"),
                None => format!("{side} was {words}"),
            })
        });
        self.notes.iter().cloned().chain(told).collect()
    }

    fn headline_of_same(&self) -> String {
        let found = self.comparison;
        let precision = found.floors.precision.label();
        if found.is_same() {
            let n = found.hooks.len();
            if n == 0 {
                return "the same statistics within the tolerance".to_owned();
            }
            let n_left_out = found.left_out.iter().map(Vec::len).sum::<usize>();
            let where_mapped = match n_left_out {
                0 => "",
                _ => " in the layers that are mapped",
            };
            return if found.floors.base.is_finite() {
                format!(
                    "the same{where_mapped}: {n} hooks within the tolerance of {} ({precision})",
                    digits(found.floors.base)
                )
            } else {
                format!(
                    "the same{where_mapped} apart from {precision}: the differences of {n} hooks are listed below"
                )
            };
        }
        let mut parts = Vec::new();
        let knobs = found
            .knobs
            .iter()
            .filter(|knob| knob.kind != KnobKind::Label);
        parts.extend(knobs.take(MOST_CAUSES).map(ToString::to_string));
        let tensors = found.weights.differ.iter().filter(|tensor| tensor.counts);
        let n_tensors = tensors.count() + found.weights.missing_roles.len();
        if n_tensors > 0 {
            let tensors = found.weights.differ.iter().filter(|tensor| tensor.counts);
            let named = tensors.filter(|tensor| tensor.relation.is_some());
            parts.extend(named.take(MOST_CAUSES).map(|t| cause(&Cause::Tensor(t))));
            parts.push(match n_tensors {
                1 => "1 tensor differs".to_owned(),
                n => format!("{n} tensors differ"),
            });
        }
        if found.hooks.is_empty() && parts.is_empty() {
            return "differs: statistics of heads lie beyond the tolerance".to_owned();
        }
        if found.hooks.is_empty() {
            return format!("differs: {}", parts.join(", "));
        }
        if found.floors.of_hooks.is_finite() {
            format!("differs, but not on this prompt: {}", parts.join(", "))
        } else {
            let said = parts.join(", ");
            format!("differs by more than {precision} explain: {said}")
        }
    }

    /// Returns the whole comparison as text for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.headline());
        let _ = writeln!(text, "A: {}\nB: {}", self.a, self.b);
        for note in self.all_notes() {
            let _ = writeln!(text, "{note}");
        }
        for section in self.sections() {
            let _ = write!(text, "\n{}\n", section.title);
            if !section.said.is_empty() {
                let _ = writeln!(text, "{}", section.said);
            }
            if !section.rows.is_empty() {
                let titles: Vec<&str> = section.titles.iter().map(String::as_str).collect();
                text.push_str(&text_table(&titles, &section.rows));
            }
        }
        text
    }

    /// Returns the tables, the most informative ones first.
    pub(super) fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        sections.extend(self.knobs());
        sections.extend(self.weights());
        sections.extend(self.isolated());
        sections.extend(self.hooks());
        let prompts = &self.comparison.prompts;
        for prompt in prompts {
            // With several prompts, titles name the prompt.
            let of = if prompts.len() > 1 {
                format!(" · {}", prompt.id)
            } else {
                String::new()
            };
            sections.extend(predictions(prompt, &of));
            sections.extend(heads(prompt, &of));
            if self.comparison.hooks.is_empty() {
                sections.extend(statistics(prompt, &of));
            }
        }
        sections
    }

    fn knobs(&self) -> Option<Section> {
        let rows: Vec<Vec<String>> = self
            .comparison
            .knobs
            .iter()
            .map(|knob| vec![knob.knob.clone(), short(&knob.a), short(&knob.b)])
            .collect();
        section("Knobs", "", &["knob", "A", "B"], rows)
    }

    fn weights(&self) -> Option<Section> {
        let weights = &self.comparison.weights;
        let mut said = Vec::new();
        for (side, names) in [("A", &weights.only_a), ("B", &weights.only_b)] {
            if !names.is_empty() {
                let mut shown: Vec<&str> = names
                    .iter()
                    .take(MOST_TENSORS)
                    .map(String::as_str)
                    .collect();
                if names.len() > MOST_TENSORS {
                    shown.push("…");
                }
                said.push(format!("only in {side}: {}", shown.join(", ")));
            }
        }
        if weights.differ.len() > MOST_TENSORS {
            said.push(format!(
                "{} tensors differ; the first {MOST_TENSORS} are shown",
                weights.differ.len()
            ));
        }
        let rows = weights.differ.iter().take(MOST_TENSORS).map(|tensor| {
            vec![
                tensor.name.clone(),
                digits(tensor.relative),
                digits(tensor.max_abs),
                relation(tensor),
                parts(tensor),
            ]
        });
        let titles = ["tensor", "relative", "largest", "relation", "where"];
        section("Weights", &said.join("; "), &titles, rows.collect())
    }

    fn isolated(&self) -> Option<Section> {
        let rows = self.comparison.isolated.iter().map(|layer| {
            let place = Place::layer(layer.stack, layer.layer_idx);
            vec![place.to_string(), digits(layer.relative)]
        });
        if self.comparison.isolated.is_empty() {
            return None;
        }
        let said = "These layers of B differ when they run on A's input; the others only inherit a difference.";
        let titles = ["layer", "relative"];
        section(
            "Layers that differ given A's input",
            said,
            &titles,
            rows.collect(),
        )
    }

    /// One row per layer, one column per hook.
    fn hooks(&self) -> Option<Section> {
        let hooks = &self.comparison.hooks;
        let names: Vec<Hook> = Hook::ALL
            .into_iter()
            .filter(|hook| *hook != Hook::Logits && hooks.iter().any(|h| h.hook == *hook))
            .collect();
        let mut places: Vec<(Stack, usize)> = Vec::new();
        for hook in hooks {
            if let (Some(stack), Some(layer_idx)) = (hook.stack, hook.layer_idx)
                && !places.contains(&(stack, layer_idx))
            {
                places.push((stack, layer_idx));
            }
        }
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (stack, layer_idx) in places {
            let mut row = vec![Place::layer(stack, layer_idx).to_string()];
            for name in &names {
                let found = hooks.iter().find(|h| {
                    (h.hook, h.stack, h.layer_idx) == (*name, Some(stack), Some(layer_idx))
                });
                row.push(found.map_or_else(|| "–".to_owned(), size));
            }
            rows.push(row);
        }
        let others = hooks.iter().filter(|hook| hook.layer_idx.is_none());
        let others: Vec<String> = others
            .map(|hook| format!("{} {}", place(hook), size(hook)))
            .collect();
        if hooks.is_empty() {
            return None;
        }
        let mut titles = vec!["layer"];
        titles.extend(names.iter().map(|hook| hook.name()));
        let said = format!(
            "Relative differences ‖a − b‖/‖a‖; ! marks those beyond their tolerance. {}",
            others.join(" · ")
        );
        section("Hooks", &said, &titles, rows)
    }
}

/// Formats a setting's value, cut to the width of a column.
fn short(value: &KnobValue) -> String {
    let value = value.to_string();
    if value.chars().count() <= LONGEST_VALUE {
        return value;
    }
    let kept: String = value.chars().take(LONGEST_VALUE - 1).collect();
    format!("{kept}…")
}

pub(super) fn section(
    title: &str,
    said: &str,
    titles: &[&str],
    rows: Vec<Vec<String>>,
) -> Option<Section> {
    let is_empty = rows.is_empty() && said.is_empty();
    (!is_empty).then(|| Section {
        title: title.to_owned(),
        said: said.to_owned(),
        titles: titles.iter().map(|title| (*title).to_owned()).collect(),
        rows,
    })
}

fn size(hook: &HookDifference) -> String {
    let mark = if hook.is_same { "" } else { "!" };
    format!("{}{mark}", digits(hook.relative))
}

/// Formats the place of a difference: `rot_q of L0 (head 3, query 7)`.
fn place(found: &HookDifference) -> String {
    let mut place = found.name().to_owned();
    match (found.stack, found.layer_idx) {
        (Some(stack), Some(layer_idx)) => {
            let _ = write!(place, " of {}", Place::layer(stack, layer_idx));
        }
        (Some(stack), None) => {
            let _ = write!(place, " of the {}", stack.label().unwrap_or("model"));
        }
        _ => {}
    }
    let parts = [
        ("head", found.head_idx),
        ("query", found.query_idx),
        ("key", found.key_idx),
    ];
    let parts = parts
        .iter()
        .filter_map(|(what, idx)| Some(format!("{what} {}", (*idx)?)));
    let parts: Vec<String> = parts.collect();
    if !parts.is_empty() && !found.is_same {
        let _ = write!(place, " ({})", parts.join(", "));
    }
    place
}

fn cause(cause: &Cause<'_>) -> String {
    match cause {
        Cause::Knob(knob) => knob.to_string(),
        Cause::Tensor(tensor) => match tensor.relation {
            Some(_) => format!("{} {}", tensor.name, relation(tensor)),
            None => {
                let parts = parts(tensor);
                let of = if parts.is_empty() {
                    String::new()
                } else {
                    format!(" in {parts}")
                };
                format!("{} differs{of}", tensor.name)
            }
        },
        Cause::Missing(name) => format!("{name} is on one side only"),
    }
}

fn relation(tensor: &TensorDifference) -> String {
    let relation = tensor.relation.map_or("–", |relation| relation.label());
    match tensor.factor {
        Some(factor) => format!("{relation} by {}", digits(factor)),
        None => relation.to_owned(),
    }
}

/// Says which heads or rows of a tensor differ.
fn parts(tensor: &TensorDifference) -> String {
    if !tensor.heads.is_empty() && tensor.heads.len() <= 4 {
        let heads: Vec<String> = tensor.heads.iter().map(usize::to_string).collect();
        let word = if heads.len() == 1 { "head" } else { "heads" };
        return format!("{word} {}", heads.join(", "));
    }
    let rows: Vec<String> = tensor
        .rows
        .iter()
        .take(4)
        .map(|rows| match rows.len() {
            1 => rows.start.to_string(),
            _ => format!("{}-{}", rows.start, rows.end - 1),
        })
        .collect();
    match (rows.len(), tensor.rows.len()) {
        (0, _) => String::new(),
        (shown, all) if shown < all => format!("rows {}, …", rows.join(", ")),
        _ => format!("rows {}", rows.join(", ")),
    }
}
