//! Inkling: convolutions over a few tokens in keys, values and outputs of branches, a position bias that each query mixes of learned
//! profiles, layers with a window and others with other heads, and shared experts that compete for weight.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{Bias, Growth, GrowthCurve, Profiles, Scale, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::mixers::ShortConvolution;
use attnscope_spec::{
    AddedConvolution, BiasGate, BlockSpec, FeedForward, LinearSource, MlpSpec, ModelSpec,
    NormSource, Part, ProfileGate, ProjectionSpec, RouterScores, TableSource,
};

use super::Family;
use super::reading::expected::{Expected, check};
use super::reading::experts::{ExpertStore, USUAL, gated};
use super::reading::hybrid::layer_of;
use super::reading::llama_like::{
    self, BiasRule, ExpertsKeys, FactorRule, QkNorm, Recipe, RopeLayers, Sizes, SparseLayers,
};
use super::reading::{activation, check_groups, linear, note_attention, note_bias, rms_norm};

pub const FAMILY: Family =
    Family::own("inkling_text", "InklingText", read).leaving_unread(&["model.mtp.*"]);

/// No known model has more experts that every token uses.
const MOST_SHARED: usize = 256;

/// The suffix of the first norm of a layer.
const FIRST: &str = ".input_layernorm.weight";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(reader, &[("shared_expert_sink", Expected::Flag(true))])?;
    let recipe = Recipe {
        qk_norm: QkNorm::Head,
        rope_layers: RopeLayers::Never,
        logit_scale: FactorRule::InverseKey("logits_mup_width_multiplier", 24.0),
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, Some(128))?;
    let tensors = &checkpoint.tensors;
    let mlp = feed_forward(reader, tensors, sizes)?;
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &*mlp)?;
    let heads = Heads::read(reader, sizes)?;
    let windows = hybrid_windows(reader, sizes.n_layers, ("sliding_window_size", 512))?;
    let stack = &mut spec.stacks[0];
    for (block, window) in stack.blocks_mut().iter_mut().zip(windows) {
        heads.fit(block, window);
    }
    if let Some(own) = stack.first_attention() {
        reader.forget(&["scale", "scale_factor", "softmax_axis", "mask"]);
        note_attention(reader, own, Origin::Family);
    }
    note_bias(reader, "profiles of distances, which each query mixes");
    if let Some(last) = &stack.final_norm {
        let name = stack.embed.tokens.tensor.trim_end_matches("weight");
        let name = format!("{name}embed_norm.weight");
        stack.embed.norm = Some(rms_norm(name, last.width, f64::from(last.eps)));
    }
    const ROWS: &str = "unpadded_vocab_size";
    let n_rows = reader.number_or_none("n_logits", ROWS, None)?;
    if let (Some(n), Some(head)) = (n_rows, &mut spec.head) {
        let group = head.unembed.n_out();
        if n < 1.0 || n.fract() != 0.0 {
            let problem = format!("expected a whole number from 1, found {n}");
            return Err(Error::config(reader.path(), ROWS, problem));
        }
        let len = group.min(n as usize);
        head.unembed = head.unembed.clone().part(Part {
            group,
            offset: 0,
            len,
        });
    }
    Ok(spec)
}

/// The window of every layer, none where a layer sees all: by `layer_types`, by a list of layers with a window, or all but every sixth.
///
/// # Errors
/// When a width or a list is invalid.
pub(super) fn hybrid_windows(
    reader: &mut Reader<'_>,
    n_layers: usize,
    (width_key, width): (&str, usize),
) -> Result<Vec<Option<Window>>> {
    const TYPES: &str = "layer_types";
    let origin = Origin::Default(width_key.to_owned());
    let width = reader.size_or("window", width_key, width, origin)?;
    let listed = reader.numbers("local_layer_ids")?;
    let (slides, origin) = match (reader.words_by_layer(TYPES, n_layers)?, listed) {
        (Some(words), _) => {
            let slides = words.iter().map(|word| match word.as_str() {
                "hybrid_sliding" => Ok(true),
                "hybrid" => Ok(false),
                other => {
                    let problem = format!("expected hybrid or hybrid_sliding, found {other:?}");
                    Err(Error::config(reader.path(), TYPES, problem))
                }
            });
            let slides = slides.collect::<Result<Vec<bool>>>()?;
            (slides, Origin::Key(TYPES.to_owned()))
        }
        (None, Some(listed)) => {
            let is_listed = |idx: usize| listed.contains(&(idx as u64));
            let origin = Origin::Key("local_layer_ids".to_owned());
            ((0..n_layers).map(is_listed).collect(), origin)
        }
        (None, None) => {
            let slides = (0..n_layers).map(|idx| (idx + 1) % 6 != 0).collect();
            (slides, Origin::Default(TYPES.to_owned()))
        }
    };
    let n_windowed = slides.iter().filter(|slides| **slides).count();
    let said = format!("{n_windowed} of {n_layers}");
    reader.note("windowed_layers", said, origin);
    let window = Some(Window::Back(width));
    let slides = slides.into_iter();
    Ok(slides.map(|slides| window.filter(|_| slides)).collect())
}

/// Builds the feed-forward layer of a layer, given its index and name.
type MlpOf<'a> = Box<dyn Fn(usize, &str) -> FeedForward + 'a>;

/// The feed-forward layers: dense ones, and experts of which the last ones are used by every token.
fn feed_forward<'a>(
    reader: &mut Reader<'_>,
    tensors: &'a Tensors,
    sizes: Sizes,
) -> Result<MlpOf<'a>> {
    const DENSE: &str = "dense_intermediate_size";
    // Where a file has a width of dense layers, the usual key is that of experts.
    let [dense, expert] = if reader.value(DENSE).is_some() {
        [DENSE, "intermediate_size"]
    } else {
        ["intermediate_size", "moe_intermediate_size"]
    };
    let d_expert = reader.size("d_expert", expert)?;
    let keys = ExpertsKeys {
        n_experts: ["n_routed_experts", "num_local_experts"],
        store: ExpertStore::Slabs {
            gate_up: "experts.gate_up_proj",
            down: "experts.down_proj",
        },
        scores: RouterScores::Sigmoid,
        choice_bias: Some(("gate.e_score_correction_bias", false)),
        normalises: BiasRule::Never,
        scale: Some(("route_scale", 8.0)),
        layers: SparseLayers::NamedOrFrom("dense_mlp_idx", 0),
        ..ExpertsKeys::PLAIN
    };
    let experts = keys.read_as_wide(reader, tensors, (sizes.n_layers, d_expert))?;
    let has_dense = !(0..sizes.n_layers).all(|idx| experts.are_in(idx));
    let d_mlp = if has_dense {
        reader.size("d_mlp", dense)?
    } else {
        0
    };
    const SHARED: &str = "n_shared_experts";
    let origin = Origin::Default(SHARED.to_owned());
    let n_shared = reader.size_or("n_shared_experts", SHARED, 2, origin)?;
    if n_shared > MOST_SHARED {
        let problem = format!("expected at most {MOST_SHARED}, found {n_shared}");
        return Err(Error::config(reader.path(), SHARED, problem));
    }
    let activation = activation(reader, "hidden_act", "silu")?;
    let d_model = sizes.d_model;
    let shape = (d_model, d_expert);
    Ok(Box::new(move |layer_idx, layer| {
        let at = format!("{layer}.mlp");
        if !experts.are_in(layer_idx) {
            let mut mlp = gated(&at, USUAL, d_model, d_mlp, activation, false);
            let turned = format!("{at}.w13_dn.weight");
            if tensors.contains(&turned) {
                (mlp.gate, mlp.up) =
                    in_turns(LinearSource::whole(turned, None, d_model, 2 * d_mlp));
            }
            mlp.down = mlp.down.times_one_value(format!("{at}.global_scale"));
            return FeedForward::Dense(Box::new(mlp));
        }
        let mut layer = experts.of_layer(tensors, layer, d_model, (activation, false));
        if let FeedForward::Experts(spec) = &mut layer {
            let n = spec.experts.len();
            let shared =
                (0..n_shared).map(|idx| shared_expert(tensors, &at, (idx, n_shared), shape));
            let shared = shared.map(|(gate, up, down)| MlpSpec {
                gate,
                ..MlpSpec::plain(up, down, activation)
            });
            for (idx, expert) in spec.experts.iter_mut().enumerate() {
                let turned = format!("{at}.experts.w13_weight");
                if tensors.contains(&turned) {
                    let both = LinearSource::whole(turned, None, d_model, 2 * d_expert);
                    (expert.gate, expert.up) = in_turns(both.slab(idx, n));
                    let down = format!("{at}.experts.down_proj");
                    let down = LinearSource::whole(down, None, d_expert, d_model);
                    expert.down = down.slab(idx, n);
                }
            }
            spec.experts.extend(shared);
            for expert in &mut spec.experts {
                let scale = format!("{at}.gate.global_scale");
                expert.down = expert.down.clone().times_one_value(scale);
            }
            let router = format!("{at}.gate.weight");
            spec.router = LinearSource::whole(router, None, d_model, n + n_shared);
            spec.rule.n_always = n_shared;
            spec.rule.normalises = true;
        }
        layer
    }))
}

/// Gate and up of a map whose outputs belong to both in turn.
fn in_turns(both: LinearSource) -> (Option<LinearSource>, LinearSource) {
    let [gate, up] = [0, 1].map(|offset| {
        both.clone().part(Part {
            group: 2,
            offset,
            len: 1,
        })
    });
    (Some(gate), up)
}

/// Gate, up and down of one of the shared experts.
fn shared_expert(
    tensors: &Tensors,
    at: &str,
    (idx, n): (usize, usize),
    (d_model, width): (usize, usize),
) -> (Option<LinearSource>, LinearSource, LinearSource) {
    let map = |name: &str, n_in, n_out| {
        let name = format!("{at}.shared_experts.{name}");
        LinearSource::whole(name, None, n_in, n_out).slab(idx, n)
    };
    let down = map("down_proj", width, d_model);
    const TURNED: &str = "shared_w13_weight";
    if tensors.contains(&format!("{at}.shared_experts.{TURNED}")) {
        let (gate, up) = in_turns(map(TURNED, d_model, 2 * width));
        return (gate, up, down);
    }
    let gate = Some(map("gate_proj", d_model, width));
    (gate, map("up_proj", d_model, width), down)
}

/// Sizes of the heads of layers with a window and of the others, and what all layers share.
struct Heads {
    d_model: usize,
    /// Number of heads, of heads of keys and values, and their width: without a window, and with one.
    kinds: [[usize; 3]; 2],
    n_profiles: usize,
    n_distances: usize,
    n_taps: usize,
    growth: Option<Growth>,
}

impl Heads {
    fn read(reader: &mut Reader<'_>, sizes: Sizes) -> Result<Self> {
        let mut size = |knob: &'static str, key: &'static str, default: usize| {
            reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
        };
        let windowed = [
            size("n_windowed_heads", "swa_num_attention_heads", 64)?,
            size("n_windowed_kv_heads", "swa_num_key_value_heads", 16)?,
            size("d_windowed_head", "swa_head_dim", 128)?,
        ];
        let n_profiles = size("n_profiles", "d_rel", 16)?;
        let n_distances = size("n_profile_distances", "rel_extent", 1024)?;
        let n_taps = size("convolution_tokens", "conv_kernel_size", 4)?;
        check_groups(reader, windowed[0], windowed[1], "swa_num_key_value_heads")?;
        let beta = reader.number_or("query_growth", "log_scaling_alpha", 0.1)?;
        let floor = reader.number_or_none("growth_from", "log_scaling_n_floor", None)?;
        if floor.is_some_and(|floor| floor < 1.0) {
            let problem = "expected null or a number from 1";
            return Err(Error::config(reader.path(), "log_scaling_n_floor", problem));
        }
        Ok(Self {
            d_model: sizes.d_model,
            kinds: [[sizes.n_heads, sizes.n_kv_heads, sizes.d_head], windowed],
            n_profiles,
            n_distances,
            n_taps,
            growth: floor.map(|period| Growth {
                beta,
                period,
                first: 1,
                curve: GrowthCurve::Log,
            }),
        })
    }

    /// Gives a block its heads, its bias and its convolutions.
    fn fit(&self, block: &mut BlockSpec, window: Option<Window>) {
        let layer = layer_of(block, FIRST);
        let at = format!("{layer}.self_attn");
        let d_model = self.d_model;
        let [n_heads, n_kv_heads, d_head] = self.kinds[usize::from(window.is_some())];
        let n_distances = match window {
            Some(Window::Back(width)) => width,
            _ => self.n_distances,
        };
        let convolution = |name: &str, n_channels| AddedConvolution {
            convolution: ShortConvolution::whole(
                format!("{name}.conv1d.weight"),
                None,
                n_channels,
                self.n_taps,
            ),
            scale: 1.0,
        };
        block.convolutions =
            Some(Box::new(["attn_sconv", "mlp_sconv"].map(|name| {
                convolution(&format!("{layer}.{name}"), d_model)
            })));
        let Some(own) = block.own_mut() else { return };
        let attention = &mut own.attention;
        attention.mask.window = window;
        (attention.n_heads, attention.n_kv_heads) = (n_heads, n_kv_heads);
        (attention.d_head, attention.d_value) = (d_head, d_head);
        attention.scale = Scale::InvD;
        attention.growth = self.growth.filter(|_| window.is_none());
        attention.bias = Bias::Profiles(Profiles {
            n: self.n_profiles,
            n_distances,
        });
        let maps = &mut own.projections;
        let (n_q, n_kv) = (n_heads * d_head, n_kv_heads * d_head);
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let norm_of = |norm: &mut Option<NormSource>| {
            if let Some(norm) = norm {
                norm.width = d_head;
                norm.gain_shape = vec![d_head];
            }
        };
        let (mut q_norm, mut k_norm) = (maps.q_norm.take(), maps.k_norm.take());
        norm_of(&mut q_norm);
        norm_of(&mut k_norm);
        *maps = ProjectionSpec {
            q_norm,
            k_norm,
            kv_convolutions: Some(Box::new(
                ["k_sconv", "v_sconv"].map(|name| convolution(&format!("{at}.{name}"), n_kv)),
            )),
            bucket_values: Some(TableSource {
                tensor: format!("{at}.rel_logits_proj.proj"),
                n_rows: self.n_profiles,
                width: n_distances,
            }),
            bias_gate: Some(Box::new(BiasGate::Profiles(ProfileGate {
                map: one("r_proj", d_model, n_heads * self.n_profiles),
            }))),
            ..ProjectionSpec::plain(
                one("q_proj", d_model, n_q),
                one("k_proj", d_model, n_kv),
                one("v_proj", d_model, n_kv),
                one("o_proj", n_q, d_model),
            )
        };
    }
}
