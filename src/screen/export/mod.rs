//! Exports: the screen as a picture, and its data as a table. Built from the state here, written to files elsewhere.

mod caption;
mod data;
mod files;
mod name;
mod page;
mod paper;
mod sides;
mod svg;

pub use page::export_page;
pub use paper::Paper;

pub(super) use files::Writer;

use attnscope_compute::error::{Error, Result};
use attnscope_report::drawing::Format;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::state::app::App;
use super::state::msg::Effect;
use super::view;

/// A picture and its data, ready to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// Name of both files, without number and extension.
    pub name: String,
    pub picture: Vec<u8>,
    pub csv: Vec<u8>,
    /// Whether the picture's font lacks some characters, which are replaced by a sign.
    pub lacks_letters: bool,
}

impl Export {
    /// Exports the current screen; for a difference, the data of both runs.
    ///
    /// `is_raw_csv` leaves cells of the table as they are, even those that a spreadsheet would read as formulas.
    ///
    /// # Errors
    /// Never in practice: it writes to memory.
    pub fn of(app: &App, is_raw_csv: bool) -> Result<Self> {
        let name = name::name_of(app.scene());
        let failed = |e: std::io::Error| Error::file(&name, format!("cannot be made ({e})"));
        let buffer = frame(app);
        let svg =
            svg::svg(&buffer, app.theme.ground, &caption::caption(app.scene())).map_err(failed)?;
        let csv = sides::csv(app, is_raw_csv).map_err(failed)?;
        Ok(Self {
            name,
            picture: svg,
            csv,
            lacks_letters: false,
        })
    }

    /// Exports what an effect requests: the screen, or its data as a figure.
    ///
    /// # Errors
    /// When the panel has no figure.
    pub fn asked_for(app: &App, effect: &Effect) -> Result<Self> {
        match effect {
            Effect::ExportFigure if !paper::has_figure(app.scene()) => Err(Error::Prompt(format!(
                "there is no figure of {} now; Overview, Head, Compare, Effect, Sweep, History and story pages have one",
                app.panel.title()
            ))),
            Effect::ExportFigure => Self::figure_of(app, &Paper::default(), Format::Svg, false),
            _ => Self::of(app, false),
        }
    }

    /// Exports the data of the current panel as a figure for paper.
    ///
    /// # Errors
    /// When the panel has no figure, or nothing to draw.
    pub fn figure_of(app: &App, paper: &Paper, format: Format, is_raw_csv: bool) -> Result<Self> {
        let name = format!("{}-figure", name::name_of(app.scene()));
        let failed = |e: std::io::Error| Error::file(&name, format!("cannot be made ({e})"));
        let drawing = paper::drawing(app.scene(), paper)?;
        let picture = drawing.in_format(format).map_err(failed)?;
        Ok(Self {
            csv: sides::csv(app, is_raw_csv).map_err(failed)?,
            lacks_letters: paper::lacks_letters(&drawing),
            picture,
            name,
        })
    }
}

/// Draws one frame, as the terminal would get it.
fn frame(app: &App) -> Buffer {
    let (width, height) = app.size;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(drawn) = terminal.draw(|frame| view::draw(frame, app));
    drawn.buffer.clone()
}
