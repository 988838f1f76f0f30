//! A statistic that went beyond a line.

/// A statistic beyond a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// The series of the line, and its cell in the grid.
    pub unit: usize,
    pub cell: usize,
    /// The first record beyond the line, and the value there.
    pub begin: usize,
    pub to: f64,
    /// The first record that is back.
    pub end: Option<usize>,
    pub is_confirmed: bool,
    /// The record from which it moved there, and the value there; `None` where it was beyond the line from the first record on.
    pub from: Option<(usize, f64)>,
}
