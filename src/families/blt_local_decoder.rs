//! The decoder of bytes of the Byte Latent Transformer: bytes look at rows of patches before they see each other. Both are given as rows.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockSpec, CrossSpec, FeedForward, Mixer, ModelSpec, NormSource, ProjectionSpec, Stack,
    StackSpec,
};

use super::Family;
use super::blt_local_encoder::recipe;
use super::reading::{given_rows, linear};

/// What makes rows of the states of patches.
pub const FAMILY: Family = Family::own("blt_local_decoder", "BltLocalDecoder", read)
    .leaving_unread(&["patch_embedding_projection.weight"]);

/// What a layer that looks at patches does, under the name of its tensors.
struct Look {
    d_model: usize,
    attention: AttentionSpec,
    eps: f64,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let made_by = (
        "the encoder of bytes, and the map behind the transformer over patches,",
        true,
    );
    let both = (checkpoint, &mut *reader);
    let read = given_rows::read_layers(FAMILY.model_type, both, &recipe(), made_by)?;
    let all_look = reader.flag_or("all_layers_look", "cross_attn_all_layers", true)?;
    for key in ["cross_attn_k", "hidden_size_global"] {
        reader.value(key);
    }
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-5)?;
    reader.remark(
        "each byte looks at all rows that are given: in the whole model at those of its patch"
            .to_owned(),
    );
    let bytes = &read.stacks[0];
    let Some(own) = bytes.first_attention() else {
        let problem = "expected layers that attend";
        return Err(Error::config(reader.path(), "num_hidden_layers", problem));
    };
    let look = Look {
        d_model: read.d_model,
        attention: AttentionSpec {
            is_cross: true,
            ..AttentionSpec::plain(own.n_heads, own.n_kv_heads, own.d_head, false)
        },
        eps,
    };
    let mut blocks = Vec::new();
    for (layer_idx, block) in bytes.blocks().iter().enumerate() {
        if layer_idx == 0 || all_look {
            blocks.push(look.block(&format!("cross_attn_layers.{layer_idx}")));
        }
        blocks.push(block.clone());
    }
    let writing = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(bytes.embed.clone(), blocks, bytes.final_norm.clone())
    };
    reader.note(
        "layers",
        "those that look at patches count by themselves",
        Origin::Family,
    );
    let first = "cross_attn_layers.0.k_proj.weight".to_owned();
    let patches = given_rows::encoder(first, read.d_model);
    let stacks = [patches, writing];
    Ok(ModelSpec {
        n_ctx: read.n_ctx,
        ..given_rows::read_beside(FAMILY.model_type, reader, stacks)
    })
}

impl Look {
    fn block(&self, at: &str) -> BlockSpec {
        let (d, of) = (self.d_model, &self.attention);
        let map = |name: &str, n_in: usize, n_out: usize| {
            linear(&format!("{at}.{name}"), n_in, n_out, false)
        };
        let norm = |name: &str, eps: f64| {
            NormSource::new(
                NormKind::RmsNorm,
                eps,
                d,
                Some(format!("{at}.{name}.weight")),
            )
        };
        let [own, shared] = [of.n_heads, of.n_kv_heads].map(|n| n * of.d_head);
        let maps = ProjectionSpec {
            source_norm: Some(Box::new(norm("k_norm", self.eps))),
            ..ProjectionSpec::plain(
                map("q_proj", d, own),
                map("k_proj", d, shared),
                map("v_proj", d, shared),
                map("o_proj", own, d),
            )
        };
        let cross = CrossSpec {
            // Of rows that are doubled, this norm gives what that of the rows does.
            pre: Some(norm("q_norm", 4.0 * self.eps)),
            ..CrossSpec::plain(of.clone(), maps)
        };
        BlockSpec {
            cross: Some(Box::new(cross)),
            // The layer adds the residual to what it gives, which is added to the residual.
            resid_factors: [2.0, 1.0],
            ..BlockSpec::mixed(Mixer::None, FeedForward::None)
        }
    }
}
