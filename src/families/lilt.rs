//! LiLT, its texts alone: RoBERTa with a second, narrower stream of layout, whose scores are added to those of the text.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::Scale;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockRow, ConstantRow, FeedForward, KeptStart, MlpSpec, ModelSpec, NormSource, PositionTable,
    RowSpec, SideEmbed, SideStream, TableSource,
};

use super::layoutlm::{NO_BOXES, n_places};
use super::reading::bert_like::{self, BertLike};
use super::reading::{layer_norm, linear};
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("lilt", "LiLT", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let states_padding = reader.value("pad_token_id").is_some();
    let like = BertLike {
        may_decode: false,
        pad: (!states_padding).then_some(0),
        ..roberta::like("lilt.")
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let tensors = &checkpoint.tensors;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let ratio = ratio(reader, &spec)?;
    let width = spec.d_model / ratio;
    let words = spec.stacks[0].embed.tokens.tensor.clone();
    let base = words.trim_end_matches("embeddings.word_embeddings.weight");
    let norm = |at: &str| layer_norm(tensors, at, width, eps);
    for (layer_idx, block) in spec.stacks[0].blocks_mut().iter_mut().enumerate() {
        let at = format!("{base}encoder.layer.{layer_idx}");
        let (d_mlp, activation) = match &block.feed_forward {
            FeedForward::Dense(mlp) => (mlp.up.n_out() / ratio, mlp.activation),
            FeedForward::Experts(_) | FeedForward::None => (0, Activation::Gelu),
        };
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let own = |name: &str| map(&format!("attention.self.layout_{name}"), width, width);
        block.row = Some(Box::new(BlockRow {
            d_model: spec.d_model,
            streams: None,
            n_kept: width,
            beside: false,
            shortcut: None,
            join: None,
        }));
        let Some(text) = block.own_mut() else {
            continue;
        };
        let d_text = text.attention.d_head;
        let d_side = width / text.attention.n_heads;
        text.attention.d_head = d_text + d_side;
        text.attention.scale = Scale::Factor((d_text as f32).sqrt().recip());
        text.projections.side = Some(Box::new(SideStream {
            q: own("query"),
            k: own("key"),
            v: own("value"),
            o: map("attention.layout_output.dense", width, width),
            factor: (d_text as f32 / d_side as f32).sqrt(),
            attn_post: norm(&format!("{at}.attention.layout_output.LayerNorm")),
            mlp: MlpSpec::plain(
                map("layout_intermediate.dense", width, d_mlp),
                map("layout_output.dense", d_mlp, width),
                activation,
            ),
            mlp_post: norm(&format!("{at}.layout_output.LayerNorm")),
        }));
    }
    let side = begin(reader, &spec, width, norm)?;
    let d_model = spec.d_model;
    spec.stacks[0].rows = Some(Box::new(RowSpec {
        d_model,
        streams: None,
        n_kept: width,
        first: KeptStart::Side(Box::new(side)),
    }));
    reader.remark(NO_BOXES.to_owned());
    Ok(spec)
}

/// How many times narrower than the text the stream of layout is.
fn ratio(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<usize> {
    const KEY: &str = "channel_shrink_ratio";
    let default = Origin::Default(KEY.to_owned());
    let ratio = reader.size_or("shrink_ratio", KEY, 4, default)?;
    let n_heads = spec.stacks[0].blocks().iter().find_map(|block| {
        let own = block.attention()?;
        (!own.d_head.is_multiple_of(ratio)).then_some(own.n_heads)
    });
    if let Some(n_heads) = n_heads {
        let problem = format!(
            "expected a divisor of the width of a head, which is {} over {n_heads} heads, found {ratio}",
            spec.d_model
        );
        return Err(Error::config(reader.path(), KEY, problem));
    }
    if !spec.d_model.is_multiple_of(N_SIDES) {
        let problem = format!(
            "expected a multiple of {N_SIDES}, since as many rows of a box stand beside each other, found {}",
            spec.d_model
        );
        return Err(Error::config(reader.path(), "hidden_size", problem));
    }
    Ok(ratio)
}

/// The edges and sides of a box.
const N_SIDES: usize = 6;

/// The layout of a text without boxes: each edge and side of a box is 0.
fn begin(
    reader: &mut Reader<'_>,
    spec: &ModelSpec,
    width: usize,
    norm: impl Fn(&str) -> NormSource,
) -> Result<SideEmbed> {
    let embed = &spec.stacks[0].embed;
    let words = &embed.tokens.tensor;
    let base = words.trim_end_matches("embeddings.word_embeddings.weight");
    let at = |name: &str| format!("{base}layout_embeddings.{name}");
    let (n_rows, of_side) = (n_places(reader)?, spec.d_model / N_SIDES);
    let constant = |name: &str, columns: &[usize]| ConstantRow {
        table: TableSource {
            tensor: at(&format!("{name}_position_embeddings.weight")),
            n_rows,
            width: of_side,
        },
        row: 0,
        columns: columns.iter().map(|nth| nth * of_side).collect(),
    };
    let n_positions = embed.positions.as_ref().and_then(PositionTable::n_rows);
    Ok(SideEmbed {
        constants: vec![
            constant("x", &[0, 2]),
            constant("y", &[1, 3]),
            constant("h", &[4]),
            constant("w", &[5]),
        ],
        map: linear(&at("box_linear_embeddings"), spec.d_model, width, true),
        positions: TableSource {
            tensor: at("box_position_embeddings.weight"),
            n_rows: n_positions.unwrap_or_default(),
            width,
        },
        norm: norm(&at("LayerNorm")),
    })
}
