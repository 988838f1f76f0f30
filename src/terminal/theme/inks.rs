//! Colours of the user's own for text and frames, by what they are for.

use ratatui::style::Color;

/// What text or a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Accent,
    Dim,
    Border,
    Good,
    Notable,
    Bad,
}

impl Role {
    /// In the order in which settings list them.
    pub const ALL: [Self; 6] = [
        Self::Accent,
        Self::Dim,
        Self::Border,
        Self::Good,
        Self::Notable,
        Self::Bad,
    ];
}

/// The terminal's own colours, in their order.
pub(super) const OWN: [Color; 16] = [
    Color::Black,
    Color::Red,
    Color::Green,
    Color::Yellow,
    Color::Blue,
    Color::Magenta,
    Color::Cyan,
    Color::Gray,
    Color::DarkGray,
    Color::LightRed,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightBlue,
    Color::LightMagenta,
    Color::LightCyan,
    Color::White,
];

/// A colour for each role, where the user gave one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inks([Option<Color>; Role::ALL.len()]);

impl Inks {
    /// Gives a role a colour.
    #[must_use]
    pub fn with(mut self, role: Role, colour: Color) -> Self {
        self.0[role as usize] = Some(colour);
        self
    }

    /// Gives a role one of the terminal's own 16 colours.
    #[must_use]
    pub fn with_own(self, role: Role, nth: u8) -> Self {
        match OWN.get(usize::from(nth)) {
            Some(colour) => self.with(role, *colour),
            None => self,
        }
    }

    /// The colour of a role.
    pub fn of(&self, role: Role) -> Option<Color> {
        self.0[role as usize]
    }
}
