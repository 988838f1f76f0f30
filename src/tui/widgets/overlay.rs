//! What lies over the panels: help, the finder, the text field.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::frame::clear_box;
use crate::tui::editor::Editor;
use crate::tui::figure::{cut, fit, wrapped};
use crate::tui::find::Find;
use crate::tui::keys::{BINDINGS, Group};
use crate::tui::scene::Scene;
use attnscope_engine::checks::Check;

/// A box in the middle, as large as it may be.
fn middle(area: Rect, width: u16, height: u16) -> Rect {
    area.centered(
        Constraint::Length(width.min(area.width)),
        Constraint::Length(height.min(area.height)),
    )
}

/// The page of a check.
pub fn page(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, check: &Check, scroll: usize) {
    const WIDTH: u16 = 100;
    let theme = &app.theme;
    let width = (WIDTH.min(area.width) as usize).saturating_sub(2).max(1);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (nth, part) in paragraphs(&attnscope_engine::checks::page(check))
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

/// What a comment of an example begins with.
const COMMENT: &str = "    # ";

/// A part of a page as lines: a comment of an example is broken here, so that each of its lines is one.
fn shown_part(part: String, width: usize) -> Vec<Line<'static>> {
    match part.strip_prefix(COMMENT) {
        Some(comment) => wrapped(comment, width.saturating_sub(COMMENT.len()).max(1))
            .into_iter()
            .map(|line| Line::raw(format!("{COMMENT}{line}")))
            .collect(),
        None => vec![Line::raw(part)],
    }
}

/// The parts of a page, each on a line of its own: the width of the box breaks them, not that of the source. Indented lines stay.
fn paragraphs(page: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in page.lines() {
        let is_whole = line.starts_with('#') || line.starts_with("    ");
        match parts.last_mut() {
            // A comment goes on from line to line.
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

/// Every key, by group.
pub fn help(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, scroll: usize) {
    let theme = &app.theme;
    let mut lines = Vec::new();
    for group in Group::ALL {
        lines.push(Line::styled(group.title(), theme.title()));
        for binding in BINDINGS.iter().filter(|b| b.group == group) {
            let applies = binding.panels.is_empty() || binding.panels.contains(&app.panel);
            let reason = (binding.disabled)(&app).filter(|_| applies);
            let style = if reason.is_some() || !applies {
                theme.dim()
            } else {
                ratatui::style::Style::new()
            };
            let mut spans = vec![
                Span::styled(format!("  {:<10}", binding.shown), theme.accent()),
                Span::styled(binding.help, style),
            ];
            if let Some(reason) = reason {
                spans.push(Span::styled(format!("  ({reason})"), theme.dim()));
            }
            lines.push(Line::from(spans));
        }
        lines.push(Line::default());
    }
    lines.push(Line::styled(
        "The mouse works too: click tabs, heads, cells, tokens; the wheel moves and zooms.",
        theme.dim(),
    ));
    let inside = clear_box(
        frame,
        middle(area, 84, lines.len() as u16 + 2),
        app,
        " keys · ↑↓ scroll · any other key closes ",
    );
    let scroll = scroll.min(lines.len().saturating_sub(inside.height as usize));
    frame.render_widget(Paragraph::new(lines).scroll((scroll as u16, 0)), inside);
}

/// The finder: what is typed, and what fits it.
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

/// The field in which the prompt is edited.
pub fn edit(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, editor: &Editor) {
    let theme = &app.theme;
    let title = match (editor.is_beside, editor.edits_ids) {
        (false, true) => " token ids (no tokenizer) · Enter runs · Esc leaves it as it was ",
        (false, false) => {
            " text · Enter runs · Alt-Enter breaks the line · Esc leaves it as it was "
        }
        (true, true) => " token ids of B · Enter runs them beside A · Esc leaves it as it was ",
        (true, false) => " text of B · Enter runs it beside A · Esc leaves it as it was ",
    };
    let inside = clear_box(
        frame,
        middle(area, area.width.saturating_sub(8).min(110), 12),
        app,
        title,
    );
    let [field, note] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(inside);
    frame.render_widget(&editor.area, field);
    let said = match &editor.problem {
        Some(problem) => Line::styled(cut(problem, note.width as usize), theme.notable()),
        None if editor.past.is_empty() => Line::default(),
        None => Line::styled("↑ earlier texts", theme.dim()),
    };
    frame.render_widget(said, note);
}
