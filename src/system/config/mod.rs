//! What a person sets once for all sessions: a file, the environment, flags, and defaults; and where each value comes from.

mod place;
mod read;
mod setting;
mod typed;
mod value;

pub use self::place::path;
pub use self::read::{Config, KeyChange, Set};
pub use self::setting::{Kind, SETTINGS, Setting, config_page};
pub use self::value::{Origin, Value};
