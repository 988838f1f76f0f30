//! The path of a logit through the layers; for measures without one, how far the logit lens is from the prediction.

use attnscope_report::chart::{Axis, Chart, Series};
use attnscope_worker::EffectShown;
use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::text::Line;

use super::effect::{label, side};
use crate::figure::{cut, wrapped};
use crate::state::scene::Scene;
use crate::widgets::chart::draw_chart;
use crate::widgets::frame::framed;

/// Draws the logit layer by layer; for measures without one, how far the lens is from the prediction.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: Scene<'_>, shown: &EffectShown) {
    let chart = path_chart(shown);
    let title = match (&chart, shown.path.is_empty(), shown.token) {
        (Some(_), true, _) | (None, _, _) => format!(" lens by layer{} ", side(app)),
        (Some(_), false, Some(id)) => {
            format!(" path of the logit of “{}”{} ", label(shown, id), side(app))
        }
        (Some(_), false, None) => format!(" path of the logit{} ", side(app)),
    };
    let title = cut(&title, (area.width as usize).saturating_sub(4));
    let mut inside = framed(frame, area, app, title);
    // Without values, the ranking has the note.
    let is_told = shown.heads.is_empty() && chart.is_some();
    let note = shown.note.iter();
    let note = note.filter(|_| shown.path.is_empty() && !is_told);
    for text in note {
        let lines = wrapped(text, (inside.width as usize).saturating_sub(2));
        let lines = lines.into_iter().map(|line| format!(" {line}"));
        for line in lines.take(inside.height as usize) {
            let line = Line::styled(line, app.theme.dim());
            frame.render_widget(
                line,
                Rect {
                    height: 1,
                    ..inside
                },
            );
            inside.y += 1;
            inside.height -= 1;
        }
    }
    if let Some(chart) = chart {
        // Text keeps a column away from the frame.
        let inside = inside.inner(Margin::new(1, 0));
        draw_chart(&chart, inside, frame.buffer_mut(), &app.theme);
    }
}

/// The chart of the logit layer by layer, or of the lens if the measure has no logit; `None` until there is one.
pub fn path_chart(shown: &EffectShown) -> Option<Chart> {
    let (title, name, values): (_, _, Vec<f64>) = if shown.path.is_empty() {
        let values = shown.lens.iter().map(|row| row.kl).collect();
        ("KL from the final prediction", "KL, nats", values)
    } else {
        ("sum of the shares so far", "logit", shown.path.clone())
    };
    if values.is_empty() {
        return None;
    }
    let points = values.into_iter().enumerate();
    let points = points.map(|(depth, value)| (depth as f64, value)).collect();
    Some(Chart {
        title: title.to_owned(),
        x: Axis::linear("layers").whole(),
        y: Axis::linear(name),
        series: vec![Series::line(name, points)],
        marks: Vec::new(),
    })
}
