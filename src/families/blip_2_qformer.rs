//! The Q-Former of BLIP-2: BERT's layers over learned queries, which look at a tower of pictures in some layers. Both are given as rows:
//! the whole model holds the queries.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, ProjectionSpec, Stack,
    StackSpec,
};

use super::Family;
use super::reading::{activation, even_heads, given_rows, layer_norm, linear, note_attention};

/// Besides queries, such a model may read a text, whose feed-forward layers are its own.
pub const FAMILY: Family = Family::own("blip_2_qformer", "Blip2QFormer", read).leaving_unread(&[
    ".intermediate.*",
    ".output.*",
    "embeddings.*",
]);

/// Keys of the text.
const ASIDE: [&str; 4] = [
    "max_position_embeddings",
    "pad_token_id",
    "use_qformer_text_input",
    "vocab_size",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const EVERY: &str = "cross_attention_frequency";
    const HEADS: &str = "num_attention_heads";
    let default = |key: &str| Origin::Default(key.to_owned());
    let tensors = &checkpoint.tensors;
    for key in ASIDE {
        reader.value(key);
    }
    let n_layers = reader.layers("num_hidden_layers")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let width = "encoder_hidden_size";
    let d_encoder = reader.size_or("cross width", width, 1408, default(width))?;
    let every = reader.size_or("cross_attention_every", EVERY, 2, default(EVERY))?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let act = activation(reader, "hidden_act", "gelu")?;
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, Origin::Family);
    let maps = |at: &str, d_keys: usize| {
        let map = |name: &str, n_in| linear(&format!("{at}.{name}"), n_in, d_model, true);
        ProjectionSpec::plain(
            map("attention.query", d_model),
            map("attention.key", d_keys),
            map("attention.value", d_keys),
            map("output.dense", d_model),
        )
    };
    let norm = |at: &str| Some(layer_norm(tensors, at, d_model, eps));
    let block = |layer_idx: usize| {
        let at = format!("encoder.layer.{layer_idx}");
        let [own, other] = ["attention", "crossattention"].map(|part| format!("{at}.{part}"));
        let mlp = MlpSpec::plain(
            linear(
                &format!("{at}.intermediate_query.dense"),
                d_model,
                d_mlp,
                true,
            ),
            linear(&format!("{at}.output_query.dense"), d_mlp, d_model, true),
            act,
        );
        let cross = layer_idx.is_multiple_of(every).then(|| {
            let attention = AttentionSpec {
                is_cross: true,
                ..attention.clone()
            };
            Box::new(CrossSpec {
                post: norm(&format!("{other}.output.LayerNorm")),
                ..CrossSpec::plain(attention, maps(&other, d_encoder))
            })
        });
        BlockSpec {
            attn_post: norm(&format!("{own}.output.LayerNorm")),
            mlp_post: norm(&format!("{at}.output_query.LayerNorm")),
            cross,
            ..BlockSpec::plain(
                attention.clone(),
                maps(&own, d_model),
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let key = |part: &str| format!("encoder.layer.0.{part}.attention.key.weight");
    let embed = EmbedSpec {
        norm: norm("layernorm"),
        ..given_rows::embed(key("attention"), d_model)
    };
    let queries = StackSpec {
        stack: Stack::Decoder,
        ..StackSpec::only(embed, (0..n_layers).map(block).collect(), None)
    };
    given_rows::remark(reader, "a tower of pictures");
    let tower = given_rows::encoder(key("crossattention"), d_encoder);
    let stacks = [tower, queries];
    Ok(given_rows::read_beside(FAMILY.model_type, reader, stacks))
}
