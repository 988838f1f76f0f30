//! Swin2SR: layers of Swin's second version at every place of a picture, with convolutions before, between and behind them. What makes a
//! larger picture of them is not read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, GridSteps, GridWindow};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{ChainStep, ModelSpec, PlaneConvolution};

use super::reading::chained::{Chained, Pictures, channels, same};
use super::reading::hiera_like::one_side;
use super::reading::processor::Processor;
use super::reading::swin_like::{second_version, stages};
use super::reading::vit_like::{Block, NormRule};
use super::reading::windowed::{Distances, see_windows};
use super::reading::{
    activation, layer_norm, must_be_off, note_attention, note_bias, prefix_of_encoder,
};
use super::{Family, swin};

pub const FAMILY: Family = Family::own("swin2sr", "Swin2SR", read).leaving_unread(UNREAD);

/// What makes a larger picture.
const UNREAD: &[&str] = &["upsample.*", "final_convolution.*"];

/// Keys of training, of what makes a larger picture, and of all stages together.
const ASIDE: [&str; 9] = [
    "attention_probs_dropout_prob",
    "drop_path_rate",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "num_layers",
    "path_norm",
    "upscale",
    "upsampler",
];

/// The colour that is subtracted from pictures of three channels, and the epsilon of the first norm, which no key states.
const MEAN: [f32; 3] = [0.4488, 0.4371, 0.4040];
const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_channels = channels(reader, "num_channels")?;
    let n_given = reader
        .value("num_channels_out")
        .and_then(serde_json::Value::as_u64);
    let width = reader.size_or("d_embed", "embed_dim", 180, default("embed_dim"))?;
    let stages = stages(reader, &[6; 6], &[6; 6])?;
    let side = reader.size_or("window", "window_size", 8, default("window_size"))?;
    let size = one_side(reader, "image_size", 64)?;
    let ratio = reader.number_or("mlp_ratio", "mlp_ratio", 2.0)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let has_qkv_bias = reader.flag_or("qkv_bias", "qkv_bias", true)?;
    let range = reader.number_or("image_range", "img_range", 1.0)?;
    let connection = reader.word_or("connection", "resi_connection", "1conv")?;
    if range == 0.0 {
        let problem = "expected a number other than 0";
        return Err(Error::config(reader.path(), "img_range", problem));
    }
    must_be_off(
        reader,
        "use_absolute_embeddings",
        "a picture of another size has no positions",
    )?;
    if one_side(reader, "patch_size", 1)? != 1 {
        let problem = "expected 1: its convolutions see every pixel";
        return Err(Error::config(reader.path(), "patch_size", problem));
    }
    let first = "first_convolution";
    let base = prefix_of_encoder(tensors, &["swin2sr.", ""], &format!("{first}.weight"));
    let name = |name: &str| format!("{base}{name}");
    let mut stack = Chained::new(n_channels);
    let patches = name("embeddings.patch_embeddings");
    stack.convolve(same(&name(first), width, 3));
    stack.push(ChainStep::Keep);
    stack.convolve(same(&format!("{patches}.projection"), width, 1));
    let norm = layer_norm(tensors, &format!("{patches}.layernorm"), width, EPS);
    stack.push(ChainStep::Norm(Box::new(norm)));
    let window = side.min(size);
    stack.push(ChainStep::Squares(window));
    stack.push(ChainStep::Keep);
    let (names, n_stages) = (swin::like(&[""]), stages.len());
    let block = Block {
        tensors,
        names: names.names,
        d_model: width,
        d_keys: width,
        d_mlp: ((width as f64 * ratio) as usize).max(1),
        norm: NormRule {
            kind: NormKind::LayerNorm,
            eps,
        },
        activation: activation(reader, "hidden_act", "gelu")?,
        has_qkv_bias,
        has_fused_gate: false,
    };
    for (stage, [n_layers, n_heads]) in stages.into_iter().enumerate() {
        if !width.is_multiple_of(n_heads) {
            let problem = format!("{n_heads} heads do not divide a width of {width}");
            return Err(Error::config(reader.path(), "num_heads", problem));
        }
        let attention = AttentionSpec::plain(n_heads, n_heads, width / n_heads, false);
        if stage == 0 {
            note_attention(reader, &attention, Origin::Family);
        }
        let at = name(&format!("encoder.stages.{stage}"));
        for layer in 0..n_layers {
            let mut block = block.read(&format!("{at}.layers.{layer}"), &attention);
            let is_shifted = layer % 2 == 1 && size > window;
            let steps = GridSteps {
                grid: [0; 2],
                window: Some(GridWindow {
                    shift: [if is_shifted { side / 2 } else { 0 }; 2],
                    ..GridWindow::plain([window; 2])
                }),
            };
            see_windows(&mut block, steps, Distances::Nothing);
            second_version(&mut block, (names, steps), None);
            stack.block(block);
        }
        stack.extend(residual(reader, &format!("{at}.conv"), width, &connection)?);
        stack.convolve(same(&format!("{at}.patch_embed.projection"), width, 1));
        stack.push(ChainStep::AddKept);
        if stage + 1 < n_stages {
            stack.push(ChainStep::Keep);
        }
    }
    note_bias(reader, "a network of distances in rows and in columns");
    let norm = layer_norm(tensors, &name("layernorm"), width, eps);
    stack.push(ChainStep::Norm(Box::new(norm)));
    stack.convolve(same(&name("conv_after_body"), width, 3));
    stack.push(ChainStep::AddKept);
    let is_coloured = n_channels == 3 && n_given.is_none_or(|n| n == 3);
    let mean = if is_coloured { MEAN } else { [0.0; 3] };
    let pictures = Pictures {
        then: (mean, [(1.0 / range) as f32; 3]),
        ..Pictures::plain(Processor::SWIN2SR, Processor::SWIN2SR.size)
    };
    stack.model(FAMILY.model_type, checkpoint, reader, pictures)
}

/// The convolutions behind a stage.
fn residual(
    reader: &Reader<'_>,
    at: &str,
    width: usize,
    connection: &str,
) -> Result<Vec<ChainStep>> {
    let step = |name: String, [n_in, n_out, n_wide]: [usize; 3]| {
        let convolution = same(&name, n_out, n_wide);
        ChainStep::Convolution(PlaneConvolution {
            n_in,
            ..convolution
        })
    };
    match connection {
        "1conv" => Ok(vec![step(at.to_owned(), [width, width, 3])]),
        "3conv" => {
            let narrow = width / 4;
            let nth = |nth: usize| format!("{at}.{nth}");
            Ok(vec![
                step(nth(0), [width, narrow, 3]),
                ChainStep::Leaky(0.2),
                step(nth(2), [narrow, narrow, 1]),
                ChainStep::Leaky(0.2),
                step(nth(4), [narrow, width, 3]),
            ])
        }
        other => {
            let problem = format!("expected 1conv or 3conv, found {other}");
            Err(Error::config(reader.path(), "resi_connection", problem))
        }
    }
}
