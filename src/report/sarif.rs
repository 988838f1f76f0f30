//! Verdicts of `check` as SARIF 2.1.0, the input of code scanning: checks are its rules, findings its results.

use std::io::{self, Write};
use std::path::Path;

use attnscope_checks::{CHECKS, Check, Finding, Severity, Status, Verdict, page};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::named_place;
use super::number::Number;
use super::verdict_text::figure;
use super::verdicts::TargetVerdict;

/// Address of the schema.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Characters that need no escape in a URI path. A colon needs one: a relative path must not look like a scheme.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Writes one run over all targets.
///
/// # Errors
/// When it cannot be written.
pub fn write_sarif(targets: &[TargetVerdict], to: &mut impl Write) -> io::Result<()> {
    let results = targets.iter().flat_map(|target| {
        let findings = target.findings().into_iter();
        findings.map(|finding| result(&target.target, finding))
    });
    let notes = targets.iter().flat_map(|target| {
        let unjudged = target.verdicts.iter().filter(|(_, verdict)| {
            matches!(
                verdict.status,
                Status::Undecidable | Status::NotTested | Status::NotApplicable
            )
        });
        let unjudged =
            unjudged.map(|(check, verdict)| notification(&target.target, check, verdict));
        let notes = target.all_notes();
        let notes = notes.map(|note| told(&target.target, "note", note));
        let error = target.error.iter();
        let error = error.map(|error| told(&target.target, "error", error));
        notes.chain(error).chain(unjudged)
    });
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "attnscope",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": CHECKS.iter().map(|check| rule(check)).collect::<Vec<_>>(),
            } },
            "invocations": [{
                "executionSuccessful": targets.iter().all(|target| target.error.is_none()),
                "toolExecutionNotifications": notes.collect::<Vec<_>>(),
            }],
            "results": results.collect::<Vec<_>>(),
        }],
    });
    super::json::write_pretty(&log, to)
}

/// Returns the SARIF level of a severity.
fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

/// Describes a check as a rule, with its page as help.
fn rule(check: &Check) -> Value {
    let page = page(check);
    // The first paragraph after the title says what is wrong.
    let mut paragraphs = page.split("\n\n").skip(1);
    let short = paragraphs.next().unwrap_or(check.id).replace('\n', " ");
    json!({
        "id": check.id,
        "shortDescription": { "text": short },
        "fullDescription": { "text": short },
        "help": { "text": page, "markdown": page },
        "defaultConfiguration": { "level": level(check.severity) },
    })
}

fn result(target: &str, finding: &Finding) -> Value {
    let rule_idx = CHECKS.iter().position(|check| check.id == finding.check);
    let place = named_place::whole(&finding.place);
    let unit = match finding.unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let message = format!(
        "{place}: {} (measured {}, threshold {}{unit}); {}",
        finding.evidence,
        figure(finding.value),
        figure(finding.threshold),
        finding.advice
    );
    // The same place in the same file is the same result, whatever its value and its prompt.
    let fingerprint = format!("{}/{}", finding.check, named_place::module(&finding.place));
    let mut result = json!({
        "ruleId": finding.check,
        "level": level(finding.severity),
        "message": message_of(&message),
        "locations": [location(target, Some(finding))],
        "partialFingerprints": { "attnscopePlace/v1": fingerprint },
        "properties": properties(finding),
    });
    if let Some(rule_idx) = rule_idx {
        result["ruleIndex"] = json!(rule_idx);
    }
    result
}

fn properties(finding: &Finding) -> Value {
    let number = |value| serde_json::to_value(Number(value)).unwrap_or(Value::Null);
    let place = &finding.place;
    json!({
        "value": number(finding.value),
        "threshold": number(finding.threshold),
        "unit": finding.unit,
        "stack": place.grid().label(),
        "layer": place.layer_idx,
        "head": place.head_idx,
        "query": place.query_idx,
        "key": place.key_idx,
    })
}

fn location(target: &str, finding: Option<&Finding>) -> Value {
    // A checkpoint has no lines, but GitHub rejects results without one.
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(target) },
            "region": { "startLine": 1 },
        },
    });
    if let Some(finding) = finding {
        let place = &finding.place;
        let kind = match (place.layer_idx, place.head_idx) {
            (None, _) => "model",
            (Some(_), None) => "layer",
            (Some(_), Some(_)) => "head",
        };
        location["logicalLocations"] = json!([{
            "fullyQualifiedName": named_place::module(place),
            "kind": kind,
        }]);
    }
    location
}

fn notification(target: &str, check: &Check, verdict: &Verdict) -> Value {
    let said = format!("{} {}: {}", check.id, verdict.status.label(), verdict.why);
    let mut notification = told(target, "note", &said);
    notification["associatedRule"] = json!({ "id": check.id });
    notification
}

/// Makes a notification about a target.
fn told(target: &str, level: &str, note: &str) -> Value {
    json!({
        "level": level,
        "message": message_of(note),
        "locations": [location(target, None)],
    })
}

/// Doubles braces, which are placeholders in a message (SARIF 2.1.0 §3.11.5).
fn message_of(text: &str) -> Value {
    let text = text.replace('{', "{{").replace('}', "}}");
    json!({ "text": text })
}

/// A path as a URI reference: relative paths stay relative.
fn uri(target: &str) -> String {
    let path = utf8_percent_encode(target, IN_PATH).to_string();
    if Path::new(target).is_absolute() {
        format!("file://{path}")
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("models/a b"), "models/a%20b");
        assert_eq!(uri("/m/<x>\n"), "file:///m/%3Cx%3E%0A");
        assert_eq!(uri("c:d"), "c%3Ad");
    }
}
