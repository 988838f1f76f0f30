//! Layout of a frame, and the smallest terminal it fits.

use ratatui::layout::{Constraint, Layout, Rect};

/// The smallest terminal that shows everything.
pub const SMALLEST: (u16, u16) = (80, 24);

/// Whether a terminal of this size is large enough to show more than the bare minimum.
pub fn has_room((width, height): (u16, u16)) -> bool {
    width >= SMALLEST.0 && height >= SMALLEST.1
}

/// Rectangles of the parts of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Areas {
    pub header: Rect,
    pub tabs: Rect,
    pub body: Rect,
    pub footer: Rect,
}

/// Divides a frame of a given size into its parts.
pub fn areas((width, height): (u16, u16)) -> Areas {
    let rows = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ];
    let [header, tabs, body, footer] = Layout::vertical(rows).areas(Rect::new(0, 0, width, height));
    Areas {
        header,
        tabs,
        body,
        footer,
    }
}
