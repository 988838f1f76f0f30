//! Tensor names of GGUF → the names that Hugging Face gives the same tensors, for each architecture.

/// What a kind of file calls its tensors, and how its converter stored them.
#[derive(Debug)]
pub(super) struct Architecture {
    /// The word under `general.architecture`.
    pub name: &'static str,
    /// What stands before a layer's number.
    layers: &'static str,
    top: &'static [(&'static str, &'static str)],
    /// Names that differ from [`USUAL`].
    own: &'static [(&'static str, &'static str)],
    /// Under a layer: where experts stand, and Hugging Face's words for their gate, down and up.
    experts: (&'static str, [&'static str; 3]),
    /// Whether the rows of q and k are stored with the halves of each head alternating.
    pub halves_alternate: bool,
    /// Whether norms are stored with 1 added.
    pub norms_plus_one: bool,
    /// Whether linear maps are stored the other way round than Hugging Face's.
    pub is_transposed: bool,
}

const TOP: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];

const USUAL: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_norm", "post_attention_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
    ("ffn_gate_inp", "block_sparse_moe.gate"),
];

/// The four norms of a block in Gemma 2 and 3.
const FOUR_NORMS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Norms of the outputs of branches alone.
const OUTPUT_NORMS: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];

/// Where experts and their router stand in Qwen's models, with the expert that every token uses.
const QWEN_EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
    ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
    ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
];

/// Experts under the feed-forward layer, by the usual names.
const PLAIN_EXPERTS: (&str, [&str; 3]) = ("mlp.experts", ["gate_proj", "down_proj", "up_proj"]);

const USUAL_WAY: Architecture = Architecture {
    name: "",
    layers: "model.layers",
    top: TOP,
    own: &[],
    experts: ("block_sparse_moe.experts", ["w1", "w2", "w3"]),
    halves_alternate: false,
    norms_plus_one: false,
    is_transposed: false,
};

/// Every architecture that can be read, in the order of its name.
pub(super) static ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "arcee",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "bert",
        layers: "encoder.layer",
        top: &[
            ("token_embd", "embeddings.word_embeddings"),
            ("token_types", "embeddings.token_type_embeddings"),
            ("position_embd", "embeddings.position_embeddings"),
            ("token_embd_norm", "embeddings.LayerNorm"),
        ],
        own: &[
            ("attn_q", "attention.self.query"),
            ("attn_k", "attention.self.key"),
            ("attn_v", "attention.self.value"),
            ("attn_output", "attention.output.dense"),
            ("attn_output_norm", "attention.output.LayerNorm"),
            ("ffn_up", "intermediate.dense"),
            ("ffn_down", "output.dense"),
            ("layer_output_norm", "output.LayerNorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "cohere2",
        ..USUAL_WAY
    },
    Architecture {
        name: "command-r",
        ..USUAL_WAY
    },
    Architecture {
        name: "ernie4_5",
        ..USUAL_WAY
    },
    Architecture {
        name: "exaone4",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma",
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma-embedding",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma2",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "gemma3",
        own: FOUR_NORMS,
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "glm4",
        own: &[
            ("ffn_up", "mlp.gate_up_proj"),
            ("post_attention_norm", "post_self_attn_layernorm"),
            ("post_ffw_norm", "post_mlp_layernorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "gpt-oss",
        own: &[
            ("post_attention_norm", "post_attention_layernorm"),
            ("attn_sinks", "self_attn.sinks"),
            ("ffn_gate_inp", "mlp.router"),
        ],
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "gpt2",
        layers: "transformer.h",
        top: &[
            ("token_embd", "transformer.wte"),
            ("position_embd", "transformer.wpe"),
            ("output_norm", "transformer.ln_f"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_norm", "ln_1"),
            ("attn_qkv", "attn.c_attn"),
            ("attn_output", "attn.c_proj"),
            ("ffn_norm", "ln_2"),
            ("ffn_up", "mlp.c_fc"),
            ("ffn_down", "mlp.c_proj"),
        ],
        is_transposed: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "granite",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "granitemoe",
        own: &[("ffn_gate_inp", "block_sparse_moe.router.layer")],
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "hunyuan-dense",
        own: &[
            ("attn_q_norm", "self_attn.query_layernorm"),
            ("attn_k_norm", "self_attn.key_layernorm"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "llama",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "mistral3",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "nemotron",
        norms_plus_one: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmo",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmo2",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "olmoe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "phi2",
        top: &[
            ("token_embd", "model.embed_tokens"),
            ("output_norm", "model.final_layernorm"),
            ("output", "lm_head"),
        ],
        own: &[
            ("attn_output", "self_attn.dense"),
            ("ffn_up", "mlp.fc1"),
            ("ffn_down", "mlp.fc2"),
        ],
        ..USUAL_WAY
    },
    Architecture {
        name: "phi3",
        own: &[("ffn_up", "mlp.gate_up_proj")],
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2moe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen2vl",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen3",
        ..USUAL_WAY
    },
    Architecture {
        name: "qwen3moe",
        own: QWEN_EXPERTS,
        experts: PLAIN_EXPERTS,
        ..USUAL_WAY
    },
    Architecture {
        name: "seed_oss",
        own: OUTPUT_NORMS,
        ..USUAL_WAY
    },
    Architecture {
        name: "smollm3",
        halves_alternate: true,
        ..USUAL_WAY
    },
    Architecture {
        name: "stablelm",
        ..USUAL_WAY
    },
    Architecture {
        name: "starcoder2",
        own: &[("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")],
        ..USUAL_WAY
    },
];

/// What a tensor of the file is to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// One tensor, under Hugging Face's name; `part` is the file's own word for it, such as `attn_q`.
    Whole { name: String, part: &'static str },
    /// One matrix per expert along the outermost dimension: what stands before and after the expert's number.
    Experts { before: String, after: String },
    /// Nothing that Hugging Face stores.
    Unknown,
}

impl Architecture {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ARCHITECTURES.iter().find(|known| known.name == name)
    }

    /// What a tensor of this name is.
    pub(super) fn meaning(&self, stored: &str) -> Meaning {
        let Some((stem, suffix)) = stored
            .rsplit_once('.')
            .filter(|(_, suffix)| ["weight", "bias"].contains(suffix))
        else {
            return Meaning::Unknown;
        };
        let find = |table: &'static [(&'static str, &'static str)], part: &str| {
            table.iter().copied().find(|(from, _)| *from == part)
        };
        let Some((layer, part)) = stem.strip_prefix("blk.").and_then(|s| s.split_once('.')) else {
            return match find(self.top, stem) {
                Some((part, to)) => Meaning::Whole {
                    name: format!("{to}.{suffix}"),
                    part,
                },
                None => Meaning::Unknown,
            };
        };
        if layer.is_empty() || !layer.bytes().all(|b| b.is_ascii_digit()) {
            return Meaning::Unknown;
        }
        let at = format!("{}.{layer}", self.layers);
        let experts = format!("{at}.{}.", self.experts.0);
        let expert_part = |part: &str| {
            let parts = ["ffn_gate", "ffn_down", "ffn_up"];
            let nth = parts.iter().position(|known| *known == part)?;
            Some(self.experts.1[nth])
        };
        if let Some(to) = part.strip_suffix("_exps").and_then(expert_part) {
            return Meaning::Experts {
                before: experts,
                after: format!(".{to}.{suffix}"),
            };
        }
        // Older files hold the experts one by one.
        if let Some((to, expert)) = part
            .split_once('.')
            .and_then(|(part, expert)| Some((expert_part(part)?, expert)))
            .filter(|(_, expert)| expert.bytes().all(|b| b.is_ascii_digit()))
        {
            return Meaning::Whole {
                name: format!("{experts}{expert}.{to}.{suffix}"),
                part: to,
            };
        }
        match find(self.own, part).or_else(|| find(USUAL, part)) {
            // Sinks are values alone: Hugging Face's name for them has no ending.
            Some((part, to)) if to.ends_with("sinks") => Meaning::Whole {
                name: format!("{at}.{to}"),
                part,
            },
            Some((part, to)) => Meaning::Whole {
                name: format!("{at}.{to}.{suffix}"),
                part,
            },
            None => Meaning::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(architecture: &str, stored: &str) -> Option<String> {
        let architecture = Architecture::named(architecture).expect("a known architecture");
        match architecture.meaning(stored) {
            Meaning::Whole { name, .. } => Some(name),
            Meaning::Experts { before, after } => Some(format!("{before}E{after}")),
            Meaning::Unknown => None,
        }
    }

    #[test]
    fn every_architecture_s_parts_get_their_hugging_face_names() {
        let cases = [
            ("llama", "token_embd.weight", "model.embed_tokens.weight"),
            ("llama", "output.weight", "lm_head.weight"),
            (
                "llama",
                "blk.10.attn_q.weight",
                "model.layers.10.self_attn.q_proj.weight",
            ),
            (
                "llama",
                "blk.0.ffn_gate_exps.weight",
                "model.layers.0.block_sparse_moe.experts.E.w1.weight",
            ),
            (
                "llama",
                "blk.0.ffn_down.3.weight",
                "model.layers.0.block_sparse_moe.experts.3.w2.weight",
            ),
            (
                "llama",
                "blk.0.ffn_gate_inp.weight",
                "model.layers.0.block_sparse_moe.gate.weight",
            ),
            (
                "qwen2",
                "blk.0.attn_k.bias",
                "model.layers.0.self_attn.k_proj.bias",
            ),
            (
                "qwen3",
                "blk.0.attn_k_norm.weight",
                "model.layers.0.self_attn.k_norm.weight",
            ),
            (
                "gemma",
                "blk.0.ffn_norm.weight",
                "model.layers.0.post_attention_layernorm.weight",
            ),
            (
                "gemma2",
                "blk.0.ffn_norm.weight",
                "model.layers.0.pre_feedforward_layernorm.weight",
            ),
            (
                "gemma3",
                "blk.0.post_ffw_norm.weight",
                "model.layers.0.post_feedforward_layernorm.weight",
            ),
            (
                "gemma3",
                "blk.0.post_attention_norm.weight",
                "model.layers.0.post_attention_layernorm.weight",
            ),
            (
                "phi3",
                "blk.0.ffn_up.weight",
                "model.layers.0.mlp.gate_up_proj.weight",
            ),
            (
                "phi3",
                "blk.0.attn_qkv.weight",
                "model.layers.0.self_attn.qkv_proj.weight",
            ),
            (
                "starcoder2",
                "blk.0.ffn_down.bias",
                "model.layers.0.mlp.c_proj.bias",
            ),
            ("gpt2", "position_embd.weight", "transformer.wpe.weight"),
            (
                "gpt2",
                "blk.1.attn_qkv.bias",
                "transformer.h.1.attn.c_attn.bias",
            ),
            ("gpt2", "output_norm.bias", "transformer.ln_f.bias"),
        ];
        for (architecture, stored, expected) in cases {
            assert_eq!(
                named(architecture, stored).as_deref(),
                Some(expected),
                "{architecture} {stored}"
            );
        }
    }

    #[test]
    fn names_that_mean_nothing_here_are_left_alone() {
        for stored in [
            "rope_freqs.weight",
            "blk.x.attn_q.weight",
            "blk..attn_q.weight",
            "blk.0.attn_q",
            "",
        ] {
            assert_eq!(named("llama", stored), None, "{stored}");
        }
    }

    #[test]
    fn the_architectures_are_in_the_order_of_their_names() {
        assert!(ARCHITECTURES.is_sorted_by_key(|a| a.name));
    }
}
