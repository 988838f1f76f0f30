//! X-Codec 2: the transformer of its decoder, between convolutions. Its rotations turn a head's queries and keys alike at all
//! positions, which no score shows.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, ModelSpec};

use super::Family;
use super::reading::given_rows;
use super::reading::llama_like::{BiasRule, MlpStore, Recipe, RopeLayers};

pub const FAMILY: Family = Family::own("xcodec2", "Xcodec2", read).leaving_unread(&[
    "acoustic_decoder.embed.*",
    "acoustic_decoder.fc.*",
    "acoustic_decoder.head.*",
    "acoustic_decoder.norm.*",
    "acoustic_decoder.p*",
    "acoustic_encoder.*",
    "fc_encoder.*",
    "quantizer.*",
    "semantic_adapter.*",
    "semantic_encoder.*",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let bias = BiasRule::Key("attention_bias", false);
    let recipe = Recipe {
        rope_layers: RopeLayers::Never,
        qkv_bias: bias,
        o_bias: bias,
        mlp: MlpStore::Plain {
            up: "fc1",
            down: "fc2",
        },
        is_causal: false,
        d_head: Some(64),
        base: Some("acoustic_decoder."),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the encoders, the codes and the convolutions before", false);
    let spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    let attention = spec.stacks[0]
        .blocks()
        .first()
        .and_then(BlockSpec::attention);
    if let Some(own) = attention.filter(|own| own.n_kv_heads != own.n_heads) {
        // Heads turn by their numbers, which transformers does with as many heads of keys only.
        let (n, found) = (own.n_heads, own.n_kv_heads);
        let problem = format!("expected as many as heads, {n}, found {found}");
        return Err(Error::config(reader.path(), "num_key_value_heads", problem));
    }
    for key in [
        "activation_dropout",
        "downsampling_ratios",
        "encoder_hidden_size",
        "input_sampling_rate",
        "output_sampling_rate",
        "quantization_dim",
        "quantization_levels",
        "rope_parameters",
        "sampling_rate",
        "semantic_model_config",
    ] {
        reader.value(key);
    }
    Ok(spec)
}
