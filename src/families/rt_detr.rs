//! The encoder of RT-DETR and its kin: layers over the places of the coarsest map of features, the only attention that scores places. The
//! decoder reads several maps between places that each query computes (deformable attention), and is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ModelSpec, PlaceRows, Stack};

use super::Family;
use super::detr::Side;
use super::reading::{activation, even_heads, given_rows, must_be_off, note_attention, prefix};

pub const FAMILY: Family = Family::own("rt_detr", "RTDetr", read).leaving_unread(&[
    "class_head.*",
    "conv_encoder.*",
    "decoder*",
    "denoising*",
    "enc_*",
    "encoder.downsample_convs.*",
    "encoder.encoder_mask*",
    "encoder.fpn*",
    "encoder.lateral_convs.*",
    "encoder.mask*",
    "encoder.pan*",
    "encoder_input_proj.*",
    "encoder_vfl_proj.*",
    "mask*",
    "reading_order.*",
]);

/// What newer code calls the encoder and its feed-forward layers.
pub(super) const PUBLISHED: &[(&str, &str)] = &[
    (".aifi.", ".encoder."),
    (".mlp.layers.0.", ".fc1."),
    (".mlp.layers.1.", ".fc2."),
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    const LEVELS: &str = "encode_proj_layers";
    let levels = reader.numbers(LEVELS)?;
    if let Some(n) = levels.map(|levels| levels.len()).filter(|n| *n != 1) {
        let problem = format!("expected one map of features that attends, found {n}");
        return Err(Error::config(reader.path(), LEVELS, problem));
    }
    const FIXED: &str = "eval_size";
    if let Some(size) = reader.value(FIXED) {
        let problem =
            format!("expected null: places of maps of one size are not read, found {size}");
        return Err(Error::config(reader.path(), FIXED, problem));
    }
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let d_model = size("d_model", "encoder_hidden_dim", 256)?;
    let n_layers = size("n_layers", "encoder_layers", 1)?;
    let n_heads = size("n_heads", "encoder_attention_heads", 8)?;
    let d_mlp = size("d_mlp", "encoder_ffn_dim", 1024)?;
    if n_layers > tensors.len() {
        let found = tensors.len();
        let problem =
            format!("{n_layers} layers need more than the {found} tensors that are stored");
        return Err(Error::config(reader.path(), "encoder_layers", problem));
    }
    if !d_model.is_multiple_of(4) {
        let problem = format!(
            "expected a multiple of 4, for sines and cosines of two sides, found {d_model}"
        );
        return Err(Error::config(reader.path(), "encoder_hidden_dim", problem));
    }
    let d_head = even_heads(reader, "encoder_attention_heads", d_model, n_heads)?;
    let theta = reader.number_or("places_theta", "positional_encoding_temperature", 10_000.0)?;
    if theta <= 0.0 {
        let problem = format!("expected a number above 0, found {theta}");
        return Err(Error::config(
            reader.path(),
            "positional_encoding_temperature",
            problem,
        ));
    }
    must_be_off(
        reader,
        "normalize_before",
        "norms before the branches of this encoder are not read",
    )?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);
    reader.note(
        "positions",
        "sines and cosines of rows and columns, added to queries and keys in every layer",
        Origin::Family,
    );
    let base = prefix(
        tensors,
        &["model.", ""],
        "encoder.encoder.0.layers.0.fc1.weight",
    );
    let encoder = Side {
        tensors,
        base: format!("{base}encoder.encoder.0."),
        stack: Stack::Only,
        d_model,
        d_mlp,
        n_layers,
        activation: activation(reader, "encoder_activation_function", "gelu")?,
        attention,
        places: PlaceRows::SinesThenCosines(theta),
        is_before: false,
        last_norm: None,
        slope: None,
        eps: reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?,
    };
    given_rows::remark(
        reader,
        "the projection of the coarsest map, an array [row, column, channel],",
    );
    reader.remark(
        "the encoder alone is read: the decoder attends between places that each query computes"
            .to_owned(),
    );
    let first = format!("{}layers.0.self_attn.q_proj.weight", encoder.base);
    let stack = encoder.stack(given_rows::embed(first, d_model));
    Ok(ModelSpec {
        d_model,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}
