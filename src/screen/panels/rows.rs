//! Figures of every row of the selected head, and the questions that lead from a collapse to its cause.

use attnscope_checks::stats::{HeadReport, Stat};
use attnscope_compute::attention::{HeadSummary, RowSummary, SoftmaxAxis};
use attnscope_run::{Bearing, Question, questions, separates};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::figure::{bar, change, cut, figure, fit};
use crate::state::app::App;
use crate::state::filter::List;
use crate::state::scene::Scene;
use crate::state::views::Axis;
use crate::widgets::frame::{framed, selection_title, waiting};

/// Columns of a token, and of a figure.
const TOKEN: usize = 12;
const FIGURE: usize = 9;

const ENTROPY: &str = "entropy";

/// A column: its title, whether a narrow screen shows it, and its value.
type Column = (&'static str, bool, fn(&RowSummary, f32) -> f32);

/// The second argument is the mean norm of the head's keys.
const COLUMNS: [Column; 8] = [
    ("‖q‖", true, |row, _| row.q_norm),
    ("mean ‖k‖", false, |_, k_norm| k_norm),
    ("cosine", false, |row, _| row.cosine),
    ("‖scores‖", true, |row, _| row.score_norm),
    ("mean", false, |row, _| row.score_mean),
    ("std", true, |row, _| row.score_var.sqrt()),
    (ENTROPY, true, |row, _| row.entropy),
    ("largest", true, |row, _| row.top1),
];

/// The figures of a row, in the panel's columns.
pub fn figures(row: &RowSummary, k_norm: f32) -> impl Iterator<Item = (&'static str, f32)> + '_ {
    COLUMNS
        .iter()
        .map(move |(name, _, of)| (*name, of(row, k_norm)))
}

/// Whether rows of a head are distributions over keys: others have no entropy. A value that is not finite stays visible.
pub fn has_entropy(head: &HeadReport) -> bool {
    let mut real = head.summary.rows.iter().filter(|row| row.is_real);
    !head.stats.of(Stat::EffectiveKeys).is_nan() || real.any(|row| row.entropy.is_nan())
}

/// Whether each column is available. For a model all are, because a NaN must be visible.
pub fn known_columns(app: Scene<'_>, head: &HeadSummary) -> [bool; COLUMNS.len()] {
    let report = app
        .layer()
        .and_then(|layer| layer.heads.get(app.selection.head_idx));
    let has_entropy = report.is_none_or(has_entropy);
    let is_model = app
        .subject()
        .is_some_and(|subject| subject.model().is_some());
    let k_norm = mean_key_norm(head);
    COLUMNS.map(|(name, _, of)| {
        let mut real = head.rows.iter().filter(|row| row.is_real);
        (name != ENTROPY || has_entropy) && (is_model || real.any(|row| !of(row, k_norm).is_nan()))
    })
}

/// Whether each column is shown at a screen width.
fn shown_columns(app: Scene<'_>, head: &HeadSummary, width: usize) -> [bool; COLUMNS.len()] {
    let known = known_columns(app, head);
    let n_known = known.iter().filter(|is_known| **is_known).count();
    let is_wide = width >= 6 + 2 * TOKEN + 3 + n_known * FIGURE;
    std::array::from_fn(|nth| known[nth] && (is_wide || COLUMNS[nth].1))
}

/// Mean norm of the keys that are not padding.
pub fn mean_key_norm(head: &HeadSummary) -> f32 {
    let is_real = |idx: usize| head.real_keys.as_ref().is_none_or(|real| real[idx]);
    let norms = head.k_norms.iter().enumerate();
    let norms = norms
        .filter(|(idx, _)| is_real(*idx))
        .map(|(_, norm)| *norm);
    let (sum, n) = norms.fold((0.0, 0.0), |(sum, n), norm| (sum + norm, n + 1.0));
    sum / n
}

/// Rows that the table of queries has at least.
const LEAST_TABLE: u16 = 8;

/// Layout of the panel: the questions have the rows that their answers need, if the table keeps its own.
fn parts(app: Scene<'_>, area: Rect) -> [Rect; 2] {
    let width = area.width.saturating_sub(2) as usize;
    let answers = answers(&asked(app), width);
    let n_lines = answers.iter().map(Vec::len).sum::<usize>();
    let n_rows = u16::try_from(n_lines + 3).unwrap_or(u16::MAX);
    let n_rows = n_rows.min(area.height.saturating_sub(LEAST_TABLE)).max(7);
    let [mut above, mut below] =
        Layout::vertical([Constraint::Length(n_rows), Constraint::Min(0)]).areas(area);
    app.arrange(area, &mut [&mut below, &mut above]);
    [above, below]
}

/// The boxes of the panel, the list of rows first.
pub fn panes(app: Scene<'_>, area: Rect) -> Vec<Rect> {
    let [above, below] = parts(app, area);
    vec![below, above]
}

/// Columns of a question, and of how the answer bears on the collapse.
const ASKS: usize = 23;
const BEARING: usize = 15;

/// The lines of each answer.
fn answers(questions: &[Question], width: usize) -> Vec<Vec<String>> {
    let room = width.saturating_sub(ASKS + BEARING).max(1);
    let answers = questions.iter();
    answers
        .map(|question| crate::figure::wrapped(&question.answer, room))
        .collect()
}

/// The selected head's summary.
pub fn head(app: Scene<'_>) -> Option<&HeadSummary> {
    let head = app.layer()?.heads.get(app.selection.head_idx)?;
    Some(&head.summary)
}

/// The selected head's summary in A, when the screen shows a difference.
fn head_before(app: Scene<'_>) -> Option<&HeadSummary> {
    let both = app.both_layers(app.selection.stack, app.selection.layer_idx);
    let [before, _] = both.filter(|_| app.shows_difference())?;
    let head = before.heads.get(app.selection.head_idx)?;
    Some(&head.summary)
}

/// The questions about the selected head.
pub fn asked(app: Scene<'_>) -> Vec<Question> {
    let Some(layer) = app.layer() else {
        return Vec::new();
    };
    let is_delimiter = |key_idx| {
        let label = app.raw_token(Axis::Key, key_idx);
        !label.is_empty() && separates(label)
    };
    let head = layer.heads.get(app.selection.head_idx);
    head.map_or_else(Vec::new, |head| questions(layer, head, &is_delimiter))
}

/// Relative entropy from which a head is flat: larger scores would show whether it selects anything.
const FLAT: f64 = 0.9;

/// Suggests a what-if that answers what the panel shows: the other axis, the scale 1/√d if the current scale is larger, else
/// another temperature.
fn hint(app: Scene<'_>) -> &'static str {
    let spec = app.attention();
    let is_over_others = spec.is_some_and(|spec| spec.softmax_axis != SoftmaxAxis::Keys);
    let is_larger =
        spec.is_some_and(|spec| attnscope_checks::collapse::times_inv_sqrt_d(spec) > 1.0 + 1e-6);
    let report = app.layer().and_then(|layer| {
        let head = layer.heads.get(app.selection.head_idx)?;
        Some(attnscope_checks::collapse::relative_entropy(layer, head))
    });
    if is_over_others {
        " Try it: w softmax_axis=keys lets the softmax run over keys"
    } else if is_larger {
        " Try it: w scale=inv_sqrt_d divides scores by √d"
    } else if report.is_some_and(|entropy| entropy >= FLAT) {
        " Try it: w temperature=0.5 multiplies scores by 2"
    } else {
        " Try it: w temperature=2 divides scores by 2"
    }
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let [above, below] = parts(app, area);
    let Some(head) = head(app) else {
        let inside = framed(frame, area, app, selection_title(app, " · rows"));
        return waiting(frame, inside, app);
    };
    if !above.is_empty() {
        draw_questions(frame, above, app);
    }
    if !below.is_empty() {
        draw_rows(frame, below, app, head);
    }
}

fn draw_questions(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let title = selection_title(app, " · from a collapse to its cause");
    let inside = framed(frame, area, app, title);
    let width = inside.width as usize;
    let mut lines = Vec::new();
    let asked = asked(app);
    let all = answers(&asked, width);
    // One row is for the hint. If not all lines fit, each answer has one before any has two.
    let n_free = (inside.height as usize).saturating_sub(1);
    let mut n_lines = vec![1; all.len()];
    let mut n_left = n_free.saturating_sub(all.len());
    for most in 2..=all.iter().map(Vec::len).max().unwrap_or(1) {
        for (n, answer) in n_lines.iter_mut().zip(&all) {
            if n_left > 0 && answer.len() >= most && *n == most - 1 {
                *n = most;
                n_left -= 1;
            }
        }
    }
    for (nth, ((question, answer), most)) in asked.iter().zip(&all).zip(n_lines).enumerate() {
        let style = match question.bearing {
            Bearing::Cause => theme.bad(),
            Bearing::Innocent | Bearing::No | Bearing::ByDesign => theme.good(),
            Bearing::NotConclusive | Bearing::Yes => theme.notable(),
            Bearing::Unknown => theme.dim(),
        };
        let asks = fit(&format!(" {} {}", nth + 1, question.asks), ASKS);
        let bearing = fit(question.bearing.label(), BEARING);
        let room = width.saturating_sub(ASKS + BEARING);
        let mut heads = vec![
            Span::styled(asks, theme.strong()),
            Span::styled(bearing, style),
        ];
        for (row, line) in answer.iter().take(most).enumerate() {
            let is_cut = row + 1 == most && answer.len() > most;
            let line = if is_cut {
                cut(&answer[row..].join(" "), room)
            } else {
                line.clone()
            };
            if row > 0 {
                heads.push(Span::raw(" ".repeat(ASKS + BEARING)));
            }
            heads.push(Span::styled(line, theme.dim()));
            lines.push(Line::from(std::mem::take(&mut heads)));
        }
    }
    lines.truncate(n_free);
    if app.accepts_what_ifs() {
        lines.push(Line::styled(cut(hint(app), width), theme.dim()));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Columns of a bar at most, and those from which it has a scale.
const MOST_BAR: usize = 80;
const LEAST_SCALE: usize = 12;

fn draw_rows(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, head: &HeadSummary) {
    let theme = &app.theme;
    let before = head_before(app);
    let what = if before.is_some() {
        "change of each query"
    } else {
        "one query per line"
    };
    let known = COLUMNS.iter().zip(known_columns(app, head));
    let has_entropy = known
        .into_iter()
        .any(|((name, ..), known)| known && *name == ENTROPY);
    let unit = if has_entropy {
        " · entropy in nats"
    } else {
        ""
    };
    let title = format!(" {what}{unit} {}", app.filter_note(List::Tokens));
    let inside = framed(frame, area, app, title);
    let width = inside.width as usize;
    let shown = shown_columns(app, head, width);
    let n_columns = shown.iter().filter(|shown| **shown).count();
    let used = 6 + TOKEN + n_columns * FIGURE + 2;
    let n_bar = width.saturating_sub(used + TOKEN + 2).min(MOST_BAR);
    let mut title = format!(" {:>4} {:<TOKEN$}", "", "query");
    for ((name, ..), _) in COLUMNS.iter().zip(shown).filter(|(_, shown)| *shown) {
        title.push_str(&format!("{name:>FIGURE$}"));
    }
    title.push_str(&format!("  {:<TOKEN$} ", "looks at"));
    // The bars repeat the largest weight, on a scale from 0 to 1.
    if n_bar >= LEAST_SCALE {
        title.push_str(&format!("{:<width$}1", "0 largest", width = n_bar - 1));
    }
    let mut lines = vec![Line::styled(cut(&title, width), theme.dim())];
    let n_shown = (inside.height as usize).saturating_sub(1);
    let (n, selected) = (head.rows.len(), app.selection.query_idx);
    let kept = app.visible(List::Tokens, n, selected, n_shown);
    if kept.is_empty() && !head.rows.is_empty() {
        lines.push(Line::styled(" no token matches", theme.dim()));
    }
    let k_norm = mean_key_norm(head);
    for query_idx in kept {
        let row = &head.rows[query_idx];
        let is_selected = query_idx == app.selection.query_idx;
        let style = if is_selected {
            theme.selected()
        } else {
            Style::new()
        };
        let token = fit(&app.token(Axis::Query, query_idx), TOKEN);
        let mut text = format!(" {query_idx:>4} {token}");
        if !row.is_real {
            // Padding, or the step after the end of a translation.
            text.push_str("  not counted");
            lines.push(Line::styled(cut(&text, width), theme.dim()));
            continue;
        }
        let then = before.and_then(|head| {
            let row = head.rows.get(app.counterpart(Axis::Query, query_idx)?)?;
            Some((row, mean_key_norm(head)))
        });
        let mut then = then.map(|(row, k_norm)| figures(row, k_norm));
        for ((_, now), is_shown) in figures(row, k_norm).zip(shown) {
            let then = then.as_mut().and_then(Iterator::next);
            let text_of = match then {
                None => figure(f64::from(now), FIGURE),
                Some((_, then)) => change(f64::from(then), f64::from(now), FIGURE),
            };
            text.push_str(if is_shown { &text_of } else { "" });
        }
        let key = fit(&app.token(Axis::Key, row.argmax as usize), TOKEN);
        text.push_str(&format!("  {key} "));
        let strip = bar(row.top1, n_bar);
        lines.push(Line::from(vec![
            Span::styled(cut(&text, width), style),
            Span::styled(strip, theme.accent()),
        ]));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// Selects the query under the pointer.
pub fn click(app: &mut App, area: Rect, (_, row): (u16, u16)) {
    let [_, below] = parts(app.scene(), area);
    let Some(n) = head(app.scene()).map(|head| head.rows.len()) else {
        return;
    };
    let n_shown = (below.height as usize).saturating_sub(3);
    let kept = app.visible(List::Tokens, n, app.selection.query_idx, n_shown);
    let Some(nth) = (row as usize).checked_sub(below.y as usize + 2) else {
        return;
    };
    if let Some(query_idx) = kept.get(nth) {
        app.selection.query_idx = *query_idx;
    }
}
