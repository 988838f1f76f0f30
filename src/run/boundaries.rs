//! The boundaries of a model: numbers of tokens beyond which it computes otherwise than before.

use std::collections::BTreeMap;

use attnscope_checkpoint::counted::counted;
use attnscope_checks::Boundary;
use attnscope_compute::attention::{KeyRank, RopeScaling, Window};
use attnscope_forward::{Input, Sequence};
use attnscope_spec::{BlockSpec, Model, ModelSpec};

use super::budget::Budget;
use super::job::Options;
use super::work::work_of;

/// Advice for a window beyond which the loss rises.
const OF_WINDOW: &str = "look at which layers have a window, how wide it is, and whether sinks were kept: attnscope diff against the \
                         code that trained it, on a text as long (--set window=none reads without)";

/// Advice for scaled rotary positions beyond whose first context the loss rises.
const OF_CONTEXT: &str = "look at rope_scaling (type, factor, original context) in config.json: it is what carries positions beyond \
                          that length";

/// Advice for a number of picked keys beyond which the loss rises.
const OF_PICKED: &str = "look at the indexer: its weights, its norm, its rotary pairs and index_topk; --what-if top_k_keys=all shows \
                         what the keys that it leaves out are worth, and top_k_recall how much of attention they hold";

/// Names the boundary of sparse attention.
const PICKED: &str = "picked keys";

/// The boundaries of a model below its context, the nearest first.
pub fn boundaries(spec: &ModelSpec) -> Vec<Boundary> {
    let blocks = spec.main_stack().blocks();
    let mut found: BTreeMap<(usize, &'static str), usize> = BTreeMap::new();
    for attention in blocks.iter().filter_map(BlockSpec::attention) {
        let window = attention.mask.window.map(|window| match window {
            Window::Back(width) => (width, "window"),
            Window::Around(_) | Window::Uneven { .. } => (window.size() + 1, "window"),
            Window::Chunk(width) | Window::Blocks { width, .. } => (width, "chunk"),
            Window::Chunks { width, n_before } => (width.saturating_mul(n_before + 1), "chunk"),
        });
        let context = attention
            .rope
            .as_ref()
            .and_then(|rope| match &rope.scaling {
                RopeScaling::None | RopeScaling::Linear { .. } => None,
                RopeScaling::Dynamic { n_ctx, .. } => Some(*n_ctx as usize),
                RopeScaling::Llama3 { original_n_ctx, .. }
                | RopeScaling::Yarn { original_n_ctx, .. } => Some(*original_n_ctx as usize),
                RopeScaling::Long { original_n_ctx, .. } => Some(*original_n_ctx),
            });
        let context = context.map(|n_tokens| (n_tokens, "context"));
        let picked = attention.top_keys.map(|top| match top.by {
            KeyRank::Window(_) => (top.n, "windows"),
            KeyRank::Scores | KeyRank::Indexer(_) | KeyRank::Pools => (top.n, PICKED),
        });
        for boundary in window.into_iter().chain(context).chain(picked) {
            *found.entry(boundary).or_default() += 1;
        }
    }
    let n_layers = blocks.len();
    let is_within = |n_tokens: usize| spec.n_ctx.is_none_or(|n_ctx| n_tokens < n_ctx);
    let found = found
        .into_iter()
        .filter(|((n_tokens, _), _)| *n_tokens > 0 && is_within(*n_tokens));
    let named = found.map(|((n_tokens, kind), n)| {
        let what = match kind {
            "context" => format!("the {n_tokens} positions before rotary scaling"),
            PICKED => format!(
                "the {} that a query keeps in {n} of {}",
                counted(n_tokens, "key"),
                counted(n_layers, "layer")
            ),
            kind => format!(
                "the {kind} of {} in {n} of {}",
                counted(n_tokens, "key"),
                counted(n_layers, "layer")
            ),
        };
        Boundary {
            what,
            n_tokens,
            advice: match kind {
                "context" => OF_CONTEXT,
                PICKED => OF_PICKED,
                _ => OF_WINDOW,
            },
        }
    });
    named.collect()
}

/// The last position of the context, as a boundary that a prompt reaches by filling it.
pub(super) fn end_of_context(n_ctx: usize) -> String {
    format!("the end of the context of {}", counted(n_ctx, "position"))
}

/// A prompt that crosses boundaries which others do not.
pub struct Covering {
    /// Tokens of the prompts, over and over; `None` if the prompts cross all boundaries, or none is within reach.
    pub tokens: Option<Vec<u32>>,
    /// Boundaries that would cost more than is allowed, and the seconds that each takes, as budgets count them.
    pub out_of_reach: Vec<(String, f64)>,
}

/// Makes a prompt that crosses all boundaries that the prompts do not, as far as a run of it is within the budget.
pub fn covering(model: &Model, prompts: &[Input], budget: Budget) -> Covering {
    /// Tokens beyond a boundary on which a loss is compared.
    const BEYOND: usize = 128;
    let room = model.spec.n_ctx.unwrap_or(usize::MAX);
    let given = prompts.iter().map(|input| input.sequence.len()).max();
    let texts: Vec<u32> = prompts
        .iter()
        .flat_map(|input| input.sequence.tokens.iter().copied())
        .collect();
    let tiled =
        |length: usize| -> Vec<u32> { texts.iter().copied().cycle().take(length).collect() };
    let work_at = |length: usize| {
        let tokens = tiled(length);
        let input = Input {
            source: None,
            sequence: Sequence {
                positions: model.spec.positions.positions(&tokens, None),
                tokens,
                ..Sequence::default()
            },
        };
        let options = Options {
            keep_bytes: Some(0),
            predicts: true,
        };
        work_of(model, &[input], options)
    };
    let (mut longest, mut out_of_reach) = (None, Vec::new());
    let own = boundaries(&model.spec).into_iter();
    let own = own.map(|boundary| (boundary.what, (boundary.n_tokens + BEYOND).min(room)));
    let end = model.spec.n_ctx.map(|n_ctx| (end_of_context(n_ctx), n_ctx));
    for (what, length) in own.chain(end) {
        if given.is_none_or(|given| length <= given) {
            continue;
        }
        let work = work_at(length);
        if work <= budget.multiplications() {
            longest = longest.max(Some(length));
        } else {
            out_of_reach.push((what, Budget::seconds_of(work as f64)));
        }
    }
    Covering {
        tokens: longest.map(tiled),
        out_of_reach,
    }
}
