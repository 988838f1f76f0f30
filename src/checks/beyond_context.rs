//! A prompt that is longer than the model's context.
//!
//! ## What it does
//! Compares the tokens of the prompt with the positions that the configuration names.
//!
//! ## Why it matters
//! Rotary and relative positions go on beyond the context, and so does the run. The model never saw such distances in training
//! unless its rotations are scaled for them: attention and loss there say little about the model at its usual lengths (Press et
//! al. 2022, arXiv 2108.12409, figure 1, show how the loss of sinusoidal and rotary models rises).
//!
//! ## How it is measured
//! Queries of the longest layer, against the context length. Models with a table of positions refuse such a prompt instead.
//!
//! ## False alarms
//! A model whose configuration names a shorter context than it was trained with.
//!
//! ## Example
//! 3000 tokens through a Llama of 2048 positions.

use attnscope_checkpoint::counted::counted;
use attnscope_spec::{Place, Stack};

use super::evidence::Evidence;
use super::verdict::{Finding, Severity, Verdict};
use super::{Check, Needs, Thresholds};

pub static CHECK: Check = Check {
    id: "beyond-context",
    severity: Severity::Info,
    needs: Needs::Pattern,
    source: include_str!("beyond_context.rs"),
    judge,
};

fn judge(evidence: &Evidence<'_>, _: &Thresholds) -> Verdict {
    let Some(n_ctx) = evidence.n_ctx else {
        return Verdict::not_applicable("no configuration names a context that could be exceeded");
    };
    // Learned rows may join those of the prompt behind the first layer of a stack.
    let mut of_stacks: Vec<(Stack, usize)> = Vec::new();
    for (layer, _, head) in evidence.heads() {
        if of_stacks.iter().all(|(stack, _)| *stack != layer.stack) {
            of_stacks.push((layer.stack, head.summary.rows.len()));
        }
    }
    let n_tokens = of_stacks.iter().map(|(_, n)| *n).max().unwrap_or(0);
    if n_tokens <= n_ctx {
        let fit = if n_tokens == 1 { "fits" } else { "fit" };
        return Verdict::passed(format!(
            "{} {fit} in {}",
            counted(n_tokens, "token"),
            counted(n_ctx, "position")
        ));
    }
    let finding = Finding {
        check: CHECK.id,
        severity: CHECK.severity,
        place: Place::MODEL,
        value: n_tokens as f64,
        threshold: n_ctx as f64,
        unit: "tokens",
        evidence: format!(
            "the prompt has {n_tokens} tokens, the model's context {n_ctx}: what happens beyond was never trained"
        ),
        advice: "judge the model on a prompt that fits (--truncate cuts it), or set the context that it was trained with (--set n_ctx=N)"
            .to_owned(),
    };
    Verdict::of(vec![finding], "")
}
