//! Multimodal wrappers: how the outer model changes the computation of its text part.
//!
//! Since transformers 4.52, most of them contain the text body and their own unembedding, without the text model's logit factors
//! and caps. PaliGemma reads a prompt as a prefix, in which every token sees every other one.

use attnscope_checkpoint::{Config, Knob, Origin};
use attnscope_compute::attention::Mask;
use attnscope_spec::{ModelSpec, StackSpec};
use serde_json::Value;

use super::versions::saved_by;

/// How a wrapper differs from most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrapperRule {
    /// Contains a whole text model with its head, or applies the logit cap itself: the text model's logit factor and cap hold.
    WholeInside,
    /// Reads a prompt as a prefix.
    ReadsPrefixes,
    /// Reads a text as a prefix in every version, and writes no words behind it.
    ReadsAlone,
    /// Each phrase of a text sees itself alone, which is not done here.
    InPhrases,
}

/// The wrappers that differ from most, by their `model_type`.
const WRAPPER_RULES: [(&str, WrapperRule); 24] = [
    ("blip-2", WrapperRule::WholeInside),
    ("colpali", WrapperRule::ReadsPrefixes),
    ("gemma3n", WrapperRule::WholeInside),
    ("gemma4", WrapperRule::WholeInside),
    ("gemma4_unified", WrapperRule::WholeInside),
    ("granite_docling", WrapperRule::WholeInside),
    ("granite_speech", WrapperRule::WholeInside),
    ("grounding-dino", WrapperRule::InPhrases),
    ("hyperclovax_vision_v2", WrapperRule::WholeInside),
    ("inkling_mm_model", WrapperRule::WholeInside),
    ("instructblip", WrapperRule::WholeInside),
    ("instructblipvideo", WrapperRule::WholeInside),
    ("kosmos-2", WrapperRule::WholeInside),
    ("llama4", WrapperRule::WholeInside),
    ("mistral_large4", WrapperRule::WholeInside),
    ("mm-grounding-dino", WrapperRule::InPhrases),
    ("muse_glimmer", WrapperRule::WholeInside),
    ("muse_spark", WrapperRule::WholeInside),
    ("paligemma", WrapperRule::ReadsPrefixes),
    ("pi0", WrapperRule::ReadsAlone),
    ("qwen2_audio", WrapperRule::WholeInside),
    ("rag", WrapperRule::WholeInside),
    ("vision-encoder-decoder", WrapperRule::WholeInside),
    ("voxtral", WrapperRule::WholeInside),
];

/// The model around a text part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapper {
    kind: String,
    otherwise: Option<WrapperRule>,
    /// The version of transformers that saved it.
    version: Option<(u32, u32)>,
}

impl Wrapper {
    pub fn of(outer: &Config) -> Self {
        let kind = outer.get("model_type").and_then(Value::as_str);
        let kind = kind.unwrap_or("this model");
        let found = WRAPPER_RULES.iter().find(|(name, _)| *name == kind);
        Self {
            kind: kind.to_owned(),
            otherwise: found.map(|(_, otherwise)| *otherwise),
            version: saved_by(outer.get("transformers_version")),
        }
    }

    /// Marks the text model as tied if no unembedding is stored.
    ///
    /// `has_head` says whether one is stored. The outer configuration only decides the stated origin.
    pub fn complete(&self, outer: &Config, text: &mut Config, has_head: bool) {
        const TIED: &str = "tie_word_embeddings";
        let is_true = |config: &Config| config.get(TIED).and_then(Value::as_bool) == Some(true);
        if is_true(text) || has_head {
            return;
        }
        let origin = if is_true(outer) {
            Origin::Key(format!("{TIED} of the outer configuration"))
        } else {
            Origin::Derived("no unembedding is stored".to_owned())
        };
        text.put(TIED, true, origin);
    }

    /// Whether the wrapper reads a prompt as a prefix, and so decides in place of the text model's own switch for bidirectional
    /// attention.
    pub fn reads_prefixes(&self) -> bool {
        matches!(
            self.otherwise,
            Some(WrapperRule::ReadsPrefixes | WrapperRule::ReadsAlone)
        )
    }

    /// Applies the wrapper's differences from the plain text model; returns remarks on them.
    pub fn apply(&self, spec: &mut ModelSpec) -> Vec<String> {
        let mut said = Vec::new();
        said.extend(self.head(spec));
        if self.reads_prefixes() {
            said.push(self.prefix(spec));
        }
        if self.otherwise == Some(WrapperRule::InPhrases) {
            said.push("its encoder of texts alone is read, and sees a whole text: in the detector, the words of a phrase, up to its full stop, see each other alone, and positions begin anew with each".to_owned());
        }
        said
    }

    fn head(&self, spec: &mut ModelSpec) -> Option<String> {
        let head = spec.head.as_mut()?;
        let is_plain = head.scale == 1.0 && head.softcap.is_none();
        let is_whole = self.otherwise == Some(WrapperRule::WholeInside);
        if is_plain || is_whole {
            return None;
        }
        let kind = &self.kind;
        let what = match head.softcap {
            Some(cap) => format!("the cap of {cap} on logits"),
            None => format!("the factor of {} on logits", head.scale),
        };
        let as_set = match head.softcap {
            Some(cap) => format!("logit_softcap={cap}"),
            None => format!("logit_scale={}", head.scale),
        };
        if self.version.is_some_and(|version| version < (4, 52)) {
            let off = match head.softcap {
                Some(_) => "logit_softcap=none",
                None => "logit_scale=1",
            };
            return Some(format!(
                "{what} is applied, as the version of transformers that saved this {kind} does; since 4.52 it is not: --set {off}"
            ));
        }
        (head.scale, head.softcap) = (1.0, None);
        replace(spec, "logit_scale", "1", kind);
        replace(spec, "logit_softcap", "none", kind);
        Some(format!(
            "{what} is left out, as {kind} has an unembedding of its own; --set {as_set} applies it"
        ))
    }

    fn prefix(&self, spec: &mut ModelSpec) -> String {
        let kind = &self.kind;
        let is_alone = self.otherwise == Some(WrapperRule::ReadsAlone);
        if !is_alone && self.version.is_some_and(|version| version >= (5, 0)) {
            return format!(
                "{kind} without token types treats a text as its own output, so attention is causal; \
                 --set mask=bidirectional treats it as a prompt, in which every token sees every other one"
            );
        }
        for block in spec.stacks.iter_mut().flat_map(StackSpec::blocks_mut) {
            if let Some(own) = block.own_mut() {
                own.attention.mask = Mask {
                    causal: false,
                    window: None,
                    streaming: None,
                    pools: None,
                };
            }
        }
        replace(
            spec,
            "mask",
            &Mask {
                causal: false,
                window: None,
                streaming: None,
                pools: None,
            }
            .to_string(),
            kind,
        );
        if is_alone {
            spec.head = None;
            spec.is_causal_lm = false;
            spec.knobs
                .retain(|knob| !knob.name.ends_with("unembedding"));
            return format!(
                "{kind} reads a text, in which every token sees every other one, and writes no words: what reads its keys to act is left out"
            );
        }
        format!(
            "{kind} treats a text as a prompt, in which every token sees every other one; --set mask=causal treats it as its own output"
        )
    }
}

/// Replaces the value of a recorded knob.
fn replace(spec: &mut ModelSpec, name: &str, value: &str, kind: &str) {
    for knob in spec.knobs.iter_mut().filter(|knob| knob.name == name) {
        *knob = Knob {
            name: knob.name,
            value: value.to_owned(),
            origin: Origin::Derived(format!("what {kind} does")),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("config.json"), text).expect("valid")
    }

    #[test]
    fn the_outer_configurations_version_and_tying_count() {
        let outer = config(r#"{"model_type": "x", "transformers_version": "4.51.3.dev0"}"#);
        assert_eq!(saved_by(outer.get("transformers_version")), Some((4, 51)));
        let wrapper = Wrapper::of(&outer);
        let tied = |has_head: bool, text: &str| {
            let mut text = config(text);
            wrapper.complete(&outer, &mut text, has_head);
            text.get("tie_word_embeddings").and_then(Value::as_bool)
        };
        assert_eq!(tied(false, r#"{"tie_word_embeddings": false}"#), Some(true));
        assert_eq!(tied(false, "{}"), Some(true));
        assert_eq!(tied(true, r#"{"tie_word_embeddings": false}"#), Some(false));
        assert_eq!(tied(true, "{}"), None);
    }
}
