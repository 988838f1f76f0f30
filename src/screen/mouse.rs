//! Mouse input: clicks, drags and the wheel.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::state::app::{App, Overlay};
use super::state::msg::Effect;
use super::state::panel::Panel;
use super::widgets::strip;
use super::{footer, header, panels, view};

impl App {
    pub(super) fn mouse(&mut self, mouse: MouseEvent, effects: &mut Vec<Effect>) {
        let areas = self.areas();
        let at = (mouse.column, mouse.row);
        self.pointer = match mouse.kind {
            MouseEventKind::Moved | MouseEventKind::Drag(_) | MouseEventKind::Down(_) => Some(at),
            _ => self.pointer,
        };
        match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) if self.overlay.is_some() => {
                self.overlay = None
            }
            MouseEventKind::Down(MouseButton::Left) => {
                if let Some(panel) = view::tab_at(self.scene(), areas.tabs, at) {
                    self.go(panel);
                } else if header::is_badge(self.scene(), areas.header, at) {
                    self.go(Panel::Checks);
                } else if let Some(nth) = strip::run_at(self.scene(), areas.strip, at) {
                    self.pointer = None;
                    self.choose_run(nth, false, effects);
                } else if let Some(action) = footer::action_at(self.scene(), areas.footer, at) {
                    self.pointer = None;
                    self.act_if_enabled(action, effects);
                } else {
                    // A click means that the message was read.
                    (self.notice, self.written) = (None, None);
                    let before = self.selection;
                    panels::click(self, areas.body, at);
                    // The second of two clicks opens the head, as Enter does.
                    if self.panel == Panel::Overview
                        && self.selection == before
                        && panels::overview::is_selected(self.scene(), areas.body, at)
                    {
                        self.go(Panel::Head);
                    }
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
            Some(Overlay::Help { scroll, .. } | Overlay::Page { scroll, .. }) => {
                *scroll = scroll.saturating_add_signed(down * 3);
            }
            Some(_) => {}
            None if self.panel == Panel::Head => self.zoom(if down < 0 { 1 } else { -1 }),
            None => self.step(0, down),
        }
    }
}
