//! Options shared by commands that draw charts: the format of the numbers, the figure's file, the width of text.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_report::Output;
use attnscope_report::chart::Figure;
use attnscope_report::drawing::{Format as Stored, draw_figures};
use clap::ValueEnum;

/// Width of text written to a file or pipe, in columns.
const USUAL_WIDTH: u16 = 80;
/// Narrower charts show nothing; wider lines are hard to read.
const WIDTHS: std::ops::RangeInclusive<u16> = 40..=400;

#[derive(Debug, clap::Args)]
pub struct FigureArgs {
    /// How to write the numbers
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
    /// Write the charts to this file: .svg, .png or .pdf; - writes SVG to standard output, in place of the numbers
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Columns of the text, 40 to 400 [default: the terminal's, 80 where there is none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..=400))]
    width: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Charts and tables
    Text,
    Json,
    Csv,
    /// A table for the comment of a pull request
    Markdown,
}

/// Targets of the figure and the numbers, opened before the run.
pub struct Targets {
    picture: Option<(Output, Stored)>,
    is_picture_alone: bool,
}

impl FigureArgs {
    /// Opens the figure's file, so that one that cannot be written fails at once. An existing file is replaced if `is_forced`.
    ///
    /// # Errors
    /// When it cannot be written, or its ending names no format of pictures.
    pub fn open(&self, is_forced: bool) -> Result<Targets> {
        let Some(path) = &self.output else {
            return Ok(Targets {
                picture: None,
                is_picture_alone: false,
            });
        };
        let is_stdout = path == Path::new("-");
        let stored = Stored::of(path);
        // A device or a pipe may have any name.
        let is_special = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
        if !is_stdout && stored.is_none() && !is_special {
            bail!(
                "--output {}: expected a name that ends in .svg, .png or .pdf; the numbers go to standard output (--format)",
                path.display()
            );
        }
        Ok(Targets {
            picture: Some((
                Output::open_or_replace(path, is_forced)?,
                stored.unwrap_or(Stored::Svg),
            )),
            is_picture_alone: is_stdout,
        })
    }

    /// Returns the width of text in columns.
    pub fn width(&self) -> u16 {
        let of_terminal =
            || attnscope_screen::terminal_width().map(|w| w.clamp(*WIDTHS.start(), *WIDTHS.end()));
        self.width.or_else(of_terminal).unwrap_or(USUAL_WIDTH)
    }
}

impl Targets {
    /// Writes the figure, if one was requested, then the numbers.
    ///
    /// # Errors
    /// When a target cannot be written.
    pub fn write(self, figures: impl FnOnce() -> Vec<Figure>, numbers: &[u8]) -> Result<()> {
        if let Some((picture, stored)) = self.picture {
            picture.write(&draw_figures(&figures()).in_format(stored)?)?;
        }
        if !self.is_picture_alone {
            Output::Stdout.write(numbers)?;
        }
        Ok(())
    }
}
