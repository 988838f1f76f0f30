//! Limits on what is kept for the next session.

use attnscope_system::config::Config;

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
            prompts: config.count("history", "prompts"),
            prompt_bytes: config.count("history", "prompts_kib") << 10,
            bookmarks: config.count("history", "bookmarks"),
        }
    }
}
