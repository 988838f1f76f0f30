//! The first line of the screen when a training is open: its name, how far it is read, and its worst onset.

use attnscope_checks::Severity;
use attnscope_history::heading;
use ratatui::text::Span;

use crate::figure::fitting;
use crate::header::NARROW;
use crate::state::history_view::{HistoryView, Reading};
use crate::state::scene::Scene;

/// Left and right ends of the line; `None` where no training is open.
pub fn header(app: Scene<'_>, width: u16) -> Option<(Vec<Span<'static>>, Vec<Span<'static>>)> {
    let view = app.state().training.as_ref()?;
    let theme = &app.theme;
    let program = if width < NARROW { " " } else { " attnscope  " };
    let style = match view.reading {
        Reading::Over(Some(_)) => theme.bad(),
        Reading::Going => theme.accent(),
        _ => theme.dim(),
    };
    let shows_times = app.shows_times && width >= NARROW;
    let mut right = vec![Span::styled(state(view, shows_times), style)];
    // The worst severity, as counted in the box of onsets.
    let worst = view.counts().into_iter().next().unwrap_or_default();
    right.push(if view.n_begin(Severity::Error) > 0 {
        Span::styled(format!("  ✖ {worst} "), theme.bad())
    } else if view.n_begin(Severity::Warning) > 0 {
        Span::styled(format!("  ! {worst} "), theme.notable())
    } else {
        Span::raw(" ")
    });
    let taken: usize = right.iter().map(Span::width).sum();
    let room = (width as usize).saturating_sub(taken + program.len() + 1);
    let heading = heading(&view.history);
    let parts: Vec<&str> = heading.split(" · ").collect();
    let heading = match fitting(&parts, room) {
        // A name that does not fit is cut.
        none if none.is_empty() => heading,
        fitting => fitting,
    };
    let left = vec![
        Span::styled(program, theme.title()),
        Span::styled(heading, theme.strong()),
    ];
    Some((left, right))
}

/// Progress of reading as text.
pub fn state(view: &HistoryView, shows_times: bool) -> String {
    let n = view.history.records().len();
    let age = match view.age.filter(|_| shows_times) {
        None => String::new(),
        Some(0) => " · last just now".to_owned(),
        Some(seconds) if seconds < 120 => format!(" · last {seconds} s ago"),
        Some(seconds) => format!(" · last {} min ago", seconds / 60),
    };
    match &view.reading {
        Reading::Going if n == 0 => "waiting for the first step".to_owned(),
        Reading::Going => format!("reading {} of {n}", (n - view.n_waiting() + 1).min(n)),
        Reading::Watching => format!("watching{age}"),
        Reading::Over(None) => "recorded".to_owned(),
        Reading::Over(Some(why)) => format!("stopped: {why}"),
    }
}
