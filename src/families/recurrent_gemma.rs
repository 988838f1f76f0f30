//! RecurrentGemma: gated linear recurrences in most layers, attention to a window in the others.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::Window;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::{GateNames, GatedRecurrenceSpec, ShortConvolution};
use attnscope_spec::{FeedForward, ModelSpec, TokenMixer};

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::hybrid::{check_divides, note_attending, replace};
use super::reading::llama_like::{
    self, BiasRule, BlockNames, FactorRule, NormPlaces, NormStyle, RMS, Recipe, Sizes,
};
use super::reading::{activation, linear};

pub const FAMILY: Family = Family::own("recurrent_gemma", "RecurrentGemma", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = Recipe {
        rotary_share: Some(0.5),
        norm: NormStyle {
            adds_one: true,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["temporal_pre_norm", "channel_pre_norm"]),
        names: BlockNames {
            attn: "temporal_block",
            final_norm: "final_norm",
            ..BlockNames::USUAL
        },
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Always,
        is_tied: true,
        embed_scale: FactorRule::RootWidth,
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let (n_layers, d_model, n_blocks) = (sizes.n_layers, sizes.d_model, sizes.n_heads);
    check_divides(reader, "num_attention_heads", n_blocks, d_model)?;
    let sizes = Sizes {
        d_head: d_model / n_blocks,
        ..sizes
    };
    const WIDTH: &str = "intermediate_size";
    let d_mlp = reader.size("d_mlp", WIDTH)? / 2;
    if d_mlp == 0 {
        let problem =
            "expected at least 2, half of which is the width of a map, found 1".to_owned();
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let act = activation(reader, "hidden_activation", "gelu_pytorch_tanh")?;
    let mlp = |_: usize, at: &str| {
        let at = format!("{at}.mlp_block");
        FeedForward::Dense(Box::new(gated(&at, USUAL, d_model, d_mlp, act, true)))
    };
    let family = FAMILY.model_type;
    let mut spec = llama_like::read_with(family, checkpoint, reader, &recipe, sizes, &mlp)?;
    spec.stacks[0].embed.scale = rounded(spec.stacks[0].embed.scale);
    let width = window(reader)?;
    let cap = reader.number_or("logit_softcap", "logits_soft_cap", 30.0)?;
    if cap == 0.0 {
        let problem = "expected a number other than 0, found 0";
        return Err(Error::config(reader.path(), "logits_soft_cap", problem));
    }
    if let Some(head) = &mut spec.head {
        head.softcap = Some(cap.abs() as f32);
    }
    for block in spec.stacks[0].blocks_mut() {
        if let Some(own) = block.own_mut() {
            own.attention.mask.window = Some(Window::Back(width));
        }
    }
    let attends = attending_layers(reader, n_layers)?;
    let recurrence = Recurrence::read(reader, d_model, n_blocks, act)?;
    replace(&mut spec, &attends, ".temporal_pre_norm.weight", |at| {
        TokenMixer::GatedRecurrence(Box::new(recurrence.at(&format!("{at}.temporal_block"))))
    });
    Ok(spec)
}

/// Rounds a factor to bf16.
fn rounded(factor: f32) -> f32 {
    let bits = factor.to_bits();
    let even = (bits >> 16) & 1;
    f32::from_bits((bits + 0x7fff + even) & 0xffff_0000)
}

/// Number of keys that a query sees.
fn window(reader: &mut Reader<'_>) -> Result<usize> {
    const KEYS: [&str; 2] = ["attention_window_size", "sliding_window"];
    let key = KEYS
        .into_iter()
        .find(|key| reader.value(key).is_some())
        .unwrap_or(KEYS[0]);
    // Both names stand for the same number.
    if let (Some(own), Some(other)) = (reader.value(KEYS[0]), reader.value(KEYS[1]))
        && own != other
    {
        let problem = format!("expected the {own} of {}, found {other}", KEYS[0]);
        return Err(Error::config(reader.path(), KEYS[1], problem));
    }
    reader.size_or("window", key, 2048, Origin::Default(key.to_owned()))
}

/// Which layers attend, from a repeated pattern of words.
fn attending_layers(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const PATTERN: &str = "block_types";
    let (pattern, origin) = match reader.value(PATTERN) {
        None => (
            vec![false, false, true],
            Origin::Default(PATTERN.to_owned()),
        ),
        Some(value) => {
            let words = value.as_array().filter(|list| !list.is_empty());
            let attends = |word: &serde_json::Value| match word.as_str() {
                Some("attention") => Some(true),
                Some("recurrent") => Some(false),
                _ => None,
            };
            let pattern = words.and_then(|words| words.iter().map(attends).collect());
            let pattern: Vec<bool> = pattern.ok_or_else(|| {
                let problem = format!("expected a list of recurrent and attention, found {value}");
                Error::config(reader.path(), PATTERN, problem)
            })?;
            (pattern, Origin::Key(PATTERN.to_owned()))
        }
    };
    // transformers repeats the pattern a hundred times, which limits the number of layers.
    if n_layers > 100 * pattern.len() {
        let problem = format!("expected a pattern that 100 times over has {n_layers} layers");
        return Err(Error::config(reader.path(), PATTERN, problem));
    }
    let attends: Vec<bool> = pattern.into_iter().cycle().take(n_layers).collect();
    note_attending(reader, &attends, "gated linear recurrence (RG-LRU)", origin);
    Ok(attends)
}

/// Settings that all recurrent layers share.
struct Recurrence {
    d_model: usize,
    n_channels: usize,
    n_blocks: usize,
    n_tokens: usize,
    activation: Activation,
}

impl Recurrence {
    fn read(
        reader: &mut Reader<'_>,
        d_model: usize,
        n_blocks: usize,
        activation: Activation,
    ) -> Result<Self> {
        let same = Origin::Derived("d_model, no lru_width".to_owned());
        let n_channels = reader.size_or("mixer_width", "lru_width", d_model, same)?;
        check_divides(reader, "num_attention_heads", n_blocks, n_channels)?;
        let conv = "conv1d_width";
        let default = Origin::Default(conv.to_owned());
        Ok(Self {
            d_model,
            n_channels,
            n_blocks,
            n_tokens: reader.size_or("conv_width", conv, 4, default)?,
            activation,
        })
    }

    fn at(&self, at: &str) -> GatedRecurrenceSpec {
        let (n, d_model) = (self.n_channels, self.d_model);
        let name = |name: &str| format!("{at}.{name}");
        let unit = |what: &str| name(&format!("rg_lru.{what}"));
        GatedRecurrenceSpec {
            x: linear(&name("linear_x"), d_model, n, true),
            y: linear(&name("linear_y"), d_model, n, true),
            convolution: ShortConvolution::whole(
                name("conv_1d.weight"),
                Some(name("conv_1d.bias")),
                n,
                self.n_tokens,
            ),
            activation: self.activation,
            n_channels: n,
            n_blocks: self.n_blocks,
            at: GateNames {
                input_gate: unit("input_gate_weight"),
                input_bias: unit("input_gate_bias"),
                decay_gate: unit("recurrent_gate_weight"),
                decay_bias: unit("recurrent_gate_bias"),
                decay: unit("recurrent_param"),
            },
            o: linear(&name("linear_out"), n, d_model, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn factors_are_rounded_like_bf16() {
        assert_eq!(rounded(50.596_44), 50.5);
        assert_eq!(rounded(8.0), 8.0);
        assert_eq!(rounded(5.656_854), 5.656_25);
    }
}
