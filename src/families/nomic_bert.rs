//! Nomic BERT: BERT with rotary positions, gated feed-forward layers and no biases, under two sets of names.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, EmbedSpec, GateRule, MlpSpec, ModelSpec, ProjectionSpec, StackSpec, TableSource,
};

use super::Family;
use super::reading::masked_head::{MaskedHead, masked_head, note_head};
use super::reading::rope::{RopeRule, rope};
use super::reading::{activation, layer_norm, linear, note_attention, prefix, stacked};

pub const FAMILY: Family = Family::own("nomic_bert", "NomicBert", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    if reader.value("n_embd").is_some() {
        let problem = "this is the original layout of Nomic BERT; expected hidden_size, \
                       as transformers saves it";
        return Err(Error::config(reader.path(), "n_embd", problem));
    }
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let split = Origin::Derived("d_model / n_heads, no head_dim".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", (d_model / n_heads).max(1), split)?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let n_ctx = reader.size("n_ctx", "max_position_embeddings")?;
    let d_vocab = reader.size("d_vocab", "vocab_size")?;
    let default = Origin::Default("type_vocab_size".to_owned());
    let n_types = reader.size_or("n_token_types", "type_vocab_size", 2, default)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-12)?;
    let activation = activation(reader, "hidden_act", "silu")?;
    let rule = RopeRule {
        theta: 1000.0,
        ..RopeRule::plain(d_head, n_ctx)
    };
    let attention = AttentionSpec {
        rope: Some(rope(reader, rule)?),
        ..AttentionSpec::plain(n_heads, n_heads, d_head, false)
    };
    note_attention(reader, &attention, Origin::Family);

    let bases = ["nomic_bert.", "bert.", ""];
    let base = prefix(tensors, &bases, "embeddings.word_embeddings.weight");
    let hub = tensors.contains(&format!("{base}encoder.layers.0.attn.Wqkv.weight"));
    let d_q = n_heads * d_head;
    let block = |layer_idx: usize| {
        let layers = if hub { "encoder.layers" } else { "layers" };
        let at = format!("{base}{layers}.{layer_idx}");
        let one = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, false);
        let norm = |name: &str| Some(layer_norm(tensors, &format!("{at}.{name}"), d_model, eps));
        let (qkv, names) = if hub {
            let qkv = stacked(&one("attn.Wqkv", d_model, 3 * d_q), [d_q; 3]);
            (
                qkv,
                [
                    "attn.out_proj",
                    "mlp.fc11",
                    "mlp.fc12",
                    "mlp.fc2",
                    "norm1",
                    "norm2",
                ],
            )
        } else {
            let qkv = ["q", "k", "v"].map(|c| one(&format!("self_attn.{c}_proj"), d_model, d_q));
            let mlp = ["mlp.up_proj", "mlp.gate_proj", "mlp.down_proj"];
            let norms = ["post_attention_layernorm", "post_mlp_layernorm"];
            (
                qkv,
                [
                    "self_attn.o_proj",
                    mlp[0],
                    mlp[1],
                    mlp[2],
                    norms[0],
                    norms[1],
                ],
            )
        };
        let ([q, k, v], [o, up, gate, down, attn_norm, mlp_norm]) = (qkv, names);
        let mlp = MlpSpec {
            up: one(up, d_model, d_mlp),
            gate: Some(one(gate, d_model, d_mlp)),
            down: one(down, d_mlp, d_model),
            activation,
            gate_rule: GateRule::Product,
            learned: None,
            convolution: None,
            hidden_norm: None,
            sparsity: None,
            out_activation: None,
        };
        let projections = ProjectionSpec::plain(q, k, v, one(o, d_q, d_model));
        BlockSpec::post_norm(
            attention.clone(),
            projections,
            mlp,
            [norm(attn_norm), norm(mlp_norm)],
        )
    };
    let table = |name: &str, n_rows| TableSource {
        tensor: format!("{base}embeddings.{name}.weight"),
        n_rows,
        width: d_model,
    };
    let tokens = table("word_embeddings", d_vocab);
    let names = MaskedHead {
        dense: Some("cls.predictions.transform.dense"),
        norm: "cls.predictions.transform.layer_norm",
        decoder: "cls.predictions.decoder",
        bias: "cls.predictions.bias",
        activation: None,
    };
    let head = masked_head(
        reader,
        tensors,
        ("", names),
        &tokens,
        (d_model, tokens.width),
        activation,
        eps,
    );
    note_head(reader, head.is_some());
    let of_embedding = if hub {
        "emb_ln"
    } else {
        "embeddings.LayerNorm"
    };
    let embed = EmbedSpec {
        token_types: Some(table("token_type_embeddings", n_types)),
        norm: Some(layer_norm(
            tensors,
            &format!("{base}{of_embedding}"),
            d_model,
            eps,
        )),
        ..EmbedSpec::plain(tokens)
    };
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), None);
    Ok(ModelSpec {
        n_ctx: Some(n_ctx),
        ..ModelSpec::of_one_stack(FAMILY.model_type, stack, head)
    })
}
