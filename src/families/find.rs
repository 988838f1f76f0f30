//! Finds the family of a configuration: by its `model_type`, or by the class it was saved from.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};
use serde_json::Value;

use super::aliases;
use super::family::Family;
use super::list::FAMILIES;

/// The family with this name; `None` for an alias or an unknown name.
pub(super) fn named(model_type: &str) -> Option<&'static Family> {
    FAMILIES
        .iter()
        .find(|family| family.model_type == model_type)
}

/// The family that a configuration names by its `model_type`, or by the class it was saved from.
pub(super) fn find(reader: &mut Reader<'_>) -> Result<&'static Family> {
    let by = |stored: Option<&Value>| stored.and_then(|v| v.as_str()).map(str::to_owned);
    let architectures = reader.value("architectures");
    if let Some(stored) = reader.value("model_type") {
        let name = by(Some(stored)).ok_or_else(|| {
            let problem = format!("expected the name of a kind of model, found {stored}");
            Error::config(reader.path(), "model_type", problem)
        })?;
        // Older configurations of some models of text and pictures have the text's keys at the top, newer ones apart.
        let is_apart = reader.value("text_config").is_some();
        let alias = aliases::family_of(&name).filter(|_| !is_apart);
        let own = alias.unwrap_or(&name);
        if let Some(found) = named(own) {
            if own != name {
                let origin = Origin::Derived(format!("model_type {name}"));
                reader.note("read_as", own, origin);
            }
            return Ok(found);
        }
        // What wraps another model has a class of its own, and a person who names a family means that one.
        let class = by(architectures.and_then(|list| list.get(0)));
        let is_alone = reader.value("text_config").is_none() && !reader.is_set("model_type");
        let by_class = class.filter(|_| is_alone);
        let by_class = by_class.and_then(|class| Some((of_class(&class)?, class)));
        let Some((family, class)) = by_class else {
            let problem = format!("{name:?} is not known");
            return Err(Error::config(reader.path(), "model_type", problem));
        };
        let origin = Origin::Derived(format!("class {class}"));
        reader.note("read_as", family.model_type, origin);
        reader.remark(format!(
            "model_type {name:?} is not known: read as {}, by its class {class}",
            family.model_type
        ));
        return Ok(family);
    }
    let class = by(architectures.and_then(|list| list.get(0)));
    let Some(class) = class else {
        let problem = "missing, expected the name of a kind of model".to_owned();
        return Err(Error::config(reader.path(), "model_type", problem));
    };
    let found = of_class(&class);
    found.ok_or_else(|| {
        let problem = format!("{class:?} is not known, and there is no model_type");
        Error::config(reader.path(), "architectures", problem)
    })
}

/// The family of a class by its name: of several the longest that fits, Qwen2Moe before Qwen2.
fn of_class(class: &str) -> Option<&'static Family> {
    let fits = |family: &&Family| {
        class
            .strip_prefix(family.architecture)
            .is_some_and(is_class_end)
    };
    let all = FAMILIES.iter().filter(fits);
    all.max_by_key(|family| family.architecture.len())
}

/// What follows a family's name in the name of a class.
fn is_class_end(rest: &str) -> bool {
    [
        "For",
        "Model",
        "LMHead",
        "MTModel",
        "WithLMHead",
        "Double",
        "",
    ]
    .iter()
    .any(|end| rest == *end || (!end.is_empty() && rest.starts_with(end)))
}
