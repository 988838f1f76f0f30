//! The list of what-ifs, and where the chosen one applies.

use attnscope_checkpoint::counted::counted;
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
/// Rows of what-ifs that were made.
const MOST_LISTED: usize = 6;
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
    let n_listed = chooser.listed.len().min(MOST_LISTED) as u16;
    let parts = [
        rows[0],
        Constraint::Length(n_listed),
        rows[1],
        Constraint::Min(0),
    ];
    let [reach, listed, typed, rest] = Layout::vertical(parts).areas(inside);
    let [list, below] = Layout::vertical([Constraint::Min(0), Constraint::Length(2)]).areas(rest);
    frame.render_widget(reach_line(app, chooser), reach);
    draw_listed(frame, listed, app, chooser);
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
            if idx == chooser.cursor && chooser.at_listed.is_none() {
                Line::styled(format!("{words}{about}"), theme.selected())
            } else {
                Line::from(vec![Span::raw(words), Span::styled(about, theme.dim())])
            }
        })
        .collect();
    let none = Line::styled(" Enter runs what is typed", theme.dim());
    let lines = if lines.is_empty() { vec![none] } else { lines };
    frame.render_widget(Paragraph::new(lines), list);
    let width = below.width as usize;
    let first = match (&chooser.problem, chooser.listed.is_empty()) {
        (Some(problem), _) => Line::styled(cut(&format!(" {problem}"), width), theme.notable()),
        (None, false) => {
            let said = " ↑ to those made: Space switches one on or off, Del removes it";
            Line::raw(cut(said, width))
        }
        (None, true) => Line::default(),
    };
    let keys = " ↑↓ choose   Tab where   Enter run   Esc close";
    let keys = Line::styled(cut(keys, width), theme.dim());
    frame.render_widget(Paragraph::new(vec![first, keys]), below);
}

/// Draws the what-ifs that were made, each with whether B runs with it.
fn draw_listed(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, chooser: &Chooser) {
    let theme = &app.theme;
    let n_rows = area.height as usize;
    let at = chooser.at_listed.unwrap_or(chooser.listed.len());
    let first = (at + 1)
        .saturating_sub(n_rows)
        .min(chooser.listed.len().saturating_sub(n_rows));
    let all = chooser.listed.iter().enumerate();
    let lines = all.skip(first).take(n_rows).map(|(nth, supposed)| {
        let (mark, is) = if supposed.is_on {
            ("●", "on")
        } else {
            ("○", "off")
        };
        let room = (area.width as usize).saturating_sub(10);
        let words = fit(&supposed.what_if.to_string(), room);
        let text = format!(" {mark} {words} {is:>4} ");
        let style = match (chooser.at_listed == Some(nth), supposed.is_on) {
            (true, _) => theme.selected(),
            (false, true) => theme.notable(),
            (false, false) => theme.dim(),
        };
        Line::styled(text, style)
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

fn reach_line(app: Scene<'_>, chooser: &Chooser) -> Line<'static> {
    let theme = &app.theme;
    let mut spans = vec![Span::styled(" where: ", theme.dim())];
    for reach in chooser.reaches() {
        let places = chooser.places(reach);
        let text = match (reach, places.first()) {
            (Reach::Marked, _) => format!(" {} ", counted(places.len(), "marked head")),
            (_, Some(place)) => format!(" {place} "),
            (_, None) => " everywhere ".to_owned(),
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
