//! What clicks, drags and the wheel do.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::app::{App, Overlay};
use super::areas::areas;
use super::panel::Panel;
use super::panels;
use super::view;

impl App {
    pub(super) fn mouse(&mut self, mouse: MouseEvent) {
        let areas = areas(self.size);
        let at = (mouse.column, mouse.row);
        match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) if self.overlay.is_some() => {
                self.overlay = None
            }
            MouseEventKind::Down(MouseButton::Left) => {
                if let Some(panel) = view::tab_at(self.scene(), areas.tabs, at) {
                    self.go(panel);
                } else {
                    panels::click(self, areas.body, at);
                }
            }
            MouseEventKind::Drag(MouseButton::Left) if self.overlay.is_none() => {
                panels::click(self, areas.body, at)
            }
            MouseEventKind::ScrollUp => self.wheel(-1),
            MouseEventKind::ScrollDown => self.wheel(1),
            _ => {}
        }
    }

    fn wheel(&mut self, down: isize) {
        match &mut self.overlay {
            Some(Overlay::Help { scroll } | Overlay::Page { scroll, .. }) => {
                *scroll = scroll.saturating_add_signed(down * 3);
            }
            Some(_) => {}
            None if self.panel == Panel::Head => self.zoom(if down < 0 { 1 } else { -1 }),
            None => self.step(0, down),
        }
    }
}
