//! Whether a checkpoint has an unembedding, by the class that it was saved from.

use attnscope_checkpoint::{Config, Knob, Origin};
use attnscope_spec::ModelSpec;
use serde_json::Value;

/// Parts of the names of classes that label a text instead of predicting tokens.
const JUDGES: [&str; 11] = [
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "ForQuestionAnsweringSimple",
    "ForMultipleChoice",
    "ForNextSentencePrediction",
    "ForRewardModel",
    "RewardModel",
    "ForTextEncoding",
    "ForRetrieval",
    "ForBlockDiffusion",
];

/// Suffixes of the names of classes that have an unembedding although they end in Model.
const WITH_HEAD: [&str; 5] = [
    "LMHeadModel",
    "MTModel",
    "DoubleHeadsModel",
    "LMModel",
    "EncoderDecoderModel",
];

/// Whether a class has no map from its residual to the vocabulary.
pub(super) fn is_headless(class: &str) -> bool {
    JUDGES.iter().any(|part| class.contains(part))
        || class.ends_with("Model") && !WITH_HEAD.iter().any(|end| class.ends_with(end))
}

/// Removes an unembedding that is only the embedding, if the class has none.
pub(super) fn without_false_head(config: &Config, spec: &mut ModelSpec) {
    let class = config.get("architectures").and_then(|list| list.get(0));
    let Some(class) = class
        .and_then(Value::as_str)
        .filter(|class| is_headless(class))
    else {
        return;
    };
    let is_embedding = |weight: &str| {
        let mut stacks = spec.stacks.iter();
        stacks.any(|stack| stack.embed.tokens.tensor == weight)
    };
    if !spec
        .head
        .as_ref()
        .is_some_and(|head| is_embedding(&head.unembed.weight))
    {
        return;
    }
    spec.head = None;
    spec.is_causal_lm = false;
    let of_head = [
        "unembedding",
        "tied_unembedding",
        "head",
        "logit_scale",
        "logit_softcap",
        "scaled_logits",
    ];
    spec.knobs.retain(|knob| !of_head.contains(&knob.name));
    spec.knobs.push(Knob {
        name: "head",
        value: "none".to_owned(),
        origin: Origin::Derived(format!("the class {class}")),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_reveal_whether_there_is_an_unembedding() {
        for class in [
            "GPT2ForSequenceClassification",
            "GemmaForTokenClassification",
            "ModernBertForQuestionAnswering",
            "BartModel",
            "LlamaModel",
            "DistilBertForMultipleChoice",
        ] {
            assert!(is_headless(class), "{class}");
        }
        for class in [
            "GPT2LMHeadModel",
            "MarianMTModel",
            "GPT2DoubleHeadsModel",
            "T5ForConditionalGeneration",
            "BertForPreTraining",
            "LlamaForCausalLM",
            "ModernBertForMaskedLM",
            "FlaubertWithLMHeadModel",
        ] {
            assert!(!is_headless(class), "{class}");
        }
    }
}
