//! The verdict of `check` as SARIF 2.1.0, which code scanning reads: checks are its rules, findings its results.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use serde_sarif::sarif;

use super::named_place;
use super::number::Number;
use super::verdict_text::figure;
use super::verdicts::TargetVerdict;
use attnscope_engine::checks::{CHECKS, Check, Finding, Severity, Status, Verdict, page};

/// Where the shape is written down.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// What a path keeps in a URI. A colon is not among it: a relative path may not look like a scheme.
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
    let driver = sarif::ToolComponent::builder()
        .name("attnscope")
        .semantic_version(env!("CARGO_PKG_VERSION"))
        .rules(CHECKS.iter().map(|check| rule(check)).collect::<Vec<_>>())
        .build();
    let results = targets.iter().flat_map(|target| {
        let findings = target.findings().into_iter();
        findings.map(|finding| result(&target.target, finding))
    });
    let notes = targets.iter().flat_map(|target| {
        let unjudged = target.verdicts.iter().filter(|(_, verdict)| {
            matches!(verdict.status, Status::Undecidable | Status::NotApplicable)
        });
        let notes = target.notes.iter().map(|note| told(&target.target, note));
        let error = target.error.as_deref().map(|error| {
            let mut notification = told(&target.target, error);
            notification.level = Some(json!(sarif::ResultLevel::Error));
            notification
        });
        let notes = notes.chain(error);
        let unjudged =
            unjudged.map(|(check, verdict)| notification(&target.target, check, verdict));
        notes.chain(unjudged)
    });
    let invocation = sarif::Invocation::builder()
        .execution_successful(targets.iter().all(|target| target.error.is_none()))
        .tool_execution_notifications(notes.collect::<Vec<_>>())
        .build();
    let run = sarif::Run::builder()
        .tool(sarif::Tool::builder().driver(driver).build())
        .invocations(vec![invocation])
        .results(results.collect::<Vec<_>>())
        .build();
    let log = sarif::Sarif::builder()
        .schema(SCHEMA)
        .version(json!("2.1.0"))
        .runs(vec![run])
        .build();
    super::json::write_pretty(&log, to)
}

fn level(severity: Severity) -> sarif::ResultLevel {
    match severity {
        Severity::Error => sarif::ResultLevel::Error,
        Severity::Warning => sarif::ResultLevel::Warning,
        Severity::Info => sarif::ResultLevel::Note,
    }
}

/// A check as a rule; its page is the help.
fn rule(check: &Check) -> sarif::ReportingDescriptor {
    let page = page(check);
    // After the title, the first paragraph of a page says what is wrong.
    let mut paragraphs = page.split("\n\n").skip(1);
    let short = paragraphs.next().unwrap_or(check.id).replace('\n', " ");
    let text = |text: String| {
        sarif::MultiformatMessageString::builder()
            .text(text)
            .build()
    };
    let help = sarif::MultiformatMessageString::builder()
        .text(page.clone())
        .markdown(page.clone())
        .build();
    let configuration = sarif::ReportingConfiguration::builder()
        .level(json!(level(check.severity)))
        .build();
    sarif::ReportingDescriptor::builder()
        .id(check.id)
        .short_description(text(short.clone()))
        .full_description(text(short))
        .help(help)
        .default_configuration(configuration)
        .build()
}

fn result(target: &str, finding: &Finding) -> sarif::Result {
    let rule_idx = CHECKS.iter().position(|check| check.id == finding.check);
    let place = named_place::whole(&finding.place);
    let unit = match finding.unit {
        "" => String::new(),
        unit => format!(" {unit}"),
    };
    let message = format!(
        "{place}: {} ({} against {}{unit}); {}",
        finding.evidence,
        figure(finding.value),
        figure(finding.threshold),
        finding.advice
    );
    // The same place of the same file is the same result, whatever its size and its prompt.
    let fingerprint = format!("{}/{}", finding.check, named_place::module(&finding.place));
    let mut result = sarif::Result::builder()
        .rule_id(finding.check)
        .level(level(finding.severity))
        .message(message_of(&message))
        .locations(vec![location(target, Some(finding))])
        .partial_fingerprints(BTreeMap::from([(
            "attnscopePlace/v1".to_owned(),
            fingerprint,
        )]))
        .properties(properties(finding))
        .build();
    result.rule_index = rule_idx.and_then(|idx| i64::try_from(idx).ok());
    result
}

fn properties(finding: &Finding) -> sarif::PropertyBag {
    let number = |value| serde_json::to_value(Number(value)).unwrap_or(Value::Null);
    let place = &finding.place;
    let all = [
        ("value", number(finding.value)),
        ("threshold", number(finding.threshold)),
        ("unit", json!(finding.unit)),
        ("stack", json!(place.grid().label())),
        ("layer", json!(place.layer_idx)),
        ("head", json!(place.head_idx)),
        ("query", json!(place.query_idx)),
        ("key", json!(place.key_idx)),
    ];
    let all = all
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    sarif::PropertyBag::builder()
        .additional_properties(all.collect::<BTreeMap<_, _>>())
        .build()
}

fn location(target: &str, finding: Option<&Finding>) -> sarif::Location {
    let artifact = sarif::ArtifactLocation::builder().uri(uri(target)).build();
    // A checkpoint has no lines; GitHub refuses results without one.
    let region = sarif::Region::builder().start_line(1).build();
    let physical = sarif::PhysicalLocation::builder()
        .artifact_location(artifact)
        .region(region)
        .build();
    let mut location = sarif::Location::builder()
        .physical_location(physical)
        .build();
    location.logical_locations = finding.map(|finding| {
        let place = &finding.place;
        let kind = match (place.layer_idx, place.head_idx) {
            (None, _) => "model",
            (Some(_), None) => "layer",
            (Some(_), Some(_)) => "head",
        };
        let logical = sarif::LogicalLocation::builder()
            .fully_qualified_name(named_place::module(place))
            .kind(kind)
            .build();
        vec![logical]
    });
    location
}

fn notification(target: &str, check: &Check, verdict: &Verdict) -> sarif::Notification {
    let rule = sarif::ReportingDescriptorReference::builder()
        .id(check.id)
        .build();
    let said = format!("{} {}: {}", check.id, verdict.status.label(), verdict.why);
    sarif::Notification::builder()
        .level(json!(sarif::ResultLevel::Note))
        .message(message_of(&said))
        .associated_rule(rule)
        .locations(vec![location(target, None)])
        .build()
}

/// What a person must know of a target.
fn told(target: &str, note: &str) -> sarif::Notification {
    sarif::Notification::builder()
        .level(json!(sarif::ResultLevel::Note))
        .message(message_of(note))
        .locations(vec![location(target, None)])
        .build()
}

/// Braces are placeholders in a message, unless they are doubled (SARIF 2.1.0 §3.11.5).
fn message_of(text: &str) -> sarif::Message {
    let text = text.replace('{', "{{").replace('}', "}}");
    sarif::Message::builder().text(text).build()
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
