//! The report as one self-contained HTML file: no network, and one script, without which everything can still be read.

mod batch;
mod charts;
pub(crate) mod colour;
mod findings;
mod grid;
mod history;
mod maps;
pub(crate) mod pairs;
pub(crate) mod shell;
mod tables;
pub(crate) mod tokens;

pub use self::batch::{Slow, Strip, write_batch_page};
pub use self::history::write_history_page;

use std::io::{self, Write};

use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::HeadType;
use attnscope_spec::Stack;
use maud::{Markup, html};

use self::colour::Colours;
use self::findings::Marks;
use super::document::{ModelRecord, PromptRecord};
use super::readable::{Readable, Shown};
use super::verdict_text::figure;

/// Most heads shown with maps and tables, over all prompts; further prompts have grids and charts only.
const MOST_HEADS: usize = 4096;

/// Data of one prompt from which the parts of the page are drawn.
struct Part<'a> {
    prompt_idx: usize,
    record: &'a PromptRecord,
    shown: &'a Shown,
    marks: &'a Marks,
    colours: &'a Colours,
}

impl Part<'_> {
    /// Returns the anchor of a head's map.
    fn anchor(&self, stack: Stack, layer: usize, head: usize) -> String {
        anchor(self.prompt_idx, stack, layer, head)
    }

    /// Returns the type of a head, where one fits.
    fn type_of(&self, stack: Stack, layer: usize, head: usize) -> Option<HeadType> {
        let mut layers = self.shown.maps.iter();
        let layer = layers.find(|maps| (maps.stack, maps.layer_idx) == (stack, layer))?;
        layer.types.get(head).copied().flatten()
    }
}

/// Returns the anchor of a head: `L6H3`, after the stack where there are several, and after the prompt where it is not the first.
fn anchor(prompt_idx: usize, stack: Stack, layer: usize, head: usize) -> String {
    let stack = stack.label().map(|label| format!("{label}-"));
    let prompt = (prompt_idx > 0).then(|| format!("p{prompt_idx}-"));
    format!(
        "{}{}L{layer}H{head}",
        prompt.unwrap_or_default(),
        stack.unwrap_or_default()
    )
}

/// Writes the report.
///
/// # Errors
/// When the target cannot be written.
pub fn write_html(readable: &Readable, to: &mut impl Write) -> io::Result<()> {
    let report = &readable.report;
    let colours = Colours::new();
    let marks = Marks::of(&readable.findings());
    let mut n_heads_shown = 0;
    let mut prompts = Vec::new();
    for (prompt_idx, (record, shown)) in report.prompts.iter().zip(&readable.shown).enumerate() {
        let part = Part {
            prompt_idx,
            record,
            shown,
            marks: &marks,
            colours: &colours,
        };
        n_heads_shown += record.layers.iter().map(|l| l.heads.len()).sum::<usize>();
        // The first prompt is shown in full, however many heads there are.
        let is_whole = prompt_idx == 0 || n_heads_shown <= MOST_HEADS;
        prompts.push(prompt(&part, is_whole, report.prompts.len() == 1)?);
    }
    let body = html! {
        header {
            h1 { (report.model.name) }
            (facts(&report.model, report.prompts.len()))
            @if !report.what_if.is_empty() {
                p.what-if { "What if: " (report.what_if.join(", ")) }
            }
            @for note in &report.notes {
                p.note { "Note: " (note) }
            }
        }
        main {
            (findings::section(readable))
            @for prompt in &prompts { (prompt) }
        }
        footer { "attnscope " (env!("CARGO_PKG_VERSION")) " · report version " (report.version) }
    };
    to.write_all(shell::page(&report.model.name, &body).as_bytes())
}

fn facts(model: &ModelRecord, n_prompts: usize) -> Markup {
    let layers = match model.n_encoder_layers {
        Some(n) => format!("{n} encoder + {} decoder", model.n_layers),
        None => model.n_layers.to_string(),
    };
    let facts = [
        ("family", model.family.to_owned()),
        ("layers", layers),
        ("heads", model.n_heads.to_string()),
        ("kv heads", model.n_kv_heads.to_string()),
        ("d_head", model.d_head.to_string()),
        ("d_model", model.d_model.to_string()),
        ("d_vocab", model.d_vocab.to_string()),
        (
            "n_ctx",
            model.n_ctx.map_or("–".to_owned(), |n| n.to_string()),
        ),
        ("dtype", model.dtype.clone()),
        ("prompts", n_prompts.to_string()),
    ];
    // A recording does not tell all sizes.
    let is_known = |value: &String| !value.is_empty() && value != "0";
    html! {
        dl.facts {
            @for (name, value) in facts.iter().filter(|(_, value)| is_known(value)) {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

fn prompt(part: &Part<'_>, is_whole: bool, is_only: bool) -> io::Result<Markup> {
    let record = part.record;
    let stacks = {
        let mut stacks: Vec<Stack> = Vec::new();
        for layer in &record.layers {
            if !stacks.contains(&layer.stack) {
                stacks.push(layer.stack);
            }
        }
        stacks
    };
    let mut sections = Vec::new();
    for stack in stacks {
        let maps = if is_whole {
            Some(maps::section(part, stack)?)
        } else {
            None
        };
        sections.push(html! {
            section.stack data-stack=(stack.label().unwrap_or_default()) {
                @if let Some(label) = stack_title(stack) { h3 { (label) } }
                (grid::section(part, stack))
                (charts::section(part, stack))
                (tables::layers(part, stack))
                @if let Some(maps) = maps {
                    (maps)
                    (tables::heads(part, stack))
                }
            }
        });
    }
    let n_tokens = match &record.decoder_tokens {
        Some(decoder) => {
            format!(
                "{} → {}",
                record.tokens.len(),
                counted(decoder.len(), "token")
            )
        }
        None => counted(record.tokens.len(), "token"),
    };
    Ok(html! {
        details.prompt id={ "p" (part.prompt_idx) } open[part.prompt_idx == 0] {
            summary {
                h2 {
                    @if is_only { "Prompt" } @else { "Prompt " span.name { (record.id) } }
                }
                span.quiet {
                    (n_tokens)
                    @if let Some(loss) = record.loss {
                        " · loss " b { (figure(loss)) } " nats"
                    }
                }
            }
            @if let Some(found) = &record.first_nonfinite { p.bad { (found) } }
            (tokens::section(part))
            @for section in &sections { (section) }
            @if !is_whole {
                p.quiet {
                    "Maps and tables of heads are left out here, so that the file stays small: report this prompt alone, or see "
                    code { "--format csv" } "."
                }
            }
        }
    })
}

fn stack_title(stack: Stack) -> Option<&'static str> {
    match stack {
        Stack::Only => None,
        Stack::Encoder => Some("Encoder"),
        Stack::Decoder => Some("Decoder, self-attention"),
        Stack::Cross => Some("Decoder, cross-attention"),
    }
}
