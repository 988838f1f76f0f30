//! The text field in front of the panels: the text, its tokens, and what the keys do.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::frame::clear_box;
use super::overlay::middle;
use crate::figure::{cut, cut_left, one_line};
use crate::state::editor::{Editor, Holds, Mode, Pieces};
use crate::state::scene::Scene;

/// Rows of the field, with its border.
const HEIGHT: u16 = 13;
const WIDTH: u16 = 110;

/// Draws the text field for the prompt.
pub fn text_field(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, editor: &Editor) {
    let inside = clear_box(
        frame,
        middle(area, area.width.saturating_sub(8).min(WIDTH), HEIGHT),
        app,
        title(editor),
    );
    let n_pieces = u16::from(editor.pieces.is_some());
    let heights = [
        Constraint::Min(0),
        Constraint::Length(n_pieces),
        Constraint::Length(1),
    ];
    let [field, pieces, note] = Layout::vertical(heights).areas(inside);
    frame.render_widget(&editor.area, field);
    if let Some(of) = &editor.pieces {
        frame.render_widget(pieces_line(app, of, pieces.width as usize), pieces);
    }
    frame.render_widget(note_line(app, editor, note.width as usize), note);
}

fn title(editor: &Editor) -> &'static str {
    let is_second = editor.is_for_second;
    match (&editor.mode, editor.holds) {
        (Mode::Opening(_), _) => {
            " a text from a file · Tab completes the path · Enter takes it · Esc goes back "
        }
        (Mode::Typing, Holds::Values) => " file of values · Enter runs it · Esc goes back ",
        (Mode::Typing, Holds::Picture) => " picture · Enter runs it · Esc goes back ",
        (Mode::Typing, Holds::Ids) if is_second => {
            " token ids of B · Enter runs them beside A · Esc goes back "
        }
        (Mode::Typing, Holds::Ids) => " token ids (no tokenizer) · Enter runs · Esc goes back ",
        (Mode::Typing, Holds::Text) if is_second => {
            " text of B · Enter runs it beside A · Esc goes back "
        }
        (Mode::Typing, Holds::Text) => {
            " text · Enter runs · Alt-Enter breaks the line · Esc goes back "
        }
    }
}

/// The tokens around the cursor, with bars between them, and how many there are.
fn pieces_line(app: Scene<'_>, pieces: &Pieces, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let n_text = pieces.tokens.len();
    let added = match pieces.n - n_text {
        0 => String::new(),
        n => format!(" + {n} special"),
    };
    if n_text == 0 {
        return Line::styled(format!("0 tokens{added}"), theme.dim());
    }
    let about = format!("  token {} of {n_text}{added}", pieces.at + 1);
    let room = width.saturating_sub(about.chars().count());
    let shown = |idx: usize| one_line(&pieces.tokens[idx].1);
    let columns = |idx: usize| Span::raw(shown(idx)).width() + 1;
    // As many tokens before the cursor's as after it, as far as there are.
    let (mut first, mut last) = (pieces.at, pieces.at);
    let mut used = columns(pieces.at);
    loop {
        let before = first
            .checked_sub(1)
            .filter(|idx| used + columns(*idx) <= room);
        if let Some(idx) = before {
            (first, used) = (idx, used + columns(idx));
        }
        let after = Some(last + 1).filter(|idx| *idx < n_text && used + columns(*idx) <= room);
        if let Some(idx) = after {
            (last, used) = (idx, used + columns(idx));
        }
        if before.is_none() && after.is_none() {
            break;
        }
    }
    let mut spans = Vec::new();
    for idx in first..=last {
        let style = if idx == pieces.at {
            theme.selected()
        } else {
            theme.dim()
        };
        spans.push(Span::styled(
            cut(&shown(idx), room.saturating_sub(1)),
            style,
        ));
        spans.push(Span::styled("│", theme.border()));
    }
    spans.push(Span::styled(about, theme.dim()));
    Line::from(spans)
}

/// What is wrong, what is looked for, or what more the keys do.
fn note_line(app: Scene<'_>, editor: &Editor, width: usize) -> Line<'static> {
    let theme = &app.theme;
    let asked = |label: &'static str, typed: &str| {
        let room = width.saturating_sub(label.len() + 1);
        vec![
            Span::styled(label, theme.accent()),
            Span::raw(cut_left(typed, room)),
            Span::styled(" ", theme.selected()),
        ]
    };
    let mut spans = match &editor.mode {
        Mode::Opening(field) => asked("file: ", &field.path),
        Mode::Typing => Vec::new(),
    };
    if let Some(problem) = &editor.problem {
        let used: usize = spans.iter().map(Span::width).sum();
        let gap = if spans.is_empty() { "" } else { "  " };
        let room = width.saturating_sub(used + gap.len());
        spans.push(Span::raw(gap));
        spans.push(Span::styled(cut(problem, room), theme.notable()));
    } else if spans.is_empty() {
        let earlier = if editor.past.is_empty() {
            ""
        } else {
            "↑ earlier texts · Ctrl-R searches them · "
        };
        let token = if editor.pieces.is_some() {
            " · Alt-← → by token"
        } else {
            ""
        };
        let keys = format!("{earlier}Ctrl-O file · Ctrl-G your editor{token}");
        spans.push(Span::styled(cut(&keys, width), theme.dim()));
    }
    Line::from(spans)
}
