//! Text that can be copied from a view, and how it reaches the terminal's clipboard: OSC 52, which also works over ssh.

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
use super::state::runs::SecondRunKind;
use super::state::scene::Scene;
use super::state::views::Axis;

/// Terminals accept sequences of about 100 000 bytes; base64 turns 3 bytes into 4.
pub const MOST_BYTES: usize = 74_000;

/// Everything that can be copied from the current view.
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

    /// Copies a text to the clipboard, or says why it cannot.
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

/// The selected value with all its digits.
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
    // An f32 value is shortest when it is printed as f32.
    let single = value as f32;
    if f64::from(single) == value || value.is_nan() {
        single.to_string()
    } else {
        value.to_string()
    }
}

/// A row as tab-separated lines: the keys of the selected query, or the statistics of the selected head.
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
        Panel::Prompts => {
            let head = app.head_over_prompts()?;
            let all = STATISTICS.iter().enumerate();
            let known = all.filter_map(|(idx, statistic)| {
                let figures = head.spread(idx).figures()?;
                let [p10, p50, p90] = [0, 4, 8].map(|nth| digits(figures.deciles[nth]));
                let (id, mean) = (statistic.id, digits(figures.mean));
                Some(format!("{id}\t{mean}\t{p10}\t{p50}\t{p90}"))
            });
            std::iter::once("statistic\tmean\tp10\tp50\tp90".to_owned())
                .chain(known)
                .collect()
        }
        Panel::Model | Panel::Story | Panel::Checks => return None,
        _ => {
            let head = app.layer()?.heads.get(app.selection.head_idx)?;
            let values = STATISTICS.iter().enumerate();
            let values = values.map(|(idx, statistic)| (statistic.id, head.stats.measured(idx)));
            let known = values.filter_map(|(id, value)| Some((id, value?)));
            let lines = known.map(|(id, value)| format!("{id}\t{}", digits(value)));
            std::iter::once("statistic\tvalue".to_owned())
                .chain(lines)
                .collect()
        }
    };
    Some(lines.join("\n") + "\n")
}

/// The selection in the syntax of `--at`.
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

/// The command line that draws the same view again.
fn command(app: Scene<'_>) -> Option<String> {
    let run = app.runs.a.as_ref()?;
    let target = app
        .target
        .as_ref()
        .filter(|_| !matches!(app.panel, Panel::History | Panel::Prompts))?;
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
        (
            "--numbers",
            app.panel == Panel::Overview && app.overview_view.shows_numbers,
        ),
    ];
    if matches!(app.panel, Panel::Overview | Panel::Compare) && !app.marks.is_empty() {
        let marked: Vec<String> = app.marks.places().iter().map(ToString::to_string).collect();
        words.extend(["--mark".to_owned(), marked.join(",")]);
    }
    let given = flags.iter().filter(|(_, is_given)| *is_given);
    words.extend(given.map(|(flag, _)| (*flag).to_owned()));
    if let Some(page) = app.story.as_ref().filter(|_| app.panel == Panel::Story) {
        words.extend(["--page".to_owned(), (page.page_idx + 1).to_string()]);
    }
    if run.origin == attnscope_worker::PromptOrigin::Asked {
        words.extend(match &run.source {
            Source::Text(text) => ["--text".to_owned(), text.clone()],
            picture @ Source::Picture(_) => ["--image".to_owned(), as_text(picture)],
            values @ Source::Values(_) => ["--values".to_owned(), as_text(values)],
            ids @ Source::Ids(_) => ["--tokens".to_owned(), as_text(ids).replace(", ", ",")],
        });
    }
    if let Some(SecondRunKind::WhatIf(what_ifs)) = app.runs.b.as_ref().map(|b| &b.way) {
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

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Escape sequence that copies a text to the terminal's clipboard. Inside tmux it is sent twice: plain for tmux's own clipboard
/// setting, and wrapped for its pass-through.
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
    fn a_text_is_sent_as_base64_and_inside_tmux_twice() {
        assert_eq!(sequence("0.5", false), "\x1b]52;c;MC41\x07");
        assert_eq!(
            sequence("0.5", true),
            "\x1b]52;c;MC41\x07\x1bPtmux;\x1b\x1b]52;c;MC41\x07\x1b\\"
        );
        // No byte of the text reaches the terminal unencoded.
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
    fn numbers_are_written_with_the_digits_that_read_back_exactly() {
        assert_eq!(digits(f64::from(0.1f32)), "0.1");
        assert_eq!(digits(0.1), "0.1");
        assert_eq!(digits(f64::NAN), "NaN");
    }
}
