//! Which module gives which hook: the names that modules have in transformers, and in engines that keep them.

use attnscope_forward::Hook;

use super::place::Port;

/// What an array is to a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reads {
    /// A hook of the layer; queries, keys, values and z as [position, head · d_head] or [position, head, d_head].
    Hook(Hook),
    /// The residual before the layer.
    Before,
    /// The residual after the last layer.
    Last,
    /// Queries, then keys, then values side by side: as wide as z, and the rest in halves.
    Fused,
    /// Queries, keys and values in an order that differs from program to program.
    FusedSomehow,
    /// What the attention layer adds, after a norm that follows it; only where the layer has such norms.
    NormedAttention,
    /// What the feed-forward layer adds, after a norm that follows it.
    NormedFeedForward,
    Logits,
    Tokens,
    DecoderTokens,
    AttentionMask,
    /// Number of tokens of each sequence, with those that were computed before.
    Lengths,
    /// A pattern or residual of the layer that the rest of the name counts.
    PatternOf,
    BeforeLayer,
}

/// The names of one dialect.
#[derive(Debug)]
pub(super) struct Table {
    /// Inside a layer, by the module's path there. If several give one hook, the first counts.
    pub of_layer: &'static [(&'static str, Port<'static>, Reads)],
    /// Outside layers, by the last part of the module's path; names that end in a dot are followed by a number.
    pub outside: &'static [(&'static str, Port<'static>, Reads)],
    /// Further rows that count after these.
    pub then: Option<&'static Table>,
    /// A name for messages.
    pub example: &'static str,
}

/// Parts of models that look at pictures or hear sounds: their layers are no layers of the language model.
pub(super) const OTHER_MODALITIES: [&str; 8] = [
    "visual",
    "vision_tower",
    "vision_model",
    "audio_tower",
    "audio_model",
    "multi_modal_projector",
    "image_encoder",
    "speech_encoder",
];

const Q: Reads = Reads::Hook(Hook::Q);
const K: Reads = Reads::Hook(Hook::K);
const V: Reads = Reads::Hook(Hook::V);
const Z: Reads = Reads::Hook(Hook::Z);
const ATTENTION: Reads = Reads::Hook(Hook::AttnOut);
const FEED_FORWARD: Reads = Reads::Hook(Hook::MlpOut);

/// Modules of transformers, release 5, by what their `forward` does. Sources: `modeling_llama.py`, `modeling_qwen3.py`,
/// `modeling_gemma2.py`, `modeling_phi.py`, `modeling_opt.py`, `modeling_gpt2.py`, `modeling_gptj.py`, `modeling_bert.py`.
pub(super) static MODULES: Table = Table {
    of_layer: &[
        ("", Port::Input, Reads::Before),
        ("", Port::Output, Reads::Hook(Hook::ResidPost)),
        ("self_attn.q_norm", Port::Output, Q),
        ("self_attn.k_norm", Port::Output, K),
        ("self_attn.q_layernorm", Port::Output, Q),
        ("self_attn.k_layernorm", Port::Output, K),
        ("self_attn.q_proj", Port::Output, Q),
        ("self_attn.k_proj", Port::Output, K),
        ("self_attn.v_proj", Port::Output, V),
        ("self_attn.qkv_proj", Port::Output, Reads::Fused),
        ("attn.q_proj", Port::Output, Q),
        ("attn.k_proj", Port::Output, K),
        ("attn.v_proj", Port::Output, V),
        ("attn.c_attn", Port::Output, Reads::Fused),
        (
            "self_attention.query_key_value",
            Port::Output,
            Reads::FusedSomehow,
        ),
        (
            "attention.query_key_value",
            Port::Output,
            Reads::FusedSomehow,
        ),
        ("attn.qkv_proj", Port::Output, Reads::FusedSomehow),
        ("attn.Wqkv", Port::Output, Reads::FusedSomehow),
        ("self_attn.W_pack", Port::Output, Reads::FusedSomehow),
        ("attention.self.query", Port::Output, Q),
        ("attention.self.key", Port::Output, K),
        ("attention.self.value", Port::Output, V),
        ("self_attn.o_proj", Port::Input, Z),
        ("self_attn.out_proj", Port::Input, Z),
        ("self_attn.dense", Port::Input, Z),
        ("attn.c_proj", Port::Input, Z),
        ("attn.out_proj", Port::Input, Z),
        ("attention.dense", Port::Input, Z),
        ("self_attention.dense", Port::Input, Z),
        ("attention.output.dense", Port::Input, Z),
        (
            "post_attention_layernorm",
            Port::Output,
            Reads::NormedAttention,
        ),
        (
            "post_feedforward_layernorm",
            Port::Output,
            Reads::NormedFeedForward,
        ),
        ("self_attn.o_proj", Port::Output, ATTENTION),
        ("self_attn.out_proj", Port::Output, ATTENTION),
        ("self_attn.dense", Port::Output, ATTENTION),
        ("attn.c_proj", Port::Output, ATTENTION),
        ("attn.out_proj", Port::Output, ATTENTION),
        ("attention.dense", Port::Output, ATTENTION),
        ("self_attention.dense", Port::Output, ATTENTION),
        ("attention.output.dense", Port::Output, ATTENTION),
        ("self_attn", Port::Output, ATTENTION),
        ("attn", Port::Output, ATTENTION),
        ("mlp.down_proj", Port::Output, FEED_FORWARD),
        ("mlp.c_proj", Port::Output, FEED_FORWARD),
        ("mlp.fc2", Port::Output, FEED_FORWARD),
        ("mlp.fc_out", Port::Output, FEED_FORWARD),
        ("mlp.dense_4h_to_h", Port::Output, FEED_FORWARD),
        ("fc2", Port::Output, FEED_FORWARD),
        ("output.dense", Port::Output, FEED_FORWARD),
        ("mlp", Port::Output, FEED_FORWARD),
        (
            "output.LayerNorm",
            Port::Output,
            Reads::Hook(Hook::ResidPost),
        ),
    ],
    outside: &[
        ("norm", Port::Input, Reads::Last),
        ("ln_f", Port::Input, Reads::Last),
        ("final_layernorm", Port::Input, Reads::Last),
        ("final_layer_norm", Port::Input, Reads::Last),
        ("lm_head", Port::Output, Reads::Logits),
        ("embed_out", Port::Output, Reads::Logits),
        ("", Port::Named("output.logits"), Reads::Logits),
        ("", Port::Named("input.input_ids"), Reads::Tokens),
        (
            "",
            Port::Named("input.decoder_input_ids"),
            Reads::DecoderTokens,
        ),
        (
            "",
            Port::Named("input.attention_mask"),
            Reads::AttentionMask,
        ),
        ("", Port::Named("output.attentions."), Reads::PatternOf),
        ("", Port::Named("output.hidden_states."), Reads::BeforeLayer),
    ],
    then: None,
    example: "model.layers.0.self_attn.q_proj",
};

impl Table {
    /// What an array is, and how early its row stands; `None` if it is no part of a forward pass that has a hook. A name that is
    /// followed by a number gives that too.
    pub fn reads(
        &self,
        module: &str,
        port: Port<'_>,
        is_layer: bool,
    ) -> Option<(Reads, usize, Option<usize>)> {
        let rows = if is_layer {
            self.of_layer
        } else {
            self.outside
        };
        let found = rows
            .iter()
            .enumerate()
            .find_map(|(row_idx, (named, at, reads))| {
                if *named != module {
                    return None;
                }
                if *at == port {
                    return Some((*reads, row_idx, None));
                }
                let (Port::Named(before), Port::Named(port)) = (*at, port) else {
                    return None;
                };
                let number = port
                    .strip_prefix(before)
                    .filter(|_| before.ends_with('.'))?;
                Some((*reads, row_idx, Some(number.parse().ok()?)))
            });
        let then = || {
            let (reads, row_idx, number) = self.then?.reads(module, port, is_layer)?;
            Some((reads, rows.len() + row_idx, number))
        };
        found.or_else(then)
    }
}
