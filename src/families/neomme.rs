//! NeoMME on text: an encoder of Llama's kind whose attention reads the embedding again, takes each token's own value out of what a
//! head gives, and in two layers adds a row of the token to its values.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{RopeSpec, Window};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{
    BlockRow, EmbedSpec, HeadSpec, KeptStart, LinearSource, ModelSpec, NormSource, RowSpec,
    TableSource, TransformSpec,
};

use super::Family;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, MlpStore, NormStyle, QkNorm, RMS, Recipe, RopeLayers,
};
use super::reading::rope::{RopeRule, rope};
use super::reading::{linear, prefix};

pub const FAMILY: Family = Family::own("neomme", "NeoMME", read)
    .leaving_unread(&["patch_embeddings.*", "multi_vector_head.*"]);

fn recipe(base: &'static str) -> Recipe {
    Recipe {
        norm: NormStyle {
            eps_key: Some("norm_eps"),
            has_gain: false,
            ..RMS
        },
        qk_norm: QkNorm::Bare,
        qkv_bias: BiasRule::Key("attention_bias", false),
        o_bias: BiasRule::Key("attention_bias", false),
        mlp_bias: BiasRule::Key("mlp_bias", false),
        names: BlockNames {
            o: "output_projection.o_proj",
            final_norm: "final_norm",
            ..BlockNames::USUAL
        },
        head_gate: Some("output_projection.gate_proj"),
        activation: ("hidden_act", "relu2"),
        mlp: MlpStore::Plain {
            up: "up_proj",
            down: "down_proj",
        },
        is_tied: true,
        is_causal: false,
        d_head: Some(64),
        rope_layers: RopeLayers::Never,
        base: Some(base),
        ..Recipe::llama()
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    const WORDS: &str = "embed_tokens.word_embeddings.weight";
    let base = prefix(tensors, &["model.", ""], WORDS);
    let mut spec = llama_like::read(FAMILY.model_type, checkpoint, reader, &recipe(base))?;
    reader.forget(&["positions", "mask"]);
    let (d_model, n_layers) = (spec.d_model, spec.stacks[0].n_layers());
    let sights = sights(reader, n_layers)?;
    let default = Origin::Default("embedding_rank".to_owned());
    let d_embed = reader.size_or("d_embed", "embedding_rank", 256, default)?;
    let share = (2.0 * n_layers as f64).powf(-0.5);
    let share = reader.number_or("branch_scale", "residual_multiplier", share)?;
    let n_ctx = spec.n_ctx.unwrap_or(usize::MAX);
    let mut ropes: [Option<RopeSpec>; 2] = [None, None];
    let full = |layer_idx: &usize| !sights[*layer_idx].0;
    let first = (0..n_layers).find(full);
    let last = (0..n_layers).rev().find(full);
    let stack = &mut spec.stacks[0];
    for (layer_idx, block) in stack.blocks_mut().iter_mut().enumerate() {
        block.branch_scales = [share as f32; 2];
        block.row = Some(Box::new(BlockRow {
            d_model,
            streams: None,
            n_kept: d_model,
            beside: false,
            shortcut: None,
            join: None,
        }));
        let Some(own) = block.own_mut() else { continue };
        let (is_windowed, reach) = sights[layer_idx];
        let turn = &mut ropes[usize::from(is_windowed)];
        if turn.is_none() {
            let sizes = (own.attention.d_head, n_ctx);
            *turn = Some(rotation(reader, is_windowed, sizes)?);
        }
        own.attention.rope.clone_from(turn);
        own.attention.mask.window = reach.map(Window::Around);
        let maps = &mut own.projections;
        let at = format!("{base}layers.{layer_idx}");
        maps.sum_with_kept = Some(format!("{at}.lambdas"));
        let shares = "self_attn.exclusive_self_attention.alpha";
        maps.own_value_shares = Some(format!("{at}.{shares}"));
        if [first, last].contains(&Some(layer_idx)) {
            maps.value_rows = Some(TableSource {
                tensor: format!("{base}value_embeddings.weight"),
                n_rows: spec.d_vocab,
                width: maps.v.n_out(),
            });
        }
    }
    stack.rows = Some(Box::new(RowSpec {
        d_model,
        streams: None,
        n_kept: d_model,
        first: KeptStart::Embedding,
    }));
    let words = TableSource {
        tensor: format!("{base}{WORDS}"),
        n_rows: spec.d_vocab,
        width: d_embed,
    };
    let map = format!("{base}embed_tokens.embedding_projection");
    let eps = stack.final_norm.as_ref().map_or(1e-6, |norm| norm.eps);
    stack.embed = EmbedSpec {
        projection: Some(linear(&map, d_embed, d_model, false)),
        norm: Some(NormSource::new(
            NormKind::RmsNorm,
            f64::from(eps),
            d_model,
            None,
        )),
        norms_projected: true,
        ..EmbedSpec::plain(words.clone())
    };
    let stored = |own: &str, tied: String| {
        let own = own.to_owned();
        if tensors.contains(&own) { own } else { tied }
    };
    let narrow = stored("unembedding_projection.weight", format!("{map}.weight"));
    let unembed = stored("lm_head.weight", words.tensor);
    spec.head = Some(HeadSpec {
        transform: Some(TransformSpec {
            dense: LinearSource::whole(narrow, None, d_model, d_embed).input_major(),
            activation: None,
            norm: None,
            then: None,
        }),
        ..HeadSpec::plain(LinearSource::whole(unembed, None, d_embed, spec.d_vocab))
    });
    spec.is_causal_lm = false;
    for key in [
        "embedding_dim",
        "patch_size",
        "document_token_id",
        "image_token_id",
    ] {
        reader.value(key);
    }
    Ok(spec)
}

/// The rotary embedding of layers with or without a window: of a text, both axes of positions are one.
fn rotation(
    reader: &mut Reader<'_>,
    is_windowed: bool,
    (d_head, n_ctx): (usize, usize),
) -> Result<RopeSpec> {
    let (theta, share) = if is_windowed { (1e4, 1.0) } else { (1e6, 0.25) };
    let kind = if is_windowed {
        "sliding_attention"
    } else {
        "full_attention"
    };
    let rule = RopeRule {
        theta,
        share,
        share_key: Some("partial_rotary_factor"),
        layer_type: Some(kind),
        ..RopeRule::plain(d_head, n_ctx)
    };
    rope(reader, rule)
}

/// A layer: whether its type is that of layers with a window, and how far it looks to either side, if not everywhere.
type Sight = (bool, Option<usize>);

/// How far each layer looks. Its type says how it turns; where a file lists what layers differ in, the list alone says how far.
fn sights(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<Sight>> {
    const TYPES: &str = "layer_types";
    const WIDTH: &str = "sliding_window";
    const EACH: &str = "per_layer_config";
    /// The reach of every second layer with a window, if no file lists reaches.
    const FAR: usize = 1024;
    let types = reader.words_by_layer(TYPES, n_layers)?;
    let default = Origin::Default(WIDTH.to_owned());
    let usual = if reader.is_null(WIDTH) {
        None
    } else {
        Some(reader.size_or("window", WIDTH, 256, default)?)
    };
    let each = reader.value(EACH);
    let mut n_windowed = 0;
    let mut found = Vec::with_capacity(n_layers);
    for layer_idx in 0..n_layers {
        let is_windowed = match types.as_ref().map(|types| types[layer_idx].as_str()) {
            None => (layer_idx + 1) % 6 != 0 && layer_idx + 1 != n_layers,
            Some("sliding_attention") => true,
            Some("full_attention") => false,
            Some(other) => {
                let problem =
                    format!("expected full_attention or sliding_attention, found {other:?}");
                return Err(Error::config(reader.path(), TYPES, problem));
            }
        };
        let own = each.map(|each| each.get(layer_idx.to_string())?.get(WIDTH));
        let reach = match own {
            None if !is_windowed => None,
            None if n_windowed % 2 == 1 => Some(FAR),
            None | Some(None) => usual,
            Some(Some(own)) if own.is_null() => None,
            Some(Some(own)) => {
                let reach = own.as_u64().filter(|reach| *reach > 0);
                let reach = reach.ok_or_else(|| {
                    let key = format!("{EACH}.{layer_idx}.{WIDTH}");
                    let problem = format!("expected null or a whole number from 1, found {own}");
                    Error::config(reader.path(), key, problem)
                })?;
                Some(reach as usize)
            }
        };
        n_windowed += usize::from(is_windowed);
        found.push((is_windowed, reach));
    }
    let n = found.iter().filter(|(_, reach)| reach.is_some()).count();
    let said = format!("{n} of {n_layers}");
    reader.note("windowed_layers", said, Origin::Key(TYPES.to_owned()));
    Ok(found)
}
