//! Randomness in a recording: whether the model was in training mode, and which modules drew random numbers, such as dropout.

use attnscope_checkpoint::captured::Captured;

/// Maximum length of a module name in messages, in characters.
const LONGEST_NAME: usize = 80;

/// Randomness that a recording's metadata mentions; default for files that do not mention it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Randomness {
    /// Whether any module was in training mode.
    pub is_training: bool,
    /// Modules that drew random numbers, in the order of the first draw.
    pub modules: Vec<String>,
    /// The functions that drew them, where the recording names them.
    pub functions: Vec<String>,
    /// Largest dropout probability in an attention.
    pub dropout_p: Option<f64>,
}

impl Randomness {
    /// Reads the metadata; entries of an unexpected form are ignored.
    pub fn of(captured: &Captured) -> Self {
        let said = |key: &str| captured.metadata.get(key).map(String::as_str);
        let modules = said("attnscope.random").and_then(|text| serde_json::from_str(text).ok());
        let modules: Vec<String> = modules.unwrap_or_default();
        let p: Option<f64> = said("attnscope.dropout_p").and_then(|text| text.parse().ok());
        Self {
            is_training: matches!(
                said("attnscope.training"),
                Some("true" | "True" | "1" | "mixed")
            ),
            modules: modules.iter().map(|name| shortened(name)).collect(),
            functions: said("attnscope.draws")
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            dropout_p: p.filter(|p| *p > 0.0),
        }
    }

    /// Whether the values depend on random numbers, so that a second recording of the same model would differ.
    pub fn is_random(&self) -> bool {
        !self.modules.is_empty() || self.dropout_p.is_some()
    }

    /// Warning to print after the recording's name; `None` if it was recorded in evaluation mode without randomness.
    pub fn words(&self) -> Option<String> {
        let mode = if self.is_training {
            "in training mode"
        } else {
            "in evaluation mode"
        };
        if let Some(first) = self.modules.first() {
            let more = match self.modules.len() - 1 {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            let by = if self.functions.is_empty() {
                "dropout".to_owned()
            } else {
                self.functions.join(", ")
            };
            return Some(format!(
                "recorded {mode} with random numbers ({by}) in {first}{more}"
            ));
        }
        if let Some(p) = self.dropout_p {
            return Some(format!("recorded {mode} with dropout, p = {p}"));
        }
        self.is_training
            .then(|| "recorded in training mode".to_owned())
    }

    /// Advice on how to remove the randomness; `None` if there is none.
    pub fn advice(&self) -> Option<&'static str> {
        match (self.is_random(), self.is_training) {
            (true, true) => Some("record it again after model.eval()"),
            (true, false)
                if !self.functions.is_empty()
                    && !self.functions.iter().any(|name| name.contains("drop")) =>
            {
                Some(
                    "look for random numbers that are drawn in evaluation mode too, then record it again",
                )
            }
            (true, false) => {
                Some("look for dropout that does not ask for self.training, then record it again")
            }
            (false, _) => None,
        }
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= LONGEST_NAME {
        return name.to_owned();
    }
    let kept: String = name.chars().take(LONGEST_NAME).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_advice_depend_on_mode_modules_and_dropout() {
        let of = |is_training, modules: &[&str], dropout_p| Randomness {
            is_training,
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            functions: Vec::new(),
            dropout_p,
        };
        for (randomness, words, is_random) in [
            (of(false, &[], None), None, false),
            (
                of(true, &[], None),
                Some("recorded in training mode"),
                false,
            ),
            (
                of(true, &["drop"], Some(0.1)),
                Some("recorded in training mode with random numbers (dropout) in drop"),
                true,
            ),
            (
                of(false, &["drop", "h.0"], None),
                Some(
                    "recorded in evaluation mode with random numbers (dropout) in drop and 1 more",
                ),
                true,
            ),
            (
                of(true, &[], Some(0.1)),
                Some("recorded in training mode with dropout, p = 0.1"),
                true,
            ),
        ] {
            assert_eq!(randomness.words().as_deref(), words);
            assert_eq!(randomness.is_random(), is_random);
            assert_eq!(randomness.advice().is_some(), is_random);
        }
        assert_eq!(
            shortened(&"x".repeat(200)).chars().count(),
            LONGEST_NAME + 1
        );
    }
}
