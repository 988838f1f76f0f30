//! The decoder of CLVP: GPT-2 with queries, keys and values apart.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{FeedForward, MlpSpec, ModelSpec, PositionTable, TableSource};

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, NormStyle, RMS, Recipe, RopeLayers, Sizes,
};
use super::reading::{activation, linear, prefix};

pub const FAMILY: Family = Family::own("clvp_decoder", "ClvpDecoder", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    if tensors.contains("final_norm.weight") {
        let problem = "expected the decoder alone: a head with a norm of its own is not read, found final_norm.weight";
        return Err(Error::config(reader.path(), "architectures", problem));
    }
    let base = prefix(tensors, &["decoder.", ""], "embed_tokens.weight");
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::LayerNorm,
            eps_key: Some("layer_norm_epsilon"),
            eps: 1e-5,
            has_bias: true,
            ..RMS
        },
        rope_layers: RopeLayers::Never,
        qkv_bias: BiasRule::Key("use_attention_bias", true),
        o_bias: BiasRule::Always,
        names: BlockNames {
            attn: "attn",
            o: "out_proj",
            final_norm: "layer_norm",
            ..BlockNames::USUAL
        },
        is_tied: true,
        base: Some(base),
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let (d_model, n_ctx) = (sizes.d_model, sizes.n_ctx);
    let wide = Origin::Derived("4 · d_model, no n_inner".to_owned());
    let d_mlp = reader.size_or("d_mlp", "n_inner", 4 * d_model, wide)?;
    let activation = activation(reader, "activation_function", "gelu_new")?;
    let mlp = |_: usize, at: &str| {
        let map = |name: &str, n_in, n_out| {
            linear(&format!("{at}.mlp.{name}"), n_in, n_out, true).input_major()
        };
        let (up, down) = (map("c_fc", d_model, d_mlp), map("c_proj", d_mlp, d_model));
        FeedForward::Dense(Box::new(MlpSpec::plain(up, down, activation)))
    };
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    reader.note("positions", format!("learned, {n_ctx}"), Origin::Family);
    spec.stacks[0].embed.positions = Some(PositionTable::Stored(TableSource {
        tensor: format!("{base}position_embeds_layer.weight"),
        n_rows: n_ctx,
        width: d_model,
    }));
    Ok(spec)
}
