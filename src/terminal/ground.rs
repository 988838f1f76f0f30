//! Which ground the terminal has: asked while the checkpoint opens, and waited for a moment.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::input::Answer;
use super::theme::Ground;

/// A terminal that has not answered by then is not waited for, and not believed.
const LIMIT: Duration = Duration::from_millis(100);
/// The first frame comes this soon after the screen was asked for, whatever the terminal says.
const FIRST_FRAME: Duration = Duration::from_millis(60);

/// Asks for the background, then for the kind of terminal: every terminal answers the second, so that nobody waits for one that
/// does not know the first.
const QUESTION: &[u8] = b"\x1b]11;?\x07\x1b[c";

/// Terminals that are known not to answer.
const SILENT: [&str; 4] = ["linux", "dumb", "vt", "cons25"];

/// A question to the terminal.
#[derive(Debug)]
pub struct Question {
    asked: Instant,
    is_open: bool,
}

impl Question {
    /// Asks, unless the terminal is known not to answer.
    ///
    /// # Errors
    /// When the terminal cannot be written to.
    pub fn ask(term: &str) -> io::Result<Option<Self>> {
        if cfg!(not(unix)) || term.is_empty() || SILENT.iter().any(|known| term.starts_with(known))
        {
            return Ok(None);
        }
        let mut out = io::stdout();
        out.write_all(QUESTION)?;
        out.flush()?;
        Ok(Some(Self {
            asked: Instant::now(),
            is_open: true,
        }))
    }

    /// How long an answer is still waited for.
    pub fn left(&self) -> Option<Duration> {
        let left = LIMIT.checked_sub(self.asked.elapsed());
        left.filter(|_| self.is_open)
    }

    /// How long the first frame of a screen that was asked for at some time may still wait.
    pub fn left_before_frame(&self, begun: Instant) -> Option<Duration> {
        let left = FIRST_FRAME.checked_sub(begun.elapsed())?;
        self.left().map(|own| own.min(left))
    }

    /// Takes in an answer; gives the ground that it tells of, unless it comes too late.
    pub fn take(&mut self, answer: Answer) -> Option<Ground> {
        let is_in_time = self.left().is_some();
        match answer {
            Answer::Background(rgb) => is_in_time.then(|| Ground::of(rgb)),
            Answer::Attributes => {
                self.is_open = false;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_until_the_limit_and_the_last_one_ends_the_waiting() {
        let mut question = Question {
            asked: Instant::now(),
            is_open: true,
        };
        assert_eq!(
            question.take(Answer::Background([250; 3])),
            Some(Ground::Light)
        );
        assert_eq!(
            question.take(Answer::Background([30, 30, 46])),
            Some(Ground::Dark)
        );
        assert!(question.left().is_some());
        assert_eq!(question.take(Answer::Attributes), None);
        assert_eq!(question.left(), None);
        let mut late = Question {
            asked: Instant::now() - 2 * LIMIT,
            is_open: true,
        };
        assert_eq!(late.take(Answer::Background([250; 3])), None);
        assert_eq!(late.left_before_frame(Instant::now()), None);
    }
}
