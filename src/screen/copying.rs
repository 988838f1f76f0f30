//! What can be copied of a view, and how a terminal is handed it: OSC 52, which works over ssh too.

use attnscope_checks::stats::STATISTICS;
use attnscope_prompt::Source;
use attnscope_run::HeadMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::panels;
use super::panels::cell::cell;
use super::state::app::{App, Overlay};
use super::state::copied::Copied;
use super::state::editor::as_text;
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::state::runs::Way;
use super::state::scene::Scene;
use super::state::views::Axis;

/// Terminals take about 100 000 bytes of a sequence at most; base64 makes 4 bytes of 3.
pub const MOST_BYTES: usize = 74_000;

/// All that can be copied of what is on screen.
pub fn offers(app: Scene<'_>) -> Vec<Copied> {
    let offer = |key: char, what: &'static str, text: Option<String>| {
        text.map(|text| Copied { key, what, text })
    };
    let offers = [
        offer('y', "number", number(app)),
        offer('r', "row", row(app)),
        offer('p', "place", place(app)),
        offer('c', "command", command(app)),
    ];
    offers.into_iter().flatten().collect()
}

impl App {
    pub(super) fn open_copying(&mut self) {
        let offers = offers(self.scene());
        if offers.is_empty() {
            self.notice = Some("there is nothing to copy yet".to_owned());
        } else {
            self.overlay = Some(Overlay::Copy(offers));
        }
    }

    /// Hands something to the clipboard, or says why not.
    pub(super) fn copy(&mut self, copied: &Copied, effects: &mut Vec<Effect>) {
        let n_bytes = copied.text.len();
        if !self.has_clipboard {
            self.notice = Some("copying is off: clipboard = false in the settings".to_owned());
        } else if n_bytes > MOST_BYTES {
            self.notice = Some(format!(
                "the {} has {n_bytes} bytes, and terminals take {MOST_BYTES} at most: x exports it",
                copied.what
            ));
        } else {
            let n_lines = copied.text.lines().count();
            let shown = if n_lines > 1 {
                format!("{n_lines} lines")
            } else {
                copied.text.clone()
            };
            self.written = Some(format!("copied the {}: {shown}", copied.what));
            effects.push(Effect::Copy(copied.text.clone()));
        }
    }
}

/// The value that is selected, with all its digits.
fn number(app: Scene<'_>) -> Option<String> {
    let value = match app.panel {
        Panel::Head | Panel::Tokens => {
            f64::from(cell(app, app.selection.query_idx, app.selection.key_idx)?)
        }
        Panel::Model | Panel::Story | Panel::Checks => return None,
        _ => panels::selected_value(app)?,
    };
    Some(digits(value))
}

fn digits(value: f64) -> String {
    // Values of f32 are shortest as f32.
    let single = value as f32;
    if f64::from(single) == value || value.is_nan() {
        single.to_string()
    } else {
        value.to_string()
    }
}

/// A table of lines: the keys of the selected query, or the statistics of the selected head.
fn row(app: Scene<'_>) -> Option<String> {
    let lines: Vec<String> = match app.panel {
        Panel::Head | Panel::Tokens | Panel::Sweep => {
            let what = match app.head_map() {
                HeadMap::Pattern => "probability",
                HeadMap::Scores => "score",
                HeadMap::Contribution => "contribution",
            };
            let step = app.shown_detail()?.pooling();
            let keys = (0..app.n_along(Axis::Key)).step_by(step);
            let cells = keys.filter_map(|key_idx| {
                let value = cell(app, app.selection.query_idx, key_idx)?;
                let token = app.token(Axis::Key, key_idx);
                Some(format!("{key_idx}\t{token}\t{value}"))
            });
            std::iter::once(format!("key\ttoken\t{what}"))
                .chain(cells)
                .collect()
        }
        Panel::Model | Panel::Story | Panel::Checks => return None,
        _ => {
            let head = app.layer()?.heads.get(app.selection.head_idx)?;
            let values = STATISTICS.iter().enumerate();
            let values = values.map(|(idx, statistic)| (statistic.id, head.stats.at(idx)));
            let known = values.filter(|(_, value)| !value.is_nan());
            let lines = known.map(|(id, value)| format!("{id}\t{}", digits(value)));
            std::iter::once("statistic\tvalue".to_owned())
                .chain(lines)
                .collect()
        }
    };
    Some(lines.join("\n") + "\n")
}

/// The selection as `--at` takes it.
fn place(app: Scene<'_>) -> Option<String> {
    app.run()?;
    let at = app.selection;
    let head = at.head();
    Some(if app.panel.shows_head() && app.panel != Panel::Compare {
        format!("{head} query {} key {}", at.query_idx, at.key_idx)
    } else {
        head.to_string()
    })
}

/// The command that draws the same view again.
fn command(app: Scene<'_>) -> Option<String> {
    let run = app.runs.a.as_ref()?;
    let target = app
        .target
        .as_ref()
        .filter(|_| app.panel != Panel::History)?;
    let mut words = vec!["attnscope".to_owned(), "plot".to_owned()];
    words.extend(target.iter().cloned());
    let panel = app.panel.title().to_lowercase().replace(' ', "-");
    let place = place(app)?;
    words.extend(["--panel".to_owned(), panel, "--at".to_owned(), place]);
    if matches!(app.panel, Panel::Overview | Panel::Scores) && app.statistic_idx < STATISTICS.len()
    {
        words.extend(["--statistic".to_owned(), app.statistic().id.to_owned()]);
    }
    let flags = [
        (
            "--scores",
            app.panel == Panel::Head && app.head_map() == HeadMap::Scores,
        ),
        (
            "--contribution",
            app.panel == Panel::Head && app.head_map() == HeadMap::Contribution,
        ),
        (
            "--log-scale",
            app.panel == Panel::Head && app.head_view.is_log,
        ),
        (
            "--without-first-key",
            matches!(app.panel, Panel::Head | Panel::Tokens) && app.head_view.hides_first_key,
        ),
        (
            "--receives",
            app.panel == Panel::Tokens && app.tokens_view.shows_received,
        ),
    ];
    let given = flags.iter().filter(|(_, is_given)| *is_given);
    words.extend(given.map(|(flag, _)| (*flag).to_owned()));
    if let Some(page) = app.story.as_ref().filter(|_| app.panel == Panel::Story) {
        words.extend(["--page".to_owned(), (page.page_idx + 1).to_string()]);
    }
    if run.origin == attnscope_worker::PromptOrigin::Asked {
        words.extend(match &run.source {
            Source::Text(text) => ["--text".to_owned(), text.clone()],
            picture @ Source::Picture(_) => ["--image".to_owned(), as_text(picture)],
            ids @ Source::Ids(_) => ["--tokens".to_owned(), as_text(ids).replace(", ", ",")],
        });
    }
    if let Some(Way::WhatIf(what_ifs)) = app.runs.b.as_ref().map(|b| &b.way) {
        for what_if in what_ifs {
            words.extend(["--what-if".to_owned(), what_if.to_string()]);
        }
    }
    words.extend(["--output".to_owned(), "view.svg".to_owned()]);
    Some(
        words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The bytes that hand a text to the clipboard of the terminal. tmux passes them on as its own setting wants, or wrapped, as its
/// pass-through wants: it gets both.
pub fn sequence(text: &str, is_in_tmux: bool) -> String {
    let plain = format!("\x1b]52;c;{}\x07", STANDARD.encode(text));
    if is_in_tmux {
        let wrapped = plain.replace('\x1b', "\x1b\x1b");
        format!("{plain}\x1bPtmux;{wrapped}\x1b\\")
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_handed_over_as_base64_and_twice_to_tmux() {
        assert_eq!(sequence("0.5", false), "\x1b]52;c;MC41\x07");
        assert_eq!(
            sequence("0.5", true),
            "\x1b]52;c;MC41\x07\x1bPtmux;\x1b\x1b]52;c;MC41\x07\x1b\\"
        );
        // Nothing of a text reaches the terminal as it is.
        let hostile = sequence("\x1b]0;title\x07", false);
        assert_eq!(hostile.matches('\x1b').count(), 1);
        assert!(sequence(&"x".repeat(MOST_BYTES), false).len() < 100_000);
    }

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        for (word, expected) in [
            ("runs/a-1.safetensors", "runs/a-1.safetensors"),
            ("L1H2 query 3 key 4", "'L1H2 query 3 key 4'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
            ("$HOME", "'$HOME'"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }

    #[test]
    fn numbers_have_the_digits_that_read_back() {
        assert_eq!(digits(f64::from(0.1f32)), "0.1");
        assert_eq!(digits(0.1), "0.1");
        assert_eq!(digits(f64::NAN), "NaN");
    }
}
