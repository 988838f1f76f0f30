//! Settings from a file, the environment, flags and defaults, with the origin of each value.

mod commands;
mod place;
mod read;
pub mod setting;
mod themes;
mod thresholds;
mod typed;
mod value;

pub use self::commands::{Command, PLACEHOLDERS};
pub use self::place::path;
pub use self::read::{Config, KeyChange, Set};
pub use self::setting::{Key, Kind, SETTINGS, Setting, config_page};
pub use self::themes::{COLOUR_NAMES, Colour, OwnTheme, ROLES};
pub use self::value::{FromSetting, Origin, Value};
