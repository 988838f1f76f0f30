//! The list of what-ifs, and where the chosen one applies.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::frame::clear_box;
use crate::figure::{cut, fit};
use crate::state::chooser::{Chooser, Reach};
use crate::state::scene::Scene;

const WIDTH: u16 = 84;
const HEIGHT: u16 = 28;
/// Columns of a choice's name.
const WORDS: usize = 24;

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, chooser: &Chooser) {
    let theme = &app.theme;
    let place = area.centered(
        Constraint::Length(WIDTH.min(area.width)),
        Constraint::Length(HEIGHT.min(area.height)),
    );
    let title = " what if · type to narrow, or KEY=VALUE[@PLACE,…] ";
    let inside = clear_box(frame, place, app, title);
    let rows = [1, 1, 1].map(Constraint::Length);
    let [reach, typed, rest] =
        Layout::vertical([rows[0], rows[1], Constraint::Min(0)]).areas(inside);
    let [list, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(2)]).areas(rest);
    frame.render_widget(reach_line(app, chooser), reach);
    let cursor = Line::from(vec![
        Span::styled(" › ", theme.accent()),
        Span::raw(chooser.typed.clone()),
        Span::styled(" ", theme.selected()),
    ]);
    frame.render_widget(cursor, typed);
    let shown = chooser.shown();
    let n_rows = list.height as usize;
    let first = chooser.cursor.saturating_sub(n_rows.saturating_sub(1));
    let lines: Vec<Line<'static>> = shown
        .iter()
        .enumerate()
        .skip(first)
        .take(n_rows)
        .map(|(idx, (words, about))| {
            let room = (list.width as usize).saturating_sub(WORDS + 2);
            let words = format!(" {} ", fit(words, WORDS));
            let about = fit(about, room);
            if idx == chooser.cursor {
                Line::styled(format!("{words}{about}"), theme.selected())
            } else {
                Line::from(vec![Span::raw(words), Span::styled(about, theme.dim())])
            }
        })
        .collect();
    let none = Line::styled(" Enter supposes what is typed", theme.dim());
    let lines = if lines.is_empty() { vec![none] } else { lines };
    frame.render_widget(Paragraph::new(lines), list);
    let width = below.width as usize;
    let first = match (&chooser.problem, &app.runs.b) {
        (Some(problem), _) => Line::styled(cut(&format!(" {problem}"), width), theme.notable()),
        (None, Some(second)) => Line::raw(cut(
            &format!(" now: {} · Del takes the last one back", second.way.words()),
            width,
        )),
        (None, None) => Line::default(),
    };
    let keys = " ↑↓ choose   Tab where   Enter suppose   Esc close";
    let keys = Line::styled(cut(keys, width), theme.dim());
    frame.render_widget(Paragraph::new(vec![first, keys]), below);
}

fn reach_line(app: Scene<'_>, chooser: &Chooser) -> Line<'static> {
    let theme = &app.theme;
    let mut spans = vec![Span::styled(" where: ", theme.dim())];
    for reach in [Reach::Everywhere, Reach::Layer, Reach::Head] {
        let text = match chooser.place(reach) {
            None => " everywhere ".to_owned(),
            Some(place) => format!(" {place} "),
        };
        let style = if reach == chooser.reach {
            theme.selected()
        } else {
            theme.dim()
        };
        spans.push(Span::styled(text, style));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}
