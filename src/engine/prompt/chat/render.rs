//! Runs one template, as the library of chat models runs it: its whitespace, its functions, and limits on what it may take.

use std::fmt::Write as _;
use std::sync::LazyLock;

use fancy_regex::Regex;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::python;

/// Steps of a template at most, and memory with them: templates of chat models take a few thousand.
const FUEL: u64 = 2_000_000;
/// How deep macros and includes may call each other.
const DEPTH: usize = 100;

/// Marks that say which part of a text a model wrote itself: they change nothing.
static GENERATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\{%(-|\+)?\s*(end)?generation\s*(-|\+)?%\}").ok());

/// The text that a template makes of some values.
///
/// # Errors
/// One line that says why there is none.
pub(super) fn render(source: &str, context: Value, now: u64) -> Result<String, String> {
    let source = match &*GENERATION {
        Some(marks) => marks.replace_all(source, |found: &fancy_regex::Captures<'_>| {
            let side = |nth: usize| found.get(nth).map_or("", |part| part.as_str());
            let word = if found.get(2).is_some() {
                "endif"
            } else {
                "if true"
            };
            format!("{{%{} {word} {}%}}", side(1), side(3))
        }),
        None => source.into(),
    };
    let mut environment = environment(now).map_err(|error| line(&error))?;
    environment
        .add_template("chat", &source)
        .map_err(|error| line(&error))?;
    let template = environment.get_template("chat");
    let rendered = template.and_then(|template| template.render(context));
    rendered.map_err(|error| line(&error))
}

fn environment(now: u64) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(DEPTH);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(python::method);
    environment.set_formatter(shown);
    environment.add_filter("tojson", to_json);
    environment.add_function(
        "raise_exception",
        |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        },
    );
    environment.add_function("strftime_now", move |format: String| {
        python::strftime(&format, now)
    });
    Ok(environment)
}

/// Writes a value as Python would.
fn shown(output: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let word = match value.kind() {
        ValueKind::Bool if value.is_true() => "True",
        ValueKind::Bool => "False",
        ValueKind::None => "None",
        _ => return minijinja::escape_formatter(output, state, value),
    };
    output.write_str(word).map_err(Error::from)
}

/// A value as Python's `json.dumps` writes it.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // What else may be said is how Python writes already.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    Ok(Value::from(python::json(value, indent.map(|n| n.min(16)))?))
}

/// What went wrong, in one line with its place in the template.
fn line(error: &Error) -> String {
    let said = match (error.kind(), error.detail()) {
        (ErrorKind::OutOfFuel, _) => {
            "takes more steps or memory than templates may: does it end?".to_owned()
        }
        (_, Some(detail)) => detail.to_owned(),
        (kind, None) => kind.to_string(),
    };
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut said: String = said.chars().take(300).collect();
    if let Some(line) = error.line() {
        let _ = write!(said, " (line {line})");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(source: &str, context: &str) -> Result<String, String> {
        let context = serde_json::from_str(context).map_err(|e| e.to_string())?;
        render(source, context, 0)
    }

    #[test]
    fn blocks_leave_no_whitespace_and_python_s_words_are_written() {
        let source = "{% for m in messages %}\n  {% if loop.first %}\nfirst {{ true }} {{ none }}\n  {% endif %}\n{{ m.content.strip() }}\n{% endfor %}\n";
        let found = rendered(
            source,
            r#"{"messages": [{"content": " a "}, {"content": "b"}]}"#,
        );
        assert_eq!(found.as_deref(), Ok("first True None\na\nb\n"));
    }

    #[test]
    fn json_is_written_as_python_writes_it_in_the_order_of_the_file() {
        let value = r#"{"v": {"b": [1, 2.5, "ü\"<"], "a": null, "e": {}}}"#;
        let found = rendered("{{ v | tojson }}", value);
        assert_eq!(
            found.as_deref(),
            Ok(r#"{"b": [1, 2.5, "ü\"<"], "a": null, "e": {}}"#)
        );
        let found = rendered("{{ v | tojson(indent=2) }}", value);
        let expected =
            "{\n  \"b\": [\n    1,\n    2.5,\n    \"ü\\\"<\"\n  ],\n  \"a\": null,\n  \"e\": {}\n}";
        assert_eq!(found.as_deref(), Ok(expected));
    }

    #[test]
    fn marks_of_what_a_model_wrote_change_nothing() {
        for (begins, expected) in [("{%-", "abc"), ("{%", "a\nbc")] {
            let source = format!("a\n{begins} generation %}}\nb\n{{%- endgeneration -%}}\n c");
            let found = rendered(&source, "{}");
            assert_eq!(found.as_deref(), Ok(expected), "{source}");
        }
    }

    #[test]
    fn what_never_ends_or_grows_without_end_is_refused_in_one_line() {
        for source in [
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
            "{% set ns = namespace(x='x') %}{% for a in range(100) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
            "{% set ns = namespace(x='xx') %}{% for a in range(100) %}{% set ns.x = ns.x.replace('x', ns.x) %}{% endfor %}",
            "{% set ns = namespace(x='xx') %}{% for a in range(100) %}{% set ns.x = ns.x.join(ns.x) %}{% endfor %}",
            "{% set x = '{:999999999999}'.format('a') %}{{ x }}",
            "{% set x = '%999999999s' | format('a') %}{{ x }}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
            "{% include 'chat' %}",
            "{{ [1] * 99999999999 }}",
            "{% for",
            "{{ raise_exception('no system\n messages') }}",
        ] {
            let said = rendered(source, "{}").expect_err(source);
            assert!(!said.contains('\n') && said.len() < 400, "{source}: {said}");
        }
    }
}
