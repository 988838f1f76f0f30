//! GPT-OSS: learned sinks, windows on every second layer, and experts with biases whose gates are clamped.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    ExpertsSpec, FeedForward, GateRule, LinearSource, MlpSpec, ModelSpec, Part, RouterRule,
    RouterScores,
};

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::llama_like::{self, BiasRule, NormStyle, RMS, Recipe, Sizes};
use super::reading::rope::stated;
use super::reading::windows::WindowRule;
use super::reading::{check_counts, check_used};

pub const FAMILY: Family = Family::own("gpt_oss", "GptOss", read);

/// Default clamp of gate and up, and default slope of the gate's sigmoid.
const LIMIT: f64 = 7.0;

const SLOPE: f64 = 1.702;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = GptOssLike {
        family: FAMILY.model_type,
        recipe: recipe(),
        alternates: true,
    };
    read_as(checkpoint, reader, &like)
}

/// How families built from GPT-OSS's blocks differ.
pub(super) struct GptOssLike {
    pub family: &'static str,
    pub recipe: Recipe,
    /// Gate and up alternate, column by column; otherwise all of the gate comes first.
    pub alternates: bool,
}

/// How GPT-OSS differs from Llama.
pub(super) fn recipe() -> Recipe {
    let bias = BiasRule::Key("attention_bias", true);
    Recipe {
        norm: NormStyle { eps: 1e-5, ..RMS },
        theta: 150_000.0,
        qkv_bias: bias,
        o_bias: bias,
        window: WindowRule::AllBut {
            every: 2,
            every_key: None,
            width: 128,
        },
        has_sinks: true,
        d_head: Some(64),
        ..Recipe::llama()
    }
}

/// Reads a family built from GPT-OSS's blocks.
///
/// # Errors
/// When a value of the configuration is missing or impossible.
pub(super) fn read_as(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    like: &GptOssLike,
) -> Result<ModelSpec> {
    let recipe = &like.recipe;
    // Without either key, transformers uses built-in rescaling factors that no file states.
    if stated(reader, "rope_scaling").is_none() && stated(reader, "rope_parameters").is_none() {
        let problem = "missing, expected the rescaling of rotary frequencies or its absence stated";
        return Err(Error::config(reader.path(), "rope_parameters", problem));
    }
    let sizes = Sizes::read(reader, recipe.d_head)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_experts = reader.size("n_experts", "num_local_experts")?;
    check_counts(
        reader,
        &checkpoint.tensors,
        sizes.n_layers,
        (n_experts, true),
    )?;
    let n_used = match reader.value("experts_per_token") {
        Some(_) => reader.size("n_experts_used", "experts_per_token")?,
        None => reader.size("n_experts_used", "num_experts_per_tok")?,
    };
    check_used(reader, n_used, n_experts)?;
    reader.value("hidden_act");
    let limit = number(reader, "swiglu_limit", LIMIT)?;
    let alpha = number(reader, "swiglu_alpha", SLOPE)?;
    let said = format!("clamped gate, limit {limit}, slope {alpha}");
    reader.note("activation", said, Origin::Family);
    let clamped = GateRule::Clamped {
        limit: limit as f32,
        alpha: alpha as f32,
    };
    let d_model = sizes.d_model;
    let mlp = |_: usize, at: &str| {
        let at = format!("{at}.mlp");
        let slab = |name: &str, n_in, n_out, idx| {
            let name = format!("{at}.experts.{name}");
            let bias = Some(format!("{name}_bias"));
            LinearSource::whole(name, bias, n_in, n_out)
                .input_major()
                .slab(idx, n_experts)
        };
        let is_apart = checkpoint
            .tensors
            .contains(&format!("{at}.experts.0.gate_proj.weight"));
        let expert = |idx: usize| {
            if is_apart {
                let at = format!("{at}.experts.{idx}");
                return MlpSpec {
                    gate_rule: clamped,
                    ..gated(&at, USUAL, d_model, d_mlp, Activation::Silu, true)
                };
            }
            let len = if like.alternates { 1 } else { d_mlp };
            let turn = |nth| {
                let fused = slab("gate_up_proj", d_model, 2 * d_mlp, idx);
                fused.part(Part {
                    group: 2 * len,
                    offset: nth * len,
                    len,
                })
            };
            MlpSpec {
                up: turn(1),
                gate: Some(turn(0)),
                down: slab("down_proj", d_mlp, d_model, idx),
                activation: Activation::Silu,
                gate_rule: clamped,
                learned: None,
                convolution: None,
                hidden_norm: None,
                sparsity: None,
                out_activation: None,
            }
        };
        let router = format!("{at}.router");
        let bias = Some(format!("{router}.bias"));
        FeedForward::Experts(Box::new(ExpertsSpec {
            router: LinearSource::whole(format!("{router}.weight"), bias, d_model, n_experts),
            rule: RouterRule::plain(n_used, RouterScores::SoftmaxOfChosen),
            experts: (0..n_experts).map(expert).collect(),
            shared: None,
            latent: None,
            norms: None,
            apart: None,
        }))
    };
    llama_like::read_with(like.family, checkpoint, reader, recipe, sizes, &mlp)
}

/// A number of at least 0, or the default if the key is absent.
fn number(reader: &mut Reader<'_>, key: &str, default: f64) -> Result<f64> {
    match reader.value(key) {
        None => Ok(default),
        Some(value) => {
            let number = value.as_f64().filter(|v| v.is_finite() && *v >= 0.0);
            number.ok_or_else(|| {
                let problem = format!("expected a number from 0, found {value}");
                Error::config(reader.path(), key, problem)
            })
        }
    }
}
