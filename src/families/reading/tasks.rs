//! The task of a model, from the class that it was saved from: predicting words, labels, spans, or nothing.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    HeadSpec, LabelKind, Labels, LinearSource, ModelSpec, NormSource, Pooled, TransformSpec,
};
use serde_json::Value;

use super::projections;
use super::task_rules::{HeadActivation, TaskRules, TextSummary};

/// Upper limit of labels per head.
const MOST_LABELS: usize = 1 << 16;

/// The task of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Hidden states only.
    Hidden,
    /// A token of the vocabulary at each position, or at masked ones.
    Vocabulary,
    /// A label for the text.
    Sequence,
    /// A label for each token.
    Token,
    /// Whether a second sentence follows the first.
    Next,
    /// Whether each token was replaced (ELECTRA).
    Replaced,
    /// Where an answer starts and ends.
    Question,
    /// A number for each token, besides words.
    Value,
    /// A label for a picture.
    Picture,
    /// No class is named, or an unknown one.
    Unknown,
}

impl Task {
    fn of(class: &str) -> Self {
        const ENDS: [(&str, Task); 27] = [
            ("EncoderDecoderModel", Task::Vocabulary),
            ("ForCausalLM", Task::Vocabulary),
            ("ForMaskedLM", Task::Vocabulary),
            ("LMHeadModel", Task::Vocabulary),
            ("DoubleHeadsModel", Task::Vocabulary),
            ("ElectraForPreTraining", Task::Replaced),
            ("ForPreTraining", Task::Vocabulary),
            ("ForNextSentencePrediction", Task::Next),
            ("ForConditionalGeneration", Task::Vocabulary),
            ("MTModel", Task::Vocabulary),
            ("LMHead", Task::Vocabulary),
            ("WithValueHead", Task::Value),
            ("ForSequenceClassification", Task::Sequence),
            ("ForTextClassification", Task::Sequence),
            ("ForMultipleChoice", Task::Sequence),
            ("RewardModel", Task::Sequence),
            ("ForScore", Task::Sequence),
            ("ForTokenClassification", Task::Token),
            ("ForProcessRewardModel", Task::Token),
            ("ForImageClassification", Task::Picture),
            ("ForImageClassificationWithTeacher", Task::Picture),
            ("ForVideoClassification", Task::Picture),
            ("ForQuestionAnswering", Task::Question),
            ("ForQuestionAnsweringSimple", Task::Question),
            ("EncoderModel", Task::Hidden),
            ("Encoder", Task::Hidden),
            ("Model", Task::Hidden),
        ];
        let end = ENDS.iter().find(|(end, _)| class.ends_with(end));
        end.map_or(Self::Unknown, |(_, task)| *task)
    }
}

/// Gives a model the head of its class, replacing the head that the family read.
///
/// # Errors
/// When the labels of a configuration are impossible.
pub fn settle(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    spec: &mut ModelSpec,
    rules: &TaskRules,
) -> Result<()> {
    let class = checkpoint
        .config
        .get("architectures")
        .and_then(|list| list.get(0))
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let tensors = &checkpoint.tensors;
    if projections::settle(tensors, reader, spec, (&class, rules)) {
        return Ok(());
    }
    let task = Task::of(&class);
    // A head stored apart from the embeddings is kept, even if the class is one of hidden states.
    let embeddings: Vec<&str> = spec
        .stacks
        .iter()
        .map(|stack| stack.embed.tokens.tensor.as_str())
        .collect();
    let is_stored = spec.head.as_ref().is_some_and(|head| {
        let weight = head.unembed.weight.as_str();
        tensors.contains(weight) && !embeddings.contains(&weight)
    });
    let is_missing = spec
        .head
        .as_ref()
        .is_some_and(|head| !tensors.contains(&head.unembed.weight));
    match task {
        Task::Vocabulary => return Ok(()),
        Task::Hidden if is_stored => return Ok(()),
        Task::Unknown if !is_missing => return Ok(()),
        _ => {}
    }
    let found = match task {
        Task::Hidden => None,
        _ => label_head(
            tensors,
            spec,
            (task, rules.text),
            Between::read(reader, rules)?,
        ),
    };
    match (found, task) {
        (Some(head), _) => {
            let pooled_norm = pooled_norm(tensors, reader, spec, (task, rules))?;
            let head = HeadSpec {
                pooled_norm,
                ..head
            };
            let n_labels = head.unembed.n_out();
            let labels = Labels {
                names: names(reader, task, n_labels),
                kind: kind(reader, task, n_labels),
                pooled: pooled(reader, (task, rules), &head, spec),
            };
            let said = format!("{n_labels} labels at the {}", labels.pooled.word());
            let origin = Origin::Derived(format!("class {class}"));
            drop_head_knobs(reader);
            reader.note("head", said, origin);
            spec.head = Some(HeadSpec {
                labels: Some(Box::new(labels)),
                ..head
            });
            spec.is_causal_lm = false;
        }
        // Without a class, the head stays in the spec, so its missing tensor is reported as an error.
        (None, Task::Unknown) => {}
        (None, _) => {
            let origin = Origin::Derived(format!("class {class}"));
            drop_head_knobs(reader);
            if let Some(map) = narrowing(spec).filter(|_| task == Task::Hidden) {
                reader.remark(format!(
                    "last hidden states are those before {}, which {class} applies to them",
                    map.dense.weight
                ));
            }
            reader.note("head", "none", origin);
            spec.head = None;
            spec.is_causal_lm = false;
        }
    }
    Ok(())
}

/// Refuses classes of a family that compute something different, by the suffixes of their names.
///
/// # Errors
/// When the class is one of them: says what was expected, and what this class does.
pub(crate) fn refuse_classes(
    reader: &mut Reader<'_>,
    ends: &[&str],
    expected: &str,
    does: &str,
) -> Result<()> {
    const KEY: &str = "architectures";
    let class = reader.value(KEY).and_then(|list| list.get(0));
    let class = class.and_then(Value::as_str).unwrap_or_default();
    if !ends.iter().any(|end| class.ends_with(end)) {
        return Ok(());
    }
    let problem = format!("expected {expected}: {class} {does}");
    Err(Error::config(reader.path(), KEY, problem))
}

/// The map with which a family narrows its hidden states before any head, if it has one.
fn narrowing(spec: &ModelSpec) -> Option<&TransformSpec> {
    let own = spec.head.as_ref()?.transform.as_ref()?;
    let is_map = own.activation.is_none() && own.norm.is_none();
    (is_map && own.dense.n_out() != spec.d_hidden()).then_some(own)
}

/// Removes the family's knobs of a head that is not used.
fn drop_head_knobs(reader: &mut Reader<'_>) {
    reader.forget(&["head", "unembedding", "tied_unembedding"]);
}

/// Reads the head that predicts labels, by the names of its tensors.
fn label_head(
    tensors: &Tensors,
    spec: &ModelSpec,
    (task, text): (Task, TextSummary),
    between: Between,
) -> Option<HeadSpec> {
    const OF_TEXT: [&str; 15] = [
        "score",
        "score.2",
        "classifier.out_proj",
        "classification_head.out_proj",
        "classifier",
        "v_head.summary",
        "v_head",
        "value_head.summary",
        "value_head",
        "reward_head",
        "rm_head",
        "regression_head",
        "logits_proj",
        "reward_model_head",
        SUMMARY,
    ];
    const OF_SPAN: [&str; 2] = ["qa_outputs", "classifier"];
    const OF_PICTURE: [&str; 3] = ["classifier", "cls_classifier", "score"];
    let outs: &[&str] = match task {
        Task::Picture => &OF_PICTURE,
        Task::Question => &OF_SPAN,
        Task::Next => &["cls.seq_relationship"],
        Task::Replaced => &["discriminator_predictions.dense_prediction"],
        _ => &OF_TEXT,
    };
    // A wrapper may prefix the names.
    let shape_of = |name: &str| {
        tensors
            .info(&format!("{name}.weight"))
            .map(|info| info.shape.clone())
    };
    let (out, shape) = outs.iter().find_map(|out| {
        let shape = shape_of(out)?;
        (shape.len() == 2 && shape[0] <= MOST_LABELS).then_some((*out, shape))
    })?;
    let (n_labels, n_in) = (shape[0], shape[1]);
    let d_model = spec.d_hidden();
    let linear = |name: &str, n_in: usize, n_out: usize| {
        let bias = Some(format!("{name}.bias")).filter(|bias| tensors.contains(bias));
        LinearSource::whole(format!("{name}.weight"), bias, n_in, n_out)
    };
    let transform = transform_of(tensors, spec, (task, text, between), out);
    let transform = match transform {
        Some(Transform::Own(transform)) => Some(*transform),
        Some(Transform::Dense(name, activation)) => Some(TransformSpec {
            dense: linear(&name, d_model, n_in),
            activation,
            norm: None::<NormSource>,
            then: None,
        }),
        // A family's map between hidden states and any head applies to this head too.
        None => narrowing(spec)
            .filter(|map| map.dense.n_out() == n_in)
            .cloned(),
    };
    let second = (out == "cls_classifier").then_some(TEACHER);
    Some(HeadSpec {
        transform,
        second: second.map(|name| linear(name, n_in, n_labels)),
        ..HeadSpec::plain(linear(out, n_in, n_labels))
    })
}

/// The norm of the mean of a picture's patches, if the family's classifiers read that.
fn pooled_norm(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    spec: &ModelSpec,
    (task, rules): (Task, &TaskRules),
) -> Result<Option<NormSource>> {
    let Some(mean) = rules.normed_mean.filter(|_| task == Task::Picture) else {
        return Ok(None);
    };
    let mut is_on = |(key, default)| reader.flag_or("mean_of_patches", key, default);
    if mean.key.map(&mut is_on).transpose()? == Some(false) {
        return Ok(None);
    }
    let end = format!("{}.weight", mean.norm);
    let mut names = tensors.iter().map(|(name, _)| name);
    let found = names.find(|name| name.ends_with(&end)).unwrap_or(&end);
    let name = found.trim_end_matches(".weight");
    let first = spec.main_stack().blocks().first();
    let like = first.and_then(|block| block.attn_pre.as_ref());
    let of_blocks = like.map_or(1e-12, |norm| f64::from(norm.eps));
    let eps = mean.eps.unwrap_or(of_blocks);
    Ok(Some(super::layer_norm(tensors, name, spec.d_model, eps)))
}

/// The classifier of DeiT's distillation token, trained on a teacher's labels.
const TEACHER: &str = "distillation_classifier";

/// The map between the last hidden state and a head's last map.
enum Transform {
    /// The family's own.
    Own(Box<TransformSpec>),
    /// A map with this name, and the activation after it.
    Dense(String, Option<Activation>),
}

/// Activations after the maps before a head's last one.
#[derive(Debug, Clone, Copy)]
struct Between {
    /// After the head's own dense layer.
    dense: Activation,
    /// After the map of the first token's state.
    pooler: Activation,
    /// After the map of the text's summary.
    summary: Option<Activation>,
    /// Before the score of the replaced-token discriminator.
    discriminator: Activation,
}

/// The map of a text's summary, which is one hidden state or the mean of all.
const SUMMARY: &str = "sequence_summary.summary";

impl Between {
    fn read(reader: &mut Reader<'_>, rules: &TaskRules) -> Result<Self> {
        let mut stated = |key: &str, default: Option<&str>| {
            let stated = reader.value(key).and_then(Value::as_str);
            let name = stated.filter(|name| !name.is_empty()).or(default);
            name.map(|name| super::activation_named(reader, key, name))
                .transpose()
        };
        let summary = stated("summary_activation", rules.summary)?;
        let mut by = |rule: HeadActivation| match rule {
            HeadActivation::Always(activation) => Ok(activation),
            HeadActivation::Key(key, default) => {
                stated(key, Some(default)).map(|found| found.unwrap_or(Activation::Gelu))
            }
        };
        Ok(Self {
            summary,
            dense: by(rules.dense)?,
            pooler: by(rules.pooler)?,
            discriminator: by(rules.discriminator)?,
        })
    }
}

fn transform_of(
    tensors: &Tensors,
    spec: &ModelSpec,
    (task, text, between): (Task, TextSummary, Between),
    out: &str,
) -> Option<Transform> {
    let has = |name: &str| tensors.contains(&format!("{name}.weight"));
    let dense = |name: &str, activation| {
        has(name).then(|| Transform::Dense(name.to_owned(), Some(activation)))
    };
    let is_text = matches!(task, Task::Sequence | Task::Unknown);
    match out {
        "score.2" => dense("score.0", Activation::Relu),
        "classifier.out_proj" => dense("classifier.dense", between.dense),
        "classification_head.out_proj" => dense("classification_head.dense", Activation::Tanh),
        "classifier" if has("head.dense") => {
            let own = spec.head.as_ref().and_then(|head| head.transform.clone());
            own.map(|transform| Transform::Own(Box::new(transform)))
        }
        "classifier" | "logits_proj" if is_text && has(SUMMARY) => {
            Some(Transform::Dense(SUMMARY.to_owned(), between.summary))
        }
        "classifier" if is_text && text == TextSummary::MeanOfOutputs => {
            dense("dense", Activation::Gelu)
        }
        _ if task == Task::Replaced => {
            dense("discriminator_predictions.dense", between.discriminator)
        }
        _ if task == Task::Next || (out == "classifier" && is_text) => {
            dense("pre_classifier", Activation::Relu).or_else(|| {
                let ends = ["pooler.dense.weight", "pooler.weight"];
                let found = ends.iter().find_map(|end| {
                    let mut names = tensors.iter().map(|(name, _)| name);
                    names.find(|name| *name == *end || name.ends_with(&format!(".{end}")))
                })?;
                let name = found.strip_suffix(".weight")?;
                Some(Transform::Dense(name.to_owned(), Some(between.pooler)))
            })
        }
        _ => None,
    }
}

/// The names of the labels in the configuration.
fn names(reader: &mut Reader<'_>, task: Task, n_labels: usize) -> Vec<String> {
    reader.value("label2id");
    reader.value("num_labels");
    let stored = reader.value("id2label").and_then(Value::as_object);
    let own: &[&str] = match task {
        Task::Question => &["start", "end"],
        Task::Next => &["follows", "does not follow"],
        Task::Replaced => &["replaced"],
        _ => &[],
    };
    (0..n_labels)
        .map(|idx| {
            if own.len() == n_labels {
                return own[idx].to_owned();
            }
            let name = stored.and_then(|names| names.get(&idx.to_string())?.as_str());
            name.map_or_else(|| format!("LABEL_{idx}"), str::to_owned)
        })
        .collect()
}

fn kind(reader: &mut Reader<'_>, task: Task, n_labels: usize) -> LabelKind {
    let problem = reader.value("problem_type").and_then(Value::as_str);
    match (task, problem) {
        (Task::Question, _) => LabelKind::Span,
        (Task::Replaced, _) => LabelKind::Several,
        (Task::Value, _) | (_, Some("regression")) => LabelKind::Value,
        (_, Some("multi_label_classification")) => LabelKind::Several,
        _ if n_labels == 1 => LabelKind::Value,
        _ => LabelKind::OneOf,
    }
}

fn pooled(
    reader: &mut Reader<'_>,
    (task, rules): (Task, &TaskRules),
    head: &HeadSpec,
    spec: &ModelSpec,
) -> Pooled {
    let id = |reader: &mut Reader<'_>, key: &str| {
        let id = reader.value(key).and_then(Value::as_u64);
        id.and_then(|id| u32::try_from(id).ok())
    };
    if matches!(
        task,
        Task::Token | Task::Replaced | Task::Question | Task::Value
    ) {
        return Pooled::Every;
    }
    if let Some(preprocessing) = spec.preprocessing() {
        let n_first = preprocessing.firsts.len();
        return match head.second {
            Some(_) => Pooled::FirstTwo,
            None if head.pooled_norm.is_some() => Pooled::MeanFrom(n_first),
            None => (rules.picture)(n_first),
        };
    }
    if task == Task::Picture {
        return (rules.picture)(0);
    }
    match reader.value("classifier_pooling").and_then(Value::as_str) {
        Some("mean") => return Pooled::Mean,
        None | Some("late") if rules.text == TextSummary::MeanOfOutputs => {
            return Pooled::MeanOfOutputs;
        }
        _ => {}
    }
    let out = head.unembed.weight.trim_end_matches(".weight");
    let through = head.transform.as_ref().map(|map| map.dense.weight.as_str());
    let takes_last = rules.text == TextSummary::Last && out == "classifier";
    let has_map = out == SUMMARY || through.is_some_and(|through| through.starts_with(SUMMARY));
    if has_map || takes_last {
        return match reader.value("summary_type").and_then(Value::as_str) {
            Some("mean") => Pooled::Mean,
            Some("last" | "cls_index") => Pooled::Last(None),
            None if takes_last => Pooled::Last(None),
            _ => Pooled::First,
        };
    }
    if out.starts_with("classification_head") {
        return match id(reader, "eos_token_id") {
            Some(end) => Pooled::LastOf(end),
            None => Pooled::Last(None),
        };
    }
    let attention = spec.main_stack().first_attention();
    let is_causal = attention.is_none_or(|own| own.mask.causal);
    if is_causal
        && head
            .transform
            .as_ref()
            .is_none_or(|_| out.starts_with("score"))
    {
        Pooled::Last(id(reader, "pad_token_id"))
    } else {
        Pooled::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_map_to_tasks() {
        for (class, task) in [
            ("LlamaForCausalLM", Task::Vocabulary),
            ("GPT2LMHeadModel", Task::Vocabulary),
            ("GPT2DoubleHeadsModel", Task::Vocabulary),
            ("MarianMTModel", Task::Vocabulary),
            ("BertForPreTraining", Task::Vocabulary),
            ("GPT2Model", Task::Hidden),
            ("T5EncoderModel", Task::Hidden),
            ("BertForNextSentencePrediction", Task::Next),
            ("ElectraForPreTraining", Task::Replaced),
            ("Qwen2ForRewardModel", Task::Sequence),
            ("BertForSequenceClassification", Task::Sequence),
            ("BertForTokenClassification", Task::Token),
            ("LlamaForQuestionAnswering", Task::Question),
            ("AutoModelForCausalLMWithValueHead", Task::Value),
            ("", Task::Unknown),
            ("Something", Task::Unknown),
        ] {
            assert_eq!(Task::of(class), task, "{class}");
        }
    }
}
