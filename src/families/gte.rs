//! GTE: BERT with rotary positions, gated feed-forward layers, and queries, keys and values in one tensor.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{FeedForward, ModelSpec};

use super::Family;
use super::reading::bert_like::{self, BertLike, Names, Positions};
use super::reading::masked_head::MaskedHead;
use super::reading::{linear, stacked};

pub const FAMILY: Family = Family::own("gte", "Gte", read);

const LIKE: BertLike = BertLike {
    positions: Positions::RotaryOf(160_000.0),
    may_decode: false,
    names: Names {
        o: "attention.o_proj",
        attn_norm: "attn_ln",
        up: "mlp.up_gate_proj",
        down: "mlp.down_proj",
        mlp_norm: "mlp_ln",
        ..Names::BERT
    },
    ..BertLike::plain(
        "gte.",
        MaskedHead {
            dense: Some("lm_head.dense"),
            norm: "lm_head.norm",
            decoder: "lm_head.decoder",
            bias: "lm_head.bias",
            activation: Some(Activation::Gelu),
        },
    )
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    // Token types are rows of a table only where their number is stated above 0.
    let has_token_types = reader.count_or("n_token_types", "type_vocab_size", 1)? > 0;
    reader.forget(&["n_token_types"]);
    let like = BertLike {
        has_token_types,
        ..LIKE
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    for block in spec.stacks[0].blocks_mut() {
        if let FeedForward::Dense(mlp) = &mut block.feed_forward {
            let (d_model, d_mlp) = (mlp.up.n_in, mlp.up.n_out());
            let at = mlp.up.weight.trim_end_matches(".weight").to_owned();
            let [up, gate, _] = stacked(&linear(&at, d_model, 2 * d_mlp, false), [d_mlp, d_mlp, 0]);
            (mlp.up, mlp.gate) = (up, Some(gate));
        }
        if let Some(own) = block.own_mut() {
            let maps = &mut own.projections;
            let at = maps.o.weight.replace("o_proj.weight", "qkv_proj");
            let d_model = maps.q.n_in;
            let fused = linear(&at, d_model, 3 * d_model, true);
            [maps.q, maps.k, maps.v] = stacked(&fused, [d_model; 3]);
        }
    }
    Ok(spec)
}
