//! Bark: its first model, a GPT that turns text into tokens of meaning; the models of sound behind it are left out.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, HeadSpec, MlpSpec, ModelSpec, PositionTable, ProjectionSpec,
    StackSpec, TableSource,
};

use super::Family;
use super::reading::{
    even_heads, layer_norm_bias_if_stored, linear, note_attention, prefix, stacked,
};

pub const FAMILY: Family = Family::own("bark", "Bark", read).leaving_unread(&[
    "attn.bias",
    "coarse_acoustics.*",
    "codec_model.*",
    "fine_acoustics.*",
]);

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const PART: &str = "semantic_config";
    let config: Config = reader.part(PART);
    let mut inner = Reader::new(&config);
    let spec = semantic(&checkpoint.tensors, &mut inner);
    inner.value("model_type");
    reader.absorb(PART, inner);
    for key in [
        "coarse_acoustics_config",
        "codec_config",
        "fine_acoustics_config",
    ] {
        reader.value(key);
    }
    reader.remark(
        "its first model is read, which turns text into tokens of meaning; those that make sound of them are left out. Ids are rows of its table, in which those of text begin at text_encoding_offset of its generation settings: give --tokens"
            .to_owned(),
    );
    spec
}

fn semantic(tensors: &Tensors, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let n_layers = reader.layers("num_layers")?;
    let n_heads = reader.size("n_heads", "num_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_head = even_heads(reader, "num_heads", d_model, n_heads)?;
    let n_ctx = reader.size("n_ctx", "block_size")?;
    let n_rows = reader.size("d_vocab_in", "input_vocab_size")?;
    let d_vocab = reader.size("d_vocab", "output_vocab_size")?;
    let has_bias = reader.flag_or("has_bias", "bias", true)?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, true);
    note_attention(reader, &attention, Origin::Family);
    reader.note("norm_eps", format!("{EPS:e}"), Origin::Family);
    let base = prefix(tensors, &["semantic.", ""], "input_embeds_layer.weight");
    let norm = |name: String| Some(layer_norm_bias_if_stored(tensors, &name, d_model, EPS));
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, has_bias);
        let [q, k, v] = stacked(&map("attn.att_proj", d_model, 3 * d_model), [d_model; 3]);
        let o = map("attn.out_proj", d_model, d_model);
        let mlp = MlpSpec::plain(
            map("mlp.in_proj", d_model, 4 * d_model),
            map("mlp.out_proj", 4 * d_model, d_model),
            Activation::Gelu,
        );
        BlockSpec {
            attn_pre: norm(format!("{at}.layernorm_1")),
            mlp_pre: norm(format!("{at}.layernorm_2")),
            ..BlockSpec::plain(
                attention.clone(),
                ProjectionSpec::plain(q, k, v, o),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}{name}.weight"),
        n_rows,
        width: d_model,
    };
    let embed = EmbedSpec {
        positions: Some(PositionTable::Stored(table("position_embeds_layer", n_ctx))),
        ..EmbedSpec::plain(table("input_embeds_layer", n_rows))
    };
    let blocks = (0..n_layers).map(block).collect();
    let last = norm(format!("{base}layernorm_final"));
    let head = HeadSpec::plain(linear(&format!("{base}lm_head"), d_model, d_vocab, false));
    Ok(ModelSpec {
        d_vocab,
        n_ctx: Some(n_ctx),
        is_causal_lm: true,
        ..ModelSpec::of_one_stack(
            FAMILY.model_type,
            StackSpec::only(embed, blocks, last),
            Some(head),
        )
    })
}
