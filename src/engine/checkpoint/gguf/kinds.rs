//! Kinds of models whose metadata become Hugging Face's keys by a table: which key is which, and what holds without one.

use serde_json::{Map, Value, json};

use super::metadata::Metadata;
use crate::checkpoint::tensors::Tensors;
use crate::error::Result;

/// What becomes of one architecture's metadata.
#[derive(Debug)]
pub(super) struct Kind {
    pub architecture: &'static str,
    pub model_type: &'static str,
    /// Numbers: the end of the file's key, and Hugging Face's key.
    numbers: &'static [(&'static str, &'static str)],
    /// Switches that a stored tensor of layer 0 turns on.
    switches: &'static [(&'static str, &'static str)],
    /// What the files do not say, since all models of the kind have it.
    fixed: &'static [(&'static str, Fixed)],
    /// The end of the key of the epsilon of norms, and Hugging Face's key.
    pub eps: (&'static str, &'static str),
    /// Part of each head rotates, as many dimensions as the file says.
    pub rotates_in_part: bool,
    /// Windows hold for the layers that a pattern names, and for all but every n-th without one; 0 for no layer.
    pub full_every: Option<u64>,
}

/// A value that all models of a kind have.
#[derive(Debug, Clone, Copy)]
enum Fixed {
    Flag(bool),
    Word(&'static str),
}

const RMS: (&str, &str) = ("attention.layer_norm_rms_epsilon", "rms_norm_eps");
const LAYER: &str = "attention.layer_norm_epsilon";

const PLAIN: Kind = Kind {
    architecture: "",
    model_type: "",
    numbers: &[],
    switches: &[],
    fixed: &[],
    eps: RMS,
    rotates_in_part: false,
    full_every: None,
};

const EXPERTS: [(&str, &str); 3] = [
    ("expert_count", "num_experts"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
];

const GRANITE: &[(&str, &str)] = &[
    ("attention.scale", "attention_multiplier"),
    ("embedding_scale", "embedding_multiplier"),
    ("residual_scale", "residual_multiplier"),
    ("logit_scale", "logits_scaling"),
    ("expert_count", "num_local_experts"),
    ("expert_used_count", "num_experts_per_tok"),
];

const BIASES: &[(&str, &str)] = &[
    ("attention_bias", "self_attn.q_proj.bias"),
    ("mlp_bias", "mlp.up_proj.bias"),
];

/// Every kind that a table reads, in the order of its architecture.
static KINDS: &[Kind] = &[
    Kind {
        architecture: "arcee",
        model_type: "arcee",
        switches: BIASES,
        fixed: &[("hidden_act", Fixed::Word("relu2"))],
        ..PLAIN
    },
    Kind {
        architecture: "bert",
        model_type: "bert",
        fixed: &[("hidden_act", Fixed::Word("gelu"))],
        eps: (LAYER, "layer_norm_eps"),
        ..PLAIN
    },
    Kind {
        architecture: "cohere2",
        model_type: "cohere2",
        numbers: &[("logit_scale", "logit_scale")],
        switches: BIASES,
        eps: (LAYER, "layer_norm_eps"),
        full_every: Some(4),
        ..PLAIN
    },
    Kind {
        architecture: "command-r",
        model_type: "cohere",
        numbers: &[("logit_scale", "logit_scale")],
        switches: &[
            ("attention_bias", "self_attn.q_proj.bias"),
            ("use_qk_norm", "self_attn.q_norm.weight"),
        ],
        eps: (LAYER, "layer_norm_eps"),
        ..PLAIN
    },
    Kind {
        architecture: "ernie4_5",
        model_type: "ernie4_5",
        switches: &[("use_bias", "self_attn.q_proj.bias")],
        ..PLAIN
    },
    Kind {
        architecture: "exaone4",
        model_type: "exaone4",
        full_every: Some(4),
        ..PLAIN
    },
    Kind {
        architecture: "glm4",
        model_type: "glm4",
        switches: BIASES,
        rotates_in_part: true,
        ..PLAIN
    },
    Kind {
        architecture: "gpt-oss",
        model_type: "gpt_oss",
        numbers: &[
            ("expert_count", "num_local_experts"),
            ("expert_used_count", "num_experts_per_tok"),
            ("expert_feed_forward_length", "intermediate_size"),
        ],
        switches: BIASES,
        full_every: Some(2),
        ..PLAIN
    },
    Kind {
        architecture: "granite",
        model_type: "granite",
        numbers: GRANITE,
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "granitemoe",
        model_type: "granitemoe",
        numbers: GRANITE,
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "hunyuan-dense",
        model_type: "hunyuan_v1_dense",
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "mistral3",
        model_type: "mistral",
        full_every: Some(0),
        ..PLAIN
    },
    Kind {
        architecture: "nemotron",
        model_type: "nemotron",
        switches: BIASES,
        fixed: &[("hidden_act", Fixed::Word("relu2"))],
        eps: (LAYER, "norm_eps"),
        rotates_in_part: true,
        ..PLAIN
    },
    Kind {
        architecture: "olmo",
        model_type: "olmo",
        numbers: &[("attention.clamp_kqv", "clip_qkv")],
        eps: (LAYER, "norm_eps"),
        ..PLAIN
    },
    Kind {
        architecture: "olmo2",
        model_type: "olmo2",
        full_every: Some(0),
        ..PLAIN
    },
    Kind {
        architecture: "olmoe",
        model_type: "olmoe",
        numbers: &EXPERTS,
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Kind {
        architecture: "phi2",
        model_type: "phi",
        fixed: &[("hidden_act", Fixed::Word("gelu_new"))],
        eps: (LAYER, "layer_norm_eps"),
        rotates_in_part: true,
        ..PLAIN
    },
    Kind {
        architecture: "qwen2moe",
        model_type: "qwen2_moe",
        numbers: &[
            EXPERTS[0],
            EXPERTS[1],
            EXPERTS[2],
            (
                "expert_shared_feed_forward_length",
                "shared_expert_intermediate_size",
            ),
        ],
        switches: &[("qkv_bias", "self_attn.q_proj.bias")],
        fixed: &[("norm_topk_prob", Fixed::Flag(false))],
        ..PLAIN
    },
    Kind {
        architecture: "qwen2vl",
        model_type: "qwen2",
        ..PLAIN
    },
    Kind {
        architecture: "qwen3moe",
        model_type: "qwen3_moe",
        numbers: &EXPERTS,
        switches: BIASES,
        // llama.cpp divides the weights of the chosen by their sum in all models of the kind.
        fixed: &[("norm_topk_prob", Fixed::Flag(true))],
        ..PLAIN
    },
    Kind {
        architecture: "seed_oss",
        model_type: "seed_oss",
        switches: &[
            ("attention_bias", "self_attn.q_proj.bias"),
            ("attention_out_bias", "self_attn.o_proj.bias"),
            ("mlp_bias", "mlp.up_proj.bias"),
        ],
        ..PLAIN
    },
    Kind {
        architecture: "smollm3",
        model_type: "smollm3",
        switches: BIASES,
        ..PLAIN
    },
    Kind {
        architecture: "stablelm",
        model_type: "stablelm",
        switches: &[("use_qkv_bias", "self_attn.q_proj.bias")],
        eps: (LAYER, "layer_norm_eps"),
        rotates_in_part: true,
        ..PLAIN
    },
];

impl Kind {
    pub(super) fn of(architecture: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.architecture == architecture)
    }

    /// Whether the kind reads a key of the file, by its end.
    pub(super) fn reads(&self, tail: &str) -> bool {
        self.numbers.iter().any(|(known, _)| *known == tail)
    }

    /// Puts what the table says into a configuration.
    ///
    /// # Errors
    /// When a value is of the wrong type.
    pub(super) fn fill(
        &self,
        config: &mut Map<String, Value>,
        metadata: &Metadata<'_>,
        tensors: &Tensors,
    ) -> Result<()> {
        let mut set = |name: &str, value: Value| {
            config.insert(name.to_owned(), value);
        };
        for (name, value) in self.fixed {
            let value = match value {
                Fixed::Flag(flag) => json!(flag),
                Fixed::Word(word) => json!(word),
            };
            set(name, value);
        }
        for (name, probe) in self.switches {
            let stored = tensors.contains(&format!("model.layers.0.{probe}"));
            set(name, json!(stored));
        }
        for (tail, name) in self.numbers {
            let Some(number) = metadata.number(&format!("{}.{tail}", self.architecture))? else {
                continue;
            };
            // Counts are whole numbers in Hugging Face's configurations.
            if number.fract() == 0.0 && number.abs() < 1e15 {
                set(name, json!(number as i64));
            } else {
                set(name, json!(number));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_are_in_the_order_of_their_architectures_which_are_named() {
        assert!(KINDS.is_sorted_by_key(|kind| kind.architecture));
        let named = |kind: &Kind| super::super::names::Architecture::named(kind.architecture);
        assert!(KINDS.iter().all(|kind| named(kind).is_some()));
    }
}
