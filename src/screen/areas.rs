//! Layout of a frame, and the smallest terminal it fits.

use ratatui::layout::{Constraint, Layout, Rect};

/// The smallest terminal that shows all panes of a panel.
pub const SMALLEST: (u16, u16) = (80, 24);

/// The smallest terminal that shows one pane at a time.
pub const LEAST: (u16, u16) = (48, 16);

/// Whether a terminal of this size is large enough to show at least one pane.
pub fn has_room((width, height): (u16, u16)) -> bool {
    width >= LEAST.0 && height >= LEAST.1
}

/// Whether a terminal of this size is large enough to show all panes.
pub fn has_room_for_all((width, height): (u16, u16)) -> bool {
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
