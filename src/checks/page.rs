//! The page of a check, from the doc comment of its file.

use std::fmt::Write as _;

use super::{CHECKS, Check, DEFAULT_THRESHOLDS};

/// The page that `explain` prints and the screen shows: title, severity, and the doc comment.
pub fn page(check: &Check) -> String {
    let lines = check.source.lines();
    let lines = lines.take_while(|line| line.starts_with("//!"));
    let text: Vec<&str> = lines
        .map(|line| line.trim_start_matches("//!").trim_start_matches(' '))
        .collect();
    let mut page = format!(
        "# {} ({})\n\n{}\n",
        check.id,
        check.severity.label(),
        text.join("\n")
    );
    if let Some(table) = thresholds_of(check.id) {
        let _ = write!(page, "\n## Thresholds\n\n{table}\n");
    }
    page
}

/// The section of the threshold table that belongs to a check, verbatim.
fn thresholds_of(id: &str) -> Option<String> {
    let heading = format!("[{id}]");
    let after = DEFAULT_THRESHOLDS
        .lines()
        .skip_while(|line| *line != heading);
    let lines: Vec<String> = after
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| format!("    {line}"))
        .collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// All check pages, for the docs.
pub fn checks_page() -> String {
    let mut all = "# Checks\n\nAfter this page you can judge a finding: what a check looks at, how it measures, and when it is a false alarm.\nGenerated from the checks' own files. `attnscope explain ID` prints one page, `attnscope thresholds` the table of\nthresholds; `attnscope check TARGET --thresholds FILE` changes some of them.\n".to_owned();
    for check in CHECKS {
        // One heading level deeper, because each page is a section here.
        let page = page(check).replace("\n## ", "\n### ");
        let _ = write!(all, "\n#{page}");
    }
    all
}
