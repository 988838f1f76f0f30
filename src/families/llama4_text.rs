//! Llama 4: attention in chunks with rotation, whole attention without it, and experts that weigh what they read.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Growth, GrowthCurve, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{FeedForward, ModelSpec, RouterScores, StackSpec};

use super::Family;
use super::reading::activation;
use super::reading::experts::{ExpertsKeys, USUAL, gated};
use super::reading::llama_like::{
    self, BiasRule, ExpertStore, NormStyle, QkNorm, RMS, Recipe, RopeLayers, SharedKeys,
    SharedWidth, Sizes, SparseLayers,
};

pub const FAMILY: Family = Family::own("llama4_text", "Llama4", read);

const EXPERTS: ExpertsKeys = ExpertsKeys {
    at: "feed_forward",
    store: ExpertStore::SlabsByInput {
        gate_up: "experts.gate_up_proj",
        down: "experts.down_proj",
    },
    router: "router",
    n_experts: ["num_local_experts", "num_experts"],
    d_expert: "intermediate_size",
    scores: RouterScores::Sigmoid,
    scales_inputs: true,
    normalises: BiasRule::Never,
    shared: Some(SharedKeys {
        name: "shared_expert",
        width: SharedWidth::Key("intermediate_size"),
        gate: None,
    }),
    layers: SparseLayers::ListedOrStepped {
        list: "moe_layers",
        step: "interleave_moe_layer_step",
    },
    ..ExpertsKeys::PLAIN
};

fn recipe() -> Recipe {
    Recipe {
        theta: 500_000.0,
        interleaved: true,
        rope_layers: RopeLayers::ListedIfAny("no_rope_layers", 4),
        norm: NormStyle { eps: 1e-5, ..RMS },
        qk_norm: QkNorm::BareAfterRopeIf("use_qk_norm"),
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        d_head: Some(128),
        experts: Some(EXPERTS),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let recipe = recipe();
    let sizes = if reader.is_null("head_dim") {
        Sizes::read(reader, None)?
    } else {
        Sizes::read(reader, recipe.d_head)?
    };
    let (tensors, d_model) = (&checkpoint.tensors, sizes.d_model);
    let experts = EXPERTS.read(reader, tensors, sizes.n_layers)?;
    let d_mlp = if (0..sizes.n_layers).all(|idx| experts.are_in(idx)) {
        reader.value("intermediate_size_mlp");
        experts.d_expert
    } else {
        reader.size("d_mlp", "intermediate_size_mlp")?
    };
    let activation = activation(reader, "hidden_act", "silu")?;
    let mlp = |layer_idx: usize, at: &str| {
        if experts.are_in(layer_idx) {
            return experts.of_layer(tensors, at, d_model, (activation, false));
        }
        let at = format!("{at}.feed_forward");
        FeedForward::Dense(Box::new(gated(
            &at, USUAL, d_model, d_mlp, activation, false,
        )))
    };
    let (growth, chunk) = (growth(reader)?, chunk(reader)?);
    let types = reader.words_by_layer(TYPES, sizes.n_layers)?;
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    // Layers with a rotary embedding do not scale queries by position; the others have no query and key norms.
    let mut blocks = spec.stacks.iter_mut().flat_map(StackSpec::blocks_mut);
    let mut n_chunked = 0;
    for (layer_idx, own) in
        (0..sizes.n_layers).filter_map(|idx| Some((idx, blocks.next()?.own_mut()?)))
    {
        let is_chunked = match types.as_ref().map(|types| types[layer_idx].as_str()) {
            None => own.attention.rope.is_some(),
            Some("chunked_attention") => true,
            Some("full_attention") => false,
            Some(other) => {
                let problem =
                    format!("expected full_attention or chunked_attention, found {other:?}");
                return Err(Error::config(reader.path(), TYPES, problem));
            }
        };
        if is_chunked {
            own.attention.mask.window = Some(Window::Chunk(chunk));
            n_chunked += 1;
        }
        if own.attention.rope.is_none() {
            own.attention.growth = growth;
            (own.projections.q_norm, own.projections.k_norm) = (None, None);
            own.projections.norms_after_rope = false;
        }
    }
    drop(blocks);
    let said = format!("{n_chunked} of {} in chunks of {chunk}", sizes.n_layers);
    reader.note("windowed_layers", said, Origin::Key(TYPES.to_owned()));
    Ok(spec)
}

/// The key of the list of chunked layers.
const TYPES: &str = "layer_types";

/// The width of chunks; transformers needs it even if no layer is chunked.
fn chunk(reader: &mut Reader<'_>) -> Result<usize> {
    const KEY: &str = "attention_chunk_size";
    if reader.is_null(KEY) {
        let problem = "expected a whole number from 1, found null";
        return Err(Error::config(reader.path(), KEY, problem));
    }
    let default = Origin::Default(KEY.to_owned());
    reader.size_or("chunk", KEY, 8192, default)
}

/// How layers without a rotary embedding scale queries by position.
fn growth(reader: &mut Reader<'_>) -> Result<Option<Growth>> {
    const PERIOD: &str = "floor_scale";
    let grows = reader.flag_or("query_growth", "attn_temperature_tuning", true)?;
    let beta = reader.number_or("query_growth_factor", "attn_scale", 0.1)?;
    let period = reader.number_or("query_growth_period", PERIOD, 8192.0)?;
    if grows && period <= 0.0 {
        let problem = format!("expected a number above 0, found {period}");
        return Err(Error::config(reader.path(), PERIOD, problem));
    }
    Ok(grows.then_some(Growth {
        beta,
        period,
        first: 1,
        curve: GrowthCurve::Steps,
    }))
}
