//! MiniMax M3: Llama with experts, whose kv heads see, in some layers, only the blocks of keys that an indexer picks for each.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::{KeyBlocks, KeyRank, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, FeedForward, GateRule, IndexMaps, IndexSource, IndexerSpec, MlpSpec, ModelSpec,
    NormSource, RouterScores,
};

use super::Family;
use super::reading::experts::{USUAL, gated};
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, ExpertsKeys, NormStyle, QkNorm, RMS, Recipe, Sizes,
};
use super::reading::{linear, stacked};

pub const FAMILY: Family = Family::own("minimax_m3_vl_text", "MiniMaxM3VL", read);

const NORM: NormStyle = NormStyle {
    adds_one: true,
    ..RMS
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let recipe = Recipe {
        theta: 5e6,
        norm: NORM,
        rotary_share: Some(1.0),
        qk_norm: QkNorm::Head,
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    // Files of the hub and those that transformers writes have names of their own.
    let is_of_hub = tensors
        .iter()
        .any(|(name, _)| name.contains(".block_sparse_moe."));
    let (at_experts, bias) = if is_of_hub {
        ("block_sparse_moe", "e_score_correction_bias")
    } else {
        ("mlp", "gate.e_score_correction_bias")
    };
    let keys = ExpertsKeys {
        at: at_experts,
        store: ExpertStore::Slabs {
            gate_up: "experts.gate_up_proj",
            down: "experts.down_proj",
        },
        d_expert: "intermediate_size",
        scores: RouterScores::Sigmoid,
        choice_bias: Some((bias, false)),
        normalises: BiasRule::Always,
        scale: Some(("routed_scaling_factor", 2.0)),
        ..ExpertsKeys::PLAIN
    };
    let experts = keys.read(reader, tensors, sizes.n_layers)?;
    let d_dense = reader.size("d_mlp", "dense_intermediate_size")?;
    let d_shared = reader.size("d_shared_expert", "shared_intermediate_size")?;
    reader.value("hidden_act");
    let gate = GateRule::Clamped {
        limit: reader.number_or("gate_limit", "swiglu_limit", 7.0)? as f32,
        alpha: reader.number_or("gate_slope", "swiglu_alpha", 1.702)? as f32,
    };
    let sparse = match by_name(reader, "mlp_layer_types", &sizes)? {
        Some(sparse) => sparse,
        None => by_number(reader, "moe_layer_freq", &sizes, true)?,
    };
    let d_model = sizes.d_model;
    let dense = |at: &str, width: usize| MlpSpec {
        gate_rule: gate,
        ..fused(tensors, at, d_model, width)
    };
    let mlp = |layer_idx: usize, at: &str| {
        if !sparse[layer_idx] {
            return FeedForward::Dense(Box::new(dense(&format!("{at}.mlp"), d_dense)));
        }
        let mut of_layer = experts.of_layer(tensors, at, d_model, (Activation::Silu, false));
        if let FeedForward::Experts(spec) = &mut of_layer {
            for expert in &mut spec.experts {
                expert.gate_rule = gate;
            }
            let at = format!("{at}.{at_experts}.shared_experts");
            spec.shared = Some((dense(&at, d_shared), None));
        }
        of_layer
    };
    let indexer = Indexer::read(reader, &sizes)?;
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    let attention = spec.main_stack().first_attention();
    let turning = attention.and_then(|attention| attention.rope.as_ref());
    let d_rotary = turning.map_or(0, |rope| rope.d_rotary);
    // transformers goes by the share alone, other programs by this key.
    if let Some(other) = reader
        .value("rotary_dim")
        .filter(|other| other.as_u64() != Some(d_rotary as u64))
    {
        let problem =
            format!("expected {d_rotary}, as partial_rotary_factor has it, found {other}");
        return Err(Error::config(reader.path(), "rotary_dim", problem));
    }
    let eps = spec
        .main_stack()
        .final_norm
        .as_ref()
        .map_or(1e-6, |norm| norm.eps);
    for stack in &mut spec.stacks {
        for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
            if indexer.layers[layer_idx] {
                indexer.put(reader, tensors, (block, d_model, f64::from(eps)))?;
            }
        }
    }
    Ok(spec)
}

/// A gated feed-forward layer whose gate and up may be one tensor.
fn fused(tensors: &Tensors, at: &str, d_model: usize, width: usize) -> MlpSpec {
    let apart = gated(at, USUAL, d_model, width, Activation::Silu, false);
    let name = format!("{at}.gate_up_proj");
    if !tensors.contains(&format!("{name}.weight")) {
        return apart;
    }
    let [gate, up, _] = stacked(&linear(&name, d_model, 2 * width, false), [width, width, 0]);
    MlpSpec {
        up,
        gate: Some(gate),
        ..apart
    }
}

/// One flag per layer from a list of words, if there is one.
fn by_name(reader: &mut Reader<'_>, key: &str, sizes: &Sizes) -> Result<Option<Vec<bool>>> {
    let Some(words) = reader.words_by_layer(key, sizes.n_layers)? else {
        return Ok(None);
    };
    let flag = |word: &String| match word.as_str() {
        "sparse" | "minimax_m3_sparse" => Ok(true),
        "dense" | "full_attention" => Ok(false),
        other => {
            let problem = format!("expected a sparse, dense or full layer, found {other:?}");
            Err(Error::config(reader.path(), key, problem))
        }
    };
    words.iter().map(flag).collect::<Result<_>>().map(Some)
}

/// One flag per layer from a list of numbers; `otherwise` without one.
fn by_number(
    reader: &mut Reader<'_>,
    key: &str,
    sizes: &Sizes,
    otherwise: bool,
) -> Result<Vec<bool>> {
    let numbers = reader.numbers(key)?;
    let numbers = numbers.unwrap_or_else(|| vec![u64::from(otherwise); sizes.n_layers]);
    if numbers.len() != sizes.n_layers {
        let problem = format!(
            "expected {} numbers, found {}",
            sizes.n_layers,
            numbers.len()
        );
        return Err(Error::config(reader.path(), key, problem));
    }
    Ok(numbers.iter().map(|number| *number != 0).collect())
}

/// The object that holds an indexer's keys in files of the hub.
const INSIDE: &str = "sparse_attention_config";

/// Keys of an indexer: heads, width, keys of a block, blocks that are kept, local blocks.
const KEYS: [&str; 5] = [
    "index_n_heads",
    "index_head_dim",
    "index_block_size",
    "index_topk_blocks",
    "index_local_blocks",
];

/// The same keys inside that object.
const KEYS_INSIDE: [&str; 5] = [
    "sparse_num_index_heads",
    "sparse_index_dim",
    "sparse_block_size",
    "sparse_topk_blocks",
    "sparse_local_block",
];

/// The indexers of a model.
struct Indexer {
    n_heads: usize,
    d_head: usize,
    top: TopKeys,
    layers: Vec<bool>,
}

impl Indexer {
    fn read(reader: &mut Reader<'_>, sizes: &Sizes) -> Result<Self> {
        let by_name = by_name(reader, "layer_types", sizes)?;
        let mut read = if reader.is_stated(INSIDE) {
            let part = reader.part(INSIDE);
            let mut inside = Reader::new(&part);
            if inside.count_or("n_first_blocks", "sparse_init_block", 0)? > 0 {
                let problem = "expected 0: first blocks that are always kept are not read";
                return Err(Error::config(reader.path(), "sparse_init_block", problem));
            }
            let layers = by_number(&mut inside, "sparse_attention_freq", sizes, false)?;
            let read = Self::of_keys(&mut inside, KEYS_INSIDE, sizes, layers)?;
            reader.absorb(INSIDE, inside);
            read
        } else {
            Self::of_keys(reader, KEYS, sizes, vec![false; sizes.n_layers])?
        };
        read.layers = by_name.unwrap_or(read.layers);
        if read.layers.contains(&true) {
            let origin = Origin::Derived("blocks · keys of a block".to_owned());
            reader.note("top_k_keys", read.top, origin);
        }
        Ok(read)
    }

    fn of_keys(
        reader: &mut Reader<'_>,
        [heads, width, block, kept, local]: [&'static str; 5],
        sizes: &Sizes,
        layers: Vec<bool>,
    ) -> Result<Self> {
        let n_heads = reader.size("n_index_heads", heads)?;
        if !sizes.n_heads.is_multiple_of(n_heads) {
            let all = sizes.n_heads;
            let problem = format!("expected a divisor of {all} heads, found {n_heads}");
            return Err(Error::config(reader.path(), heads, problem));
        }
        let d_head = reader.size("d_index_head", width)?;
        let size = reader.size("index_block", block)?;
        let n_blocks = reader.size("n_index_blocks", kept)?;
        let n_local = reader.count_or("n_local_blocks", local, 1)?;
        Ok(Self {
            n_heads,
            d_head,
            top: TopKeys {
                n: size.saturating_mul(n_blocks),
                by: KeyRank::Indexer(KeyBlocks {
                    size,
                    n_local,
                    are_pooled: false,
                }),
            },
            layers,
        })
    }

    /// Puts the indexer into a block.
    fn put(
        &self,
        reader: &Reader<'_>,
        tensors: &Tensors,
        (block, d_model, eps): (&mut BlockSpec, usize, f64),
    ) -> Result<()> {
        let Some(own) = block.own_mut() else {
            return Ok(());
        };
        let rope = own.attention.rope.clone();
        if rope
            .as_ref()
            .is_some_and(|rope| rope.d_rotary > self.d_head)
        {
            let problem = format!("expected at least as many as rotate, found {}", self.d_head);
            return Err(Error::config(reader.path(), "index_head_dim", problem));
        }
        let attn = own.projections.q.weight.trim_end_matches("q_proj.weight");
        let name = |what: &str| {
            let of_hub = format!("{attn}index_{what}");
            if tensors.contains(&format!("{of_hub}.weight")) {
                of_hub
            } else {
                format!("{attn}indexer.{what}")
            }
        };
        let norm =
            |what: &str| -> Option<NormSource> { Some(NORM.at(&name(what), self.d_head, eps)) };
        let maps = IndexMaps {
            q_pre: None,
            q_growth: None,
            q: linear(&name("q_proj"), d_model, self.n_heads * self.d_head, false),
            k: linear(&name("k_proj"), d_model, self.d_head, false),
            weights: None,
            q_norm: norm("q_norm"),
            k_norm: norm("k_norm"),
            rope,
            pools: None,
        };
        own.projections.indexer = Some(Box::new(IndexerSpec {
            n_heads: self.n_heads,
            d_head: self.d_head,
            is_weighted: false,
            is_pooled: false,
            source: IndexSource::Own {
                maps: Box::new(maps),
                column: None,
            },
        }));
        own.attention.top_keys = Some(self.top);
        Ok(())
    }
}
