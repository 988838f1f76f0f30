//! The recipe of a family with latent attention: its differences from DeepSeek's first as data, one field each.

use super::experts::ExpertsKeys;
use super::indexer::IndexerKeys;

/// How a family of this kind differs from the others.
#[derive(Debug, Clone, Copy)]
pub struct LatentLike {
    pub experts: ExpertsKeys,
    /// Whether there are no experts.
    pub is_dense: bool,
    /// The switch for interleaved rotating pairs; without a switch they are interleaved.
    pub interleaves: Option<&'static str>,
    /// Whether rotating pairs are by halves, if no switch says otherwise.
    pub is_by_halves: bool,
    /// Whether the shared part of keys has no position.
    pub is_unrotated: bool,
    /// Whether rescaled rotary frequencies also change the scale of scores.
    pub sharpens: bool,
    /// Sparse attention: attention sees only the keys that an indexer picks.
    pub indexer: Option<IndexerKeys>,
    /// Epsilon of the norms of a block, if the configuration states none.
    pub eps: f64,
    /// Whether `head_dim` is the whole head, of which `partial_rotary_factor` states the share that rotates.
    pub has_share: bool,
    /// Whether queries grow with their position, by a key inside the rotary parameters.
    pub grows: bool,
    /// Name of the map to one factor for each head, whose sigmoid multiplies its output.
    pub head_gate: Option<&'static str>,
    /// Whether `head_dim` is the width of something else.
    pub ignores_head_dim: bool,
    /// Whether the unembedding is the embedding, if the configuration does not say.
    pub is_tied: bool,
    /// The base of the rotation, if the configuration states none.
    pub theta: f64,
    /// A stored layer is two blocks, and its experts a shortcut from the first to the end of the second; latent vectors are scaled
    /// by √(d_model / their width). The key is that of the number of stored layers.
    pub paired: Option<&'static str>,
    /// Whether latent vectors are scaled by √(d_model / their width) in any case.
    pub scales_latents: bool,
    /// Whether the norms of latent vectors have the epsilon of a block's.
    pub latent_eps_is_of_block: bool,
    /// Name of the norm on the part of keys that all heads share.
    pub shared_key_norm: Option<&'static str>,
    /// Whether the map to queries also gives gates of heads; it then reads the latent behind its norm and the latent before it.
    pub q_has_gate: bool,
    /// Layers of a list do not rotate; without the list, every n-th.
    pub rotates_all_but: Option<usize>,
    /// Whether a model learned factors of its rotary frequencies, and how the queries of each head grow with their position.
    pub learns_growth: bool,
    /// Whether layers may take the latents of earlier ones.
    pub shares_latents: bool,
    /// The key of the cap of logits, with its default.
    pub logit_cap: Option<(&'static str, f64)>,
    /// The key of the width of gates behind the norms before attention and experts, with its default.
    pub norm_gates: Option<(&'static str, usize)>,
}

impl LatentLike {
    pub const PLAIN: Self = Self {
        experts: ExpertsKeys::PLAIN,
        is_dense: false,
        interleaves: None,
        is_by_halves: false,
        is_unrotated: false,
        sharpens: true,
        indexer: None,
        eps: 1e-6,
        has_share: false,
        grows: false,
        head_gate: None,
        ignores_head_dim: false,
        is_tied: false,
        theta: 10_000.0,
        paired: None,
        scales_latents: false,
        latent_eps_is_of_block: false,
        shared_key_norm: None,
        q_has_gate: false,
        rotates_all_but: None,
        learns_growth: false,
        shares_latents: false,
        logit_cap: None,
        norm_gates: None,
    };
}
