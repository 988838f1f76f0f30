//! DBRX: a fused and clipped projection, layer norms without biases, experts whose matrices follow each other in one tensor.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, ExpertsSpec, FeedForward, GateRule, HeadSpec, LinearSource, MlpSpec,
    ModelSpec, ProjectionSpec, RouterRule, RouterScores, StackSpec, TableSource,
};
use serde_json::Value;

use super::Family;
use super::reading::rope::{RopeRule, rope};
use super::reading::{
    activation_named, check_counts, check_groups, check_used, even_heads,
    layer_norm_bias_if_stored, linear, must_be_off, note_attention, prefix, stacked,
};
use super::versions::saved_by;

pub const FAMILY: Family = Family::own("dbrx", "Dbrx", read);

/// Fixed; no configuration states it.
const EPS: f64 = 1e-5;

/// The expert settings in the configuration's feed-forward part.
struct Experts {
    n: usize,
    width: usize,
    rule: RouterRule,
    activation: Activation,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let n_layers = reader.layers("n_layers")?;
    let n_heads = reader.size("n_heads", "n_heads")?;
    let d_model = reader.size("d_model", "d_model")?;
    let d_head = even_heads(reader, "n_heads", d_model, n_heads)?;
    let default = Origin::Default("max_seq_len".to_owned());
    let n_ctx = reader.size_or("n_ctx", "max_seq_len", 2048, default)?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    must_be_off(
        reader,
        "tie_word_embeddings",
        "this family has an unembedding of its own",
    )?;
    // A copy of the value in the attention part.
    reader.value("num_key_value_heads");
    let (of_attention, of_experts) = (reader.part("attn_config"), reader.part("ffn_config"));
    let mut inner = Reader::new(&of_attention);
    let default = Origin::Default("attn_config.kv_n_heads".to_owned());
    let n_kv_heads = inner.size_or("n_kv_heads", "kv_n_heads", 1, default)?;
    let clip = inner.bound_or_none("clip_qkv", "clip_qkv")?;
    let old_theta = inner.value("rope_theta").and_then(Value::as_f64);
    reader.absorb("attn_config", inner);
    check_groups(reader, n_heads, n_kv_heads, "attn_config.kv_n_heads")?;
    let mut inner = Reader::new(&of_experts);
    let experts = Experts::read(&mut inner)?;
    reader.absorb("ffn_config", inner);
    check_counts(reader, tensors, n_layers, (experts.n, true))?;

    let rule = RopeRule {
        theta: theta(reader, old_theta),
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_kv_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);

    let base = prefix(tensors, &["transformer.", ""], "wte.weight");
    let norm = |name: &str| {
        let name = format!("{base}{name}");
        Some(layer_norm_bias_if_stored(tensors, &name, d_model, EPS))
    };
    let block = |layer_idx: usize| {
        let at = format!("blocks.{layer_idx}");
        let one = |name: &str, n_out| linear(&format!("{base}{at}.{name}"), d_model, n_out, false);
        let widths = [n_heads, n_kv_heads, n_kv_heads].map(|n| n * d_head);
        let fused = one("norm_attn_norm.attn.Wqkv", widths.iter().sum());
        let [q, k, v] = stacked(&fused, widths);
        let projections = ProjectionSpec {
            clip: clip.map(|clip| clip as f32),
            ..ProjectionSpec::plain(q, k, v, one("norm_attn_norm.attn.out_proj", d_model))
        };
        BlockSpec {
            attn_pre: norm(&format!("{at}.norm_attn_norm.norm_1")),
            mlp_pre: norm(&format!("{at}.norm_attn_norm.norm_2")),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                experts.of_layer(&format!("{base}{at}.ffn"), d_model),
            )
        }
    };
    let tokens = TableSource {
        tensor: format!("{base}wte.weight"),
        n_rows: d_vocab,
        width: d_model,
    };
    let blocks = (0..n_layers).map(block).collect();
    let stack = StackSpec::only(EmbedSpec::plain(tokens), blocks, norm("norm_f"));
    let head = HeadSpec::plain(linear("lm_head", d_model, d_vocab, false));
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, Some(head))
    })
}

/// The rotary base if the rotary parameters state none.
///
/// Versions before 5 kept it beside the other attention knobs; later versions ignore it there.
fn theta(reader: &mut Reader<'_>, old: Option<f64>) -> f64 {
    const DEFAULT: f64 = 10_000.0;
    let keys = ["rope_parameters", "rope_scaling", "rope_theta"];
    let is_stated = keys
        .into_iter()
        .filter(|key| reader.value(key).is_some())
        .count()
        > 0;
    let version = saved_by(reader.value("transformers_version"));
    match old.filter(|_| !is_stated && version.is_none_or(|(major, _)| major < 5)) {
        Some(old) if old != DEFAULT => {
            reader.remark(format!(
                "rotation has the base of attn_config.rope_theta, {old}, as transformers 4 reads it; version 5 reads {DEFAULT} \
                 here: --set rope_theta={DEFAULT}"
            ));
            old
        }
        _ => DEFAULT,
    }
}

impl Experts {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        const POWER: &str = "moe_normalize_expert_weights";
        let default = |key: &str| Origin::Default(format!("ffn_config.{key}"));
        let mut size = |knob, key: &str, otherwise| {
            let origin = default(key);
            reader.size_or(knob, key, otherwise, origin)
        };
        let n = size("n_experts", "moe_num_experts", 4)?;
        let width = size("d_expert", "ffn_hidden_size", 3584)?;
        let n_used = size("n_experts_used", "moe_top_k", 1)?;
        check_used(reader, n_used, n)?;
        let power = reader.number_or_none("expert_norm_power", POWER, Some(1.0))?;
        if let Some(power) = power.filter(|power| *power <= 0.0) {
            let problem = format!("expected a number above 0 or null, found {power}");
            return Err(Error::config(reader.path(), POWER, problem));
        }
        // Both only apply in training.
        reader.value("moe_jitter_eps");
        reader.value("moe_loss_weight");
        reader.value("hidden_size");
        let stated = reader.value("ffn_act_fn");
        let named = stated.and_then(|stated| stated.get("name")?.as_str());
        let name = named.unwrap_or("silu");
        reader.note(
            "activation",
            name,
            Origin::Key("ffn_config.ffn_act_fn".to_owned()),
        );
        Ok(Self {
            n,
            width,
            rule: RouterRule {
                normalises: power.is_some(),
                power: power.unwrap_or(1.0) as f32,
                ..RouterRule::plain(n_used, RouterScores::Softmax)
            },
            activation: activation_named(reader, "ffn_config.ffn_act_fn.name", name)?,
        })
    }

    fn of_layer(&self, at: &str, d_model: usize) -> FeedForward {
        let (n, width) = (self.n, self.width);
        let one = |name: &str, idx, n_in, n_out| {
            let name = format!("{at}.experts.mlp.{name}");
            LinearSource::whole(name, None, n_in, n_out).joined_slab(idx, n)
        };
        let expert = |idx| MlpSpec {
            up: one("v1", idx, d_model, width),
            gate: Some(one("w1", idx, d_model, width)),
            down: one("w2", idx, width, d_model).input_major(),
            activation: self.activation,
            gate_rule: GateRule::Product,
            learned: None,
            convolution: None,
            hidden_norm: None,
            sparsity: None,
            out_activation: None,
        };
        FeedForward::Experts(Box::new(ExpertsSpec {
            router: linear(&format!("{at}.router.layer"), d_model, n, false),
            rule: self.rule.clone(),
            experts: (0..n).map(expert).collect(),
            shared: None,
            latent: None,
            norms: None,
            apart: None,
        }))
    }
}
