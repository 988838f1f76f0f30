//! The encoder of SAM 3's detector: the places of a map of features see each other and the rows of a text. Both are given.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    AddedPlaces, BlockSpec, CrossSpec, FeedForward, MlpSpec, ModelSpec, PlaceRows, ProjectionSpec,
    SineScale, Stack, StackSpec,
};

use super::Family;
use super::reading::{activation, even_heads, given_rows, layer_norm, linear, note_attention};

pub const FAMILY: Family = Family::own("sam3_detr_encoder", "Sam3DetrEncoder", read);

/// Epsilon of all norms, whatever the configuration states.
const EPS: f64 = 1e-5;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const WIDTH: &str = "hidden_size";
    let default = |key: &str| Origin::Default(key.to_owned());
    let tensors = &checkpoint.tensors;
    reader.value("layer_norm_eps");
    let n_layers = match reader.value("num_layers") {
        Some(_) => reader.layers("num_layers")?,
        None => 6,
    };
    let d_model = reader.size_or("d_model", WIDTH, 256, default(WIDTH))?;
    if !d_model.is_multiple_of(4) {
        let problem = format!(
            "expected a multiple of 4, for sines and cosines of two sides, found {d_model}"
        );
        return Err(Error::config(reader.path(), WIDTH, problem));
    }
    let n_heads = reader.size_or("n_heads", HEADS, 8, default(HEADS))?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let of_mlp = "intermediate_size";
    let d_mlp = reader.size_or("d_mlp", of_mlp, 2048, default(of_mlp))?;
    let act = activation(reader, "hidden_act", "relu")?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);
    let block = |layer_idx: usize| {
        let at = format!("layers.{layer_idx}");
        let maps = |part: &str| {
            let one = |name: &str| linear(&format!("{at}.{part}.{name}"), d_model, d_model, true);
            ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), one("o_proj"))
        };
        let norm = |nth: usize| {
            Some(layer_norm(
                tensors,
                &format!("{at}.layer_norm{nth}"),
                d_model,
                EPS,
            ))
        };
        let own = ProjectionSpec {
            places: Some(Box::new(AddedPlaces {
                of_queries: Some(PlaceRows::Sines(SineScale::USUAL)),
                of_keys: Some(PlaceRows::Sines(SineScale::USUAL)),
                reach_values: false,
            })),
            ..maps("self_attn")
        };
        let of_text = AttentionSpec {
            is_cross: true,
            ..attention.clone()
        };
        let cross = CrossSpec {
            pre: norm(2),
            ..CrossSpec::plain(of_text, maps("cross_attn"))
        };
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.mlp.fc1"), d_model, d_mlp, true),
            linear(&format!("{at}.mlp.fc2"), d_mlp, d_model, true),
            act,
        );
        BlockSpec {
            attn_pre: norm(1),
            mlp_pre: norm(3),
            cross: Some(Box::new(cross)),
            ..BlockSpec::plain(attention.clone(), own, FeedForward::Dense(Box::new(mlp)))
        }
    };
    let key = |part: &str| format!("layers.0.{part}.k_proj.weight");
    let embed = given_rows::embed(key("self_attn"), d_model);
    let places = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(embed, (0..n_layers).map(block).collect(), None)
    };
    given_rows::remark(reader, "an encoder of text");
    reader.remark(
        "the decoder's rows are the last map of features of a picture, an array [row, column, channel]"
            .to_owned(),
    );
    reader.note(
        "positions",
        "sines of rows and columns, added to queries and keys in every layer",
        Origin::Family,
    );
    let stacks = [given_rows::encoder(key("cross_attn"), d_model), places];
    Ok(given_rows::read_beside(FAMILY.model_type, reader, stacks))
}
