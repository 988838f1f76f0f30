//! Chat templates, applied to a short conversation.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_prompt::{ChatTemplate, Messages};
use serde_json::Value;

use super::Target;
use crate::seeds::{Kind, Seed, fixture};

/// Templates of the fixtures that are made from: long ones take most of the time.
const LONGEST: usize = 1_500;

fn applied(path: &Path) -> Result<(), String> {
    let source = std::fs::read(path).map_err(|e| e.to_string())?;
    let source = String::from_utf8_lossy(&source).into_owned();
    let token = ("eos_token".to_owned(), "</s>".to_owned());
    let template = ChatTemplate::new(path.to_path_buf(), source, BTreeMap::from([token]));
    let messages = Messages::turn(Some("be short"), "what is it?");
    let text = template.apply(&messages, 0).map_err(|e| e.to_string())?;
    drop(text);
    Ok(())
}

pub const TEMPLATES: Target = Target {
    name: "templates",
    n_quick: 2_000,
    seeds: || {
        let cases = fixture("chat/cases.json");
        let cases: Vec<Value> = serde_json::from_slice(&cases).expect("a list");
        let sources = cases.iter().filter_map(|case| case["template"].as_str());
        let mut sources: Vec<&str> = sources.filter(|source| source.len() < LONGEST).collect();
        sources.sort_unstable();
        sources.dedup();
        // What refuses this conversation is no seed.
        let messages = Messages::turn(Some("be short"), "what is it?");
        let is_sound = |source: &&str| {
            let template = ChatTemplate::new("chat".into(), (*source).to_owned(), BTreeMap::new());
            template.apply(&messages, 0).is_ok()
        };
        let sound = sources.into_iter().filter(is_sound);
        sound
            .map(|source| Seed::ending(Kind::Lines, "jinja", source))
            .collect()
    },
    tokens: &[
        "{{",
        "}}",
        "{%",
        "%}",
        "{#",
        "#}",
        "-%}",
        "{%-",
        "-",
        "not ",
        "+",
        "**",
        "~",
        " and ",
        " or ",
        "|",
        ".",
        "[",
        "]",
        "(",
        ")",
        "{% if x %}",
        "{% elif x %}",
        "{% else %}",
        "{% endif %}",
        "{% for a in messages %}",
        "{% endfor %}",
        " is ",
        " in ",
        "{% set ns.x = [ns.x] %}",
        "{% set ns = namespace(x=1) %}",
        "{% macro m() %}",
        "{% endmacro %}",
        "m()",
        "messages",
        "range(100000)",
        "|tojson",
        "|join",
        ".replace(\"\", \"ab\")",
        " * 100000",
        "loop.",
        "{% raw %}",
        "recursive",
    ],
    read: applied,
};
