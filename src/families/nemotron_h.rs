//! Nemotron-H: every layer is one thing alone, attention without positions, the state space of Mamba-2, or a feed-forward layer.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ChoiceBias, EmbedSpec, ExpertGroups, ExpertsSpec, FeedForward, HeadSpec,
    LinearSource, Mixer, MlpSpec, ModelSpec, ProjectionSpec, RouterRule, RouterScores, StackSpec,
    TableSource, TokenMixer,
};

use super::Family;
use super::reading::hybrid::{check_divides, number};
use super::reading::state_space::{NormRule, StateSpaceSizes};
use super::reading::{
    activation_named, check_counts, check_groups, check_used, linear, note_attention, prefix,
    rms_norm, tied_head,
};

pub const FAMILY: Family = Family::own("nemotron_h", "NemotronH", read);

/// The kind of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    StateSpace,
    Attention,
    Dense,
    Experts,
}

/// Names of the kinds: in lists (new and old), and in patterns.
const KINDS: [(Kind, [&str; 3]); 4] = [
    (Kind::StateSpace, ["linear_attention", "mamba", "M"]),
    (Kind::Attention, ["full_attention", "attention", "*"]),
    (Kind::Dense, ["mlp", "mlp", "-"]),
    (Kind::Experts, ["moe", "moe", "E"]),
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let kinds = kinds(reader)?;
    if kinds.len() > tensors.len() {
        let found = tensors.len();
        let problem = format!(
            "{} layers need more than the {found} tensors that are stored",
            kinds.len()
        );
        return Err(Error::config(reader.path(), "layers_block_type", problem));
    }
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let context = "max_position_embeddings";
    let n_ctx = reader.size_or("n_ctx", context, 4096, default(context))?;
    let eps = reader.number_or("norm_eps", "layer_norm_epsilon", 1e-5)?;
    let (attention, widths) = attention(reader)?;
    let mixer = state_space(reader, d_model, eps)?;
    let feed_forward = FeedForwards::read(reader, tensors, d_model, &kinds)?;

    let bases = ["model.", "backbone.", "model.language_model.", ""];
    let base = prefix(tensors, &bases, "embeddings.weight");
    let block = |(layer_idx, kind): (usize, &Kind)| {
        let norm = rms_norm(
            format!("{base}layers.{layer_idx}.norm.weight"),
            d_model,
            eps,
        );
        let at = format!("{base}layers.{layer_idx}.mixer");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let mixer = match kind {
            Kind::Attention => Mixer::attention(
                attention.clone(),
                ProjectionSpec::plain(
                    one("q_proj", d_model, widths[0]),
                    one("k_proj", d_model, widths[1]),
                    one("v_proj", d_model, widths[1]),
                    one("o_proj", widths[0], d_model),
                ),
            ),
            Kind::StateSpace => {
                Mixer::Other(Box::new(TokenMixer::StateSpace(Box::new(mixer.at(&at)))))
            }
            Kind::Dense | Kind::Experts => Mixer::None,
        };
        let mut block = BlockSpec::mixed(mixer, feed_forward.at(*kind, &at));
        if matches!(kind, Kind::Dense | Kind::Experts) {
            block.mlp_pre = Some(norm);
        } else {
            block.attn_pre = Some(norm);
        }
        block
    };
    let tokens = TableSource {
        tensor: format!("{base}embeddings.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let unembed = tied_head(reader, tensors, &["lm_head.weight"], &tokens.tensor, false)?;
    let blocks = kinds.iter().enumerate().map(block).collect();
    let last = rms_norm(format!("{base}norm_f.weight"), d_model, eps);
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, Some(last));
    let head = HeadSpec::plain(LinearSource::whole(unembed, None, d_model, d_vocab));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}

/// Reads the kind of each layer from a list of words or a pattern of letters.
fn kinds(reader: &mut Reader<'_>) -> Result<Vec<Kind>> {
    const LISTS: [&str; 2] = ["layers_block_type", "layer_types"];
    const PATTERN: &str = "hybrid_override_pattern";
    let key = LISTS.into_iter().find(|key| reader.value(key).is_some());
    let (key, words): (&str, Vec<String>) = match key {
        Some(key) => {
            let list = reader.value(key).and_then(|value| value.as_array());
            let words = list.and_then(|list| {
                let words = list.iter().map(|word| word.as_str().map(str::to_owned));
                words.collect::<Option<Vec<_>>>()
            });
            let refused = || Error::config(reader.path(), key, "expected a list of words");
            (key, words.ok_or_else(refused)?)
        }
        None => {
            let pattern = reader.value(PATTERN).and_then(|value| value.as_str());
            let letters = pattern.map(|pattern| pattern.chars().map(String::from).collect());
            let missing = || {
                let problem = "missing, expected what each layer is";
                Error::config(reader.path(), LISTS[0], problem)
            };
            (PATTERN, letters.ok_or_else(missing)?)
        }
    };
    let kind = |word: &String| {
        let known = KINDS
            .iter()
            .find(|(_, names)| names.contains(&word.as_str()));
        known.map(|(kind, _)| *kind).ok_or_else(|| {
            let problem =
                format!("expected linear_attention, full_attention, mlp or moe, found {word:?}");
            Error::config(reader.path(), key, problem)
        })
    };
    let kinds: Vec<Kind> = words.iter().map(kind).collect::<Result<_>>()?;
    if kinds.is_empty() {
        return Err(Error::config(
            reader.path(),
            key,
            "expected at least one layer",
        ));
    }
    let origin = Origin::Key(key.to_owned());
    reader.note("n_layers", kinds.len(), origin.clone());
    let n = kinds
        .iter()
        .filter(|kind| **kind == Kind::Attention)
        .count();
    let said = format!("{n} of {}", kinds.len());
    reader.note("attending_layers", said, origin);
    Ok(kinds)
}

/// Attention without positions, and the widths of queries and keys.
fn attention(reader: &mut Reader<'_>) -> Result<(AttentionSpec, [usize; 2])> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (heads, kv_heads) = ("num_attention_heads", "num_key_value_heads");
    let n_heads = reader.size_or("n_heads", heads, 32, default(heads))?;
    let n_kv_heads = if reader.is_null(kv_heads) {
        n_heads
    } else {
        reader.size_or("n_kv_heads", kv_heads, 8, default(kv_heads))?
    };
    check_groups(reader, n_heads, n_kv_heads, kv_heads)?;
    let d_head = reader.size_or("d_head", "head_dim", 128, default("head_dim"))?;
    let attention = AttentionSpec::plain(n_heads, n_kv_heads, d_head, true);
    reader.note("positions", "none", Origin::Family);
    note_attention(reader, &attention, Origin::Family);
    Ok((attention, [n_heads * d_head, n_kv_heads * d_head]))
}

/// The older key if it is stated, otherwise the newer one.
fn either_key<'k>(reader: &mut Reader<'_>, key: &'k str, older: &'k str) -> &'k str {
    if reader.value(older).is_some() {
        older
    } else {
        key
    }
}

fn state_space(reader: &mut Reader<'_>, d_model: usize, eps: f64) -> Result<StateSpaceSizes> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (heads, width) = ("mamba_num_heads", "mamba_head_dim");
    let n_heads = reader.size_or("mixer_heads", heads, 128, default(heads))?;
    let d_head = reader.size_or("mixer_head_width", width, 64, default(width))?;
    let groups = either_key(reader, "n_groups", "mamba_n_groups");
    let n_groups = reader.size_or("mixer_groups", groups, 8, default(groups))?;
    check_divides(reader, groups, n_groups, n_heads)?;
    let conv = either_key(reader, "conv_kernel", "mamba_d_conv");
    let conv_bias = either_key(reader, "use_conv_bias", "mamba_conv_bias");
    let shortest = either_key(reader, "time_step_min", "mamba_dt_min");
    let shortest = match reader.value(shortest) {
        Some(value) => number(value).ok_or_else(|| {
            let problem = format!("expected a number, found {value}");
            Error::config(reader.path(), shortest, problem)
        })?,
        None => 0.001,
    };
    let origin = Origin::Key("time_step_min".to_owned());
    reader.note("step_limits", format!("from {shortest}"), origin);
    let has_bias = reader.flag_or("mixer_bias", "use_bias", false)?;
    let act = reader.word_or("mixer_activation", "mamba_hidden_act", "silu")?;
    let state = "ssm_state_size";
    Ok(StateSpaceSizes {
        d_model,
        n_heads,
        d_head,
        n_groups,
        d_state: reader.size_or("d_state", state, 128, default(state))?,
        n_tokens: reader.size_or("conv_width", conv, 4, default(conv))?,
        has_kernel_bias: reader.flag_or("conv_bias", conv_bias, true)?,
        has_bias: [has_bias; 2],
        step_limits: [shortest as f32, f32::INFINITY],
        activation: activation_named(reader, "mamba_hidden_act", &act)?,
        norm: Some(NormRule::behind_gate(n_groups, eps)),
        factors: ([1.0; 5], [1.0; 2]),
    })
}

/// Settings that dense and expert feed-forward blocks share.
struct FeedForwards<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: Option<usize>,
    has_bias: bool,
    activation: Activation,
    experts: Option<Experts>,
}

/// Settings that expert layers share.
struct Experts {
    n: usize,
    d_expert: usize,
    d_shared: usize,
    /// The experts' input width, if it is not d_model.
    d_latent: Option<usize>,
    rule: RouterRule,
}

impl<'a> FeedForwards<'a> {
    fn read(
        reader: &mut Reader<'_>,
        tensors: &'a Tensors,
        d_model: usize,
        kinds: &[Kind],
    ) -> Result<Self> {
        let act = reader.word_or("activation", "mlp_hidden_act", "relu2")?;
        let d_mlp = if kinds.contains(&Kind::Dense) {
            let default = Origin::Default("intermediate_size".to_owned());
            Some(reader.size_or("d_mlp", "intermediate_size", 21504, default)?)
        } else {
            None
        };
        let n_sparse = kinds.iter().filter(|kind| **kind == Kind::Experts).count();
        Ok(Self {
            tensors,
            d_model,
            d_mlp,
            has_bias: reader.flag_or("mlp_bias", "mlp_bias", false)?,
            activation: activation_named(reader, "mlp_hidden_act", &act)?,
            experts: if n_sparse > 0 {
                Some(Experts::read(reader, tensors, n_sparse)?)
            } else {
                None
            },
        })
    }

    fn at(&self, kind: Kind, at: &str) -> FeedForward {
        let mlp = |at: &str, d_mlp| {
            let one = |name: &str, n_in, n_out| {
                linear(&format!("{at}.{name}"), n_in, n_out, self.has_bias)
            };
            let (up, down) = (
                one("up_proj", self.d_model, d_mlp),
                one("down_proj", d_mlp, self.d_model),
            );
            MlpSpec::plain(up, down, self.activation)
        };
        match (kind, self.d_mlp, &self.experts) {
            (Kind::Dense, Some(d_mlp), _) => FeedForward::Dense(Box::new(mlp(at, d_mlp))),
            (Kind::Experts, _, Some(experts)) => {
                let shared = mlp(&format!("{at}.shared_experts"), experts.d_shared);
                let spec = experts.at(self, at, shared);
                FeedForward::Experts(Box::new(spec))
            }
            _ => FeedForward::None,
        }
    }
}

impl Experts {
    fn read(reader: &mut Reader<'_>, tensors: &Tensors, n_layers: usize) -> Result<Self> {
        let default = |key: &str| Origin::Default(key.to_owned());
        let counts = ["n_routed_experts", "num_local_experts"];
        let key = either_key(reader, counts[0], counts[1]);
        let n = reader.size_or("n_experts", key, 8, default(key))?;
        check_counts(reader, tensors, n_layers, (n, true))?;
        let used = "num_experts_per_tok";
        let n_used = reader.size_or("n_experts_used", used, 2, default(used))?;
        check_used(reader, n_used, n)?;
        let groups = reader.size_or("n_expert_groups", "n_group", 1, default("n_group"))?;
        let kept = "topk_group";
        let n_kept = reader.size_or("n_expert_groups_kept", kept, 1, default(kept))?;
        check_divides(reader, "n_group", groups, n)?;
        if n_kept > groups {
            let problem =
                format!("expected at most the {groups} groups that there are, found {n_kept}");
            return Err(Error::config(reader.path(), kept, problem));
        }
        let (width, shared) = (
            "moe_intermediate_size",
            "moe_shared_expert_intermediate_size",
        );
        let latent = "moe_latent_size";
        let d_latent = match reader.value(latent) {
            Some(_) => Some(reader.size("d_latent_experts", latent)?),
            None => None,
        };
        let scale = reader.number_or("expert_scale", "routed_scaling_factor", 1.0)?;
        Ok(Self {
            n,
            d_expert: reader.size_or("d_expert", width, 7688, default(width))?,
            d_shared: reader.size_or("d_shared_expert", shared, 7688, default(shared))?,
            d_latent,
            rule: RouterRule {
                groups: Some(ExpertGroups {
                    n: groups,
                    n_kept,
                    n_best: 2,
                })
                .filter(|_| groups > 1),
                normalises: reader.flag_or("normalises_experts", "norm_topk_prob", true)?,
                scale: scale as f32,
                ..RouterRule::plain(n_used, RouterScores::Sigmoid)
            },
        })
    }

    fn at(&self, of: &FeedForwards<'_>, at: &str, shared: MlpSpec) -> ExpertsSpec {
        let (n, d_model) = (self.n, of.d_model);
        let width = self.d_latent.unwrap_or(d_model);
        let together = format!("{at}.experts.up_proj");
        let is_together = of.tensors.contains(&together);
        let expert = |idx: usize| {
            let one = |name: &str, n_in, n_out| {
                if is_together {
                    let stored = format!("{at}.experts.{name}");
                    return LinearSource::whole(stored, None, n_in, n_out).slab(idx, n);
                }
                linear(&format!("{at}.experts.{idx}.{name}"), n_in, n_out, false)
            };
            let up = one("up_proj", width, self.d_expert);
            MlpSpec::plain(up, one("down_proj", self.d_expert, width), of.activation)
        };
        let latent =
            |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, of.has_bias);
        ExpertsSpec {
            router: LinearSource::whole(format!("{at}.gate.weight"), None, d_model, n),
            rule: RouterRule {
                choice_bias: Some(ChoiceBias {
                    tensor: format!("{at}.gate.e_score_correction_bias"),
                    shape: vec![n],
                }),
                ..self.rule.clone()
            },
            experts: (0..n).map(expert).collect(),
            shared: Some((shared, None)),
            latent: self.d_latent.map(|d_latent| {
                [
                    latent("fc1_latent_proj", d_model, d_latent),
                    latent("fc2_latent_proj", d_latent, d_model),
                ]
            }),
            norms: None,
            apart: None,
        }
    }
}
