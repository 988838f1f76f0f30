//! The text part of Mistral Large 4: latents that later layers take over, an indexer, learned rotary frequencies in most layers, and
//! queries that grow by head.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::reading::bias_rule::BiasRule;
use super::reading::experts::{ExpertStore, ExpertsKeys, NUMBERED, SparseLayers};
use super::reading::indexer::IndexerKeys;
use super::reading::latent::{self, LatentLike};
use super::reading::rope::stated;
use super::{Family, mistral4};

/// The draft head for several tokens at once is not run.
pub const FAMILY: Family = Family::own("mistral_large4_text", "MistralLarge4Text", read)
    .leaving_unread(&["rotary_emb.alpha", "mtp_dspark.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const KEY: &str = "rope_parameters";
    if stated(reader, KEY).is_none() && stated(reader, "rope_scaling").is_none() {
        let problem = "missing, expected the rescaling of rotary frequencies";
        return Err(Error::config(reader.path(), KEY, problem));
    }
    let like = LatentLike {
        experts: ExpertsKeys {
            store: ExpertStore::Each(NUMBERED),
            normalises: BiasRule::Always,
            layers: SparseLayers::NamedOrFrom("first_k_dense_replace", 1),
            ..mistral4::EXPERTS
        },
        eps: 1e-5,
        indexer: Some(IndexerKeys {
            interleaved: true,
            shares: Some(1),
            reads_input: true,
            ..IndexerKeys::PLAIN
        }),
        rotates_all_but: Some(4),
        learns_growth: true,
        shares_latents: true,
        latent_eps_is_of_block: true,
        logit_cap: Some(("final_logit_softcapping", 30.0)),
        ..LatentLike::PLAIN
    };
    latent::read(FAMILY.model_type, checkpoint, reader, like)
}

/// The names of published files, which the whole model's are on top of.
pub(super) const NAMES: &[(&str, &str)] = &[
    (".mlp.", "."),
    (".attention.", ".self_attn."),
    (".wq.", ".q_proj."),
    (".wo.", ".o_proj."),
    (".wkv_a_with_mqa.", ".kv_a_proj_with_mqa."),
    (".wkv_b.", ".kv_b_proj."),
    (".attention_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".kv_a_norm.", ".kv_a_layernorm."),
    (".feed_forward.w1.", ".feed_forward.gate_proj."),
    (".feed_forward.w2.", ".feed_forward.down_proj."),
    (".feed_forward.w3.", ".feed_forward.up_proj."),
    (".shared_experts.w1.", ".shared_experts.gate_proj."),
    (".shared_experts.w2.", ".shared_experts.down_proj."),
    (".shared_experts.w3.", ".shared_experts.up_proj."),
    (".feed_forward.", ".mlp."),
    (".gate.", ".mlp.gate."),
    (".experts.", ".mlp.experts."),
    (".shared_experts.", ".mlp.shared_experts."),
    (".ssmax_scaling.s", ".softmax_scaling.scale"),
    (".ssmax_scaling.b", ".softmax_scaling.bias"),
];

/// The names of the parts of the whole model.
pub(super) const NAMES_OF_WHOLE: &[(&str, &str)] = &[
    ("^tok_embeddings.", "model.embed_tokens."),
    ("^lerope.", "model.rotary_emb."),
    ("^layers.", "model.layers."),
    ("^norm.", "model.norm."),
    ("^output.", "lm_head."),
    (
        "^patch_merger.",
        "model.multi_modal_projector.patch_merger.",
    ),
    (
        "^pre_mm_projector_norm.",
        "model.multi_modal_projector.norm.",
    ),
    (
        "^vision_language_adapter.w_in.",
        "model.multi_modal_projector.linear_1.",
    ),
    (
        "^vision_language_adapter.w_out.",
        "model.multi_modal_projector.linear_2.",
    ),
];
