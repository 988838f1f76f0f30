//! Global tokens of models with windows: set by the user or implied by the class, and their attention maps.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::attention::Globals;
use attnscope_compute::error::Result;
use attnscope_spec::{GlobalMaps, LinearSource, StackSpec};
use serde_json::Value;

use super::linear;

/// The name of the knob and of the setting.
const KEY: &str = "global_tokens";

/// Values that `--set` takes.
pub(crate) const WORDS: [&str; 4] = ["none", FIRST, QUESTION, ANSWER];

const FIRST: &str = "first";
const QUESTION: &str = "question";
const ANSWER: &str = "answer";

/// The separator token of these vocabularies, if the configuration states none.
const SEPARATOR: u32 = 2;

/// Suffixes of class names, and the global tokens that each class uses by default.
const BY_CLASS: [(&str, &str); 3] = [
    ("ForSequenceClassification", FIRST),
    ("ForQuestionAnswering", QUESTION),
    ("ForMultipleChoice", ANSWER),
];

/// Gives the blocks of a stack their global tokens. Without a setting, only Longformer's classes have some.
///
/// # Errors
/// When a value is invalid.
pub(crate) fn settle(
    reader: &mut Reader<'_>,
    stack: &mut StackSpec,
    goes_by_class: bool,
) -> Result<()> {
    let word = match reader.word_if_set(KEY) {
        Some(word) => word,
        None => by_class(reader, goes_by_class).to_owned(),
    };
    let id = |key: &str, reader: &mut Reader<'_>| {
        let id = reader.value(key).and_then(Value::as_u64);
        id.and_then(|id| u32::try_from(id).ok())
    };
    let separator = id("sep_token_id", reader).or_else(|| id("eos_token_id", reader));
    let separator = separator.unwrap_or(SEPARATOR);
    let globals = match word.as_str() {
        FIRST => Globals::First,
        QUESTION => Globals::Question { separator },
        ANSWER => Globals::Answer { separator },
        _ => return Ok(()),
    };
    for block in stack.blocks_mut() {
        let Some(own) = block.own_mut() else {
            continue;
        };
        let of = |map: &LinearSource| {
            let name = map.weight.trim_end_matches(".weight");
            linear(&format!("{name}_global"), map.n_in, map.n_out(), true)
        };
        own.attention.globals = Some(globals);
        own.projections.global = Some(Box::new(GlobalMaps {
            q: of(&own.projections.q),
            k: of(&own.projections.k),
            v: of(&own.projections.v),
        }));
    }
    reader.remark(format!(
        "global tokens, which see all others and are seen by all: {globals}"
    ));
    Ok(())
}

/// Reads the default of the class, and notes it.
fn by_class(reader: &mut Reader<'_>, goes_by_class: bool) -> &'static str {
    let classes = reader.value("architectures");
    let class = classes.and_then(|list| list.get(0)?.as_str());
    let class = class.unwrap_or_default();
    let mut known = BY_CLASS.iter().filter(|_| goes_by_class);
    let (word, origin) = match known.find(|(end, _)| class.ends_with(end)) {
        Some((_, word)) => (*word, Origin::Derived(format!("class {class}"))),
        None => ("none", Origin::Family),
    };
    reader.note(KEY, word, origin);
    word
}
