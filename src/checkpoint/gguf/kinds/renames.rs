//! Usual configuration keys, and the names that other kinds of models have for them.

/// No rotary embedding: omits the file's base, which does not apply.
pub(super) const NO_ROPE: (&str, &str) = ("rope_theta", "");

pub(super) const GPT2_NAMES: &[(&str, &str)] = &[
    ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"),
    ("hidden_size", "n_embd"),
    ("intermediate_size", "n_inner"),
    ("max_position_embeddings", "n_positions"),
    ("num_key_value_heads", ""),
    ("hidden_act", ""),
    NO_ROPE,
];

pub(super) const T5_NAMES: &[(&str, &str)] = &[
    ("num_hidden_layers", "num_layers"),
    ("num_attention_heads", "num_heads"),
    ("hidden_size", "d_model"),
    ("intermediate_size", "d_ff"),
    ("head_dim", "d_kv"),
    ("max_position_embeddings", ""),
    ("num_key_value_heads", ""),
    ("hidden_act", ""),
    NO_ROPE,
];
