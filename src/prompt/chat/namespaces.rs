//! Namespaces, the only mutable values of a template: one that contained itself would make printing and comparing endless.

use std::collections::BTreeSet;

/// The function that makes a namespace.
const MAKER: &str = "namespace";

/// Finds the first namespace that may become part of a value, and so of itself. Each namespace must be made as in `set ns =
/// namespace(…)` and used only by its attributes, as in `ns.found`. Words outside blocks count too: only the library's own parser
/// could tell them apart.
pub(super) fn unbounded(source: &str) -> Option<&str> {
    let words: Vec<(usize, &str)> = words(source).collect();
    let mut names = BTreeSet::new();
    let mut makers = BTreeSet::new();
    for (idx, (at, word)) in words.iter().enumerate() {
        if *word != MAKER {
            continue;
        }
        let after = source[at + word.len()..].trim_start();
        let name = idx.checked_sub(1).map(|idx| words[idx]);
        let set = idx.checked_sub(2).map(|idx| words[idx]);
        let (Some((name_at, name)), Some((set_at, "set"))) = (name, set) else {
            return Some(MAKER);
        };
        let is_named = source[set_at + "set".len()..name_at].trim().is_empty()
            && source[name_at + name.len()..*at].trim() == "=";
        if !is_named || !after.starts_with('(') {
            return Some(MAKER);
        }
        names.insert(name);
        makers.insert(name_at);
    }
    let is_bare = |(at, word): &&(usize, &str)| {
        let after = source[at + word.len()..].trim_start();
        names.contains(word)
            && !makers.contains(at)
            && !after.starts_with('.')
            && !is_attribute(&source[..*at])
    };
    words.iter().find(is_bare).map(|(_, word)| *word)
}

/// Whether the following word is an attribute.
fn is_attribute(before: &str) -> bool {
    before.trim_end().ends_with('.')
}

/// Words as the library splits names, with their byte offsets.
fn words(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    source
        .split(move |letter| !is_of_name(letter))
        .map(move |word| (word.as_ptr() as usize - source.as_ptr() as usize, word))
        .filter(|(_, word)| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_only_used_by_their_attributes() {
        for source in [
            "{{ messages }}",
            "{%- set ns = namespace(found=false, text='') -%}{% if ns.found %}{% set ns.text = ns.text ~ 'a' %}{% endif %}",
            "{% set ns=namespace (x=1) %}{{ ns . x }}{{ message.ns }}",
            "{% set a = namespace(x=1) %}{% set b = namespace(x=a.x) %}{{ b.x }}",
        ] {
            assert_eq!(unbounded(source), None, "{source}");
        }
        for (source, name) in [
            ("{% set a = namespace(x=1) %}{% set a.x = [a] %}", "a"),
            ("{% set a = namespace(x=1) %}{% set a.x = a %}", "a"),
            (
                "{% set a = namespace(x=1) %}{% set b = a %}{% set b.x = [b] %}",
                "a",
            ),
            (
                "{% set a = namespace(x=1) %}{% set b = namespace(x=a) %}",
                "a",
            ),
            (
                "{% set a = namespace() %}{% set a.x = namespace() %}",
                MAKER,
            ),
            ("{% set f = namespace %}{% set a = f() %}", MAKER),
            ("{% set a = [namespace()] %}", MAKER),
            ("{% for a in [namespace()] %}{% endfor %}", MAKER),
            ("{{ namespace }}", MAKER),
        ] {
            assert_eq!(unbounded(source), Some(name), "{source}");
        }
    }
}
