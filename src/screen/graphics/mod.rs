//! Maps as pictures, where the terminal has a graphics protocol: finer than its cells.
//!
//! Nothing is asked of the terminal and nothing is waited for: its own variables say which protocol it has, and the size of its window
//! how large a cell is. A frame is drawn as anywhere else; then the cells of its map are taken out, and the picture stands there.

use super::state::protocol::{Graphics, Protocol};

mod image;
mod iterm;
mod kitty;
mod sixel;
#[cfg(test)]
mod tests;

use std::io::{self, Stdout, Write, stdout};

use image::Image;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;

use super::areas::areas;
use super::panels::head;
use super::state::app::App;
use super::state::panel::Panel;
use super::view;

/// A picture and its place.
#[derive(Debug, Clone, PartialEq)]
struct Placed {
    area: Rect,
    image: Image,
}

/// What stands on the screen beside its cells.
#[derive(Debug, Default)]
pub struct Pictures {
    protocol: Option<Protocol>,
    /// Pixels of a cell.
    cell: (u16, u16),
    shown: Option<Placed>,
    /// What the frame that is being drawn shows.
    next: Option<Placed>,
}

impl Pictures {
    /// Those of this terminal; none where it does not say how large its cells are.
    pub fn of(graphics: Graphics) -> Self {
        let protocol = graphics.protocol(|name| std::env::var(name).ok());
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

    /// The protocol, where it can be used.
    fn in_use(&self) -> Option<Protocol> {
        let is_known = |n: u16| (2..=200).contains(&n);
        self.protocol
            .filter(|_| is_known(self.cell.0) && is_known(self.cell.1))
    }

    /// Forgets what is on the screen: it is about to be cleared, or was another program's meanwhile.
    pub fn forget(&mut self, graphics: Graphics) {
        *self = Self::of(graphics);
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

    /// Takes the map's cells out of a frame that is drawn, where a picture is to stand there; what stood elsewhere is erased first.
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
            for position in next.area.positions() {
                buffer[position] = Cell::default();
            }
        }
        let stays = match (&self.shown, &self.next) {
            (Some(shown), Some(next)) => shown.area == next.area,
            _ => false,
        };
        if let Some(shown) = self.shown.as_ref().filter(|_| !stays) {
            erase(protocol, shown.area, out)?;
            self.shown = None;
        }
        Ok(())
    }

    /// Shows the picture of the frame that was drawn, unless it is there already.
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
        // Sixels that are not set keep what was there.
        if protocol == Protocol::Sixel && self.shown.is_some() {
            erase(protocol, area, out)?;
        }
        write!(out, "\x1b[{};{}H", area.y + 1, area.x + 1)?;
        match protocol {
            Protocol::Kitty => kitty::write(image, area, out)?,
            Protocol::Iterm => iterm::write(image, area, out)?,
            Protocol::Sixel => sixel::write(image, out)?,
        }
        out.flush()?;
        self.shown = Some(next);
        Ok(())
    }

    /// The picture of a frame: none where something lies over the map.
    fn placed(&self, app: &App, buffer: &Buffer) -> Option<Placed> {
        if app.panel != Panel::Head || !app.theme.has_colour() {
            return None;
        }
        let body = areas(app.size).body;
        head::with_heat_map(app.scene(), body, |area, map| {
            let area = area.intersection(*buffer.area());
            // The last row stays free: a picture that ends there would move the screen up.
            let fits = area.width > 0 && area.height > 0 && area.bottom() < buffer.area().bottom();
            let is_bare = |cell: &Cell| matches!(cell.symbol(), " " | "▀" | "▄");
            let is_map = fits && area.positions().all(|position| is_bare(&buffer[position]));
            is_map.then(|| Placed {
                area,
                image: Image::of(&map, area, self.cell),
            })
        })?
    }
}

/// Removes a picture: blank cells are what the next frame takes for granted there.
fn erase(protocol: Protocol, area: Rect, out: &mut impl Write) -> io::Result<()> {
    if protocol == Protocol::Kitty {
        kitty::delete(out)?;
    }
    let blank = " ".repeat(area.width as usize);
    write!(out, "\x1b[0m")?;
    for row in area.y..area.bottom() {
        write!(out, "\x1b[{};{}H{blank}", row + 1, area.x + 1)?;
    }
    out.flush()
}
