//! Lines of `attnscope.toml` for a guess, each with its evidence.

use attnscope_families::description::Described;

/// Margin of an answer over the second best one.
#[derive(Debug, Clone, PartialEq)]
pub struct Margin {
    /// The second best answer in words.
    pub second: String,
    /// Difference of its loss, in nats per token.
    pub ahead: f64,
    /// Number of answers compared.
    pub n_answers: usize,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// `set` or `tensors`.
    pub section: &'static str,
    pub key: &'static str,
    /// As written in TOML.
    pub value: String,
    /// Origin of the value, in words.
    pub evidence: String,
    /// `None` if names and shapes alone determine the value.
    pub margin: Option<Margin>,
}

/// Question that determines the value of a key.
fn question_of(key: &str) -> Option<&'static str> {
    Some(match key {
        "n_heads" | "n_kv_heads" | "d_head" => "n_heads",
        "block" | "attn_pre" | "attn_out" | "attn_post" | "mlp_pre" | "mlp_out" | "mlp_post" => {
            "block"
        }
        "norm" | "norm_adds_one" => "norm",
        "norm_eps" => "norm_eps",
        "activation" => "activation",
        "positions" => "positions",
        "rope_theta" => "rope_theta",
        "rope_interleaved" | "d_rotary" => "d_rotary",
        "scale" => "scale",
        "embed_scale" => "embed_scale",
        "window" | "window_layers" => "window",
        "softcap" => "softcap",
        "logit_softcap" => "logit_softcap",
        "logit_scale" => "logit_scale",
        "qkv" | "kv" => "qkv",
        "q" | "k" | "v" => "q",
        "o" => "axes",
        "gate" | "up" | "gate_up" => "gate",
        "q_norm" | "k_norm" => "q_norm",
        "final_norm" | "embed_norm" | "head_norm" => "final_norm",
        "tokens" | "unembed" => "tokens",
        _ => return None,
    })
}

/// Every line of a description, in order.
pub fn lines(described: &Described, margins: &[(&'static str, Option<Margin>)]) -> Vec<Line> {
    let margin_of = |key: &str| {
        let question = question_of(key)?;
        let (_, margin) = margins.iter().find(|(own, _)| *own == question)?;
        margin.clone()
    };
    let line = |section: &'static str, key: &'static str, value: String| {
        let margin = margin_of(key).filter(|margin| margin.n_answers > 1);
        let evidence = match &margin {
            Some(margin) if margin.ahead < 1e-4 => {
                format!("text does not tell it from {}", margin.second)
            }
            Some(margin) => format!("{:.4} nats ahead of {}", margin.ahead, margin.second),
            None if section == "tensors" => "by name and shape".to_owned(),
            None => "by names and shapes".to_owned(),
        };
        Line {
            section,
            key,
            value,
            evidence,
            margin,
        }
    };
    let settings = described.settings().into_iter();
    let parts = described.parts().into_iter();
    settings
        .map(|(key, value)| line("set", key, value))
        .chain(parts.map(|(key, part)| line("tensors", key, part.written())))
        .collect()
}
