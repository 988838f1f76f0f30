//! Keys of most families, and what other kinds of models call them.

/// No rotation: what is said of it is not the model's.
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
