//! Jina Embeddings v3: XLM-RoBERTa with rotary positions, under two sets of names.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::{BlockSpec, ModelSpec};

use super::reading::bert_like::{self, BertLike, Names, Positions};
use super::reading::{linear, stacked};
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("jina_embeddings_v3", "JinaEmbeddingsV3", read);

const LIKE: BertLike = BertLike {
    positions: Positions::RotaryOf(20_000.0),
    eps: 1e-5,
    may_decode: false,
    names: Names {
        layers: "layers",
        q: "self_attn.q_proj",
        k: "self_attn.k_proj",
        v: "self_attn.v_proj",
        o: "self_attn.o_proj",
        attn_norm: "post_attention_layernorm",
        up: "mlp.fc1",
        down: "mlp.fc2",
        mlp_norm: "post_mlp_layernorm",
    },
    ..roberta::like("roberta.")
};

/// What files of the hub call the parts.
const OF_HUB: BertLike = BertLike {
    embed_norm: Some("emb_ln"),
    names: Names {
        layers: "encoder.layers",
        o: "mixer.out_proj",
        attn_norm: "norm1",
        mlp_norm: "norm2",
        ..LIKE.names
    },
    ..LIKE
};

const FUSED: &str = "mixer.Wqkv";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
    let is_of_hub = names.any(|name| name.ends_with("emb_ln.weight"));
    let like = if is_of_hub { OF_HUB } else { LIKE };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    if is_of_hub {
        let blocks = spec.stacks[0].blocks_mut().iter_mut();
        for own in blocks.filter_map(BlockSpec::own_mut) {
            let maps = &mut own.projections;
            let (d_model, name) = (maps.q.n_in, maps.q.weight.clone());
            let at = name
                .trim_end_matches(".weight")
                .trim_end_matches(LIKE.names.q);
            let fused = linear(&format!("{at}{FUSED}"), d_model, 3 * d_model, true);
            [maps.q, maps.k, maps.v] = stacked(&fused, [d_model; 3]);
        }
    }
    Ok(spec)
}
