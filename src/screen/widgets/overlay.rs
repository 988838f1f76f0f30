//! Overlays in front of the panels: the page of a check, the finder, the text field.

use attnscope_checks::Check;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::frame::clear_box;
use crate::figure::{cut, fit, wrapped};
use crate::panels::checks;
use crate::state::copied::Copied;
use crate::state::find::Find;
use crate::state::scene::Scene;

/// A centred box, at most as large as the area.
pub(super) fn middle(area: Rect, width: u16, height: u16) -> Rect {
    area.centered(
        Constraint::Length(width.min(area.width)),
        Constraint::Length(height.min(area.height)),
    )
}

/// Draws the page of a check, below what is known of the selected findings.
pub fn page(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, check: &Check, scroll: usize) {
    const WIDTH: u16 = 100;
    let theme = &app.theme;
    let width = (WIDTH.min(area.width) as usize).saturating_sub(2).max(1);
    let mut lines = vec![Line::styled("Here", theme.title())];
    let here = checks::here(app).into_iter();
    lines.extend(here.map(|(label, text)| Line::raw(format!("{label}: {text}"))));
    lines.push(Line::default());
    for (nth, part) in paragraphs(&attnscope_checks::page(check))
        .into_iter()
        .skip(1)
        .enumerate()
    {
        if nth > 0 && part.starts_with("## ") {
            lines.push(Line::default());
        }
        match part.strip_prefix("## ") {
            Some(heading) => lines.push(Line::styled(heading.to_owned(), theme.title())),
            None => lines.extend(shown_part(part, width)),
        }
    }
    let n_rows: usize = lines
        .iter()
        .map(|line| line.width().div_ceil(width).max(1))
        .sum();
    let title = format!(" {} · ↑↓ scroll · any other key closes ", check.id);
    let inside = clear_box(frame, middle(area, WIDTH, n_rows as u16 + 2), app, title);
    let scroll = scroll.min(n_rows.saturating_sub(inside.height as usize));
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((scroll as u16, 0));
    frame.render_widget(text, inside);
}

/// Prefix of a comment in an example.
const COMMENT: &str = "    # ";

/// Wraps a part of a page into lines; each line of a wrapped example comment gets its own prefix.
fn shown_part(part: String, width: usize) -> Vec<Line<'static>> {
    match part.strip_prefix(COMMENT) {
        Some(comment) => wrapped(comment, width.saturating_sub(COMMENT.len()).max(1))
            .into_iter()
            .map(|line| Line::raw(format!("{COMMENT}{line}")))
            .collect(),
        None => vec![Line::raw(part)],
    }
}

/// The paragraphs of a page, each joined into one line to be wrapped to the box. Indented lines stay as they are.
fn paragraphs(page: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in page.lines() {
        let is_whole = line.starts_with('#') || line.starts_with("    ");
        match parts.last_mut() {
            // A comment that spans several lines.
            Some(part) if part.starts_with(COMMENT) && line.starts_with(COMMENT) => {
                part.push_str(&line[COMMENT.len() - 1..]);
            }
            Some(part) if goes_on && !is_whole && !line.is_empty() => {
                part.push(' ');
                part.push_str(line);
            }
            _ if line.is_empty() => {}
            _ => parts.push(line.to_owned()),
        }
        goes_on = !line.is_empty() && !is_whole;
    }
    parts
}

/// Draws the list of texts that can be copied, with their keys.
pub fn copying(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, offers: &[Copied]) {
    let theme = &app.theme;
    let height = offers.len() as u16 + 2;
    let title = " copy · Esc closes ";
    let inside = clear_box(frame, middle(area, 76, height), app, title);
    let lines = offers.iter().map(|copied| {
        let text = copied.text.trim_end();
        let n_lines = text.lines().count();
        let shown = match text.lines().next() {
            Some(first) if n_lines > 1 => format!("{n_lines} lines: {}", first.replace('\t', " ")),
            first => first.unwrap_or_default().to_owned(),
        };
        let room = (inside.width as usize).saturating_sub(14);
        Line::from(vec![
            Span::styled(format!(" {} ", copied.key), theme.accent()),
            Span::styled(format!("{:<10}", copied.what), theme.dim()),
            Span::raw(cut(&shown, room)),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}

/// Draws the finder: the query and its matches.
pub fn find(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, find: &Find) {
    let theme = &app.theme;
    let inside = clear_box(
        frame,
        middle(area, 70, 20),
        app,
        " find a head, a token or a tensor · Enter goes there · Esc closes ",
    );
    let [input, list] = Layout::vertical([Constraint::Length(2), Constraint::Min(0)]).areas(inside);
    let typed = Line::from(vec![
        Span::styled(" / ", theme.accent()),
        Span::raw(find.query.clone()),
        Span::styled(" ", theme.selected()),
    ]);
    frame.render_widget(typed, input);
    let n_rows = list.height as usize;
    let first = find.cursor.saturating_sub(n_rows.saturating_sub(1));
    let width = list.width as usize;
    let mut lines = Vec::new();
    for found_idx in first..(first + n_rows) {
        let Some(item) = find.item(found_idx) else {
            break;
        };
        let text = format!(
            " {} {:>7} ",
            fit(&item.label, width.saturating_sub(10)),
            item.kind
        );
        let style = if found_idx == find.cursor {
            theme.selected()
        } else {
            ratatui::style::Style::new()
        };
        lines.push(Line::styled(text, style));
    }
    if lines.is_empty() {
        lines.push(Line::styled(
            " nothing by that name: heads are written L3H7",
            theme.dim(),
        ));
    }
    frame.render_widget(Paragraph::new(lines), list);
}
