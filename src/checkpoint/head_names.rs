//! What code and configurations call the number of heads.

pub const HEADS: [&str; 8] = [
    "n_heads",
    "n_head",
    "num_heads",
    "nhead",
    "heads",
    "num_attention_heads",
    "n_attn_heads",
    "head_count",
];
