//! DeepSeek V4: residual streams with hyper-connections, keys that are values too, a window, and in most layers keys of pools behind it,
//! among which an indexer may pick; experts that the first layers choose by token.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{KeyRank, RopeSpec, TopKeys, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ExpertsByToken, FeedForward, GateRule, KeyGrid, ModelSpec, Narrowed, NormSource,
    NormedMap, PoolPicks, PoolSource, PooledKeys, ProjectionSpec, RouterScores,
};

use super::reading::bias_rule::BiasRule;
use super::reading::experts::{ExpertStore, ExpertsKeys, NUMBERED, SharedKeys, SharedWidth};
use super::reading::hyper::{HyperKeys, connect};
use super::reading::linear;
use super::reading::llama_like::{self, Recipe, Sizes};
use super::reading::recipe::{RMS, RopeLayers};
use super::reading::rope::{RopeRule, rope};
use super::{Family, hy_v4};

pub const FAMILY: Family = Family::own("deepseek_v4", "DeepseekV4", read).leaving_unread(&[
    "mtp.*",
    "model.mtp.*",
    "*.gate.tid2eid",
]);

/// What published files call the tensors, and what transformers calls them.
pub(super) const PUBLISHED: &[(&str, &str)] = &[
    ("^embed.weight", "embed_tokens.weight"),
    ("^head.weight", "lm_head.weight"),
    ("^hc_head_", "hc_head.hc_"),
    (".attn.", ".self_attn."),
    (".ffn.", ".mlp."),
    (".indexer.compressor.", ".compressor.indexer."),
    (
        ".self_attn.indexer.weights_proj.",
        ".self_attn.compressor.indexer.scorer.weights_proj.",
    ),
    (".self_attn.indexer.", ".self_attn.compressor.indexer."),
    (".attn_norm.", ".input_layernorm."),
    (".ffn_norm.", ".post_attention_layernorm."),
    (".hc_attn_", ".attn_hc."),
    (".hc_ffn_", ".ffn_hc."),
    (".attn_sink", ".sinks"),
    (".self_attn.norm.", ".self_attn.kv_norm."),
    (".compressor.norm.", ".compressor.kv_norm."),
    (".indexer.norm.", ".indexer.kv_norm."),
    (".ape", ".position_bias"),
    (".wq_a.", ".q_a_proj."),
    (".wq_b.", ".q_b_proj."),
    (".wkv.", ".kv_proj."),
    (".wgate.", ".gate_proj."),
    (".wo_a.", ".o_a_proj."),
    (".wo_b.", ".o_b_proj."),
    (".q_norm.", ".q_a_norm."),
    (".gate.bias", ".gate.e_score_correction_bias"),
    (".shared_experts.w1.", ".shared_experts.gate_proj."),
    (".shared_experts.w3.", ".shared_experts.up_proj."),
    (".shared_experts.w2.", ".shared_experts.down_proj."),
];

const SLIDING: &str = "sliding_attention";
const SPARSE: &str = "compressed_sparse_attention";
const HEAVY: &str = "heavily_compressed_attention";

/// What a layer attends to besides the tokens nearby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Window,
    /// Pools that overlap, of which an indexer picks.
    Picked,
    /// All pools.
    All,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let sizes = Sizes::read(reader, None)?;
    let (d_model, n_layers) = (sizes.d_model, sizes.n_layers);
    let experts = experts_keys(reader)?.read(reader, tensors, n_layers)?;
    let by_token = layers_by_token(reader, n_layers)?;
    let limit = hy_v4::limit(reader)?;
    let mlp = |layer_idx: usize, at: &str| {
        let mut layer = experts.of_layer(tensors, at, d_model, (Activation::Silu, false));
        if let FeedForward::Experts(spec) = &mut layer {
            let shared = spec.shared.iter_mut().map(|(mlp, _)| mlp);
            let all = spec.experts.iter_mut().chain(shared);
            all.for_each(|mlp| mlp.gate_rule = GateRule::LimitedBefore { limit });
            if by_token[layer_idx] {
                spec.rule.choice_bias = None;
                spec.rule.by_token = Some(ExpertsByToken {
                    tensor: format!("{at}.mlp.gate.tid2eid"),
                    d_vocab: sizes.d_vocab,
                });
            }
        }
        layer
    };
    let recipe = Recipe {
        rope_layers: RopeLayers::Never,
        has_sinks: true,
        ..Recipe::llama()
    };
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    let kinds = kinds(reader, n_layers)?;
    let maps = Maps::read(reader, &spec, &sizes, &kinds)?;
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        maps.put(block, kinds[layer_idx]);
    }
    let keys = HyperKeys {
        magnitude: None,
        weighs_end: true,
    };
    connect(reader, tensors, keys, &mut spec)?;
    Ok(spec)
}

fn experts_keys(reader: &mut Reader<'_>) -> Result<ExpertsKeys> {
    const KEY: &str = "scoring_func";
    let scores = match reader
        .word_or("expert_scores", KEY, "sqrtsoftplus")?
        .as_str()
    {
        "sqrtsoftplus" => RouterScores::RootSoftplus,
        "sigmoid" => RouterScores::Sigmoid,
        "softmax" => RouterScores::Softmax,
        other => {
            let problem = format!("expected sqrtsoftplus, sigmoid or softmax, found {other:?}");
            return Err(Error::config(reader.path(), KEY, problem));
        }
    };
    Ok(ExpertsKeys {
        store: ExpertStore::Each(NUMBERED),
        n_experts: ["n_routed_experts", "num_local_experts"],
        scores,
        choice_bias: Some(("gate.e_score_correction_bias", false)),
        normalises: BiasRule::Always,
        scale: Some(("routed_scaling_factor", 1.5)),
        shared: Some(SharedKeys {
            name: "shared_experts",
            width: SharedWidth::Key("moe_intermediate_size"),
            gate: None,
        }),
        ..ExpertsKeys::PLAIN
    })
}

/// The layers whose experts are chosen by token: the first ones.
fn layers_by_token(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<bool>> {
    const TYPES: &str = "mlp_layer_types";
    const USUAL: usize = 3;
    let Some(words) = reader.words_by_layer(TYPES, n_layers)? else {
        let n = reader.count_or("n_layers_by_token", "num_hash_layers", USUAL)?;
        return Ok((0..n_layers).map(|layer_idx| layer_idx < n).collect());
    };
    let flag = |word: &String| match word.as_str() {
        "hash_moe" => Ok(true),
        "moe" => Ok(false),
        other => {
            let problem = format!("expected hash_moe or moe, found {other:?}");
            Err(Error::config(reader.path(), TYPES, problem))
        }
    };
    words.iter().map(flag).collect()
}

/// What each layer attends to: by name, or by the number of tokens that become one key.
fn kinds(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<Kind>> {
    const TYPES: &str = "layer_types";
    const RATIOS: &str = "compress_ratios";
    let wrong = |reader: &Reader<'_>, key: &str, problem: String| {
        Error::config(reader.path(), key, problem)
    };
    if let Some(words) = reader.words_by_layer(TYPES, n_layers)? {
        let kind = |word: &String| match word.as_str() {
            SLIDING => Ok(Kind::Window),
            SPARSE => Ok(Kind::Picked),
            HEAVY => Ok(Kind::All),
            other => {
                let problem = format!("expected {SLIDING}, {SPARSE} or {HEAVY}, found {other:?}");
                Err(wrong(reader, TYPES, problem))
            }
        };
        return words.iter().map(kind).collect();
    }
    let Some(ratios) = reader.numbers(RATIOS)? else {
        let kind = |idx: usize| {
            if idx >= 2 && idx % 2 == 1 {
                Kind::Picked
            } else {
                Kind::All
            }
        };
        return Ok((0..n_layers).map(kind).collect());
    };
    if ratios.len() < n_layers {
        let found = ratios.len();
        let problem = format!("expected {n_layers} numbers, one per layer, found {found}");
        return Err(wrong(reader, RATIOS, problem));
    }
    let kind = |ratio: &u64| match ratio {
        0 => Ok(Kind::Window),
        4 => Ok(Kind::Picked),
        128 => Ok(Kind::All),
        other => {
            let problem = format!("expected 0, 4 or 128, found {other}");
            Err(wrong(reader, RATIOS, problem))
        }
    };
    ratios.iter().take(n_layers).map(kind).collect()
}

/// The sizes of the maps of every layer's attention.
struct Maps {
    sizes: Sizes,
    eps: f64,
    d_latent: usize,
    window: usize,
    /// Groups of heads with a map each, and the width of what such a map gives.
    groups: [usize; 2],
    /// Without pools, and with.
    ropes: [RopeSpec; 2],
    /// Tokens of a pool, of layers that pick and of others.
    pools: [usize; 2],
    /// Heads of the indexer, their width, and how many pools it picks.
    index: [usize; 3],
}

impl Maps {
    fn read(
        reader: &mut Reader<'_>,
        spec: &ModelSpec,
        sizes: &Sizes,
        kinds: &[Kind],
    ) -> Result<Self> {
        let norm = spec.main_stack().final_norm.as_ref();
        let default = |key: &str| Origin::Default(key.to_owned());
        let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
        let d_latent = size("d_latent_q", "q_lora_rank", 1024)?;
        let window = size("window", "sliding_window", 128)?;
        let n_groups = size("n_output_groups", "o_groups", 8)?;
        let d_group = size("d_output_group", "o_lora_rank", 1024)?;
        let index = [
            size("n_index_heads", "index_n_heads", 64)?,
            size("d_index_head", "index_head_dim", 128)?,
            size("top_k_keys", "index_topk", 512)?,
        ];
        if !sizes.n_heads.is_multiple_of(n_groups) {
            let n_heads = sizes.n_heads;
            let problem = format!("expected a divisor of {n_heads} heads, found {n_groups}");
            return Err(Error::config(reader.path(), "o_groups", problem));
        }
        if sizes.n_kv_heads != 1 {
            let problem = format!("expected 1, found {}", sizes.n_kv_heads);
            return Err(Error::config(reader.path(), "num_key_value_heads", problem));
        }
        let ropes = ropes(reader, sizes)?;
        if let Some(d_rotary) = Some(ropes[1].d_rotary).filter(|d_rotary| *d_rotary > index[1]) {
            let problem = format!(
                "expected at least the {d_rotary} that rotate, found {}",
                index[1]
            );
            return Err(Error::config(reader.path(), "index_head_dim", problem));
        }
        let pools = pool_sizes(reader)?;
        for (kind, said) in [(Kind::Picked, "picked pools"), (Kind::All, "all pools")] {
            let layers = kinds.iter().enumerate().filter(|(_, of)| **of == kind);
            let layers: Vec<String> = layers.map(|(idx, _)| idx.to_string()).collect();
            if !layers.is_empty() {
                let size = pools[usize::from(kind == Kind::All)];
                let said = format!(
                    "{said} of {size} tokens behind the window in layers {}",
                    layers.join(", ")
                );
                let knob = if kind == Kind::All {
                    "pooled_keys"
                } else {
                    "picked_pools"
                };
                reader.note(knob, said, Origin::Key("compress_rates".to_owned()));
            }
        }
        Ok(Self {
            sizes: *sizes,
            eps: norm.map_or(1e-6, |norm| f64::from(norm.eps)),
            d_latent,
            window,
            groups: [n_groups, d_group],
            ropes,
            pools,
            index,
        })
    }

    /// Gives a block its attention.
    fn put(&self, block: &mut BlockSpec, kind: Kind) {
        let Sizes {
            n_heads,
            d_model,
            d_head,
            ..
        } = self.sizes;
        let Some(own) = block.own_mut() else { return };
        let at = own
            .projections
            .q
            .weight
            .trim_end_matches(".q_proj.weight")
            .to_owned();
        let norm = |name: &str, width| RMS.at(&format!("{at}.{name}"), width, self.eps);
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let keys = || map("kv_proj", d_model, d_head);
        let [n_groups, d_group] = self.groups;
        let (n_inside, n_narrow) = (n_heads * d_head, n_groups * d_group);
        let o = map("o_a_proj", n_inside, n_narrow).in_row_groups(n_groups);
        let pooled = self.pooled(&at, kind);
        let attention = &mut own.attention;
        attention.mask.window = Some(Window::Back(self.window));
        attention.mask.pools = pooled.as_ref().map(|pooled| pooled.size);
        attention.is_cross = pooled.is_some();
        attention.rope = Some(self.ropes[usize::from(pooled.is_some())].clone());
        attention.top_keys = (kind == Kind::Picked).then_some(TopKeys {
            n: self.index[2],
            by: KeyRank::Pools,
        });
        own.projections = ProjectionSpec {
            narrowed: Some(Box::new(Narrowed {
                by: NormedMap {
                    map: map("q_a_proj", d_model, self.d_latent),
                    norm: norm("q_a_norm", self.d_latent),
                },
                reaches_keys: false,
            })),
            q_norm: Some(NormSource {
                gain: Vec::new(),
                ..norm("", d_head)
            }),
            k_norm: Some(norm("kv_norm", d_head)),
            v_norm: Some(norm("kv_norm", d_head)),
            sinks: own.projections.sinks.take(),
            key_grid: pooled.map(|pooled| Box::new(KeyGrid::Pooled(Box::new(pooled)))),
            turns_back: true,
            ..ProjectionSpec::plain(
                map("q_b_proj", self.d_latent, n_inside),
                keys(),
                keys(),
                o.followed_by(map("o_b_proj", n_narrow, d_model)),
            )
        };
    }

    /// The keys of pools of a layer.
    fn pooled(&self, at: &str, kind: Kind) -> Option<PooledKeys> {
        let d_model = self.sizes.d_model;
        let source = |at: &str, width: usize| {
            let n_out = if kind == Kind::Picked {
                2 * width
            } else {
                width
            };
            PoolSource {
                values: linear(&format!("{at}.kv_proj"), d_model, n_out, false),
                shares: linear(&format!("{at}.gate_proj"), d_model, n_out, false),
                places: format!("{at}.position_bias"),
                norm: RMS.at(&format!("{at}.kv_norm"), width, self.eps),
            }
        };
        let at = format!("{at}.compressor");
        let [n_heads, d_index, _] = self.index;
        let picks = || {
            let at = format!("{at}.indexer");
            let rope = &self.ropes[1];
            Box::new(PoolPicks {
                n_heads,
                q: linear(
                    &format!("{at}.q_b_proj"),
                    self.d_latent,
                    n_heads * d_index,
                    false,
                ),
                weights: linear(
                    &format!("{at}.scorer.weights_proj"),
                    d_model,
                    n_heads,
                    false,
                ),
                keys: source(&at, d_index),
                rope: RopeSpec {
                    first: d_index - rope.d_rotary,
                    turns_values: false,
                    ..rope.clone()
                },
            })
        };
        Some(PooledKeys {
            size: match kind {
                Kind::Window => return None,
                Kind::Picked => self.pools[0],
                Kind::All => self.pools[1],
            },
            source: source(&at, self.sizes.d_head),
            picks: (kind == Kind::Picked).then(picks),
        })
    }
}

/// The rotary embeddings of layers without pools, and with: what rotates is the end of a head, values too.
fn ropes(reader: &mut Reader<'_>, sizes: &Sizes) -> Result<[RopeSpec; 2]> {
    const WIDTH: &str = "qk_rope_head_dim";
    const PARAMETERS: &str = "rope_parameters";
    let share = match reader.value(WIDTH).and_then(|value| value.as_f64()) {
        Some(width) => width / sizes.d_head as f64,
        None => 0.125,
    };
    let nested = |reader: &mut Reader<'_>, kind: &str| {
        let all = reader.value(PARAMETERS);
        all.is_some_and(|all| all.get(kind).is_some_and(|of| of.is_object()))
    };
    let is_by_kind = nested(reader, "main") && nested(reader, "compress");
    let rule = |kind, theta_key, theta| RopeRule {
        theta,
        theta_key,
        share,
        share_key: Some("partial_rotary_factor"),
        interleaved: true,
        layer_type: Some(kind),
        ..RopeRule::plain(sizes.d_head, sizes.n_ctx)
    };
    let pooled = rope(reader, rule("compress", "compress_rope_theta", 160_000.0))?;
    let main = rope(reader, rule("main", "rope_theta", 10_000.0))?;
    let turned = |rope: RopeSpec| RopeSpec {
        first: sizes.d_head - rope.d_rotary,
        turns_values: true,
        ..rope
    };
    if is_by_kind {
        return Ok([main, pooled].map(turned));
    }
    // Parameters that name no kind of layer stretch the positions of pools alone, and make no score larger.
    let factor = reader
        .value("rope_scaling")
        .or_else(|| reader.value(PARAMETERS));
    let factor = factor
        .and_then(|of| of.get("attention_factor"))
        .and_then(|of| of.as_f64());
    let theta = reader.number_or("rope_theta", "rope_theta", 10_000.0)?;
    let pooled_theta = reader.number_or("pool_rope_theta", "compress_rope_theta", 160_000.0)?;
    let main = RopeSpec {
        interleaved: true,
        ..RopeSpec::plain(theta, main.d_rotary)
    };
    let pooled = RopeSpec {
        theta: pooled_theta,
        magnitude: factor.unwrap_or(1.0),
        ..pooled
    };
    Ok([main, pooled].map(turned))
}

/// Tokens of a pool, in layers that pick and in others.
fn pool_sizes(reader: &mut Reader<'_>) -> Result<[usize; 2]> {
    const RATES: &str = "compress_rates";
    let rates = reader.value(RATES);
    let of = |kind: &str| {
        rates
            .and_then(|rates| rates.get(kind))
            .and_then(|rate| rate.as_u64())
    };
    let stated = [(SPARSE, 4), (HEAVY, 128)].map(|(kind, usual)| (kind, of(kind).unwrap_or(usual)));
    let mut sizes = [0; 2];
    let old = [
        ("pool_size_picked", "compress_rate_csa"),
        ("pool_size", "compress_rate_hca"),
    ];
    for (nth, ((kind, size), (knob, key))) in stated.into_iter().zip(old).enumerate() {
        let origin = Origin::Key(format!("{RATES}.{kind}"));
        if size == 0 || size > u64::from(u32::MAX) {
            let problem = format!("expected a number of tokens above 0, found {size}");
            return Err(Error::config(
                reader.path(),
                format!("{RATES}.{kind}"),
                problem,
            ));
        }
        sizes[nth] = reader.size_or(knob, key, size as usize, origin)?;
    }
    Ok(sizes)
}
