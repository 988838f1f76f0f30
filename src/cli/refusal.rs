//! Errors of the command line as one line: the reason, followed by a sentence on what to do next.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseFloatError, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Formats the error of a command line that cannot be run.
pub fn refusal(refused: &clap::Error) -> String {
    let mut said = vec![reason(refused)];
    let of_kind = [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let meant = of_kind.into_iter().flat_map(|kind| texts(refused, kind));
    let meant: Vec<String> = meant.map(|meant| format!("'{meant}'")).collect();
    if !meant.is_empty() {
        said.push(format!("did you mean {}?", meant.join(" or ")));
    }
    said.extend(texts(refused, ContextKind::Suggested));
    format!("{} (see --help)", said.join("; "))
}

/// Returns the reason, without suggestions.
fn reason(refused: &clap::Error) -> String {
    let given = |kind| texts(refused, kind).into_iter().next();
    let argument = given(ContextKind::InvalidArg);
    match (refused.kind(), argument) {
        (ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, _) => {
            "expected a subcommand, found none".to_owned()
        }
        (ErrorKind::MissingRequiredArgument, Some(_)) => {
            let missing = texts(refused, ContextKind::InvalidArg);
            match missing.as_slice() {
                [missing] => format!("the required argument {missing} is missing"),
                _ => format!("required arguments are missing: {}", missing.join(", ")),
            }
        }
        (ErrorKind::InvalidValue, Some(argument)) => {
            let found = given(ContextKind::InvalidValue).unwrap_or_default();
            let known = texts(refused, ContextKind::ValidValue);
            let known = match known.as_slice() {
                [] => String::new(),
                _ => format!(": expected one of {}", known.join(", ")),
            };
            if found.is_empty() {
                format!("'{argument}' needs a value{known}")
            } else {
                format!("invalid value '{found}' for '{argument}'{known}")
            }
        }
        (ErrorKind::ValueValidation, Some(argument)) => {
            let found = given(ContextKind::InvalidValue).unwrap_or_default();
            let why = refused.source().map_or_else(
                || "it cannot be read".to_owned(),
                |source| number_expected(&found, source).unwrap_or_else(|| source.to_string()),
            );
            format!("invalid value '{found}' for '{argument}': {why}")
        }
        (ErrorKind::UnknownArgument, Some(argument)) => format!("unexpected argument '{argument}'"),
        _ => first_paragraph(&refused.to_string()),
    }
}

/// Explains the standard library's error about a number.
fn number_expected(found: &str, source: &(dyn std::error::Error + 'static)) -> Option<String> {
    let expected = match source.downcast_ref::<ParseIntError>() {
        Some(why) if *why.kind() == IntErrorKind::PosOverflow => "expected a smaller number",
        // A negative number where only unsigned ones are allowed.
        Some(_) if found.parse::<i64>().is_ok() => "expected a number of at least 0",
        Some(_) => "expected a whole number",
        None => {
            source.downcast_ref::<ParseFloatError>()?;
            "expected a number"
        }
    };
    Some(expected.to_owned())
}

/// Returns clap's context of one kind as plain texts.
fn texts(refused: &clap::Error, kind: ContextKind) -> Vec<String> {
    match refused.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        Some(ContextValue::StyledStr(text)) => vec![text.to_string()],
        Some(ContextValue::StyledStrs(texts)) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Returns the reason in clap's own message, without the tips and the usage that follow it.
fn first_paragraph(message: &str) -> String {
    let reason = message.split("\n\n").next().unwrap_or(message);
    let words: Vec<&str> = reason.split_whitespace().collect();
    let reason = words.join(" ");
    reason.strip_prefix("error: ").unwrap_or(&reason).to_owned()
}
