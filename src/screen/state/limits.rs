//! Limits on what is kept for the next session.

use attnscope_system::config::{Config, setting};

/// Limits on what is kept for the next session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub prompts: usize,
    pub prompt_bytes: usize,
    pub bookmarks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&Config::default())
    }
}

impl Limits {
    pub fn of(config: &Config) -> Self {
        Self {
            prompts: config.get(&setting::HISTORY_PROMPTS),
            prompt_bytes: config.get(&setting::HISTORY_PROMPTS_KIB) << 10,
            bookmarks: config.get(&setting::HISTORY_BOOKMARKS),
        }
    }
}
