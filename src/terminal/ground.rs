//! Detects the terminal's background. The first frame hardly waits for the answer; a later answer draws the screen again.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::input::Answer;
use super::theme::Ground;

/// Time after which an answer is no longer accepted: colours must not change while somebody reads.
const LIMIT: Duration = Duration::from_secs(3);
/// How long the end of the program waits for an answer, which the shell would take for input.
const FAREWELL: Duration = Duration::from_millis(100);
/// How long the first frame waits: enough for a terminal on the same machine, so that it sees no frame in the wrong colours.
const FIRST_FRAME: Duration = Duration::from_millis(5);

/// Asks for the background, then for the terminal type: every terminal answers the second, which ends the wait if it does not
/// know the first.
const QUESTION: &[u8] = b"\x1b]11;?\x07\x1b[c";

/// Terminals known not to answer.
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

    /// Returns how long the first frame may still wait.
    pub fn left_before_frame(&self) -> Option<Duration> {
        self.left(FIRST_FRAME)
    }

    /// Returns how long the end of the program has to wait.
    pub fn left_before_end(&self) -> Option<Duration> {
        self.left(FAREWELL)
    }

    fn left(&self, limit: Duration) -> Option<Duration> {
        let left = limit.checked_sub(self.asked.elapsed());
        left.filter(|_| self.is_open)
    }

    /// Handles an answer; returns the background that it reports, unless it is too late.
    pub fn take(&mut self, answer: Answer) -> Option<Ground> {
        let is_in_time = self.left(LIMIT).is_some();
        match answer {
            Answer::Background(rgb) => is_in_time.then(|| Ground::of(rgb)),
            Answer::Attributes { .. } => {
                self.is_open = false;
                None
            }
            // Told later, of a change that the user made: never too late.
            Answer::Scheme(ground) => Some(ground),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_until_the_limit_and_the_second_ends_the_wait() {
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
        assert!(question.left_before_end().is_some());
        assert_eq!(question.take(Answer::Attributes { has_sixel: false }), None);
        assert_eq!(question.left_before_end(), None);
        let mut late = Question {
            asked: Instant::now() - 2 * LIMIT,
            is_open: true,
        };
        assert_eq!(late.take(Answer::Background([250; 3])), None);
        assert_eq!(late.left_before_frame(), None);
        let changed = late.take(Answer::Scheme(Ground::Light));
        assert_eq!(changed, Some(Ground::Light));
    }
}
