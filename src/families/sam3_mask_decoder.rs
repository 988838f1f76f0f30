//! What finds SAM 3's masks: the rows of its encoder look at those of a prompt once, and convolutions follow, which are not read. Both
//! are given.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, CrossSpec, FeedForward, Mixer, ModelSpec, ProjectionSpec, Stack, StackSpec,
};

use super::Family;
use super::reading::{even_heads, given_rows, layer_norm, linear, note_attention};

/// What makes masks of the rows.
pub const FAMILY: Family = Family::own("sam3_mask_decoder", "Sam3MaskDecoder", read)
    .leaving_unread(&[
        "instance_projection.*",
        "mask_embedder.*",
        "pixel_decoder.*",
        "semantic_projection.*",
    ]);

/// Epsilon of the norm, whatever the configuration states.
const EPS: f64 = 1e-5;

/// Keys of what makes masks, or that change nothing.
const ASIDE: [&str; 2] = ["layer_norm_eps", "num_upsampling_stages"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const WIDTH: &str = "hidden_size";
    const AT: &str = "prompt_cross_attn";
    let default = |key: &str| Origin::Default(key.to_owned());
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let d_model = reader.size_or("d_model", WIDTH, 256, default(WIDTH))?;
    let n_heads = reader.size_or("n_heads", HEADS, 8, default(HEADS))?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let attention = AttentionSpec {
        is_cross: true,
        ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
    };
    note_attention(reader, &attention, Origin::Family);
    let one = |name: &str| linear(&format!("{AT}.{name}"), d_model, d_model, true);
    let maps = ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), one("o_proj"));
    let norm = layer_norm(&checkpoint.tensors, "prompt_cross_attn_norm", d_model, EPS);
    let cross = CrossSpec {
        pre: Some(norm),
        ..CrossSpec::plain(attention, maps)
    };
    let block = BlockSpec {
        cross: Some(Box::new(cross)),
        ..BlockSpec::mixed(Mixer::None, FeedForward::None)
    };
    let key = |part: &str| format!("{AT}.{part}_proj.weight");
    let rows = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(given_rows::embed(key("q"), d_model), vec![block], None)
    };
    given_rows::remark(reader, "encoders of a text and of boxes");
    reader.remark("what makes masks of the rows that looked at the prompt is not read".to_owned());
    let stacks = [given_rows::encoder(key("k"), d_model), rows];
    Ok(given_rows::read_beside(FAMILY.model_type, reader, stacks))
}
