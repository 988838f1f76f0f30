//! Layout of a frame, and the smallest terminal it fits.

use ratatui::layout::{Constraint, Layout, Rect};

use super::footer::n_lines;
use super::state::app::App;

/// The smallest terminal that shows all panes of a panel.
pub const SMALLEST: (u16, u16) = (80, 24);

/// The smallest terminal that shows one pane at a time.
pub const LEAST: (u16, u16) = (48, 16);

/// Rows of a terminal from which a line for the runs takes nothing that is missed.
const ROWS_FOR_STRIP: u16 = 30;

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
    /// The strip of runs; empty where there is none.
    pub strip: Rect,
    pub footer: Rect,
}

impl App {
    /// Divides the screen into its parts.
    pub fn areas(&self) -> Areas {
        self.areas_of(self.size)
    }

    /// Divides a frame of a given size into its parts.
    pub fn areas_of(&self, (width, height): (u16, u16)) -> Areas {
        let has_strip = height >= ROWS_FOR_STRIP && self.has_runs_off_screen();
        let rows = [
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(u16::from(has_strip)),
            // A message of several lines takes rows of the panel, and covers nothing.
            Constraint::Length(n_lines(self.scene(), width)),
        ];
        let [header, tabs, body, strip, footer] =
            Layout::vertical(rows).areas(Rect::new(0, 0, width, height));
        Areas {
            header,
            tabs,
            body,
            strip,
            footer,
        }
    }
}
