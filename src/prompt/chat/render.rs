//! Runs one template as chat model libraries do: their whitespace rules and functions, with limits on time and memory.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::thread;

use attnscope_checkpoint::caught::{caught, said_by};
use fancy_regex::Regex;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::{namespaces, python};

/// Upper limit of a template in bytes; those of chat models have some ten thousand.
const LONGEST: usize = 128 << 10;
/// Upper limit of operators in a template; templates of chat models have some hundred. Compiling an expression takes time
/// quadratic in their number.
const MOST_OPERATORS: usize = 4096;
/// Stack that the library may need. Each byte of a template and each step of its run nests data by at most one level, and the
/// library parses, compiles, compares, prints and drops nested data recursively. Measured without optimisation: 2.4 KiB per byte
/// (`-` before a number), 1.9 KiB per step (a map in a map).
const STACK: usize = 16 << 20;
const STACK_OF_BYTE: usize = 4 << 10;
const STACK_OF_STEP: usize = 2 << 10;
/// Maximum call depth of macros and includes.
const DEPTH: usize = 100;

/// Tags that mark text written by the model; they do not change the output.
static GENERATION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\{%(-|\+)?\s*(end)?generation\s*(-|\+)?%\}").ok());

/// Renders a template with some values, in at most `n_steps` steps.
///
/// # Errors
/// One line that says why it failed.
pub(super) fn render(
    source: &str,
    context: Value,
    now: u64,
    n_steps: u32,
) -> Result<String, String> {
    if source.len() > LONGEST {
        let n = source.len();
        return Err(format!("expected at most {LONGEST} bytes, found {n}"));
    }
    let n_operators = n_operators(source);
    if n_operators > MOST_OPERATORS {
        return Err(format!(
            "expected at most {MOST_OPERATORS} operators, found {n_operators}"
        ));
    }
    if let Some(name) = namespaces::unbounded(source) {
        return Err(format!(
            "expected every namespace to be set by its name and used by its attributes alone, found {name} as a value"
        ));
    }
    // A stack overflow would end the program, so this thread gets as much stack as the template can need.
    let stack = STACK + source.len() * STACK_OF_BYTE + n_steps as usize * STACK_OF_STEP;
    let work = || caught(|| run(source, context, now, n_steps)).and_then(|done| done);
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(stack);
        match thread.spawn_scoped(scope, work) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| Err(said_by(&*panic))),
            Err(e) => Err(format!("no thread can be started for it ({e})")),
        }
    })
}

/// Counts operators, both signs and words, outside block delimiters.
fn n_operators(source: &str) -> usize {
    let bytes = source.as_bytes();
    let at = |idx: Option<usize>| idx.and_then(|idx| bytes.get(idx)).copied();
    let is_sign = |idx: usize| {
        let (before, after) = (at(idx.checked_sub(1)), at(Some(idx + 1)));
        match bytes[idx] {
            b'%' => before != Some(b'{') && after != Some(b'}'),
            b'-' | b'+' => {
                let begins =
                    matches!(before, Some(b'%' | b'{')) && at(idx.checked_sub(2)) == Some(b'{');
                let ends = matches!(after, Some(b'%' | b'}')) && at(Some(idx + 2)) == Some(b'}');
                !begins && !ends
            }
            b'*' | b'/' | b'~' => true,
            _ => false,
        }
    };
    let n_signs = (0..bytes.len()).filter(|idx| is_sign(*idx)).count();
    let words = source.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let n_words = words
        .filter(|word| matches!(*word, "not" | "and" | "or" | "if"))
        .count();
    n_signs + n_words
}

fn run(source: &str, context: Value, now: u64, n_steps: u32) -> Result<String, String> {
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
    let mut environment = environment(now, n_steps).map_err(|error| line(&error))?;
    environment
        .add_template("chat", &source)
        .map_err(|error| line(&error))?;
    let template = environment.get_template("chat");
    let rendered = template.and_then(|template| template.render(context));
    rendered.map_err(|error| line(&error))
}

fn environment(now: u64, n_steps: u32) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()?;
    environment.set_syntax(syntax);
    environment.set_fuel(Some(n_steps.into()));
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

/// Prints a value as Python would.
fn shown(output: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    let word = match value.kind() {
        ValueKind::Bool if value.is_true() => "True",
        ValueKind::Bool => "False",
        ValueKind::None => "None",
        _ => return minijinja::escape_formatter(output, state, value),
    };
    output.write_str(word).map_err(Error::from)
}

/// Converts a value to JSON like Python's `json.dumps`.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // The output already follows either value of this argument.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    Ok(Value::from(python::json(value, indent.map(|n| n.min(16)))?))
}

/// Formats an error in one line, with its place in the template.
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
        render(source, context, 0, 200_000)
    }

    #[test]
    fn blocks_leave_no_whitespace_and_constants_are_printed_as_in_python() {
        let source = "{% for m in messages %}\n  {% if loop.first %}\nfirst {{ true }} {{ none }}\n  {% endif %}\n{{ m.content.strip() }}\n{% endfor %}\n";
        let found = rendered(
            source,
            r#"{"messages": [{"content": " a "}, {"content": "b"}]}"#,
        );
        assert_eq!(found.as_deref(), Ok("first True None\na\nb\n"));
    }

    #[test]
    fn json_is_written_as_in_python_and_keeps_the_order_of_the_file() {
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
    fn generation_tags_do_not_change_the_output() {
        for (begins, expected) in [("{%-", "abc"), ("{%", "a\nbc")] {
            let source = format!("a\n{begins} generation %}}\nb\n{{%- endgeneration -%}}\n c");
            let found = rendered(&source, "{}");
            assert_eq!(found.as_deref(), Ok(expected), "{source}");
        }
    }

    /// Every construct that the library handles recursively, nested as deep as the length limit allows.
    #[test]
    fn a_template_nested_to_the_length_limit_does_not_crash() {
        let n = |text: &str| {
            let most = (MOST_OPERATORS - 20) / n_operators(text).max(1);
            (LONGEST / text.len() - 20).min(most)
        };
        let after = |text: &str| format!("{{{{ a{} }}}}", text.repeat(n(text)));
        let before = |text: &str| format!("{{{{ {}a }}}}", text.repeat(n(text)));
        let around = |open: &str, inside: &str, close: &str| {
            let most = (MOST_OPERATORS - 20) / n_operators(open).max(1);
            let n = (LONGEST / (open.len() + close.len()) - 20).min(most);
            format!("{}{inside}{}", open.repeat(n), close.repeat(n))
        };
        let mut sources: Vec<String> = ["-", "not "].iter().map(|text| before(text)).collect();
        let chains = [
            "+a",
            "-a",
            "*a",
            "/a",
            "//a",
            "%a",
            "**a",
            "~a",
            " and a",
            " or a",
            "<a",
            "==a",
            " in a",
            " if a",
            " if a else a",
            "|e",
            " is e",
            " is eq -a",
            ".a",
            ".0",
            "[0]",
            "[:]",
            "()",
            "(a)",
        ];
        sources.extend(chains.iter().map(|text| after(text)));
        sources.push(format!("{{{{ a is eq {}a }}}}", "-".repeat(n("-"))));
        sources.push(format!(
            "{{% if a %}}{}{{% endif %}}",
            "{%elif a%}".repeat(n("{%elif a%}"))
        ));
        sources.push(format!("{{% set {} = 1 %}}", around("(", "a", ")")));
        sources.push(format!(
            "{{% for {} in [] %}}{{% endfor %}}",
            around("(", "a", ")")
        ));
        sources.push(format!("{{% set a{} = 1 %}}", ".a".repeat(n(".a"))));
        sources.push(format!(
            "{{% filter e{} %}}{{% endfilter %}}",
            "|e".repeat(n("|e") - 20)
        ));
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{1:", "}"),
            ("f(", ")"),
            ("a[", "]"),
        ] {
            sources.push(format!("{{{{ {} }}}}", around(open, "1", close)));
        }
        for (open, close) in [
            ("{%if a%}", "{%endif%}"),
            ("{%for b in [1]%}", "{%endfor%}"),
            ("{%with%}", "{%endwith%}"),
            ("{%set b%}", "{%endset%}"),
            ("{%filter e%}", "{%endfilter%}"),
            ("{%macro m()%}", "{%endmacro%}"),
            ("{%call m()%}", "{%endcall%}"),
            ("{%autoescape a%}", "{%endautoescape%}"),
        ] {
            sources.push(around(open, "", close));
        }
        for source in &sources {
            assert!(source.len() <= LONGEST, "{}", source.len());
            // Any answer is fine, as long as there is one.
            if let Err(said) = rendered(source, r#"{"a": 1}"#) {
                assert!(!said.contains('\n') && said.len() < 400, "{said}");
            }
        }
        for sign in ["-", "not ", "+a", "~a", " and a"] {
            let said = rendered(&format!("{{{{ a{} }}}}", sign.repeat(18_750)), "{}");
            let said = said.expect_err("too many");
            assert!(said.contains("at most 4096 operators, found"), "{said}");
        }
        let said = rendered(&"x".repeat(LONGEST + 1), "{}").expect_err("too long");
        assert!(
            said.contains("at most 131072 bytes, found 131073"),
            "{said}"
        );
    }

    #[test]
    fn values_nested_to_the_step_limit_do_not_crash() {
        for [open, close] in [["[", "]"], ["{'a': ", "}"], ["(", ",)"]] {
            let deeper = format!("{}ns.x{}", open.repeat(40), close.repeat(40));
            for end in [
                "",
                "{{ ns.x }}",
                "{{ [ns.x]|sort }}",
                "{{ {ns.x: 1} }}",
                "{{ ns.x == [ns.x] }}",
            ] {
                let source = format!(
                    "{{% set ns = namespace(x=1) %}}{{% for i in range(1500) %}}{{% set ns.x = {deeper} %}}{{% endfor %}}{end}"
                );
                if let Err(said) = rendered(&source, "{}") {
                    assert!(said.len() < 400, "{said}");
                }
            }
        }
    }

    #[test]
    fn endless_templates_and_outputs_are_refused_in_one_line() {
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
            "{% set a = namespace(x=1) %}{% set a.x = [a] %}{{ a }}",
            "{% for",
            "{{ raise_exception('no system\n messages') }}",
        ] {
            let said = rendered(source, "{}").expect_err(source);
            assert!(!said.contains('\n') && said.len() < 400, "{source}: {said}");
        }
    }
}
