//! The boxes that a panel consists of: which one has the focus, whether it fills the panel, and how far borders were moved.

use std::collections::{BTreeMap, BTreeSet};

use ratatui::layout::Rect;
use serde::{Deserialize, Serialize};

use super::app::App;
use super::panel::Panel;
use crate::areas::has_room_for_all;

/// A pane keeps at least these columns and rows when another one grows.
const NARROWEST: i32 = 18;
const LOWEST: i32 = 5;

/// How much larger a pane was made than the panel makes it by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    pub columns: i32,
    pub rows: i32,
}

/// Sizes of panes by the title of their panel and their number in it, as they are kept for the next session.
pub type Growths = BTreeMap<String, BTreeMap<usize, Growth>>;

/// Focus, zoom and sizes of the panes of all panels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Panes {
    /// The pane with the focus in each panel, once a key moved it there.
    focus: BTreeMap<Panel, usize>,
    /// Panels that this pane fills.
    zoomed: BTreeSet<Panel>,
    pub growths: Growths,
}

impl App {
    /// The pane of the open panel that has the focus; `None` until a key gives it to one.
    pub fn focused_pane(&self) -> Option<usize> {
        self.panes.focus.get(&self.panel).copied()
    }

    /// Gives the focus to another pane of the open panel, which has `n` of them.
    pub fn focus_next(&mut self, by: isize, n: usize) {
        let next = match self.focused_pane() {
            _ if n == 0 => return,
            Some(focus) => (focus as isize + by).rem_euclid(n as isize) as usize,
            // A zoomed pane is the first one until then.
            None if self.shows_one_pane() => by.rem_euclid(n as isize) as usize,
            None if by < 0 => n - 1,
            None => 0,
        };
        self.panes.focus.insert(self.panel, next);
    }

    /// Whether the pane with the focus was zoomed in the open panel.
    pub fn is_zoomed(&self) -> bool {
        self.panes.zoomed.contains(&self.panel)
    }

    /// Lets the pane with the focus fill the open panel, or shows all of its panes again.
    pub fn set_zoomed(&mut self, is_zoomed: bool) {
        if is_zoomed {
            self.panes.zoomed.insert(self.panel);
        } else {
            self.panes.zoomed.remove(&self.panel);
        }
    }

    /// Whether one pane fills the panel: because it was zoomed, or because the terminal is small.
    pub fn shows_one_pane(&self) -> bool {
        self.is_zoomed() || !has_room_for_all(self.size)
    }

    /// Makes the pane with the focus larger, or smaller; the first pane if none has it.
    pub fn grow_pane(&mut self, columns: i32, rows: i32) {
        let focus = *self.panes.focus.entry(self.panel).or_insert(0);
        let panel = self.panel.title().to_owned();
        let all = self.panes.growths.entry(panel).or_default();
        let growth = all.entry(focus).or_default();
        growth.columns = (growth.columns + columns).clamp(-400, 400);
        growth.rows = (growth.rows + rows).clamp(-200, 200);
    }

    /// Gives all panes of the open panel the sizes that they have by themselves.
    pub fn reset_panes(&mut self) {
        self.panes.growths.remove(self.panel.title());
    }

    /// Moves the borders between panes as they were moved by keys, and gives all room to the zoomed one.
    ///
    /// The panes lie side by side without gaps. Those that are not shown become empty.
    pub fn arrange(&self, area: Rect, panes: &mut [&mut Rect]) {
        if let Some(growths) = self.panes.growths.get(self.panel.title()) {
            for (nth, growth) in growths {
                widen(area, panes, *nth, growth.columns);
                heighten(area, panes, *nth, growth.rows);
            }
        }
        if self.shows_one_pane() {
            let last = panes.len().saturating_sub(1);
            let shown = self.focused_pane().unwrap_or(0).min(last);
            for (nth, pane) in panes.iter_mut().enumerate() {
                **pane = if nth == shown {
                    area
                } else {
                    Rect::new(area.x, area.y, 0, 0)
                };
            }
        }
    }
}

/// Begin and length of a rectangle along one axis.
type Side = (i32, i32);

fn widen(area: Rect, panes: &mut [&mut Rect], nth: usize, by: i32) {
    let side = |rect: &Rect| (i32::from(rect.x), i32::from(rect.width));
    let mut sides: Vec<Side> = panes.iter().map(|pane| side(pane)).collect();
    grow(side(&area), &mut sides, nth, by, NARROWEST);
    for (pane, (x, width)) in panes.iter_mut().zip(sides) {
        (pane.x, pane.width) = (x as u16, width as u16);
    }
}

fn heighten(area: Rect, panes: &mut [&mut Rect], nth: usize, by: i32) {
    let side = |rect: &Rect| (i32::from(rect.y), i32::from(rect.height));
    let mut sides: Vec<Side> = panes.iter().map(|pane| side(pane)).collect();
    grow(side(&area), &mut sides, nth, by, LOWEST);
    for (pane, (y, height)) in panes.iter_mut().zip(sides) {
        (pane.y, pane.height) = (y as u16, height as u16);
    }
}

/// Moves the border at the end of a pane, or the one at its beginning if it reaches to the end of the area.
fn grow(area: Side, sides: &mut [Side], nth: usize, by: i32, least: i32) {
    let Some((begin, length)) = sides.get(nth).copied().filter(|(_, length)| *length > 0) else {
        return;
    };
    let (border, by) = match begin + length {
        end if end < area.0 + area.1 => (end, by),
        _ if begin > area.0 => (begin, -by),
        _ => return,
    };
    let room = |side: &&Side| side.1 - least;
    let before = sides
        .iter()
        .filter(|side| side.1 > 0 && side.0 + side.1 == border);
    let after = sides.iter().filter(|side| side.1 > 0 && side.0 == border);
    let [back, forth] = [
        before.map(|side| room(&side)).min(),
        after.map(|side| room(&side)).min(),
    ]
    .map(|room| room.unwrap_or(0).max(0));
    let by = by.clamp(-back, forth);
    for side in sides.iter_mut().filter(|side| side.1 > 0) {
        if side.0 + side.1 == border {
            side.1 += by;
        } else if side.0 == border {
            *side = (side.0 + by, side.1 - by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_border_moves_with_all_panes_on_both_sides_of_it_and_leaves_them_room() {
        let area = Rect::new(0, 2, 100, 40);
        let tiling = [
            Rect::new(0, 2, 52, 40),
            Rect::new(52, 2, 48, 30),
            Rect::new(52, 32, 48, 10),
        ];
        let after = |nth: usize, columns: i32, rows: i32| {
            let [mut a, mut b, mut c] = tiling;
            let mut panes = [&mut a, &mut b, &mut c];
            widen(area, &mut panes, nth, columns);
            heighten(area, &mut panes, nth, rows);
            [a, b, c]
        };
        let wider = after(0, 8, 5);
        // Nothing lies above or below the first pane.
        assert_eq!(wider[0], Rect::new(0, 2, 60, 40));
        assert_eq!(wider[1], Rect::new(60, 2, 40, 30));
        assert_eq!(wider[2], Rect::new(60, 32, 40, 10));
        let last = after(2, 8, 3);
        assert_eq!(last[0].width, 44);
        assert_eq!(last[2], Rect::new(44, 29, 56, 13));
        let most = after(1, 400, 400);
        assert_eq!((most[0].width, most[2].height), (18, 5));
        let area_of = |rect: &Rect| u32::from(rect.width) * u32::from(rect.height);
        assert_eq!(most.iter().map(area_of).sum::<u32>(), 4000);
    }
}
