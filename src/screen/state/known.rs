//! Suggestions from earlier sessions and from the checkpoint's directory: prompts, and checkpoints to compare with.

use std::path::PathBuf;

use attnscope_prompt::Request;

use super::editor::as_text;
use super::limits::Limits;

/// Prompts and checkpoints that can be chosen without typing them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Texts or ids as typed, the newest last.
    pub prompts: Vec<String>,
    /// Whether they include prompts found next to the checkpoint.
    pub is_offered: bool,
    /// Checkpoints next to the open one.
    pub nearby_checkpoints: Vec<PathBuf>,
    /// Limits on the number and total bytes of prompts kept for a checkpoint.
    pub limits: Limits,
}

impl Known {
    /// Adds the prompts of earlier sessions, and before them those found next to the checkpoint.
    pub fn offer(&mut self, nearby_prompts: &[Request], remembered: Vec<String>) {
        self.is_offered = !nearby_prompts.is_empty();
        let offered = nearby_prompts
            .iter()
            .map(|request| as_text(&request.source));
        for prompt in offered.chain(remembered) {
            self.remember(&prompt);
        }
    }

    /// Moves or adds a prompt to the end; returns whether the list changed.
    pub fn remember(&mut self, prompt: &str) -> bool {
        if self.prompts.last().is_some_and(|last| last == prompt)
            || prompt.len() > self.limits.prompt_bytes
        {
            return false;
        }
        self.prompts.retain(|known| known != prompt);
        self.prompts.push(prompt.to_owned());
        self.bound();
        true
    }

    /// Drops the oldest prompts beyond the limits.
    fn bound(&mut self) {
        let mut n_bytes = 0;
        let fits = self
            .prompts
            .iter()
            .rev()
            .take(self.limits.prompts)
            .take_while(|prompt| {
                n_bytes += prompt.len();
                n_bytes <= self.limits.prompt_bytes
            });
        let n_kept = fits.count();
        self.prompts.drain(..self.prompts.len() - n_kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_found_next_to_a_checkpoint_come_before_those_of_earlier_sessions() {
        let mut known = Known::default();
        let nearby_prompts = [Request::text("beside"), Request::text("typed")];
        known.offer(&nearby_prompts, vec!["typed".to_owned()]);
        assert_eq!(known.prompts, ["beside", "typed"]);
        assert!(known.is_offered);
    }

    #[test]
    fn a_prompt_is_kept_once_and_the_oldest_is_dropped_first() {
        let mut known = Known::default();
        for text in ["a", "b", "a", "a"] {
            known.remember(text);
        }
        assert_eq!(known.prompts, ["b", "a"]);
        let Limits {
            prompts: n_most,
            prompt_bytes,
            ..
        } = known.limits;
        for n in 0..2 * n_most {
            assert!(known.remember(&n.to_string()));
        }
        assert_eq!(known.prompts.len(), n_most);
        assert_eq!(known.prompts.last().map(String::as_str), Some("399"));
        let long = "x".repeat(prompt_bytes - 2);
        assert!(known.remember(&long));
        assert_eq!(known.prompts.len(), 1, "{:?}", known.prompts.len());
        assert!(!known.remember(&format!("{long}xxx")));
    }
}
