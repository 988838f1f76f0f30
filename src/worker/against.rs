//! The second run, compared with A: another checkpoint, a trace, or another prompt.

use attnscope_checkpoint::Opening;
use attnscope_prompt::{Request, Source};

/// Second run to compare with A.
#[derive(Debug, Clone)]
pub enum Against {
    /// A's prompt through another checkpoint, or a trace.
    Target(Opening),
    /// Another prompt through A's model.
    Prompt(Request),
    /// A's prompt through the code of a live model, loaded anew.
    Reload,
}

impl Against {
    /// Returns B's name: the last parts of a path, or the beginning of its prompt.
    pub fn words(&self) -> String {
        match self {
            Self::Target(opening) => match (&opening.path, opening.bundle) {
                (Some(path), _) => path.display().to_string(),
                (None, Some(bundle)) => bundle.name.to_owned(),
                (None, None) => "the built-in demo".to_owned(),
            },
            Self::Reload => "the code as it is now".to_owned(),
            Self::Prompt(request) => match &request.source {
                Source::Text(text) => format!(
                    "“{}”",
                    text.split_whitespace().collect::<Vec<_>>().join(" ")
                ),
                Source::Picture(picture) => picture.to_string(),
                Source::Values(values) => values.path().display().to_string(),
                Source::Ids(ids) => {
                    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                    format!("ids {}", ids.join(", "))
                }
            },
        }
    }
}

/// Compares only the path and the user's options of an opening.
impl PartialEq for Against {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Target(a), Self::Target(b)) => {
                let of = |opening: &Opening| {
                    let bundle = opening.bundle.map(|bundle| bundle.name);
                    let (path, weights) = (opening.path.clone(), opening.weights.clone());
                    (
                        path,
                        bundle,
                        weights,
                        opening.set.clone(),
                        opening.ignores_settings,
                        opening.ignores_adapter,
                        opening.tokenizer.clone(),
                    )
                };
                of(a) == of(b)
            }
            (Self::Prompt(a), Self::Prompt(b)) => a == b,
            (Self::Reload, Self::Reload) => true,
            _ => false,
        }
    }
}
