//! The legend of a heat map: colours or glyphs between two numbers, and the meaning of its ends.

use attnscope_terminal::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// `0.0 ▁▁▁▁ 1.0` with the colours in between; all of them if the map has few.
pub fn legend(theme: &Theme, low: &str, high: &str, width: usize) -> Line<'static> {
    let mut spans = vec![Span::styled(format!("{low} "), theme.dim())];
    match theme.n_steps() {
        Some(n) => spans.extend(every_step(theme, n, width)),
        None => spans.extend((0..width).map(|i| {
            let share = i as f32 / (width.max(2) - 1) as f32;
            swatch(theme, share)
        })),
    }
    spans.push(Span::styled(format!(" {high}"), theme.dim()));
    Line::from(spans)
}

/// Swatches of a legend that stands on a frame.
const ON_FRAME: usize = 8;

/// Draws the legend of a range on a frame, for contents that leave it no row: right of the title, or on the lower border if
/// the title takes the room.
pub fn legend_on_frame(
    buf: &mut Buffer,
    frame: Rect,
    theme: &Theme,
    title_width: usize,
    (low, high): (&str, &str),
) {
    let line = legend(theme, &format!(" {low}"), &format!("{high} "), ON_FRAME);
    let (width, room) = (line.width(), usize::from(frame.width));
    let y = if title_width + width + 4 <= room {
        frame.y
    } else if width + 2 <= room {
        frame.bottom().saturating_sub(1)
    } else {
        return;
    };
    // A column of the border stays between the legend and the corner if there is room.
    let x = frame.x + (room - width).saturating_sub(2).max(1) as u16;
    buf.set_line(x, y, &line, width as u16);
}

/// Each of `n` colours once, in equal parts of the width; two per cell if there are fewer cells than colours.
fn every_step(theme: &Theme, n: usize, width: usize) -> Vec<Span<'static>> {
    let colour = |half: usize, n_halves: usize| {
        let step = (half * n / n_halves.max(1)).min(n - 1);
        theme.heat((step as f32 + 0.5) / n as f32)
    };
    // A narrower legend would omit colours.
    let width = width.max(n.div_ceil(2));
    (0..width)
        .map(|i| {
            let [left, right] = [0, 1].map(|half| colour(2 * i + half, 2 * width));
            let style = Style::new().bg(right);
            if left == right {
                Span::styled(" ", style)
            } else {
                Span::styled("▌", style.fg(left))
            }
        })
        .collect()
}

/// One cell of a share: a colour, or a glyph if there is no colour.
pub fn swatch(theme: &Theme, share: f32) -> Span<'static> {
    if theme.has_colour() {
        Span::styled(" ", Style::new().bg(theme.heat(share)))
    } else {
        Span::raw(theme.glyph(share).to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use attnscope_terminal::theme::{Depth, Ground, Look, Sequential};

    #[test]
    fn a_legend_shows_exactly_the_colours_that_cells_may_have() {
        for depth in [Depth::Indexed, Depth::Sixteen] {
            for (name, map) in Sequential::NAMES {
                let look = Look {
                    map,
                    ..Look::default()
                };
                let plain = Theme::with(Ground::Dark, depth, look);
                for theme in [plain.diverging(), plain] {
                    let cells = (0..=1000).map(|i| theme.heat(i as f32 / 1000.0));
                    let cells: BTreeSet<String> = cells.map(|c| c.to_string()).collect();
                    for width in [4, 6, 12, 16, 23] {
                        let line = legend(&theme, "0", "1", width);
                        let colours = line.spans.iter().filter(|span| span.style.bg.is_some());
                        let colours = colours.flat_map(|span| [span.style.fg, span.style.bg]);
                        let shown: BTreeSet<String> =
                            colours.flatten().map(|c| c.to_string()).collect();
                        assert_eq!(shown, cells, "{name} {depth:?} {width}");
                    }
                }
            }
        }
    }
}
