//! Frames of panels: the box, the selection as its title, and a text while there is nothing to draw.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use unicode_width::UnicodeWidthStr;

use crate::figure::{cut, cut_words, wrapped};
use crate::state::keys::Action;
use crate::state::panel::Panel;
use crate::state::run::{Preparing, RunState};
use crate::state::scene::Scene;

/// A box with a border and a title, over a cleared area.
pub fn clear_box<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    title: impl Into<Line<'a>>,
) -> Rect {
    frame.render_widget(Clear, area);
    framed(frame, area, app, title)
}

/// Draws a box with a border and a title; returns its inside.
pub fn framed<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    app: Scene<'_>,
    title: impl Into<Line<'a>>,
) -> Rect {
    // A title that does not fit between the corners ends after a whole word, with an ellipsis.
    let room = (area.width as usize).saturating_sub(2);
    let block = ratatui::widgets::Block::bordered()
        .border_style(app.theme.border())
        .title(cut_line(title.into(), room))
        .title_style(Style::new().patch(app.theme.title()));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    inside
}

/// Cuts a line to at most `width` columns, after a whole word and with an ellipsis if something is missing.
fn cut_line(line: Line<'_>, width: usize) -> Line<'_> {
    if line.width() <= width {
        return line;
    }
    let mut room = width;
    let mut spans = Vec::new();
    for span in line.spans {
        if room == 0 {
            break;
        }
        let text = cut_words(&span.content, room);
        let is_whole = text == span.content;
        room = room.saturating_sub(text.width());
        spans.push(Span::styled(text, span.style));
        if !is_whole {
            break;
        }
    }
    Line::from(spans)
}

/// The selection as a frame's title, worded the same in every panel.
pub fn selection_title(app: Scene<'_>, rest: &str) -> String {
    format!(" {}{rest} ", app.selection.head())
}

/// Draws a panel's text while there is nothing to draw yet.
pub fn waiting(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let layer_idx = app.selection.layer_idx;
    let lacks = app.training.as_ref().and_then(|view| view.lacks_weights());
    let text = match (app.subject(), app.run()) {
        (None, _) if app.preparing.is_none() && lacks.is_some() => lacks.unwrap_or_default(),
        (None, _) if app.training.is_some() && app.preparing.is_none() => {
            let (history, open) = (
                app.key_name_of(Panel::History),
                app.keys.key(Action::OpenStep),
            );
            format!("no step is open: choose one in {history} History and press {open}")
        }
        (None, _) => "opening the checkpoint …".to_owned(),
        (Some(_), None) if app.preparing.is_none() => {
            format!("nothing has run: press {}", app.keys.key(Action::Edit))
        }
        (Some(_), None) => match app.preparing {
            Some(Preparing::Target { n_written, n_most }) => {
                let stops = app.keys.key(Action::StopRun);
                format!(
                    "writing the target: {n_written} of at most {n_most} tokens … {stops} stops"
                )
            }
            _ => "reading the text …".to_owned(),
        },
        (_, Some(run)) => match &run.state {
            RunState::Ended(reason) | RunState::Broken(reason) => {
                let again = match &app.changed {
                    Some(_) => {
                        let key = app.keys.key(Action::ReadAgain);
                        format!("{key} to read the checkpoint again")
                    }
                    None => format!("{} to run again", app.keys.key(Action::Edit)),
                };
                format!("layer {layer_idx} did not run: {reason}. Press {again}.")
            }
            _ if app.layer().is_none() => {
                format!("layer {layer_idx} has not run yet …")
            }
            _ if run.failure_of(app.wanted_head()).is_some() => format!(
                "layer {layer_idx} head {} could not be computed: {}. Press {} to run again.",
                app.selection.head_idx,
                run.failure_of(app.wanted_head()).unwrap_or_default(),
                app.keys.key(Action::Edit)
            ),
            _ => format!(
                "computing layer {layer_idx} head {} …",
                app.selection.head_idx
            ),
        },
    };
    let width = (area.width as usize).saturating_sub(2).max(1);
    let lines = wrapped(&text, width).into_iter();
    let lines = lines.map(|line| Line::raw(format!(" {}", cut(&line, width))));
    let text = Paragraph::new(lines.collect::<Vec<_>>());
    frame.render_widget(text.style(app.theme.dim()), area);
}

/// Draws why there are no values.
pub fn draw_reason(frame: &mut Frame<'_>, inside: Rect, app: Scene<'_>, why: &str) {
    let width = usize::from(inside.width).saturating_sub(2).max(1);
    let lines = wrapped(why, width).into_iter();
    let lines = lines.map(|line| Line::styled(format!(" {line}"), app.theme.dim()));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inside);
}
