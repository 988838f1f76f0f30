//! The text part of Qwen4-Exp: Qwen3.5 with experts, whose branches read gated means of several residual streams, and whose attention
//! sees the pools of keys that an indexer picks.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{KeyBlocks, KeyRank, RopeSpec, TopKeys};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::recurrent::NormGate;
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockRow, ConnectionSpec, FoldSpec, GatedConnection, HyperSpec, IndexMaps, IndexSource,
    IndexerSpec, KeptStart, ModelSpec, NormSource, PoolMaps, RowSpec, StreamEnds, StreamGates,
    StreamsSpec, TokenMixer,
};

use super::reading::delta::{DeltaKeys, DeltaStore};
use super::reading::hybrid::{layer_of, note_attending, replace, split};
use super::reading::indexer::attending_layers;
use super::reading::linear;
use super::reading::llama_like::{self, ExpertsKeys, RMS, Recipe, SparseLayers};
use super::{Family, qwen3_next};

pub const FAMILY: Family = Family::own("qwen4_exp_text", "Qwen4Exp", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    layers: SparseLayers::All,
    ..qwen3_next::EXPERTS
};

/// Ends the name that stands for a layer until its branches have their streams; nothing of that name is stored.
const SUFFIX: &str = ".input_layernorm.weight";

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    refuse_rows_by_token(reader)?;
    let recipe = Recipe {
        rotary_share: None,
        ..qwen3_next::recipe(Some(EXPERTS))
    };
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe)?;
    let n_layers = spec.main_stack().n_layers();
    let attends = attending_layers(reader, n_layers, true)?;
    note_attending(
        reader,
        &attends,
        "gated delta rule",
        Origin::Key("layer_types".to_owned()),
    );
    let delta = DeltaKeys {
        store: DeltaStore::ByKind,
        ..DeltaKeys::QWEN
    };
    let delta = delta.read(reader, spec.d_model)?;
    let gate = output_gate(reader)?;
    let indexer = Indexer::read(reader, spec.d_model)?;
    for block in spec.stacks[0].blocks_mut() {
        qwen3_next::gate_heads(block);
        let at = layer_of(block, SUFFIX);
        if let Some(own) = block.own_mut() {
            own.attention.top_keys = Some(indexer.top());
            let rope = own.attention.rope.as_ref();
            indexer.holds(reader, rope)?;
            own.projections.indexer = Some(indexer.at(&format!("{at}.self_attn.indexer"), rope));
        }
    }
    replace(&mut spec, &attends, SUFFIX, |at| {
        let mut layer = delta.at(tensors, &format!("{at}.linear_attn"));
        layer.norm.gate = gate;
        TokenMixer::DeltaRule(Box::new(layer))
    });
    connect(reader, tensors.len(), &mut spec)?;
    Ok(spec)
}

/// Some layers may add rows of a table of hashed n-grams to all streams.
fn refuse_rows_by_token(reader: &mut Reader<'_>) -> Result<()> {
    const KEY: &str = "ple_layer_ids";
    let layers = reader.value(KEY).and_then(|layers| layers.as_array());
    if let Some(layers) = layers.filter(|layers| !layers.is_empty()) {
        let problem = format!(
            "expected no layers: rows that are looked up by hashed n-grams are not read, found {} layers",
            layers.len()
        );
        return Err(Error::config(reader.path(), KEY, problem));
    }
    Ok(())
}

/// What opens the gates behind the delta rule.
fn output_gate(reader: &mut Reader<'_>) -> Result<NormGate> {
    const KEY: &str = "output_gate_type";
    let key = if reader.is_stated(KEY) {
        KEY
    } else {
        "hidden_act"
    };
    match reader.word_or("output_gate", key, "silu")?.as_str() {
        "silu" | "swish" => Ok(NormGate::Silu),
        "sigmoid" => Ok(NormGate::Sigmoid),
        other => {
            let problem = format!("expected silu or sigmoid, found {other:?}");
            Err(Error::config(reader.path(), key, problem))
        }
    }
}

/// What all indexers share.
struct Indexer {
    n_heads: usize,
    d_head: usize,
    n_picked: usize,
    pool: usize,
    d_model: usize,
    eps: f64,
}

impl Indexer {
    fn read(reader: &mut Reader<'_>, d_model: usize) -> Result<Self> {
        const KEYS: &str = "indexer_kv_heads";
        let n_keys = reader.count_or("n_index_keys", KEYS, 1)?;
        if n_keys != 1 {
            let problem =
                format!("expected 1: all heads of an indexer share a key, found {n_keys}");
            return Err(Error::config(reader.path(), KEYS, problem));
        }
        let read = Self {
            n_heads: reader.size("n_index_heads", "indexer_n_heads")?,
            d_head: reader.size("d_index_head", "indexer_head_dim")?,
            n_picked: reader.size("top_k_keys", "indexer_budget")?,
            pool: reader.size("index_pool", "indexer_compress_ratio")?,
            d_model,
            eps: reader.number_or("norm_eps", "rms_norm_eps", RMS.eps)?,
        };
        if !read.n_picked.is_multiple_of(read.pool) {
            let problem = format!(
                "expected a multiple of indexer_compress_ratio ({}), found {}",
                read.pool, read.n_picked
            );
            return Err(Error::config(reader.path(), "indexer_budget", problem));
        }
        Ok(read)
    }

    /// Checks that the columns that turn are no more than those of an indexer.
    fn holds(&self, reader: &Reader<'_>, rope: Option<&RopeSpec>) -> Result<()> {
        let d_rotary = rope.map_or(0, |rope| rope.d_rotary);
        if d_rotary > self.d_head {
            let found = self.d_head;
            let problem = format!("expected at least the {d_rotary} that rotate, found {found}");
            return Err(Error::config(reader.path(), "indexer_head_dim", problem));
        }
        Ok(())
    }

    fn top(&self) -> TopKeys {
        TopKeys {
            n: self.n_picked,
            by: KeyRank::Indexer(KeyBlocks {
                size: self.pool,
                n_local: 0,
                are_pooled: true,
            }),
        }
    }

    /// The indexer stored under `at`; `rope` is that of the attention.
    fn at(&self, at: &str, rope: Option<&RopeSpec>) -> Box<IndexerSpec> {
        let (n, d) = (self.n_heads, self.d_head);
        let both = linear(
            &format!("{at}.index_qk_proj"),
            self.d_model,
            (n + 1) * d,
            false,
        );
        let [q, k] = split(&both, [n * d, d]);
        let norm = |name: &str| NormSource {
            adds_one: true,
            ..NormSource::new(
                NormKind::RmsNorm,
                self.eps,
                d,
                Some(format!("{at}.{name}_layernorm.weight")),
            )
        };
        let maps = IndexMaps {
            q,
            k,
            weights: None,
            q_pre: None,
            q_growth: None,
            q_norm: Some(norm("q")),
            k_norm: Some(norm("k")),
            rope: rope.cloned(),
            pools: Some(PoolMaps::Mean { size: self.pool }),
        };
        Box::new(IndexerSpec {
            n_heads: n,
            d_head: d,
            is_weighted: true,
            is_pooled: true,
            source: IndexSource::Own {
                maps: Box::new(maps),
                column: None,
            },
        })
    }
}

/// Gives every branch its streams, which take the place of norms.
fn connect(reader: &mut Reader<'_>, n_tensors: usize, spec: &mut ModelSpec) -> Result<()> {
    const N: &str = "hc_count";
    const RANK: &str = "hc_lowrank";
    let mut size = |knob, key: &'static str, default| {
        reader.size_or(knob, key, default, Origin::Default(key.to_owned()))
    };
    let (n, rank) = (size("n_streams", N, 4)?, size("stream_rank", RANK, 320)?);
    if n > n_tensors {
        let problem = format!("{n} streams need more than the {n_tensors} tensors that are stored");
        return Err(Error::config(reader.path(), N, problem));
    }
    let d_model = spec.d_model;
    let stack = &mut spec.stacks[0];
    let norm = stack.final_norm.take();
    let eps = norm.as_ref().map_or(RMS.eps as f32, |norm| norm.eps);
    let base = norm.and_then(|norm| norm.gain.into_iter().next());
    let base = base.unwrap_or_default();
    let base = base.trim_end_matches("norm.weight");
    let gates = |at: &str| StreamGates {
        gain: format!("{at}.hc_norm.weight"),
        eps,
        down: linear(
            &format!("{at}.input_mix_weight_down"),
            n * d_model,
            rank,
            false,
        ),
        up: linear(
            &format!("{at}.input_mix_weight_up"),
            rank,
            n * d_model,
            false,
        ),
    };
    let fold = FoldSpec::Gated(Box::new(gates(&format!("{base}hyper_connection_mixer"))));
    for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
        (block.attn_pre, block.mlp_pre) = (None, None);
        let connection = |name: &str| {
            let at = format!("{base}layers.{layer_idx}.{name}_hyper_connection");
            ConnectionSpec::Gated(Box::new(GatedConnection {
                gates: gates(&at),
                inject: linear(&format!("{at}.block_inject_weight"), n * d_model, n, false),
            }))
        };
        let hyper = HyperSpec {
            n,
            branches: ["attn", "mlp"].map(connection),
            fold: fold.clone(),
        };
        block.row = Some(Box::new(BlockRow {
            d_model,
            streams: Some(StreamsSpec::Connected(Box::new(hyper))),
            n_kept: 0,
            beside: false,
            shortcut: None,
            join: None,
        }));
    }
    stack.rows = Some(Box::new(RowSpec {
        d_model,
        streams: Some(StreamEnds::Copied { n, fold }),
        n_kept: 0,
        first: KeptStart::Nothing,
    }));
    Ok(())
}
