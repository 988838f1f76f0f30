//! The scale of a heat map: colours or glyphs between two numbers, and what its ends mean.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::tui::theme::Theme;

/// `0.0 ▁▁▁▁ 1.0` with the colours between.
pub fn legend(theme: &Theme, low: &str, high: &str, width: usize) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{low} "), theme.dim())];
    for i in 0..width {
        let share = i as f32 / (width.max(2) - 1) as f32;
        spans.push(swatch(theme, share));
    }
    spans.push(Span::styled(format!(" {high}"), theme.dim()));
    Line::from(spans)
}

/// One cell of a share: a colour, or a glyph where there is none.
pub fn swatch(theme: &Theme, share: f32) -> Span<'static> {
    if theme.has_colour() {
        Span::styled(" ", Style::new().bg(theme.heat(share)))
    } else {
        Span::raw(theme.glyph(share).to_string())
    }
}
