//! Sizes that a configuration states twice with different values: under its family's key and under the name that all families
//! share.

use attnscope_checkpoint::{Config, Knob, Origin};
use serde_json::Value;

/// Knobs, and the configuration attributes that transformers defines for every family.
const SHARED: [(&str, &str); 4] = [
    ("n_layers", "num_hidden_layers"),
    ("n_heads", "num_attention_heads"),
    ("d_model", "hidden_size"),
    ("n_ctx", "max_position_embeddings"),
];

/// Remarks on such sizes: attnscope uses the family's key, but some versions of transformers use the other one.
pub fn remarks(config: &Config, knobs: &[Knob]) -> Vec<String> {
    let of_knob = |(knob, shared): &(&str, &str)| {
        let other = config.get(shared).and_then(Value::as_u64)?;
        let mut stated = Vec::new();
        for known in knobs.iter().filter(|known| known.name == *knob) {
            match &known.origin {
                Origin::Key(key) => stated.push((key, &known.value)),
                // Values set by the user or derived from other keys are not in doubt.
                _ => return None,
            }
        }
        // Encoder and decoder may differ, and the shared name stands for one of them.
        let is_read = |(key, value): &(&String, &String)| {
            key == shared || value.parse::<u64>().is_ok_and(|value| value == other)
        };
        if stated.iter().any(is_read) {
            return None;
        }
        let (key, value) = stated.first()?;
        Some(format!(
            "the configuration states {key} {value} and {shared} {other}: {key} is read; --set {knob}={other} reads the other"
        ))
    };
    SHARED.iter().filter_map(of_knob).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn only_a_contradicting_second_value_is_remarked_on() {
        let told = |text: &str, knobs: &[(&'static str, &str, &str)]| {
            let config = Config::parse(Path::new("config.json"), text).expect("is read");
            let knobs: Vec<Knob> = knobs
                .iter()
                .map(|&(name, value, key)| Knob {
                    name,
                    value: value.to_owned(),
                    origin: Origin::Key(key.to_owned()),
                })
                .collect();
            remarks(&config, &knobs)
        };
        let own = [("n_heads", "12", "n_head")];
        assert_eq!(
            told(r#"{"n_head": 12, "num_attention_heads": 8}"#, &own),
            [
                "the configuration states n_head 12 and num_attention_heads 8: n_head is read; --set n_heads=8 reads the other"
            ]
        );
        for same in ["12", "null", "\"8\""] {
            let text = format!(r#"{{"n_head": 12, "num_attention_heads": {same}}}"#);
            assert!(told(&text, &own).is_empty(), "{same}");
        }
        let both = [
            ("n_layers", "6", "encoder_layers"),
            ("n_layers", "3", "decoder_layers"),
        ];
        let text = r#"{"encoder_layers": 6, "decoder_layers": 3, "num_hidden_layers": 3}"#;
        assert!(told(text, &both).is_empty());
        let shared = [("n_heads", "8", "num_attention_heads")];
        assert!(told(r#"{"num_attention_heads": 8}"#, &shared).is_empty());
    }
}
