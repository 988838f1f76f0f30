//! A comparison of log-probabilities as one self-contained HTML file: who departs, why, and every token shaded by how far it is off.

use attnscope_checkpoint::counted::counted;
use attnscope_compare::logprobs::{LogProbs, TokenGap};
use maud::{Markup, html};

use super::difference::{Distribution, LogProbDifference, NO_CLASSES, nats};
use crate::html::colour::Colours;
use crate::html::shell;
use crate::html::tokens::visible;

/// Most prompts of a side, and most tokens of a prompt, that are shown.
const MOST_PROMPTS: usize = 24;
const MOST_TOKENS: usize = 1024;

/// Tokens shown in front of the first one beyond rounding, where a prompt is too long to be shown whole.
const IN_FRONT: usize = 64;

/// Least difference of the darkest shade, in nats.
const LEAST_FULL: f64 = 1e-6;

/// Tokens of one table, and what they are shaded by.
struct Shaded<'a> {
    title: String,
    /// Names of the two that are compared.
    names: [&'static str; 2],
    table: &'a LogProbs,
    tokens: &'a [TokenGap],
}

impl LogProbDifference<'_> {
    /// Returns one HTML file without network access; its script sorts and filters the tables.
    pub fn html(&self) -> String {
        let lines = self.found();
        let (titles, figures) = self.figures();
        let shaded = self.shaded();
        // One scale for all, so that two sides can be told apart by their shades.
        let all = shaded.iter().flat_map(|own| own.tokens);
        let full = all.fold(LEAST_FULL, |most, gap| most.max(gap.nats().abs()));
        let title = match self.b {
            Some(b) => format!("{} and {b}", self.a),
            None => self.a.to_owned(),
        };
        let body = html! {
            header {
                h1 { "Log-probabilities compared" }
                @for line in &lines { p { b { (line) } } }
                @for name in self.names() { p { (name) } }
                @for note in &self.notes { p.note { "Note: " (note) } }
                p.quiet { (self.floor_line()) }
            }
            main {
                section {
                    h2 { "Differences in nats" }
                    div.scroll { table.figures {
                        (headings(&titles))
                        tbody { @for row in &figures {
                            tr {
                                th scope="row" { (row[0]) }
                                @for cell in &row[1..] { td { (cell) } }
                            }
                        } }
                    } }
                    @if let Some(both) = &self.comparison.between {
                        p {
                            "Importance ratios p(B) / p(A): "
                            (format!("{:.4} to {:.4}, mean {:.4}", both.ratios[0], both.ratios[2], both.ratios[1]))
                        }
                    }
                }
                @for own in self.distributions() { (distribution(&own)) }
                @for own in &shaded { (tokens(own, full)) }
            }
            footer { "attnscope " (env!("CARGO_PKG_VERSION")) }
        };
        shell::page(&title, &body)
    }

    /// Each side against the reference, or the two against each other where there is none.
    fn shaded(&self) -> Vec<Shaded<'_>> {
        let sides = self.comparison.sides.iter().zip(self.tables);
        let judged = ["A", "B"].into_iter().zip(sides);
        let mut all: Vec<Shaded<'_>> = judged
            .filter_map(|(letter, (side, table))| {
                Some(Shaded {
                    title: format!("Tokens of {letter}"),
                    names: [letter, "reference"],
                    table: table?,
                    tokens: &side.as_ref()?.tokens,
                })
            })
            .collect();
        if let (true, Some(both), Some(table)) =
            (all.is_empty(), &self.comparison.between, self.tables[0])
        {
            all.push(Shaded {
                title: "Tokens of A and B".to_owned(),
                names: ["B", "A"],
                table,
                tokens: &both.tokens,
            });
        }
        all
    }
}

fn headings(titles: &[&str]) -> Markup {
    html! {
        thead { tr {
            th scope="col" { (titles[0]) }
            @for title in &titles[1..] { th.n scope="col" { (title) } }
        } }
    }
}

fn distribution(of: &Distribution) -> Markup {
    let most = of.rows.iter().map(|row| row.2).fold(0.0, f64::max);
    html! {
        section {
            h2 { (of.title) }
            @if of.rows.is_empty() {
                p { (NO_CLASSES) }
            } @else {
                div.scroll { table.figures {
                    (headings(&of.titles()))
                    tbody { @for (name, n, mean) in &of.rows {
                        tr {
                            th scope="row" { (name) }
                            td { (n) }
                            td class=(Colours::class_of_loss(mean / most.max(f64::MIN_POSITIVE))) { (nats(*mean)) }
                        }
                    } }
                } }
            }
        }
    }
}

/// How dark a difference is: small ones would vanish beside a large one if shades were proportional.
fn share(gap: f64, full: f64) -> f64 {
    (gap.abs() / full).sqrt()
}

fn tokens(of: &Shaded<'_>, full: f64) -> Markup {
    let sum = |prompt_idx: usize| -> f64 {
        let own = of.tokens.iter().filter(|gap| gap.prompt_idx == prompt_idx);
        own.map(|gap| gap.nats().abs()).sum()
    };
    // The prompts that are farthest off, in the order of the table.
    let mut order: Vec<(usize, f64)> = (0..of.table.prompts.len())
        .map(|idx| (idx, sum(idx)))
        .collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let n_more = order.len().saturating_sub(MOST_PROMPTS);
    let mut shown: Vec<usize> = order
        .into_iter()
        .map(|(idx, _)| idx)
        .take(MOST_PROMPTS)
        .collect();
    shown.sort_unstable();
    html! {
        section {
            h2 { (of.title) }
            p.quiet {
                "Shaded by the square root of |Δ|, full at " (nats(full)) " nats; underlined where Δ is beyond rounding. "
                "Point at a token for its values."
            }
            @for idx in shown { (prompt(of, idx, full)) }
            @if n_more > 0 {
                p.quiet { (counted(n_more, "prompt")) " that are nearer to the " (of.names[1]) " are left out." }
            }
        }
    }
}

fn prompt(of: &Shaded<'_>, prompt_idx: usize, full: f64) -> Markup {
    let prompt = &of.table.prompts[prompt_idx];
    let gaps: Vec<&TokenGap> = of
        .tokens
        .iter()
        .filter(|gap| gap.prompt_idx == prompt_idx)
        .collect();
    let first = gaps
        .iter()
        .find(|gap| gap.is_beyond)
        .map(|gap| gap.position);
    let n = prompt.tokens.len();
    let begin = match first {
        Some(first) if n > MOST_TOKENS => first.saturating_sub(IN_FRONT).min(n - MOST_TOKENS),
        _ => 0,
    };
    let end = n.min(begin + MOST_TOKENS);
    let gap_at = |position: usize| {
        let at = gaps.binary_search_by_key(&position, |gap| gap.position);
        at.ok().map(|at| gaps[at])
    };
    let label = |position: usize| {
        let token = &prompt.tokens[position];
        let id = || token.id.map_or_else(|| "?".to_owned(), |id| id.to_string());
        visible(&token.piece.clone().unwrap_or_else(id))
    };
    html! {
        h4 {
            "Prompt " span.name { (prompt.name) }
            span.quiet {
                " · " (counted(n, "token"))
                @if let Some(first) = first { " · beyond rounding from token " (first) " on" }
            }
        }
        p.tokens {
            @if begin > 0 { (counted(begin, "token")) " before … " }
            @for position in begin..end {
                @match gap_at(position) {
                    Some(gap) => {
                        span title=(told(of, prompt_idx, gap)) class=(Colours::class_of_loss(share(gap.nats(), full))) {
                            @if gap.is_beyond { u { (label(position)) } } @else { (label(position)) }
                        }
                    }
                    None => { span title={ (position) ": no value" } { (label(position)) } }
                }
            }
            @if end < n { " … and " (n - end) " more" }
        }
    }
}

/// The values of a token, as they are shown when it is pointed at.
fn told(of: &Shaded<'_>, prompt_idx: usize, gap: &TokenGap) -> String {
    let id = of.table.prompts[prompt_idx].tokens[gap.position].id;
    let id = id.map_or_else(String::new, |id| format!("id {id}, "));
    let [side, other] = of.names;
    format!(
        "{}: {id}{side} {:.4}, {other} {:.4}, Δ {}",
        gap.position,
        gap.side,
        gap.other,
        nats(gap.nats())
    )
}
