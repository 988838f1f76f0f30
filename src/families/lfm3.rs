//! LFM3: LFM2's convolutions in some layers, Qwen3's attention with windows and gates of heads in others, norms around all branches.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::mixers::{ConvolutionSpec, ShortConvolution};
use attnscope_spec::{BlockSpec, LinearSource, ModelSpec, TokenMixer};

use super::Family;
use super::reading::experts::NUMBERED;
use super::reading::hybrid::{attending_layers, by_rule, replace};
use super::reading::llama_like::{
    self, BlockNames, MlpStore, NormPlaces, NormStyle, QkNorm, RMS, Recipe, RopeLayers,
};
use super::reading::typed_rotation::rotation;
use super::reading::windows::WindowRule;
use super::reading::{linear, stacked};

pub const FAMILY: Family = Family::own("lfm3", "Lfm3", read);

const NORMS: [&str; 4] = [
    "operator_norm",
    "post_operator_norm",
    "ffn_norm",
    "post_ffn_norm",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let is_around = reader.flag_or("norms_outputs", "use_sandwich_norm", true)?;
    let has_gates = reader.flag_or("head_gates", "use_attention_gate", true)?;
    let recipe = Recipe {
        norm: NormStyle {
            eps_key: Some("norm_eps"),
            eps: 1e-5,
            ..RMS
        },
        norm_places: if is_around {
            NormPlaces::Around(NORMS)
        } else {
            NormPlaces::BeforeNamed([NORMS[0], NORMS[2]])
        },
        names: BlockNames {
            final_norm: "embedding_norm",
            mlp: "feed_forward",
            ..BlockNames::USUAL
        },
        qk_norm: QkNorm::Head,
        rope_layers: RopeLayers::Never,
        mlp: MlpStore::Gated(NUMBERED),
        head_gate: has_gates.then_some("g_proj"),
        window: WindowRule::MustList {
            width: 256,
            has_mixers: true,
        },
        is_tied: true,
        d_head: Some(128),
        ..Recipe::llama()
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let (n_layers, d_model) = (spec.main_stack().n_layers(), spec.d_model);
    let attends = attending_layers(reader, n_layers, "convolutions", |_| {
        by_rule(std::iter::repeat_n(true, n_layers))
    })?;
    let n_ctx = spec.n_ctx.unwrap_or_default();
    reader.forget(&["positions"]);
    let blocks = spec.stacks[0].blocks_mut().iter_mut();
    for own in blocks
        .zip(&attends)
        .filter(|(_, attends)| **attends)
        .filter_map(|(block, _)| BlockSpec::own_mut(block))
    {
        let is_windowed = own.attention.mask.window.is_some();
        let d_head = own.attention.d_head;
        own.attention.rope = Some(rotation(reader, is_windowed, d_head, n_ctx)?);
        let n_heads = own.attention.n_heads;
        let maps = &mut own.projections;
        maps.gate = maps
            .gate
            .take()
            .map(|gate| LinearSource::whole(gate.weight, None, d_model, n_heads));
    }
    let has_bias = reader.flag_or("conv_bias", "conv_bias", false)?;
    let default = Origin::Default("conv_L_cache".to_owned());
    let n_tokens = reader.size_or("conv_width", "conv_L_cache", 7, default)?;
    replace(&mut spec, &attends, ".operator_norm.weight", |at| {
        convolution(at, (d_model, n_tokens), has_bias)
    });
    Ok(spec)
}

/// The gated convolution of a layer.
pub(super) fn convolution(
    at: &str,
    (d_model, n_tokens): (usize, usize),
    has_bias: bool,
) -> TokenMixer {
    let kernel = ShortConvolution::whole(
        format!("{at}.conv.conv.weight"),
        has_bias.then(|| format!("{at}.conv.conv.bias")),
        d_model,
        n_tokens,
    );
    gated_convolution(at, kernel, has_bias)
}

/// A convolution between the gates of a layer; `has_bias` says whether the maps have biases.
pub(super) fn gated_convolution(
    at: &str,
    convolution: ShortConvolution,
    has_bias: bool,
) -> TokenMixer {
    let d_model = convolution.n_channels;
    let map = |name: &str, n_out| linear(&format!("{at}.conv.{name}"), d_model, n_out, has_bias);
    let [b, c, x] = stacked(&map("in_proj", 3 * d_model), [d_model; 3]);
    TokenMixer::Convolution(Box::new(ConvolutionSpec {
        b,
        c,
        x,
        convolution,
        o: map("out_proj", d_model),
    }))
}
