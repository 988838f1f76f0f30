//! CPM-Ant: pre-norm layers over learned tokens and a text, which see each other. Scores have a bias of distances among the learned
//! tokens and in the text, and two further ones between both.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{Across, AttentionSpec, Bias, Buckets};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, ConstantRow, EmbedSpec, FeedForward, HeadSpec, JoinedRows, MlpSpec, ModelSpec,
    ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::{linear, note_attention, note_bias, prefix, rms_norm};

pub const FAMILY: Family = Family::own("cpmant", "CpmAnt", read);

/// Segments: of learned tokens, and of a text.
const SEGMENTS: [usize; 2] = [0, 2];

/// The kind of learned tokens that stands before a text.
const KIND: usize = 2;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BUCKETS: &str = "position_bias_num_buckets";
    const DISTANCE: &str = "position_bias_max_distance";
    const KINDS: &str = "prompt_types";
    const LENGTH: &str = "prompt_length";
    const OF_SEGMENTS: &str = "segment_types";
    let default = |key: &str| Origin::Default(key.to_owned());
    let tensors = &checkpoint.tensors;
    let base = prefix(tensors, &["cpmant.", ""], "input_embedding.weight");
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_head = reader.size_or("d_head", "dim_head", 128, default("dim_head"))?;
    let d_mlp = reader.size_or("d_mlp", "dim_ff", 10240, default("dim_ff"))?;
    let eps = reader.number_or("norm_eps", "eps", 1e-6)?;
    let n_buckets = reader.size_or("n_buckets", BUCKETS, 512, default(BUCKETS))?;
    let max_distance = reader.size_or("max_distance", DISTANCE, 2048, default(DISTANCE))?;
    let n_kinds = reader.size_or("prompt_types", KINDS, 32, default(KINDS))?;
    let n_learned = reader.size_or("prompt_tokens", LENGTH, 32, default(LENGTH))?;
    let n_segments = reader.size_or("segment_types", OF_SEGMENTS, 32, default(OF_SEGMENTS))?;
    for (key, found, most) in [
        (KINDS, n_kinds, 1 << 10),
        (OF_SEGMENTS, n_segments, 1 << 10),
    ] {
        if !(KIND + 1..=most).contains(&found) {
            let problem =
                format!("expected 3 to {most}, of which number 2 is a text's, found {found}");
            return Err(Error::config(reader.path(), key, problem));
        }
    }
    if n_buckets < 4 || max_distance <= n_buckets / 4 {
        let problem = format!(
            "expected at least 4, for distances up to {max_distance} on both sides, found {n_buckets}"
        );
        return Err(Error::config(reader.path(), BUCKETS, problem));
    }
    reader.value("tie_word_embeddings");
    let n_rows = n_kinds
        .checked_mul(n_learned)
        .and_then(|n| n.checked_add(d_vocab));
    let n_rows = n_rows.ok_or_else(|| {
        let problem =
            format!("{n_kinds} times {n_learned} learned tokens are more than can be counted");
        Error::config(reader.path(), LENGTH, problem)
    })?;
    let [of_learned, of_text] = SEGMENTS;
    let across = |query: usize, key: usize| n_buckets + query * n_segments + key;
    let attention = AttentionSpec {
        bias: Bias::Buckets(Buckets {
            across: Some(Across {
                n_firsts: n_learned,
                from_first: across(of_learned, of_text),
                to_first: across(of_text, of_learned),
            }),
            ..Buckets::plain(n_buckets, max_distance, true)
        }),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
    };
    note_attention(reader, &attention, Origin::Family);
    note_bias(
        reader,
        "a learned bias per distance, and between learned tokens and the text",
    );
    let d_q = n_heads * d_head;
    let norm = |name: String| Some(rms_norm(format!("{name}.weight"), d_model, eps));
    let block = |layer_idx: usize| {
        let at = format!("{base}encoder.layers.{layer_idx}");
        let map = |part: &str, n_in, n_out| linear(&format!("{at}.{part}"), n_in, n_out, false);
        let own = |part: &str| map(&format!("self_att.self_attention.{part}"), d_model, d_q);
        let projections = ProjectionSpec::plain(
            own("project_q"),
            own("project_k"),
            own("project_v"),
            map("self_att.self_attention.attention_out", d_q, d_model),
        );
        let mlp = MlpSpec {
            gate: Some(map("ffn.ffn.w_in.w_0", d_model, d_mlp)),
            ..MlpSpec::plain(
                map("ffn.ffn.w_in.w_1", d_model, d_mlp),
                map("ffn.ffn.w_out", d_mlp, d_model),
                Activation::Gelu,
            )
        };
        BlockSpec {
            attn_pre: norm(format!("{at}.self_att.layernorm_before_attention")),
            mlp_pre: norm(format!("{at}.ffn.layernorm_before_ffn")),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let table = |name: &str, n_rows, width| TableSource {
        tensor: format!("{base}{name}"),
        n_rows,
        width,
    };
    let tokens = table("input_embedding.weight", n_rows, d_model);
    let segment = |row: usize| ConstantRow {
        table: table("segment_embedding.weight", n_segments, d_model),
        row,
        columns: vec![0],
    };
    let embed = EmbedSpec {
        constants: vec![segment(of_text)],
        joined: Some(Box::new(JoinedRows {
            table: tokens.clone(),
            first: d_vocab + KIND * n_learned,
            n: n_learned,
            constants: vec![segment(of_learned)],
        })),
        ..EmbedSpec::plain(tokens)
    };
    let n_values = n_buckets + n_segments * n_segments;
    let stack = StackSpec {
        bucket_values: Some(table(
            "position_bias.relative_attention_bias",
            n_values,
            n_heads,
        )),
        ..StackSpec::only(
            embed,
            (0..n_layers).map(block).collect(),
            norm(format!("{base}encoder.output_layernorm")),
        )
    };
    let head = tensors
        .contains("lm_head.weight")
        .then(|| HeadSpec::plain(linear("lm_head", d_model, d_vocab, false)));
    reader.remark(format!(
        "{n_learned} learned tokens stand before those of a text, and all tokens see each other, as where a text is continued"
    ));
    reader.remark("token 0 is read as any other: transformers takes it for padding".to_owned());
    Ok(ModelSpec {
        d_vocab,
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
