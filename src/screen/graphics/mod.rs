//! Maps as pictures, finer than terminal cells, if the terminal has a graphics protocol.
//!
//! The terminal's environment variables say which protocol it has, or its attributes that it shows sixels. Its window size gives the
//! size of a cell. A frame is drawn as usual; then the cells of its map, or of the maps of an atlas, are cleared, and the
//! picture is shown there.

use super::state::protocol::{Graphics, Protocol};

mod atlas;
mod image;
mod iterm;
mod kitty;
mod placeholders;
mod sixel;
#[cfg(test)]
mod tests;

use std::io::{self, Stdout, Write, stdout};
use std::sync::Arc;

use image::Image;
use kitty::Placement;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

use super::panels::head;
use super::state::app::App;
use super::state::panel::Panel;
use super::view;

/// A picture and its area.
#[derive(Debug, Clone)]
struct Placed {
    area: Rect,
    image: Arc<Image>,
    /// The cells that the picture fills: all of its area, or the maps of an atlas.
    cells: Vec<Rect>,
    /// What an atlas depends on.
    seen: Option<atlas::Seen>,
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        let is_same = Arc::ptr_eq(&self.image, &other.image) || self.image == other.image;
        self.cells == other.cells && is_same
    }
}

/// The picture on the screen and the one of the next frame.
#[derive(Debug, Default)]
pub struct Pictures {
    protocol: Option<Protocol>,
    /// Size of a cell in pixels.
    cell: (u16, u16),
    shown: Option<Placed>,
    /// Picture of the frame being drawn.
    next: Option<Placed>,
}

impl Pictures {
    /// The state for this terminal; shows no pictures if the cell size is unknown.
    pub fn of(graphics: Graphics, has_sixel: bool) -> Self {
        let protocol = graphics.protocol(|name| std::env::var(name).ok(), has_sixel);
        let size = crossterm::terminal::window_size().ok();
        let cell = size.and_then(|size| {
            let of = |pixels: u16, cells: u16| pixels.checked_div(cells);
            Some((of(size.width, size.columns)?, of(size.height, size.rows)?))
        });
        Self {
            protocol,
            cell: cell.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// The protocol, if it can be used.
    fn in_use(&self) -> Option<Protocol> {
        let is_known = |n: u16| (2..=200).contains(&n);
        self.protocol
            .filter(|_| is_known(self.cell.0) && is_known(self.cell.1))
    }

    /// Forgets the picture on screen, because the screen is about to be cleared or was used by another program.
    pub fn forget(&mut self, graphics: Graphics, has_sixel: bool) {
        *self = Self::of(graphics, has_sixel);
    }

    /// Draws a frame, and the picture that belongs to it.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn draw(
        &mut self,
        terminal: &mut Terminal<CrosstermBackend<Stdout>>,
        app: &App,
    ) -> io::Result<()> {
        let mut taken = Ok(());
        terminal.draw(|frame| {
            view::draw(frame, app);
            taken = self.take_over(app, frame.buffer_mut(), &mut stdout());
        })?;
        taken?;
        self.show(&mut stdout())
    }

    /// Clears the map's cells in a drawn frame if a picture goes there; first erases a picture shown elsewhere.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn take_over(
        &mut self,
        app: &App,
        buffer: &mut Buffer,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let Some(protocol) = self.in_use() else {
            return Ok(());
        };
        self.next = self.placed(app, buffer);
        if let Some(next) = &self.next {
            for position in next.cells.iter().flat_map(|area| area.positions()) {
                if protocol == Protocol::KittyInTmux {
                    placeholders::fill(&mut buffer[position], position, next.area);
                } else {
                    buffer[position] = Cell::default();
                }
            }
        }
        let stays = match (&self.shown, &self.next) {
            (Some(shown), Some(next)) => shown.cells == next.cells,
            _ => false,
        };
        if let Some(shown) = self.shown.as_ref().filter(|_| !stays) {
            erase(protocol, &shown.cells, out)?;
            self.shown = None;
        }
        Ok(())
    }

    /// Shows the picture of the drawn frame, unless it is already there.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn show(&mut self, out: &mut impl Write) -> io::Result<()> {
        let (Some(protocol), Some(next)) = (self.in_use(), self.next.take()) else {
            return Ok(());
        };
        if self.shown.as_ref() == Some(&next) {
            return Ok(());
        }
        let (area, image) = (next.area, &next.image);
        // Transparent sixels keep the previous pixels.
        if protocol == Protocol::Sixel && self.shown.is_some() {
            erase(protocol, &next.cells, out)?;
        }
        if protocol != Protocol::KittyInTmux {
            write!(out, "\x1b[{};{}H", area.y + 1, area.x + 1)?;
        }
        match protocol {
            Protocol::Kitty => kitty::write(image, area, Placement::Cursor, out)?,
            Protocol::KittyInTmux => placeholders::write(image, area, out)?,
            Protocol::Iterm => iterm::write(image, area, out)?,
            Protocol::Sixel => sixel::write(image, out)?,
        }
        out.flush()?;
        self.shown = Some(next);
        Ok(())
    }

    /// The picture of a frame; `None` if an overlay covers the map.
    fn placed(&self, app: &App, buffer: &Buffer) -> Option<Placed> {
        if !app.theme.has_colour() {
            return None;
        }
        let placed = match app.panel {
            Panel::Head => self.of_head(app, buffer),
            Panel::Overview => self.of_atlas(app, buffer),
            _ => None,
        };
        let most = match self.protocol {
            Some(Protocol::KittyInTmux) => placeholders::most(),
            _ => usize::MAX,
        };
        placed.filter(|placed| usize::from(placed.area.width.max(placed.area.height)) <= most)
    }

    fn of_head(&self, app: &App, buffer: &Buffer) -> Option<Placed> {
        let body = app.areas().body;
        head::with_heat_map(app.scene(), body, |area, map| {
            let area = area.intersection(*buffer.area());
            is_bare(area, buffer).then(|| Placed {
                area,
                image: Arc::new(Image::of(&map, area, self.cell)),
                cells: vec![area],
                seen: None,
            })
        })?
    }

    /// All maps of an atlas as one picture. Only kitty's protocol puts a picture below letters.
    fn of_atlas(&self, app: &App, buffer: &Buffer) -> Option<Placed> {
        let puts_below = [Protocol::Kitty, Protocol::KittyInTmux];
        if self.protocol.is_none_or(|own| !puts_below.contains(&own)) {
            return None;
        }
        let scene = app.scene();
        let seen = atlas::Seen::of(scene, self.cell);
        let cells = seen.maps(scene);
        let area = cells.iter().copied().reduce(Rect::union)?;
        if !cells.iter().all(|map| is_bare(*map, buffer)) {
            return None;
        }
        let shown = self.shown.as_ref();
        let same = shown.filter(|shown| shown.seen.as_ref() == Some(&seen));
        let image = match same {
            Some(shown) => Arc::clone(&shown.image),
            None => seen.image(scene, area),
        };
        Some(Placed {
            area,
            image,
            cells,
            seen: Some(seen),
        })
    }
}

/// Whether nothing but a map is drawn in an area. The last row stays free: a picture that ends there would scroll the screen.
fn is_bare(area: Rect, buffer: &Buffer) -> bool {
    let fits = area.width > 0 && area.height > 0 && area.bottom() < buffer.area().bottom();
    // A diamond marks the selected query and key; the picture has a frame there.
    let is_map = |cell: &Cell| matches!(cell.symbol(), " " | "▀" | "▄" | "◆");
    fits && area.positions().all(|position| is_map(&buffer[position]))
}

/// Erases a picture, leaving the blank cells that the next frame expects.
fn erase(protocol: Protocol, cells: &[Rect], out: &mut impl Write) -> io::Result<()> {
    if protocol == Protocol::KittyInTmux {
        // The next frame replaces the placeholders as it does letters.
        placeholders::delete(out)?;
        return out.flush();
    }
    if protocol == Protocol::Kitty {
        kitty::delete(kitty::ID, out)?;
    }
    write!(out, "\x1b[0m")?;
    for area in cells {
        let blank = " ".repeat(area.width as usize);
        for row in area.y..area.bottom() {
            write!(out, "\x1b[{};{}H{blank}", row + 1, area.x + 1)?;
        }
    }
    out.flush()
}
