//! The encoder of the Time Series Transformer: BART's layers over rows of numbers, as the library makes them of values some steps before,
//! times and scales. The decoder, which reads rows of its own, is not read.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::SoundRule;
use attnscope_spec::{
    BlockSpec, EmbedSpec, FeedForward, MlpSpec, ModelSpec, PositionTable, ProjectionSpec, Sines,
    SoundStem, StackSpec, TableSource,
};

use super::Family;
use super::reading::{activation, even_heads, layer_norm, linear, note_attention, prefix};

pub const FAMILY: Family = Family::own("time_series_transformer", "TimeSeriesTransformer", read)
    .leaving_unread(&["decoder.*", "embedder.*", "parameter_projection.*"]);

/// The epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// What the library makes rows of, what the decoder reads, and what is predicted.
const ASIDE: [&str; 18] = [
    "prediction_length",
    "context_length",
    "distribution_output",
    "loss",
    "input_size",
    "lags_sequence",
    "scaling",
    "num_dynamic_real_features",
    "num_static_categorical_features",
    "num_static_real_features",
    "num_time_features",
    "cardinality",
    "embedding_dimension",
    "decoder_layers",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "num_parallel_samples",
    "is_encoder_decoder",
];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "encoder_attention_heads";
    let tensors = &checkpoint.tensors;
    for key in ASIDE {
        reader.value(key);
    }
    let n_layers = reader.layers("encoder_layers")?;
    let d_model = reader.size("d_model", "d_model")?;
    let n_heads = reader.size("n_heads", HEADS)?;
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let d_mlp = reader.size("d_mlp", "encoder_ffn_dim")?;
    let act = activation(reader, "activation_function", "gelu")?;
    let base = prefix(
        tensors,
        &["model.encoder.", "encoder.", ""],
        "value_embedding.value_projection.weight",
    );
    let map = format!("{base}value_embedding.value_projection");
    let stored = tensors.info(&format!("{map}.weight"));
    let n_values = stored.and_then(|info| info.shape.get(1).copied());
    let n_values = n_values.unwrap_or_default();
    let attention = AttentionSpec::plain(n_heads, n_heads, d_head, false);
    note_attention(reader, &attention, attnscope_checkpoint::Origin::Family);
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let one = |name: &str| linear(&format!("{at}.self_attn.{name}"), d_model, d_model, true);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, EPS));
        let projections =
            ProjectionSpec::plain(one("q_proj"), one("k_proj"), one("v_proj"), one("out_proj"));
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.fc1"), d_model, d_mlp, true),
            linear(&format!("{at}.fc2"), d_mlp, d_model, true),
            act,
        );
        BlockSpec {
            attn_post: norm("self_attn_layer_norm"),
            mlp_post: norm("final_layer_norm"),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let table = format!("{base}embed_positions.weight");
    let n_positions = tensors
        .info(&table)
        .and_then(|info| info.shape.first().copied());
    let positions = match n_positions {
        Some(n_rows) => PositionTable::Stored(TableSource {
            tensor: table,
            n_rows,
            width: d_model,
        }),
        None => PositionTable::Sinusoid(Sines::Halves),
    };
    let rows = TableSource {
        tensor: format!("{map}.weight"),
        n_rows: n_values,
        width: n_values,
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(SoundStem::plain(
            SoundRule::of_rows(n_values),
            Activation::Identity,
        ))),
        projection: Some(linear(&map, n_values, d_model, false)),
        projects_first: true,
        positions: Some(positions),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}layernorm_embedding"),
            d_model,
            EPS,
        )),
        ..EmbedSpec::plain(rows)
    };
    reader.remark(
        "the encoder alone is read, on rows as the library makes them of values some steps before, times and scales"
            .to_owned(),
    );
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), None);
    Ok(ModelSpec {
        d_model,
        n_ctx: n_positions,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, None)
    })
}
