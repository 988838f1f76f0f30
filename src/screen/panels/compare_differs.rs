//! Differences between A and B in execution order: the first hook that differs, layers, knobs and tensors.

use attnscope_compare::{Comparison, HookDifference, Side};
use attnscope_report::Difference;
use attnscope_spec::{Place, Stack};
use attnscope_worker::Against;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::figure::{cut, figure};
use crate::state::run::Run;
use crate::state::runs::{Comparing, SecondRunKind};
use crate::state::scene::Scene;
use crate::widgets::frame::framed;

/// Tensors and knobs named in a line.
const MOST_NAMED: usize = 24;

/// A part of a line, and whether it is within tolerance.
struct Link {
    text: String,
    is_same: bool,
}

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>) {
    let title = " what differs, in the order of execution ";
    let inside = framed(frame, area, app, cut(title, area.width as usize - 2));
    let width = inside.width as usize;
    let mut lines = match said(app) {
        Ok(comparison) => lines(app, comparison, inside),
        Err(said) => {
            let said = crate::figure::wrapped(&said, width.saturating_sub(2));
            let line = |said: String| Line::styled(format!(" {said}"), app.theme.dim());
            said.into_iter().map(line).collect()
        }
    };
    lines.truncate(inside.height as usize);
    frame.render_widget(Paragraph::new(lines), inside);
}

/// The comparison, or the reason that there is none yet, as a sentence.
fn said(app: Scene<'_>) -> Result<&Comparison, String> {
    let (Some(second), Some([a, b])) = (&app.state().runs.b, app.both_runs()) else {
        return Err(String::new());
    };
    if let SecondRunKind::Against(Against::Prompt(_)) = &second.way {
        let [aligned, _] = &second.aligned;
        let n = |run: &Run| run.prompt.tokens.len();
        return Err(format!(
            "One model on two prompts of {} and {} tokens, {} of them aligned. Hooks, knobs and tensors are not compared. \
             Heads compare by statistics; their maps are side by side.",
            n(a),
            n(b),
            aligned.n_paired()
        ));
    }
    match &second.comparing {
        Comparing::Done(comparison) => Ok(comparison),
        Comparing::Going(_) => {
            Err("Comparing tensors and every hook of both runs … c stops".to_owned())
        }
        Comparing::No if !app.awaits_comparison() => {
            Err("There are no hooks to compare: heads compare by statistics and maps.".to_owned())
        }
        Comparing::No => Err("The comparison starts when both runs end …".to_owned()),
        Comparing::Ended(reason) => Err(format!("Not compared: {reason}. Press e to run again.")),
    }
}

fn lines(app: Scene<'_>, comparison: &Comparison, inside: Rect) -> Vec<Line<'static>> {
    let theme = &app.theme;
    let width = inside.width as usize;
    let difference = Difference {
        a: "A",
        b: "B",
        comparison,
        notes: Vec::new(),
        refused: None,
    };
    let style = if comparison.is_same() {
        theme.good()
    } else {
        theme.notable()
    };
    let mut lines = Vec::new();
    let are_judged = comparison.floors.base.is_finite();
    let n_headline = if inside.height >= 8 { 2 } else { 1 };
    let room = width.saturating_sub(2);
    // Knobs and tensors are also listed below, so use the longest headline that fits.
    let all = difference.headlines().into_iter();
    let mut wrapped = all.map(|said| crate::figure::wrapped(&said, room));
    let fitting = wrapped.clone().find(|lines| lines.len() <= n_headline);
    for line in fitting.or_else(|| wrapped.next_back()).unwrap_or_default() {
        let line = cut(&format!(" {line}"), width);
        lines.push(Line::styled(line, style));
    }
    // A NaN or infinity may appear later than the first difference.
    let broken = comparison.nonfinite().filter(|hook| !hook.is_same);
    let is_told = comparison
        .first()
        .is_some_and(|first| first.nonfinite.is_some());
    if let Some(hook) = broken.filter(|_| !is_told) {
        let side = match hook.nonfinite {
            Some(Side::A) => "A",
            _ => "B",
        };
        let place = hook.stack.zip(hook.layer_idx);
        let place = place.map_or(String::new(), |(stack, layer_idx)| {
            format!(" of {}", Place::layer(stack, layer_idx))
        });
        let text = format!(
            " only {side} has a NaN or an infinity, from {}{place} on",
            hook.name()
        );
        lines.push(Line::styled(cut(&text, width), theme.bad()));
    }
    let n_left = (inside.height as usize)
        .saturating_sub(lines.len() + 2)
        .max(1);
    // Of runs that are the same, every difference is rounding.
    if !(comparison.is_same() && are_judged) {
        lines.extend(chain(app, comparison, width, n_left));
    }
    let are_models = app
        .both_runs()
        .is_some_and(|both| both.iter().all(|run| run.subject.model().is_some()));
    let said = knobs(comparison);
    // A trace has neither knobs nor tensors; list the knobs that its values imply.
    if are_models || !said.is_empty() {
        lines.push(named(app, "knobs ", said, width));
    }
    if are_models {
        lines.push(named(app, "tensors ", tensors(comparison), width));
    }
    let alone = isolated(comparison);
    if !alone.is_empty() {
        lines.push(named(app, "differ on A's input ", alone, width));
    }
    lines
}

/// Layers and hooks in execution order, on at most `n_lines` lines: every hook of the first layer that differs, and as many
/// layers before it as fit.
fn chain(
    app: Scene<'_>,
    comparison: &Comparison,
    width: usize,
    n_lines: usize,
) -> Vec<Line<'static>> {
    let first = comparison.first();
    let mut links: Vec<Link> = Vec::new();
    let mut at: Option<(Stack, usize)> = None;
    for hook in &comparison.hooks {
        let place = hook.stack.zip(hook.layer_idx);
        let is_first_layer = first.is_some_and(|first| first.stack.zip(first.layer_idx) == place);
        match place {
            Some((stack, layer_idx)) if !is_first_layer => {
                // One link for the whole layer.
                if at != place {
                    let of_layer = comparison
                        .hooks
                        .iter()
                        .filter(|hook| hook.stack.zip(hook.layer_idx) == place);
                    let worst = of_layer
                        .clone()
                        .map(|hook| hook.relative)
                        .fold(0.0, f64::max);
                    links.push(Link {
                        text: format!("{} {}", Place::layer(stack, layer_idx), figure(worst, 0)),
                        is_same: of_layer.clone().all(|hook| hook.is_same),
                    });
                }
            }
            _ => links.push(link(
                hook,
                first.is_some_and(|first| std::ptr::eq(first, hook)),
                at != place,
            )),
        }
        at = place;
    }
    // Keep the first difference visible: if not everything before it fits, start the chain later.
    let first_idx = links.iter().position(|link| !link.is_same).unwrap_or(0);
    let all = lines_of(app, &links, width, n_lines);
    match all {
        (lines, n_shown) if n_shown > first_idx => lines,
        _ => {
            links.drain(..first_idx.saturating_sub(1));
            if let Some(before) = links.first_mut() {
                before.text = format!("… {}", before.text);
            }
            lines_of(app, &links, width, n_lines).0
        }
    }
}

/// Wraps links into at most `n_lines` lines; also returns how many links fit.
fn lines_of(
    app: Scene<'_>,
    links: &[Link],
    width: usize,
    n_lines: usize,
) -> (Vec<Line<'static>>, usize) {
    let theme = &app.theme;
    let mut lines: Vec<Line<'static>> = vec![Line::raw(" ")];
    for (n_shown, link) in links.iter().enumerate() {
        let mark = if link.is_same { "✓" } else { "✖" };
        let text = format!("{} {mark}", link.text);
        let style = if link.is_same {
            theme.dim()
        } else {
            theme.notable()
        };
        let n_used = lines.last().map_or(0, Line::width);
        if n_used + text.chars().count() + 3 > width {
            if lines.len() == n_lines {
                return (lines, n_shown);
            }
            lines.push(Line::raw(" "));
        }
        let Some(line) = lines.last_mut() else { break };
        if line.width() > 1 {
            line.push_span(Span::styled(" · ", theme.dim()));
        }
        line.push_span(Span::styled(text, style));
    }
    (lines, links.len())
}

fn link(hook: &HookDifference, is_first: bool, begins: bool) -> Link {
    let place = match (hook.stack, hook.layer_idx) {
        (Some(stack), Some(layer_idx)) if begins => format!("{}: ", Place::layer(stack, layer_idx)),
        _ => String::new(),
    };
    let head = hook
        .head_idx
        .filter(|_| is_first)
        .map_or(String::new(), |head_idx| format!(" head {head_idx}"));
    let first = if is_first { " first" } else { "" };
    Link {
        text: format!(
            "{place}{} {}{head}{first}",
            hook.name(),
            figure(hook.relative, 0)
        ),
        is_same: hook.is_same,
    }
}

/// Knobs that differ, as text.
pub fn knobs(comparison: &Comparison) -> Vec<String> {
    comparison.knobs.iter().map(ToString::to_string).collect()
}

/// Names of tensors that differ or that one side lacks.
pub fn tensors(comparison: &Comparison) -> Vec<String> {
    let weights = &comparison.weights;
    let differ = weights.differ.iter().map(|tensor| {
        let relation = tensor
            .relation
            .map_or(String::new(), |found| format!(" {}", found.label()));
        format!("{}{relation} {}", tensor.name, figure(tensor.relative, 0))
    });
    let of_a = weights
        .only_a
        .iter()
        .map(|name| format!("{name} only in A"));
    let of_b = weights
        .only_b
        .iter()
        .map(|name| format!("{name} only in B"));
    differ.chain(of_a).chain(of_b).collect()
}

fn isolated(comparison: &Comparison) -> Vec<String> {
    let layers = comparison.isolated.iter();
    layers
        .map(|layer| {
            format!(
                "{} {}",
                Place::layer(layer.stack, layer.layer_idx),
                figure(layer.relative, 0)
            )
        })
        .collect()
}

fn named(app: Scene<'_>, what: &str, found: Vec<String>, width: usize) -> Line<'static> {
    let n = found.len();
    if n == 0 {
        let none = match what.trim() {
            "knobs" => "every knob is the same",
            _ => "every tensor is the same",
        };
        return Line::styled(format!(" {none}"), app.theme.dim());
    }
    let count = if n > 1 {
        format!("{what}({n}) ")
    } else {
        what.to_owned()
    };
    let text: Vec<String> = found.into_iter().take(MOST_NAMED).collect();
    let room = width.saturating_sub(count.chars().count() + 2);
    Line::from(vec![
        Span::styled(format!(" {count}"), app.theme.dim()),
        Span::styled(cut(&text.join(" · "), room), app.theme.accent()),
    ])
}
