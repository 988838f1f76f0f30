//! The tokens of a prompt, shaded by their loss.

use maud::{Markup, html};

use super::Part;
use super::colour::Colours;
use crate::plain::is_hidden;

/// Most tokens shown per side.
const MOST_SHOWN: usize = 512;
/// Loss of the darkest shade, in nats: e⁻⁸ is one in three thousand.
const FULL_LOSS: f32 = 8.0;

pub(super) fn section(part: &Part<'_>) -> Markup {
    let loss = part.shown.next_loss.as_deref();
    let record = part.record;
    // Losses belong to the predicted side: the decoder if there is one.
    match (&part.shown.target_labels, &record.decoder_tokens) {
        (Some(target), Some(ids)) => html! {
            (side("Encoder", &part.shown.labels, &record.tokens, None))
            (side("Decoder", target, ids, loss))
        },
        _ => side("Tokens", &part.shown.labels, &record.tokens, loss),
    }
}

fn side(title: &str, labels: &[String], ids: &[u32], losses: Option<&[f32]>) -> Markup {
    let n_more = labels.len().saturating_sub(MOST_SHOWN);
    // The first token is not predicted.
    let loss_of = |idx: usize| {
        idx.checked_sub(1)
            .and_then(|before| losses?.get(before).copied())
    };
    html! {
        h4 {
            (title)
            @if losses.is_some() { span.quiet { " · shaded by loss, full at " (FULL_LOSS) " nats" } }
        }
        p.tokens data-n=(labels.len()) {
            @for (idx, (label, id)) in labels.iter().zip(ids).enumerate().take(MOST_SHOWN) {
                @match loss_of(idx) {
                    Some(loss) => {
                        span title={ (idx) ": id " (id) ", loss " (format!("{loss:.3}")) " nats" }
                            class=(Colours::class_of_loss(f64::from(loss / FULL_LOSS))) { (visible(label)) }
                    }
                    None => { span title={ (idx) ": id " (id) } { (visible(label)) } }
                }
            }
            @if n_more > 0 { " … and " (n_more) " more" }
        }
    }
}

/// Replaces characters without a shape by visible symbols: they would vanish, end a line, or turn the text around.
pub(crate) fn visible(label: &str) -> String {
    let visible = |c: char| match c {
        '\n' => '↵',
        '\0'..='\u{1f}' => char::from_u32(0x2400 + c as u32).unwrap_or('␀'),
        '\u{7f}' => '␡',
        c if is_hidden(c) => '�',
        c => c,
    };
    label.chars().map(visible).collect()
}
