//! A part of a file, read as if it were a file of its own.

use std::borrow::Cow;
use std::ops::Range;

use attnscope_compute::error::Result;

use super::data_file::DataFile;

/// A range of a file. Offsets are counted from its first byte.
#[derive(Debug, Clone)]
pub(super) struct Section<'a> {
    pub file: &'a DataFile,
    bytes: Range<usize>,
}

impl<'a> Section<'a> {
    pub fn whole(file: &'a DataFile) -> Self {
        Self {
            file,
            bytes: 0..file.len(),
        }
    }

    /// Returns `n` bytes from `start` on; `None` if the file ends before.
    pub fn of(file: &'a DataFile, start: usize, n: usize) -> Option<Self> {
        let end = start.checked_add(n).filter(|end| *end <= file.len())?;
        Some(Self {
            file,
            bytes: start..end,
        })
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Converts a range of the section to a range of the file, cut off at the end of the section.
    pub fn in_file(&self, range: &Range<usize>) -> Range<usize> {
        let place = |at: usize| self.bytes.start.saturating_add(at).min(self.bytes.end);
        place(range.start)..place(range.end)
    }

    /// Reads a range, cut off at the end of the section.
    ///
    /// # Errors
    /// As for [`DataFile::read_into`].
    pub fn read(&self, range: Range<usize>) -> Result<Cow<'a, [u8]>> {
        self.file.read(self.in_file(&range))
    }
}
