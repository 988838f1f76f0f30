//! Buffers that the blocks of a run reuse.

use attnscope_compute::ops::Ops;

use super::head_experts::Chosen;
use super::hyper::OpenStreams;
use super::indexer::IndexBuffers;
use super::keys_and_values::KeysAndValues;

/// Keys and values that global tokens attend to.
pub(super) struct GlobalBuffers<O: Ops> {
    pub tokens: Vec<bool>,
    pub k: O::Buffer,
    pub v: O::Buffer,
    pub value_norms: Option<Vec<Vec<f32>>>,
}

/// Buffers of one attention.
pub struct AttentionScratch<O: Ops> {
    pub(super) normed: O::Buffer,
    pub(super) q: O::Buffer,
    pub(super) k: O::Buffer,
    pub(super) v: O::Buffer,
    pub(super) z: O::Buffer,
    pub(super) latent: O::Buffer,
    pub(super) normed_latent: O::Buffer,
    /// The latent of queries behind its norm, and before it. // [position, 2 · d_latent]
    pub(super) both_latents: O::Buffer,
    pub(super) own_key: O::Buffer,
    pub(super) shared_key: O::Buffer,
    pub(super) out: O::Buffer,
    /// Factor of z, in gated attention. // [position, n_heads · d_value]
    pub(super) gate: O::Buffer,
    /// Queries, keys and weights of the indexer that picks keys.
    pub(super) index: IndexBuffers<O>,
    /// Factors of a learned bias; empty if it has none. // [position, head]
    pub(super) bias_factors: Vec<f32>,
    /// log Σ exp(score) of what each row's softmax sees besides the keys here; empty if nothing. // [query, head]
    pub(super) beside: Vec<f32>,
    /// Keys and values kept in the rows for later layers. // [position, n_kept]
    pub(super) kept: Vec<f32>,
    /// The experts of every row.
    pub(super) chosen: Chosen,
    /// Values of a second stream. // [position, n_kv_heads · its d_value]
    pub(super) side_v: O::Buffer,
    /// The streams of a block with hyper-connections, while it runs.
    pub(super) open: Option<OpenStreams>,
    /// Keys and values of global tokens.
    pub(super) global: Option<GlobalBuffers<O>>,
    /// KV cache of processed tokens, and after a run of the new ones too.
    pub(super) past: Option<KeysAndValues<O>>,
}

/// Buffers of one feed-forward layer.
pub struct MlpScratch<O: Ops> {
    pub(super) hidden: O::Buffer,
    pub(super) gate: O::Buffer,
    pub(super) gathered: O::Buffer,
    pub(super) expert_out: O::Buffer,
    pub(super) routed: O::Buffer,
}

/// Buffers that every block of a run reuses.
pub struct Scratch<O: Ops> {
    pub(super) attention: AttentionScratch<O>,
    pub(super) normed: O::Buffer,
    pub(super) mlp: MlpScratch<O>,
    pub(super) mlp_out: O::Buffer,
    pub(super) spare: O::Buffer,
    /// Cached keys and values of the encoder's output.
    pub(super) cross_past: Option<KeysAndValues<O>>,
}

impl<O: Ops> Default for AttentionScratch<O> {
    fn default() -> Self {
        let buffer = O::Buffer::default;
        Self {
            normed: buffer(),
            q: buffer(),
            k: buffer(),
            v: buffer(),
            z: buffer(),
            latent: buffer(),
            normed_latent: buffer(),
            both_latents: buffer(),
            own_key: buffer(),
            shared_key: buffer(),
            out: buffer(),
            gate: buffer(),
            index: IndexBuffers::default(),
            bias_factors: Vec::new(),
            beside: Vec::new(),
            kept: Vec::new(),
            chosen: Chosen::new(),
            side_v: buffer(),
            open: None,
            global: None,
            past: None,
        }
    }
}

impl<O: Ops> Default for MlpScratch<O> {
    fn default() -> Self {
        let buffer = O::Buffer::default;
        Self {
            hidden: buffer(),
            gate: buffer(),
            gathered: buffer(),
            expert_out: buffer(),
            routed: buffer(),
        }
    }
}

impl<O: Ops> Default for Scratch<O> {
    fn default() -> Self {
        let buffer = O::Buffer::default;
        Self {
            attention: AttentionScratch::default(),
            normed: buffer(),
            mlp: MlpScratch::default(),
            mlp_out: buffer(),
            spare: buffer(),
            cross_past: None,
        }
    }
}
