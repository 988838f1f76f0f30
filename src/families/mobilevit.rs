//! MobileViT: layers that see every second patch of a picture, between convolutions.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, GridWindow};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::{Activation, NormKind};
use attnscope_prompt::Size;
use attnscope_spec::{ChainStep, ModelSpec, PlaneConvolution};

use super::Family;
use super::reading::chained::{Chained, Pictures, batch_norm, channels, same};
use super::reading::hiera_like::{by_stage, one_side};
use super::reading::processor::Processor;
use super::reading::vit_like::{Block, NormRule, OF_VIT};
use super::reading::windowed::see_window;
use super::reading::{activation, note_attention, prefix_of_encoder};
use super::swin;

pub const FAMILY: Family = Family::own("mobilevit", "MobileViT", read)
    .with_tasks(swin::TASKS)
    .leaving_unread(UNREAD);

/// What segments pictures.
const UNREAD: &[&str] = &["segmentation_head.*"];

/// Epsilon of batch norms, and layers of each stage that attends, which no key states.
const EPS: f64 = 1e-5;
const LAYERS: [usize; 3] = [2, 4, 3];

/// Keys of training, and of what segments pictures.
const ASIDE: [&str; 8] = [
    "aspp_dropout_prob",
    "aspp_out_channels",
    "atrous_rates",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "hidden_dropout_prob",
    "initializer_range",
    "semantic_loss_ignore_index",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let default = |key: &str| Origin::Default(key.to_owned());
    let necks = by_stage(
        reader,
        "neck_hidden_sizes",
        &[16, 32, 64, 96, 128, 160, 640],
    )?;
    let widths = by_stage(reader, "hidden_sizes", &[144, 192, 240])?;
    for (key, n, expected) in [
        ("neck_hidden_sizes", necks.len(), 7),
        ("hidden_sizes", widths.len(), LAYERS.len()),
    ] {
        if n != expected {
            let problem = format!("expected {expected} widths, found {n}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    let n_channels = channels(reader, "num_channels")?;
    let n_heads = reader.size_or(
        "n_heads",
        "num_attention_heads",
        4,
        default("num_attention_heads"),
    )?;
    let n_wide = reader.size_or("n_wide", "conv_kernel_size", 3, default("conv_kernel_size"))?;
    let side = one_side(reader, "patch_size", 2)?;
    let size = one_side(reader, "image_size", 256)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let ratio = reader.number_or("mlp_ratio", "mlp_ratio", 2.0)?;
    let has_qkv_bias = reader.flag_or("qkv_bias", "qkv_bias", true)?;
    let base = prefix_of_encoder(tensors, &["mobilevit.", ""], "conv_stem.convolution.weight");
    let mut made = Made {
        expands: reader.number_or("expand_ratio", "expand_ratio", 4.0)?,
        activation: activation(reader, "hidden_act", "silu")?,
        stack: Chained::new(n_channels),
    };
    // Later stages are not strided where the outputs lie nearer to each other; their kernels are spread in place of that.
    let apart = match reader.size_or(
        "output_stride",
        "output_stride",
        32,
        default("output_stride"),
    )? {
        8 => [1, 2, 4],
        16 => [1, 1, 2],
        _ => [1, 1, 1],
    };
    made.layer(&format!("{base}conv_stem"), necks[0], [3, 2], true);
    made.inverted(&format!("{base}encoder.layer.0.layer.0"), necks[1], [1, 1]);
    for nth in 0..3 {
        let stride = if nth == 0 { 2 } else { 1 };
        made.inverted(
            &format!("{base}encoder.layer.1.layer.{nth}"),
            necks[2],
            [stride, 1],
        );
    }
    let mut across = size.div_ceil(4);
    for (stage, width) in widths.into_iter().enumerate() {
        if !width.is_multiple_of(n_heads) {
            let problem = format!("{n_heads} heads do not divide a width of {width}");
            return Err(Error::config(reader.path(), "num_attention_heads", problem));
        }
        let at = format!("{base}encoder.layer.{}", stage + 2);
        let n_out = necks[stage + 3];
        let stride = if apart[stage] > 1 { 1 } else { 2 };
        made.inverted(
            &format!("{at}.downsampling_layer"),
            n_out,
            [stride, (apart[stage] / 2).max(1)],
        );
        across = across.div_ceil(stride);
        made.stack.push(ChainStep::Keep);
        made.layer(&format!("{at}.conv_kxk"), n_out, [n_wide, 1], true);
        made.stack.convolve(PlaneConvolution {
            bias: None,
            ..same(&format!("{at}.conv_1x1.convolution"), width, 1)
        });
        made.stack.push(ChainStep::Squares(side));
        let attention = AttentionSpec::plain(n_heads, n_heads, width / n_heads, false);
        if stage == 0 {
            note_attention(reader, &attention, Origin::Family);
            reader.note(
                "windows",
                format!("every {side}th row and column"),
                Origin::Family,
            );
        }
        let norm = NormRule {
            kind: NormKind::LayerNorm,
            eps,
        };
        let block = Block {
            tensors,
            names: OF_VIT,
            d_model: width,
            d_keys: width,
            d_mlp: ((width as f64 * ratio) as usize).max(1),
            norm,
            activation: made.activation,
            has_qkv_bias,
            has_fused_gate: false,
        };
        for layer in 0..LAYERS[stage] {
            let mut block = block.read(&format!("{at}.transformer.layer.{layer}"), &attention);
            if let Some(own) = block.own_mut() {
                let window = GridWindow {
                    is_spread: true,
                    ..GridWindow::plain([side; 2])
                };
                see_window(own, window, (across / side).pow(2).max(1));
            }
            made.stack.block(block);
        }
        let norm = norm.named(tensors, &format!("{at}.layernorm"), width);
        made.stack.push(ChainStep::Norm(Box::new(norm)));
        made.layer(&format!("{at}.conv_projection"), n_out, [1, 1], true);
        made.stack.push(ChainStep::BesideKept);
        made.layer(&format!("{at}.fusion"), n_out, [n_wide, 1], true);
    }
    let last = format!("{base}conv_1x1_exp");
    if tensors.contains(&format!("{last}.convolution.weight")) {
        made.layer(&last, necks[6], [1, 1], true);
    }
    let pictures = Pictures::plain(Processor::MOBILEVIT, Size::Exactly([size; 2]));
    made.stack
        .model(FAMILY.model_type, checkpoint, reader, pictures)
}

/// A model in the making.
struct Made {
    expands: f64,
    activation: Activation,
    stack: Chained,
}

impl Made {
    /// A convolution with a norm, and an activation if there is one.
    fn layer(&mut self, at: &str, n_out: usize, [n_wide, stride]: [usize; 2], activates: bool) {
        let steps = self.steps(
            (at, self.stack.width),
            n_out,
            [n_wide, stride, 1],
            (false, activates),
        );
        self.stack.extend(steps);
    }

    fn steps(
        &self,
        (at, n_in): (&str, usize),
        n_out: usize,
        [n_wide, stride, apart]: [usize; 3],
        (is_by_channel, activates): (bool, bool),
    ) -> Vec<ChainStep> {
        let norm = batch_norm(&format!("{at}.normalization"), n_out, EPS);
        let convolution = PlaneConvolution {
            n_in,
            bias: None,
            is_by_channel,
            apart,
            strides: [stride; 2],
            padding: [n_wide.saturating_sub(1) / 2 * apart; 2],
            ..same(&format!("{at}.convolution"), n_out, n_wide)
        };
        let activation = activates.then_some(ChainStep::Activation(self.activation));
        let steps = [
            ChainStep::Convolution(convolution),
            ChainStep::Norm(Box::new(norm)),
        ];
        steps.into_iter().chain(activation).collect()
    }

    /// Convolutions to a greater width and back, the middle one of each channel by itself; added where nothing changes size.
    fn inverted(&mut self, at: &str, n_out: usize, [stride, apart]: [usize; 2]) {
        let n_in = self.stack.width;
        let wide = in_eights((n_in as f64 * self.expands).round_ties_even() as usize);
        let name = |name: &str| format!("{at}.{name}");
        let mut steps = self.steps((&name("expand_1x1"), n_in), wide, [1, 1, 1], (false, true));
        let kernel = [3, stride, apart];
        steps.extend(self.steps((&name("conv_3x3"), wide), wide, kernel, (true, true)));
        steps.extend(self.steps(
            (&name("reduce_1x1"), wide),
            n_out,
            [1, 1, 1],
            (false, false),
        ));
        if stride == 1 && n_in == n_out {
            self.stack.push(ChainStep::residual(n_in, steps));
        } else {
            self.stack.extend(steps);
        }
    }
}

/// The multiple of 8 that is nearest, and not less than 9 in 10.
fn in_eights(n: usize) -> usize {
    let near = ((n + 4) / 8 * 8).max(8);
    if 10 * near < 9 * n { near + 8 } else { near }
}
