//! The strip of runs: those of the session, in one line, with the two on screen marked.

use attnscope_checks::Severity;
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::figure::cut;
use crate::state::keys::Action;
use crate::state::scene::Scene;
use crate::state::seen::Seen;

/// Characters of a text, and of what sets a run apart from its text.
const TEXT: usize = 18;
const APART: usize = 24;

/// Between two runs.
const GAP: &str = "   ";

/// Draws the strip.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let theme = &app.theme;
    let (parts, [is_cut_before, is_cut]) = parts(app, area.width);
    let lead = if is_cut_before { LEAD_CUT } else { LEAD };
    let mut spans = vec![Span::styled(lead, theme.dim())];
    for (nth, (run, _)) in parts.iter().enumerate() {
        if nth > 0 {
            spans.push(Span::raw(GAP));
        }
        spans.extend(run.clone());
    }
    if is_cut {
        spans.push(Span::styled(" …", theme.dim()));
    }
    let keys = keys(app);
    let used: usize = spans.iter().map(Span::width).sum();
    let room = (area.width as usize).saturating_sub(used + 1);
    if let Some(gap) = room
        .checked_sub(keys.chars().count())
        .filter(|gap| *gap > 1)
    {
        spans.push(Span::raw(" ".repeat(gap)));
        spans.push(Span::styled(keys, theme.dim()));
    }
    frame.render_widget(Line::from(spans), area);
}

const LEAD: &str = " runs   ";
/// The same before runs that do not fit; both are as wide.
const LEAD_CUT: &str = " runs … ";

/// The keys that choose runs.
fn keys(app: Scene<'_>) -> String {
    let [a, b, list] =
        [Action::NextRunA, Action::NextRunB, Action::Runs].map(|action| app.keys.key(action));
    format!("{a} next as A · {b} as B · {list} lists")
}

/// The index of the run at a position of the strip.
pub fn run_at(app: Scene<'_>, area: Rect, (column, row): (u16, u16)) -> Option<usize> {
    if !area.contains(Position::new(column, row)) {
        return None;
    }
    let mut start = area.x as usize + LEAD.chars().count();
    let (parts, _) = parts(app, area.width);
    parts.into_iter().find_map(|(spans, nth)| {
        let end = start + spans.iter().map(Span::width).sum::<usize>();
        let is_hit = (start..end).contains(&(column as usize));
        start = end + GAP.len();
        is_hit.then_some(nth)
    })
}

/// The spans of a run, and its index.
type Part = (Vec<Span<'static>>, usize);

/// The runs that fit, around the one shown as A; and whether some before and after them do not fit.
fn parts(app: Scene<'_>, width: u16) -> (Vec<Part>, [bool; 2]) {
    let seen = &app.runs.seen;
    let texts: Vec<Vec<Span<'static>>> = (0..seen.len())
        .map(|nth| run_spans(app, nth, &seen[nth]))
        .collect();
    let widths = texts
        .iter()
        .map(|spans| spans.iter().map(Span::width).sum::<usize>() + GAP.len());
    let widths: Vec<usize> = widths.collect();
    let room = (width as usize).saturating_sub(LEAD.len() + 3);
    let a = app.runs.a.as_ref().map(|run| run.id);
    let here = seen.iter().position(|seen| Some(seen.id) == a).unwrap_or(0);
    // Further runs on both sides, so long as they fit.
    let (mut first, mut end) = (here, (here + 1).min(seen.len()));
    let mut used: usize = widths.get(here).copied().unwrap_or(0);
    loop {
        let mut grown = false;
        if first > 0 && used + widths[first - 1] <= room {
            first -= 1;
            used += widths[first];
            grown = true;
        }
        if end < seen.len() && used + widths[end] <= room {
            used += widths[end];
            end += 1;
            grown = true;
        }
        if !grown {
            break;
        }
    }
    let are_cut = [first > 0, end < seen.len()];
    let shown = texts.into_iter().zip(0..).skip(first).take(end - first);
    (shown.collect(), are_cut)
}

/// One run: its side if it is on screen, its number, its text or what sets it apart, its loss and the mark of its findings.
fn run_spans(app: Scene<'_>, nth: usize, seen: &Seen) -> Vec<Span<'static>> {
    let theme = &app.theme;
    let is_of = |id: Option<u64>| id == Some(seen.id);
    let side = if is_of(app.runs.a.as_ref().map(|run| run.id)) {
        "A "
    } else if is_of(app.runs.second().map(|run| run.id)) {
        "B "
    } else {
        ""
    };
    let is_shown = !side.is_empty();
    let style = if is_shown {
        Style::new().add_modifier(Modifier::BOLD)
    } else {
        Style::new()
    };
    let apart = cut(&app.apart(seen), APART);
    // Of runs of the text on screen, what sets them apart says more.
    let is_of_text = app.runs.a.as_ref().is_some_and(|a| a.source == seen.source);
    let name = match (apart.is_empty(), is_of_text) {
        (true, _) => format!("“{}”", app.text_of(seen, TEXT)),
        (false, true) => apart,
        (false, false) => format!("“{}” {apart}", app.text_of(seen, TEXT)),
    };
    let mut spans = vec![
        Span::styled(side, theme.accent().add_modifier(Modifier::BOLD)),
        Span::styled(format!("{} ", nth + 1), theme.dim()),
        Span::styled(name, style),
    ];
    if let Some(loss) = seen.loss {
        spans.push(Span::styled(format!(" {loss:.3}"), theme.dim()));
    }
    match seen.mark {
        Some(Severity::Error) => spans.push(Span::styled(" ✖", theme.bad())),
        Some(Severity::Warning) => spans.push(Span::styled(" !", theme.notable())),
        Some(Severity::Info) | None => {}
    }
    spans
}
