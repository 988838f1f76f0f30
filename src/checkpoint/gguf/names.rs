//! Translates tensor names of GGUF to Hugging Face's, for each architecture.

use super::architectures::{Architecture, Table, USUAL};

/// What a tensor of the file is in Hugging Face's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Meaning {
    /// One tensor, under Hugging Face's name; `part` is the file's term for it, such as `attn_q`.
    Whole { name: String, part: &'static str },
    /// One matrix per expert, stacked along the outermost dimension: Hugging Face's name before and after the expert's number.
    Experts { before: String, after: String },
    /// As [`Self::Experts`], but with the rows of gate and up stacked, which become two tensors per expert.
    GatedExperts { before: String, after: [String; 2] },
    /// A tensor that Hugging Face's model does not have.
    Unknown,
}

/// Parts of a layer whose names in the file have no ending.
const BARE: [&str; 3] = ["ffn_norm", "ssm_a", "ssm_d"];

/// Ending of the names of a tensor's scales.
const SCALE: &str = "scale";

/// Endings of Hugging Face's names that no `.weight` follows.
const VALUES: [&str; 4] = ["sinks", ".A_log", ".D", "layer_scalar"];

/// The layer number and part in a tensor's name, and Hugging Face's names of the layer's stack and its parts.
struct Layer<'a> {
    number: &'a str,
    part: &'a str,
    layers: &'static str,
    names: Table,
}

fn find(table: Table, part: &str) -> Option<(&'static str, &'static str)> {
    table.iter().copied().find(|(from, _)| *from == part)
}

impl Architecture {
    /// Splits a tensor's name into layer and part, if it belongs to a layer.
    fn layer<'a>(&self, stem: &'a str) -> Option<Layer<'a>> {
        let usual = [("blk.", self.layers, self.names)];
        let stacks = self.stacks.iter().chain(&usual);
        let (rest, layers, names) = stacks
            .filter_map(|(before, layers, names)| {
                Some((stem.strip_prefix(before)?, *layers, *names))
            })
            .next()?;
        let (number, part) = rest.split_once('.')?;
        Some(Layer {
            number,
            part,
            layers,
            names,
        })
    }

    /// Returns the layer number in a tensor's name, if it is in the main stack.
    pub(super) fn layer_number(&self, stored: &str) -> Option<u64> {
        let (number, _) = stored.strip_prefix("blk.")?.split_once('.')?;
        number.parse().ok()
    }

    /// Translates a tensor's name.
    pub(super) fn meaning(&self, stored: &str) -> Meaning {
        let (stem, suffix) = match stored.rsplit_once('.') {
            Some((stem, suffix)) if ["weight", "bias", SCALE].contains(&suffix) => (stem, suffix),
            Some((_, part)) if BARE.contains(&part) => (stored, "weight"),
            _ => return Meaning::Unknown,
        };
        let Some(layer) = self.layer(stem) else {
            return match find(self.top, stem) {
                Some((part, to)) if suffix != SCALE => Meaning::Whole {
                    name: format!("{to}.{suffix}"),
                    part,
                },
                _ => Meaning::Unknown,
            };
        };
        let Layer { number, part, .. } = layer;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(number) {
            return Meaning::Unknown;
        }
        let at = format!("{}.{number}", layer.layers);
        if let Some((part, to)) = find(layer.names, &format!("{part}.{suffix}")) {
            return Meaning::Whole {
                name: format!("{at}.{to}"),
                part,
            };
        }
        if suffix == SCALE {
            return Meaning::Unknown;
        }
        let experts = format!("{at}.{}.", self.experts.0);
        let [gate, _, up] = self.experts.1;
        let expert_part = |part: &str| {
            let parts = ["ffn_gate", "ffn_down", "ffn_up"];
            let nth = parts.iter().position(|known| *known == part)?;
            Some(self.experts.1[nth])
        };
        if part == "ffn_gate_up_exps" {
            return Meaning::GatedExperts {
                before: experts,
                after: [gate, up].map(|to| format!(".{to}.{suffix}")),
            };
        }
        if let Some(to) = part.strip_suffix("_exps").and_then(expert_part) {
            return Meaning::Experts {
                before: experts,
                after: format!(".{to}.{suffix}"),
            };
        }
        // Older files store experts one by one.
        if let Some((to, expert)) = part
            .split_once('.')
            .and_then(|(part, expert)| Some((expert_part(part)?, expert)))
            .filter(|(_, expert)| is_number(expert))
        {
            return Meaning::Whole {
                name: format!("{experts}{expert}.{to}.{suffix}"),
                part: to,
            };
        }
        match find(layer.names, part).or_else(|| find(USUAL, part)) {
            // Bare parameters: Hugging Face's names for them have no ending.
            Some((part, to))
                if VALUES.iter().any(|ending| to.ends_with(ending))
                    || to.ends_with("_bias") && suffix == "bias" =>
            {
                Meaning::Whole {
                    name: format!("{at}.{to}"),
                    part,
                }
            }
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
            Meaning::GatedExperts { before, after } => Some(format!("{before}E{}", after[0])),
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
            (
                "deepseek2",
                "blk.3.exp_probs_b.bias",
                "model.layers.3.mlp.gate.e_score_correction_bias",
            ),
            (
                "glm4moe",
                "blk.1.ffn_gate_up_exps.weight",
                "model.layers.1.mlp.experts.E.gate_proj.weight",
            ),
            (
                "t5",
                "dec.blk.1.cross_attn_k.weight",
                "decoder.block.1.layer.1.EncDecAttention.k.weight",
            ),
            (
                "t5",
                "enc.blk.0.attn_rel_b.weight",
                "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            ),
            (
                "t5",
                "enc.output_norm.weight",
                "encoder.final_layer_norm.weight",
            ),
            (
                "gemma4",
                "blk.0.ffn_gate_up_exps.weight",
                "model.layers.0.experts.gate_up_proj",
            ),
            (
                "gemma4",
                "blk.0.ffn_down_exps.scale",
                "model.layers.0.router.per_expert_scale",
            ),
            ("falcon-h1", "blk.0.ssm_a", "model.layers.0.mamba.A_log"),
            (
                "falcon-h1",
                "blk.1.ffn_norm",
                "model.layers.1.pre_ff_layernorm.weight",
            ),
            (
                "nemotron_h_moe",
                "blk.1.ffn_up_exps.weight",
                "backbone.layers.1.mixer.experts.E.up_proj.weight",
            ),
            (
                "jamba",
                "blk.1.ssm_dt.bias",
                "model.layers.1.mamba.dt_proj.bias",
            ),
            (
                "qwen3next",
                "blk.1.ssm_dt.bias",
                "model.layers.1.linear_attn.dt_bias",
            ),
            (
                "lfm2",
                "blk.0.shortconv.conv.weight",
                "model.layers.0.conv.conv.weight",
            ),
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
    fn names_without_a_translation_are_unknown() {
        for stored in [
            "rope_freqs.weight",
            "blk.x.attn_q.weight",
            "blk..attn_q.weight",
            "blk.0.attn_q",
            "blk.0.attn_q.scale",
            "output.scale",
            "",
        ] {
            assert_eq!(named("llama", stored), None, "{stored}");
        }
    }
}
