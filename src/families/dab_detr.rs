//! The encoder of DAB-DETR: DETR's, whose rows scale the sines of their places, and whose activations have stored slopes.
//!
//! Its decoder, whose queries move from layer to layer, is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{MlpSpec, ModelSpec, PlaceRows, SineScale, Stack};

use super::Family;
use super::detr::ASIDE_OF_DETECTORS;
use super::detr::{Side, of_map};
use super::reading::{activation, even_heads, linear, note_attention, prefix};

pub const FAMILY: Family = Family::own("dab-detr", "DabDetr", read).leaving_unread(&[
    "backbone.*",
    "bbox_predictor.*",
    "class_embed.*",
    "decoder.*",
    "patterns.weight",
    "query_refpoint_embeddings.weight",
]);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// The activation whose slope is stored.
const LEAKY: &str = "prelu";

/// Keys of the decoder, which is not read.
const ASIDE: [&str; 12] = [
    "auxiliary_loss",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "init_std",
    "initializer_bias_prior_prob",
    "keep_query_pos",
    "num_patterns",
    "num_queries",
    "query_dim",
    "random_refpoints_xy",
    "tie_word_embeddings",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE_OF_DETECTORS.iter().chain(&ASIDE).for_each(|key| {
        reader.value(key);
    });
    let default = |key: &str| Origin::Default(key.to_owned());
    const WIDTH: &str = "hidden_size";
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let d_model = size("d_model", WIDTH, 256)?;
    let n_heads = size("n_heads", "encoder_attention_heads", 8)?;
    let d_mlp = size("d_mlp", "encoder_ffn_dim", 2048)?;
    let n_layers = match reader.value("encoder_layers") {
        Some(_) => reader.layers("encoder_layers")?,
        None => 6,
    };
    if !d_model.is_multiple_of(4) {
        let problem = format!(
            "expected a multiple of 4, for sines and cosines of two sides, found {d_model}"
        );
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let d_head = even_heads(reader, "encoder_attention_heads", d_model, n_heads)?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);
    const ACTIVATION: &str = "activation_function";
    let stated = reader.value(ACTIVATION).and_then(|word| word.as_str());
    let is_leaky = stated.is_none_or(|word| word == LEAKY);
    let activation = if is_leaky {
        reader.word_or("activation", ACTIVATION, LEAKY)?;
        Activation::Identity
    } else {
        activation(reader, ACTIVATION, "relu")?
    };
    let mut theta = |knob, key: &str| {
        let theta = reader.number_or(knob, key, 20.0)?;
        if theta > 0.0 {
            return Ok(theta);
        }
        let problem = format!("expected a number above 0, found {theta}");
        Err(Error::config(reader.path(), key, problem))
    };
    let thetas = [
        theta("places_theta_of_rows", "temperature_height")?,
        theta("places_theta_of_columns", "temperature_width")?,
    ];
    let range = reader.number_or(
        "places_range",
        "sine_position_embedding_scale",
        SineScale::USUAL.range,
    )?;
    let ends_normed = reader.flag_or("last_norm", "normalize_before", false)?;
    let base = prefix(tensors, &["model.", ""], "input_projection.weight");
    let at = format!("{base}encoder.");
    let map = |nth: usize| {
        let name = format!("{at}query_scale.layers.{nth}");
        linear(&name, d_model, d_model, true)
    };
    let factors = MlpSpec::plain(map(0), map(1), Activation::Relu);
    let sines = PlaceRows::Sines(SineScale { range, thetas });
    let encoder = Side {
        tensors,
        base: at,
        stack: Stack::Only,
        d_model,
        d_mlp,
        n_layers,
        activation,
        attention,
        places: PlaceRows::Scaled(Box::new(sines), Box::new(factors)),
        is_before: false,
        last_norm: ends_normed.then_some("norm"),
        slope: is_leaky.then_some("activation_fn.weight"),
        eps: EPS,
    };
    let embed = of_map(tensors, reader, base, d_model);
    reader.remark(
        "the encoder alone is read: the places of the decoder's queries move from layer to layer"
            .to_owned(),
    );
    let stack = encoder.stack(embed);
    Ok(ModelSpec {
        d_model,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}
