//! The encoders of CLVP, of texts and of speech codes: gates beside their layers, and values that rotate as queries and keys do.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::RopeSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::NormKind;
use attnscope_spec::{BlockSpec, FeedForward, MlpSpec, ModelSpec};

use super::Family;
use super::esm::check_angles;
use super::reading::llama_like::{
    self, BiasRule, BlockNames, NormPlaces, NormStyle, RMS, Recipe, RopeLayers, Sizes,
};
use super::reading::{activation, even_heads, layer_norm, linear, prefix, stacked};

/// A table of frequencies, which is computed.
pub const FAMILY: Family = Family::own("clvp_encoder", "ClvpEncoder", read)
    .leaving_unread(&["projection.weight", "rotary_pos_emb.*"]);

/// Prefixes of an encoder: alone, or the one of texts in a whole model.
const BASES: [&str; 2] = ["", "text_encoder_model."];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const WORDS: &str = "token_embedding.weight";
    let tensors = &checkpoint.tensors;
    let base = prefix(tensors, &BASES, WORDS);
    let recipe = Recipe {
        norm: NormStyle {
            kind: NormKind::RmsNorm,
            eps_key: Some("layer_norm_eps"),
            eps: 1e-5,
            ..RMS
        },
        norm_places: NormPlaces::BeforeNamed(["input_rmsnorm", "post_attention_rmsnorm"]),
        rope_layers: RopeLayers::Never,
        qkv_bias: BiasRule::Key("use_attention_bias", false),
        o_bias: BiasRule::Always,
        names: BlockNames {
            o: "out_proj",
            ..BlockNames::USUAL
        },
        is_causal: false,
        base: Some(base),
        ..Recipe::llama()
    };
    let sizes = Sizes::read(reader, None)?;
    let d_model = sizes.d_model;
    let d_head = even_heads(reader, "num_attention_heads", d_model, sizes.n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let activation = activation(reader, "hidden_act", "gelu")?;
    let mlp = |_: usize, at: &str| {
        let fused = linear(&format!("{at}.mlp.fc1.proj"), d_model, 2 * d_mlp, true);
        let [up, gate, _] = stacked(&fused, [d_mlp, d_mlp, 0]);
        let down = linear(&format!("{at}.mlp.fc2"), d_mlp, d_model, true);
        FeedForward::Dense(Box::new(MlpSpec {
            gate: Some(gate),
            ..MlpSpec::plain(up, down, activation)
        }))
    };
    let mut spec =
        llama_like::read_with(FAMILY.model_type, checkpoint, reader, &recipe, sizes, &mlp)?;
    let rope = turns(reader, sizes.n_heads, d_head)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let stack = &mut spec.stacks[0];
    let attentions = stack.blocks_mut().iter_mut().filter_map(BlockSpec::own_mut);
    attentions.for_each(|own| own.attention.rope = rope.clone());
    stack.embed.tokens.tensor = format!("{base}{WORDS}");
    let last = layer_norm(tensors, &format!("{base}final_layer_norm"), d_model, eps);
    stack.final_norm = Some(last);
    check_angles(checkpoint, &spec, "rotary_pos_emb.inv_freq")?;
    spec.head = None;
    spec.n_ctx = None;
    reader.forget(&["unembedding", "tied_unembedding", "n_ctx"]);
    reader.value("summary_type");
    reader.remark(
        "the map of the mean state, which both encoders share a width by, is left out".to_owned(),
    );
    Ok(spec)
}

/// The rotation, of queries, keys and values, if there is one.
fn turns(reader: &mut Reader<'_>, n_heads: usize, d_head: usize) -> Result<Option<RopeSpec>> {
    /// No head rotates less, if it is as wide.
    const LEAST: usize = 32;
    const WIDTH: &str = "projection_dim";
    let width = reader.size_or("d_shared", WIDTH, 768, Origin::Default(WIDTH.to_owned()))?;
    if !reader.flag_or("rotates", "use_rotary_embedding", true)? {
        return Ok(None);
    }
    let d_rotary = (width / (2 * n_heads)).max(LEAST);
    if d_rotary > d_head || !d_rotary.is_multiple_of(2) {
        let problem = format!(
            "expected an even number of at most {d_head} columns that rotate in each head, found {d_rotary}"
        );
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let positions = format!("rotary, halves, {d_rotary} of {d_head}, values too");
    reader.note("positions", positions, Origin::Family);
    Ok(Some(RopeSpec {
        turns_values: true,
        ..RopeSpec::plain(10_000.0, d_rotary)
    }))
}
