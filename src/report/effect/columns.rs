//! The columns of each measure's table.

use crate::table::Column;

const NATS: &str = "nats";

const fn text(id: &'static str, about: &'static str) -> Column {
    Column::text(id, about)
}

const fn integer(id: &'static str, about: &'static str) -> Column {
    Column::integer(id, about)
}

const fn figure(id: &'static str, unit: &'static str, about: &'static str) -> Column {
    Column::number(id, about).in_unit(unit)
}

const PLACE: [Column; 5] = [
    text("place", "where it is, as every flag takes it"),
    text(
        "part",
        "head, attention, feed_forward, residual, or another part",
    ),
    text(
        "stack",
        "encoder, decoder or cross; empty for the only stack",
    ),
    integer("layer", "index of the layer in its stack"),
    integer("head", "index of the head; empty for other parts"),
];

/// Columns of ablation.
pub fn of_ablation() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        figure(
            "loss_change",
            NATS,
            "mean of −log p of the next token, ablated less as it is",
        ),
        figure("loss_low", NATS, "lower end of the 99 % bootstrap interval"),
        figure(
            "loss_high",
            NATS,
            "upper end of the 99 % bootstrap interval",
        ),
        figure("kl", NATS, "mean KL(run ‖ ablated) of the predictions"),
        figure("kl_low", NATS, "lower end of the 99 % bootstrap interval"),
        figure("kl_high", NATS, "upper end of the 99 % bootstrap interval"),
        figure(
            "logit_change",
            "",
            "change of the logit, or difference of two, that was asked for",
        ),
        integer("n_prompts", "prompts that were run"),
    ]);
    columns
}

/// Columns of sensitivity.
pub fn of_sensitivity() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        figure(
            "loss_change",
            NATS,
            "mean of −log p of the next token, changed less as it is",
        ),
        figure("loss_low", NATS, "lower end of the 99 % bootstrap interval"),
        figure(
            "loss_high",
            NATS,
            "upper end of the 99 % bootstrap interval",
        ),
        figure("kl", NATS, "mean KL(run ‖ changed) of the predictions"),
        figure("kl_low", NATS, "lower end of the 99 % bootstrap interval"),
        figure("kl_high", NATS, "upper end of the 99 % bootstrap interval"),
        figure(
            "entropy_change",
            NATS,
            "mean entropy of the attention there, changed less as it is",
        ),
        integer("n_prompts", "prompts that were run"),
    ]);
    columns
}

/// Columns of attribution.
pub fn of_attribution() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        integer("key", "source position, where a head is taken apart"),
        text("key_token", "token at the source position"),
        figure("share", "", "what it adds to the logit"),
        figure("so_far", "", "sum of the shares up to here"),
    ]);
    columns
}

/// Columns of patching.
pub fn of_patching() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        integer(
            "position",
            "the position that was patched; empty for all at once",
        ),
        text("token", "token of the clean prompt there"),
        figure(
            "restored",
            "",
            "(patched − corrupted) / (clean − corrupted): 0 nothing, 1 all",
        ),
        figure(
            "logit",
            "",
            "logit, or difference of two, of the patched run",
        ),
    ]);
    columns
}

/// Columns of circuits.
pub fn of_circuits() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        figure(
            "copying",
            "",
            "Σ Re λ / Σ |λ| of the eigenvalues of W_E W_V W_O W_U",
        ),
        figure(
            "positive_share",
            "",
            "share of these eigenvalues with a real part above 0",
        ),
        figure(
            "qk_effective_rank",
            "",
            "exp of the entropy of σ/Σσ of W_Q W_K",
        ),
        figure("qk_stable_rank", "", "‖·‖²_F / ‖·‖²₂ of W_Q W_K"),
        figure(
            "ov_effective_rank",
            "",
            "exp of the entropy of σ/Σσ of W_V W_O",
        ),
        figure("ov_stable_rank", "", "‖·‖²_F / ‖·‖²₂ of W_V W_O"),
        text(
            "q_from",
            "earlier head whose output this one's queries read most",
        ),
        figure("q_composition", "", "‖A·B‖ / (‖A‖ ‖B‖) less 1/√d_model"),
        text(
            "k_from",
            "earlier head whose output this one's keys read most",
        ),
        figure("k_composition", "", "‖A·B‖ / (‖A‖ ‖B‖) less 1/√d_model"),
        text(
            "v_from",
            "earlier head whose output this one's values read most",
        ),
        figure("v_composition", "", "‖A·B‖ / (‖A‖ ‖B‖) less 1/√d_model"),
    ]);
    columns
}

/// Columns of contribution.
pub fn of_contribution() -> Vec<Column> {
    let mut columns = vec![text("prompt", "id of the prompt")];
    columns.extend(PLACE);
    columns.extend([
        figure(
            "contribution_first",
            "",
            "share of Σ α‖v W_O‖ that comes from the first key",
        ),
        figure(
            "attention_first",
            "",
            "share of the attention that the first key gets",
        ),
        figure(
            "contribution_entropy",
            "nats",
            "mean entropy of α‖v W_O‖ / its sum",
        ),
        figure("contribution_total", "", "mean Σ α‖v W_O‖ of a query"),
        figure(
            "output_norm",
            "",
            "mean length of what the head adds: the total where nothing cancels",
        ),
    ]);
    columns
}

/// Columns of lens.
pub fn of_lens() -> Vec<Column> {
    vec![
        integer("position", "position in the text"),
        text("token", "token at the position"),
        integer("depth", "layers that have run: 0 is the embedding"),
        figure("kl", "nats", "KL(last layer ‖ this depth)"),
        text(
            "target",
            "the token that follows, or for models that are not causal the token itself",
        ),
        integer("rank", "place of the target among all tokens, from 1"),
        figure("probability", "", "probability of the target"),
        text("top", "likeliest tokens with probabilities"),
    ]
}

/// Columns of rollout.
pub fn of_rollout() -> Vec<Column> {
    vec![
        text("stack", "encoder or decoder; empty for the only stack"),
        integer("depth", "layers that have run"),
        integer(
            "position",
            "the position that was reached; empty for the mean over all",
        ),
        integer("key", "source position"),
        text("key_token", "token at the source position"),
        figure(
            "rollout",
            "",
            "share of the source token that has reached the position",
        ),
    ]
}

/// Columns of retrieval.
pub fn of_retrieval() -> Vec<Column> {
    let mut columns = PLACE.to_vec();
    columns.extend([
        figure(
            "retrieval",
            "",
            "share of the needle's tokens that the model writes while this head looks at them most; empty without a head that predicts",
        ),
        figure(
            "looks",
            "",
            "share of the needle's tokens that this head looks at most before they are to be written",
        ),
        figure("looks_worst", "", "that share at the depth where it is smallest"),
        figure(
            "streaming",
            "",
            "mean share of the attention on the first tokens and the nearest",
        ),
    ]);
    columns
}

/// The columns of all measures.
pub fn every_column() -> Vec<Column> {
    let all = [
        of_ablation(),
        of_attribution(),
        of_patching(),
        of_circuits(),
        of_contribution(),
        of_lens(),
        of_rollout(),
        of_retrieval(),
        of_sensitivity(),
    ];
    all.concat()
}
