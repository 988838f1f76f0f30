//! An archive that `torch.save` wrote: its pickle, and where the storages that the pickle names are.

use std::borrow::Cow;
use std::ops::Range;

use super::pickle;
use super::state_dict::Problem;
use super::value::quote;
use super::zip::Archive;
use crate::section::Section;

/// Name of the pickle.
pub const PICKLE: &str = "data.pkl";

/// The archive, and the directory in it that contains everything; its name ends in a slash, or is empty.
#[derive(Debug)]
pub struct Saved<'a> {
    section: Section<'a>,
    archive: Archive,
    prefix: String,
}

impl<'a> Saved<'a> {
    /// Reads the archive's index.
    ///
    /// # Errors
    /// When it is damaged, holds no pickle or several, or was saved most significant byte first.
    pub fn read(section: Section<'a>) -> Result<Self, Problem> {
        let archive = Archive::read(&section)?;
        let prefix = prefix_of(&archive)?;
        let saved = Self {
            section,
            archive,
            prefix,
        };
        if let Some(place) = saved
            .archive
            .stored(&format!("{}byteorder", saved.prefix))?
        {
            const LONGEST: usize = 16;
            let place = place.start..place.end.min(place.start + LONGEST);
            let order = saved.section.read(place)?;
            if order.trim_ascii() != b"little" {
                let found = quote(&String::from_utf8_lossy(&order));
                return Err(format!("byteorder: expected little, found {found}").into());
            }
        }
        Ok(saved)
    }

    /// Reads the pickle.
    ///
    /// # Errors
    /// When it is missing, compressed or too long, or the file cannot be read.
    pub fn pickle(&self) -> Result<Cow<'a, [u8]>, Problem> {
        let place = self.stored(PICKLE)?;
        if place.len() > pickle::LONGEST {
            let problem = format!(
                "{PICKLE}: expected at most {} bytes, found {}",
                pickle::LONGEST,
                place.len()
            );
            return Err(problem.into());
        }
        Ok(self.section.file.read(place)?)
    }

    /// Returns the place of a storage in the file.
    ///
    /// # Errors
    /// When the archive does not have it, or has it compressed.
    pub fn storage(&self, key: &str) -> Result<Range<usize>, String> {
        self.stored(&format!("data/{key}"))
    }

    fn stored(&self, name: &str) -> Result<Range<usize>, String> {
        let name = format!("{}{name}", self.prefix);
        let place = self.archive.stored(&name)?;
        let place = place.ok_or_else(|| format!("the archive has no entry {}", quote(&name)))?;
        Ok(self.section.in_file(&place))
    }
}

/// Finds the archive's directory that contains the pickle; its name ends in a slash.
fn prefix_of(archive: &Archive) -> Result<String, String> {
    let mut prefixes = archive
        .names()
        .filter_map(|name| name.strip_suffix(PICKLE))
        .filter(|prefix| prefix.is_empty() || prefix.ends_with('/'));
    match (prefixes.next(), prefixes.next()) {
        (Some(prefix), None) => Ok(prefix.to_owned()),
        (Some(_), Some(_)) => Err(format!("holds more than one {PICKLE}")),
        (None, _) => Err(format!(
            "is a zip archive without {PICKLE}; expected a file of torch.save"
        )),
    }
}
