//! The report as Markdown, short enough for the comment of a pull request.

use std::fmt::Write as _;
use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::STATISTICS;
use attnscope_checks::{Severity, Status};
use attnscope_spec::Stack;

use super::document::{ModelRecord, Report};
use super::key_statistics::{cell, heading, of_heads, of_layers, over_prompts, stacks};
use super::named_place;
use super::readable::{Found, Readable, leading};
use super::verdict_text::figure;

/// Most characters of a GitHub comment; details of layers that would not fit are left out.
pub(super) const MOST_CHARACTERS: usize = 60_000;

/// Most rows in the tables of prompts and of findings.
const MOST_PROMPTS: usize = 20;

const MOST_FINDINGS: usize = 30;

/// Writes the report.
///
/// # Errors
/// When the target cannot be written.
pub fn write_markdown(readable: &Readable, to: &mut impl Write) -> io::Result<()> {
    let report = &readable.report;
    let mut text = format!(
        "## {}\n\n{}\n",
        code(&report.model.name),
        facts(&report.model)
    );
    if !report.what_if.is_empty() {
        let on: Vec<String> = report.what_if.iter().map(|what| code(what)).collect();
        let _ = write!(text, "\nWhat if: {}\n", on.join(", "));
    }
    for note in &report.notes {
        let _ = write!(text, "\nNote: {}\n", escaped(note));
    }
    text.push_str(&prompts(report));
    text.push_str(&findings(readable));
    text.push_str(&layers(report));
    let mut n_left_out = 0;
    for details in details(report) {
        if text.len() + details.len() <= MOST_CHARACTERS {
            text.push_str(&details)
        } else {
            n_left_out += 1
        }
    }
    if n_left_out > 0 {
        let _ = write!(
            text,
            "\nTo fit a comment, this leaves out the heads of {}; `--format csv` has them all.\n",
            counted(n_left_out, "layer")
        );
    }
    to.write_all(text.as_bytes())
}

fn facts(model: &ModelRecord) -> String {
    let layers = match model.n_encoder_layers {
        Some(n) => format!("{n} + {}", counted(model.n_layers, "layer")),
        None => counted(model.n_layers, "layer"),
    };
    let kv = if model.n_kv_heads == model.n_heads {
        String::new()
    } else {
        format!(" ({} kv)", model.n_kv_heads)
    };
    let sizes = [
        ("d_head", model.d_head),
        ("d_model", model.d_model),
        ("d_vocab", model.d_vocab),
    ];
    // A recording does not tell all of them.
    let sizes = sizes.iter().filter(|(_, size)| *size > 0);
    let sizes: String = sizes
        .map(|(name, size)| format!(" · {name} {size}"))
        .collect();
    let dtype = if model.dtype.is_empty() {
        String::new()
    } else {
        format!(" · {}", escaped(&model.dtype))
    };
    format!(
        "{} · {layers} × {}{kv}{sizes}{dtype}",
        escaped(model.family),
        counted(model.n_heads, "head"),
    )
}

fn prompts(report: &Report) -> String {
    let mut text = "\n| prompt | tokens | loss (nats) |\n|---|--:|--:|\n".to_owned();
    for prompt in report.prompts.iter().take(MOST_PROMPTS) {
        let n_tokens = match &prompt.decoder_tokens {
            Some(decoder) => format!("{} → {}", prompt.tokens.len(), decoder.len()),
            None => prompt.tokens.len().to_string(),
        };
        let loss = prompt.loss.map_or("–".to_owned(), figure);
        let _ = writeln!(text, "| {} | {n_tokens} | {loss} |", code_cell(&prompt.id));
    }
    let n_more = report.prompts.len().saturating_sub(MOST_PROMPTS);
    if n_more > 0 {
        let _ = write!(text, "\n… and {n_more} more prompts\n");
    }
    for prompt in report.prompts.iter().take(MOST_PROMPTS) {
        if let Some(written) = &prompt.written {
            let n = counted(written.tokens.len(), "token");
            let wrote = code(&written.text);
            let _ = write!(
                text,
                "\n**{}**: the model wrote {n}: {wrote}\n",
                code(&prompt.id)
            );
        }
    }
    for prompt in &report.prompts {
        if let Some(found) = &prompt.first_nonfinite {
            let _ = write!(text, "\n**{}**: {}\n", code(&prompt.id), escaped(found));
            break;
        }
    }
    text
}

fn findings(readable: &Readable) -> String {
    let findings = readable.findings();
    let statuses = readable.statuses();
    let names = |wanted: Status| -> Vec<String> {
        let with = statuses.iter().filter(|(_, status, _)| *status == wanted);
        with.map(|(check, _, _)| code(check.id)).collect()
    };
    let n = |severity| {
        let of = |found: &&Found<'_>| found.finding.severity == severity;
        findings.iter().filter(of).count()
    };
    let mut text = format!(
        "\n### Findings: {}, {}, {} for information\n",
        counted(n(Severity::Error), "error"),
        counted(n(Severity::Warning), "warning"),
        n(Severity::Info)
    );
    if !findings.is_empty() {
        text.push_str(
            "\n| | check | place | seen | value | threshold |\n|---|---|---|---|--:|--:|\n",
        );
    }
    let n_all = findings.len();
    let (mut shown, _) = leading(findings);
    shown.truncate(MOST_FINDINGS);
    for found in &shown {
        let finding = found.finding;
        let unit = match finding.unit {
            "" => String::new(),
            unit => format!(" {}", escaped(unit)),
        };
        let prompt = match readable.report.prompts.len() {
            1 => String::new(),
            _ => format!(
                " (prompt {}, of {})",
                code_cell(found.prompt),
                found.n_prompts
            ),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {}{prompt} | {}{unit} | {}{unit} |",
            finding.severity.label(),
            code_cell(finding.check),
            code_cell(&named_place::module(&finding.place)),
            escaped(&finding.evidence),
            figure(finding.value),
            figure(finding.threshold)
        );
    }
    if n_all > shown.len() {
        let n_more = n_all - shown.len();
        let _ = write!(
            text,
            "\n… and {n_more} more findings; `--format html` has them all\n"
        );
    }
    let others = [
        ("Undecidable", Status::Undecidable),
        ("Not tested in a report", Status::NotTested),
        ("Not applicable", Status::NotApplicable),
    ];
    for (what, status) in others {
        let names = names(status);
        if !names.is_empty() {
            let _ = write!(text, "\n{what}: {}\n", names.join(", "));
        }
    }
    text
}

fn layers(report: &Report) -> String {
    let key = of_layers();
    let over = match report.prompts.len() {
        1 => String::new(),
        n => format!(", over {n} prompts"),
    };
    let mut text = format!("\n### Layers{over}\n\n| layer |");
    for idx in &key {
        let _ = write!(text, " {} |", escaped(&heading(STATISTICS[*idx])));
    }
    let _ = write!(text, "\n|---|{}\n", "--:|".repeat(key.len()));
    for stack in stacks(report) {
        for layer in layers_of(report, stack) {
            let _ = write!(text, "| {} |", layer_name(stack, layer));
            for idx in &key {
                let _ = write!(
                    text,
                    " {} |",
                    cell(over_prompts(report, stack, layer, *idx))
                );
            }
            text.push('\n');
        }
    }
    text
}

/// Returns a stack's layers on the first prompt; all prompts have the same.
fn layers_of(report: &Report, stack: Stack) -> Vec<usize> {
    let first = report.prompts.first();
    let layers = first.map_or(&[][..], |prompt| &prompt.layers);
    let of_stack = layers.iter().filter(|layer| layer.stack == stack);
    of_stack.map(|layer| layer.layer).collect()
}

fn layer_name(stack: Stack, layer: usize) -> String {
    match stack.label() {
        Some(label) => format!("{label} L{layer}"),
        None => format!("L{layer}"),
    }
}

/// Formats the heads of each layer on each prompt, folded.
fn details(report: &Report) -> impl Iterator<Item = String> {
    let key = of_heads();
    report.prompts.iter().flat_map(move |prompt| {
        let key = key.clone();
        let of = match report.prompts.len() {
            1 => String::new(),
            _ => format!(" on {}", html(&prompt.id)),
        };
        prompt.layers.iter().map(move |layer| {
            let name = layer_name(layer.stack, layer.layer);
            let mut text = format!("\n<details><summary>Heads of {name}{of}</summary>\n\n| head |");
            for idx in &key {
                let _ = write!(text, " {} |", escaped(&heading(STATISTICS[*idx])));
            }
            let _ = write!(text, "\n|---|{}\n", "--:|".repeat(key.len()));
            for head in &layer.heads {
                let _ = write!(text, "| H{} |", head.head);
                for idx in &key {
                    let _ = write!(text, " {} |", cell(head.stats.measured(*idx)));
                }
                text.push('\n');
            }
            text.push_str("\n</details>\n");
            text
        })
    })
}

/// Puts a text on one line: characters that would end a row or a paragraph become a space.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// Formats a table. A title says whether its column stands on the right.
pub(super) fn table(titles: &[(&str, bool)], rows: &[Vec<String>]) -> String {
    let line = |cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<String> = cells.collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let dashes = |(_, is_right): &(&str, bool)| if *is_right { "---:" } else { "---" }.to_owned();
    let mut text = line(&mut titles.iter().map(|(title, _)| escaped(title)));
    text += &line(&mut titles.iter().map(dashes));
    for row in rows {
        text += &line(&mut row.iter().map(|cell| escaped(cell)));
    }
    text
}

/// Escapes text, so that nothing in it is Markdown or HTML.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in one_line(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '|' | '#' | '!' | '$' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Escapes text inside a line of HTML.
fn html(text: &str) -> String {
    maud::html! { (one_line(text)) }.into_string()
}

/// Formats a code span with a fence longer than any run of backticks inside.
pub(super) fn code(text: &str) -> String {
    let text = one_line(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // Markdown strips one space on either side; it separates the fence from a backtick, and keeps a blank name visible.
    if text.starts_with(['`', ' ']) || text.ends_with(['`', ' ']) || text.is_empty() {
        format!("{fence} {text} {fence}")
    } else {
        format!("{fence}{text}{fence}")
    }
}

/// Formats a code span in a table, where `|` ends a cell even inside a span.
fn code_cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_contains_no_markup() {
        assert_eq!(escaped("<b> a|b\nc_*"), "&lt;b&gt; a\\|b c\\_\\*");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`x"), "`` `x ``");
        assert_eq!(code_cell("a|b\r\nc"), "`a\\|b  c`");
    }
}
