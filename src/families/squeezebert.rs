//! SqueezeBERT: BERT whose maps are convolutions of width 1 in groups.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, LinearSource, ModelSpec};

use super::reading::bert_like::{self, BertLike, Names};
use super::{Family, bert};

pub const FAMILY: Family = Family::own("squeezebert", "SqueezeBert", read);

const LIKE: BertLike = BertLike {
    may_decode: false,
    names: Names {
        layers: "encoder.layers",
        q: "attention.query",
        k: "attention.key",
        v: "attention.value",
        o: "post_attention.conv1d",
        attn_norm: "post_attention.layernorm",
        up: "intermediate.conv1d",
        down: "output.conv1d",
        mlp_norm: "output.layernorm",
    },
    ..BertLike::plain("transformer.", bert::HEAD)
};

/// Keys of the numbers of groups of the six maps, and their defaults.
const GROUPS: [(&str, usize); 6] = [
    ("q_groups", 4),
    ("k_groups", 4),
    ("v_groups", 4),
    ("post_attention_groups", 1),
    ("intermediate_groups", 4),
    ("output_groups", 4),
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    const NARROW: &str = "embedding_size";
    let same = Origin::Derived("d_model, no width of embeddings".to_owned());
    let d_embed = reader.size_or("d_embed", NARROW, spec.d_model, same)?;
    if d_embed != spec.d_model {
        let problem = format!("expected hidden_size, {}, found {d_embed}", spec.d_model);
        return Err(Error::config(reader.path(), NARROW, problem));
    }
    let mut groups = [1; 6];
    for (n, (key, default)) in groups.iter_mut().zip(GROUPS) {
        *n = reader.size_or(key, key, default, Origin::Default(key.to_owned()))?;
    }
    for block in spec.stacks[0].blocks_mut() {
        let mut maps: Vec<&mut LinearSource> = Vec::new();
        if let Some(own) = match &mut block.mixer {
            attnscope_spec::Mixer::Attention(own) => Some(own),
            _ => None,
        } {
            let own = &mut own.projections;
            maps.extend([&mut own.q, &mut own.k, &mut own.v, &mut own.o]);
        }
        if let FeedForward::Dense(mlp) = &mut block.feed_forward {
            maps.extend([&mut mlp.up, &mut mlp.down]);
        }
        for (map, (n, (key, _))) in maps.into_iter().zip(groups.iter().zip(GROUPS)) {
            if !map.n_in.is_multiple_of(*n) || !map.n_stored_out.is_multiple_of(*n) {
                let problem = format!(
                    "expected a divisor of {} and {}, found {n}",
                    map.n_in, map.n_stored_out
                );
                return Err(Error::config(reader.path(), key, problem));
            }
            *map = map.clone().in_groups(*n);
        }
    }
    Ok(spec)
}
