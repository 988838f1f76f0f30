//! The selected head over the prompts: how two statistics spread, and the places that excite it most with their text.

use attnscope_checks::stats::STATISTICS;
use attnscope_studies::over_prompts::{Figures, HeadOver, Mark};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use unicode_width::UnicodeWidthStr;

use super::prompts::title;
use crate::figure::{cut, figure, fit, share, token_label};
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::widgets::frame::framed;

/// Most rows of the text below the list.
const MOST_TEXT: usize = 6;

pub fn draw_spreads(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let head = app.head_over_prompts();
    let n_prompts = app.over_prompts().map_or(0, |over| over.n_prompts);
    let kind = head.and_then(HeadOver::kind);
    let kind = kind.map_or(String::new(), |(kind, n)| {
        format!(" · {} on {n} of {n_prompts}", kind.title())
    });
    let name = format!(" {}{kind} ", app.selection.head());
    let inside = framed(frame, area, app, title(name, area));
    let Some(head) = head else {
        let text = " this layer has no head with attention";
        frame.render_widget(Line::styled(text, app.theme.dim()), inside);
        return;
    };
    let mut lines = Vec::new();
    for idx in app.scatter_axes() {
        lines.extend(spread_lines(app, head, idx, inside.width as usize));
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// One statistic of the head: its mean, a bar of its deciles, and its extremes with their prompts.
fn spread_lines(app: Scene<'_>, head: &HeadOver, idx: usize, width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let (statistic, spread) = (STATISTICS[idx], head.spread(idx));
    let name = match statistic.unit {
        "" => statistic.title.to_owned(),
        unit => format!("{} ({unit})", statistic.title),
    };
    let Some(figures) = spread.figures() else {
        let why = match spread.n_nonfinite {
            0 => "has no meaning on these prompts",
            _ => "is not finite on any prompt",
        };
        let text = cut(&format!(" {name} {why}"), width);
        return vec![
            Line::styled(text, theme.dim()),
            Line::default(),
            Line::default(),
        ];
    };
    let mut missing = String::new();
    if spread.n_absent > 0 {
        missing = format!(" · none on {}", spread.n_absent);
    }
    if spread.n_nonfinite > 0 {
        missing = format!("{missing} · not finite on {}", spread.n_nonfinite);
    }
    let mean = figure(figures.mean, 0);
    let heading = cut(&format!(" {name}: mean {mean}{missing}"), width);
    let [least, most] = [figures.least, figures.largest]
        .map(|(value, prompt_idx)| (figure(value, 0), app.prompt_id(prompt_idx)));
    let [p10, p50, p90] = [0, 4, 8].map(|nth| figure(figures.deciles[nth], 0));
    let shares = [
        format!(" 10 % {p10} · median {p50} · 90 % {p90}"),
        format!(" 10 % {p10} · 50 % {p50} · 90 % {p90}"),
    ];
    let ends = [
        format!(
            " least {} in {} · most {} in {}",
            least.0, least.1, most.0, most.1
        ),
        format!(" {} in {} … {} in {}", least.0, least.1, most.0, most.1),
    ];
    vec![
        Line::styled(heading, theme.strong()),
        Line::from(vec![
            Span::raw(" "),
            Span::styled(
                decile_bar(&figures, width.saturating_sub(2)),
                theme.accent(),
            ),
        ]),
        Line::styled(fitting(&shares, width), theme.dim()),
        Line::styled(fitting(&ends, width), theme.dim()),
    ]
}

/// The first of two wordings that fits, or else the second one cut.
fn fitting(wordings: &[String; 2], width: usize) -> String {
    let first = wordings.iter().find(|text| text.width() <= width);
    cut(first.unwrap_or(&wordings[1]), width)
}

/// A line from the smallest to the largest value: thick between the first and last decile, with a tick at each decile and a
/// block at the median.
fn decile_bar(figures: &Figures, width: usize) -> String {
    let ends = (figures.least.0, figures.largest.0);
    if width == 0 || ends.0 >= ends.1 {
        return "█".to_owned();
    }
    let at = |value: f64| (share(value, ends) * (width - 1) as f32).round() as usize;
    let columns = figures.deciles.map(at);
    let glyph = |column: usize| match column {
        _ if column == columns[4] => '█',
        _ if columns.contains(&column) => '╋',
        _ if (columns[0]..columns[8]).contains(&column) => '━',
        0 => '├',
        _ if column == width - 1 => '┤',
        _ => '─',
    };
    (0..width).map(glyph).collect()
}

/// Rows for the list and for the text below it.
fn divided(app: Scene<'_>, inside: Rect) -> (usize, usize) {
    let n_places = app.head_over_prompts().map_or(0, |head| head.excited.len());
    let height = inside.height as usize;
    let n_text = MOST_TEXT.min(height / 2);
    let n_list = n_places.min(height.saturating_sub(n_text));
    (n_list, height - n_list)
}

/// The first place in the list.
fn first_shown(app: Scene<'_>, n_list: usize) -> usize {
    let nth = app.selected_excited().map_or(0, |(nth, _)| nth);
    (nth + 1).saturating_sub(n_list)
}

pub fn draw_places(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let opens = app.keys.key(Action::OpenExcited);
    let names = [
        format!(" excites it most: p above an equal share · {opens} goes there "),
        format!(" excites it most · {opens} goes there "),
    ];
    let fits = |name: &&String| name.width() + 4 <= area.width as usize;
    let name = names.iter().find(fits).unwrap_or(&names[1]).clone();
    let inside = framed(frame, area, app, title(name, area));
    let (width, theme) = (inside.width as usize, &app.theme);
    let Some((nth, place)) = app.selected_excited() else {
        let text =
            " no query gives a key other than first, own and previous more than an equal share";
        let lines = crate::figure::wrapped(text.trim(), width.saturating_sub(2).max(1));
        let lines = lines
            .into_iter()
            .map(|line| Line::styled(format!(" {line}"), theme.dim()));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
        return;
    };
    let (n_list, n_text) = divided(app, inside);
    let first = first_shown(app, n_list);
    let places = app
        .head_over_prompts()
        .map_or(&[][..], |head| &head.excited);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (idx, one) in places.iter().enumerate().skip(first).take(n_list) {
        let [query, key] = [&one.words.query, &one.words.key].map(|text| token_label(text));
        let id = app.prompt_id(one.prompt_idx);
        let n_id = id.width().min(width / 4);
        let text = format!("{:.3} “{query}” → “{key}”", one.excess);
        let text = fit(&text, width.saturating_sub(n_id + 3));
        let style = if idx == nth {
            theme.selected()
        } else {
            Style::new()
        };
        lines.push(Line::from(vec![
            Span::styled(format!(" {text} "), style),
            Span::styled(cut(&id, n_id), theme.dim()),
        ]));
    }
    let at = format!(
        " query {} → key {} · p {:.4}",
        place.query_idx, place.key_idx, place.probability
    );
    let mut below = vec![Line::styled(cut(&at, width), theme.dim())];
    below.extend(context(app, &place.words.context, width));
    lines.extend(below.into_iter().take(n_text));
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The text around a place, wrapped; the query is underlined, the key reversed.
fn context(app: Scene<'_>, words: &[(Mark, String)], width: usize) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let style = |mark: Mark| match mark {
        Mark::Key => theme.notable().add_modifier(Modifier::REVERSED),
        Mark::Query => theme
            .accent()
            .add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
        Mark::Other => Style::new(),
        Mark::Gap => theme.dim(),
    };
    let mut lines = vec![Line::raw(" ")];
    // Tokens of whole words have no blanks of their own.
    let is_blank = |text: &String| {
        text.starts_with(char::is_whitespace) || text.ends_with(char::is_whitespace)
    };
    let has_blanks = words.iter().any(|(_, text)| is_blank(text));
    for (mark, text) in words {
        let last = lines.last_mut().filter(|line| line.width() > 1);
        if let Some(line) = last.filter(|_| !has_blanks) {
            line.push_span(Span::raw(" "));
        }
        let text = text.replace(['\n', '\r', '\t'], "⏎");
        let text = cut(&text, width.saturating_sub(2).max(1));
        let used = lines.last().map_or(0, Line::width);
        if used + text.width() + 1 > width && used > 1 {
            lines.push(Line::raw(" "));
        }
        if let Some(line) = lines.last_mut() {
            line.push_span(Span::styled(text, style(*mark)));
        }
    }
    lines
}

/// The place of the list at a cell of the panel's part.
pub fn place_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<usize> {
    let inside = ratatui::widgets::Block::bordered().inner(area);
    let (n_list, _) = divided(app, inside);
    let nth = (row.checked_sub(inside.y)?) as usize;
    let is_in_list = inside.contains(Position::new(column, row)) && nth < n_list;
    is_in_list.then(|| first_shown(app, n_list) + nth)
}
