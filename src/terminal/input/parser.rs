//! Parses terminal bytes into events: keys, mouse, pastes, focus. An incomplete sequence waits for its rest, or is given up.

use std::time::Duration;

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::answer;
use super::control::{self, key};
use super::read::{Answer, Read};

/// Time to wait after a lone Escape, which is a key unless more follows at once.
const ESCAPE_WAITS: Duration = Duration::from_millis(35);
/// Time to wait for the rest of a sequence or of a character.
const REST_WAITS: Duration = Duration::from_millis(100);
/// Time to wait for more of a paste, whose end may be lost.
const PASTE_WAITS: Duration = Duration::from_secs(1);

/// Terminals send no longer sequences.
const LONGEST: usize = 64;
/// More than anyone pastes; the excess is dropped.
const LONGEST_PASTE: usize = 64 << 20;

const PASTE_ENDS: &[u8] = b"\x1b[201~";

/// Parser state: the incomplete input so far.
#[derive(Debug, Default)]
pub struct Parser {
    /// Beginning of a sequence or character.
    pending: Vec<u8>,
    /// Paste in progress.
    paste: Option<Vec<u8>>,
    /// Answers of the terminal that have not been taken yet.
    answers: Vec<Answer>,
}

impl Parser {
    /// Parses bytes, and appends the events that they complete.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        self.pending.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.pending);
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            if self.paste.is_some() {
                left = self.feed_paste(left, events);
                continue;
            }
            match read(left) {
                Read::Half => break,
                Read::Whole(n, event) => {
                    events.extend(event);
                    left = &left[n..];
                }
                Read::Answer(n, answer) => {
                    self.answers.push(answer);
                    left = &left[n..];
                }
                Read::PasteBegins(n) => {
                    self.paste = Some(Vec::new());
                    left = &left[n..];
                }
            }
        }
        self.pending = left.to_vec();
    }

    /// Returns the terminal's answers since the last call.
    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    /// Adds bytes to the paste; returns those after its end.
    fn feed_paste<'a>(&mut self, bytes: &'a [u8], events: &mut Vec<Event>) -> &'a [u8] {
        let Some(paste) = &mut self.paste else {
            return bytes;
        };
        // The end marker may have started in the previous bytes.
        let from = paste.len().saturating_sub(PASTE_ENDS.len() - 1);
        let n_before = paste.len();
        paste.extend_from_slice(bytes);
        let ends_at = paste[from..]
            .windows(PASTE_ENDS.len())
            .position(|window| window == PASTE_ENDS);
        let Some(ends_at) = ends_at else {
            if paste.len() > LONGEST_PASTE {
                // Keep the last bytes, in which the end marker may have started.
                let last = paste.split_off(paste.len() - PASTE_ENDS.len());
                paste.truncate(LONGEST_PASTE - PASTE_ENDS.len());
                paste.extend(last);
            }
            return &[];
        };
        let ends_at = from + ends_at;
        paste.truncate(ends_at);
        self.end_paste(events);
        &bytes[ends_at + PASTE_ENDS.len() - n_before..]
    }

    fn end_paste(&mut self, events: &mut Vec<Event>) {
        if let Some(paste) = self.paste.take() {
            events.push(Event::Paste(String::from_utf8_lossy(&paste).into_owned()));
        }
    }

    /// Returns how long to wait for more; `None` if nothing is incomplete.
    pub fn patience(&self) -> Option<Duration> {
        match (&self.paste, self.pending.as_slice()) {
            (Some(_), _) => Some(PASTE_WAITS),
            (None, []) => None,
            (None, [0x1b]) => Some(ESCAPE_WAITS),
            (None, _) => Some(REST_WAITS),
        }
    }

    /// Resolves pending input after a timeout: it is a key by itself, or was cut off.
    pub fn give_up(&mut self, events: &mut Vec<Event>) {
        self.end_paste(events);
        // Bytes taken for the beginning of an answer were typed.
        if let [0x1b, b']', typed @ ..] = self.pending.as_slice()
            && !typed.is_empty()
            && typed.len() < answer::BACKGROUND.len()
        {
            let letters = typed.iter().map(|byte| KeyCode::Char(*byte as char));
            events.push(key(KeyCode::Char(']'), KeyModifiers::ALT));
            events.extend(letters.map(|code| key(code, KeyModifiers::NONE)));
        }
        let alone = match self.pending.as_slice() {
            [0x1b] => Some((KeyCode::Esc, KeyModifiers::NONE)),
            [0x1b, c @ (b'[' | b'O' | b']')] => {
                Some((KeyCode::Char(*c as char), KeyModifiers::ALT))
            }
            _ => None,
        };
        self.pending.clear();
        events.extend(alone.map(|(code, modifiers)| key(code, modifiers)));
    }
}

/// Parses the beginning of non-empty bytes.
fn read(bytes: &[u8]) -> Read {
    match bytes[0] {
        0x1b => escape(bytes),
        byte => match of_control(byte) {
            Some((code, modifiers)) => Read::Whole(1, Some(key(code, modifiers))),
            None => letter(bytes),
        },
    }
}

/// Returns the key of a one-byte control character.
fn of_control(byte: u8) -> Option<(KeyCode, KeyModifiers)> {
    let ctrl = |c: u8| Some((KeyCode::Char(c as char), KeyModifiers::CONTROL));
    match byte {
        b'\r' => Some((KeyCode::Enter, KeyModifiers::NONE)),
        b'\t' => Some((KeyCode::Tab, KeyModifiers::NONE)),
        0x7f => Some((KeyCode::Backspace, KeyModifiers::NONE)),
        0 => ctrl(b' '),
        0x01..=0x1a => ctrl(byte - 1 + b'a'),
        0x1c..=0x1f => ctrl(byte - 0x1c + b'4'),
        _ => None,
    }
}

/// Parses one UTF-8 character.
fn letter(bytes: &[u8]) -> Read {
    let n_bytes = match bytes[0] {
        0x00..=0x7f => 1,
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Read::Whole(1, None),
    };
    let has = &bytes[..n_bytes.min(bytes.len())];
    match std::str::from_utf8(has) {
        Ok(text) => {
            let letter = text.chars().next();
            let event = letter.map(|c| key(KeyCode::Char(c), KeyModifiers::NONE));
            Read::Whole(n_bytes, event)
        }
        // The rest has yet to arrive.
        Err(e) if e.error_len().is_none() => Read::Half,
        Err(_) => Read::Whole(1, None),
    }
}

fn escape(bytes: &[u8]) -> Read {
    match bytes.get(1) {
        None => Read::Half,
        Some(b'[') => sequence(bytes),
        // An answer, or else the key Alt+].
        Some(b']') => answer::of_system(bytes)
            .unwrap_or_else(|| Read::Whole(2, Some(key(KeyCode::Char(']'), KeyModifiers::ALT)))),
        Some(b'O') => match bytes.get(2) {
            None => Read::Half,
            Some(last) => match control::function_key(*last) {
                Some(code) => Read::Whole(3, Some(key(code, KeyModifiers::NONE))),
                None => Read::Whole(2, Some(key(KeyCode::Char('O'), KeyModifiers::ALT))),
            },
        },
        // The Escape key, then another sequence.
        Some(0x1b) => Read::Whole(1, Some(key(KeyCode::Esc, KeyModifiers::NONE))),
        Some(_) => match read(&bytes[1..]) {
            Read::Whole(n, event) => {
                let event = event.map(|event| match event {
                    Event::Key(key) => Event::Key(KeyEvent {
                        modifiers: key.modifiers | KeyModifiers::ALT,
                        ..key
                    }),
                    event => event,
                });
                Read::Whole(n + 1, event)
            }
            other => other,
        },
    }
}

/// Parses a control sequence: parameters, intermediate bytes, and a final byte.
fn sequence(bytes: &[u8]) -> Read {
    match bytes.get(2) {
        None => return Read::Half,
        // The Linux console has its own function keys.
        Some(b'[') => {
            return match bytes.get(3) {
                None => Read::Half,
                Some(c @ b'A'..=b'E') => {
                    Read::Whole(4, Some(key(KeyCode::F(c - b'A' + 1), KeyModifiers::NONE)))
                }
                Some(_) => Read::Whole(3, None),
            };
        }
        // Old mouse form: three arbitrary bytes follow.
        Some(b'M') => {
            return match bytes.get(3..6) {
                Some([button, column, row]) => {
                    let [button, column, row] =
                        [*button, *column, *row].map(|byte| u16::from(byte.saturating_sub(32)));
                    Read::Whole(6, control::mouse(button, column, row, false))
                }
                _ => Read::Half,
            };
        }
        Some(_) => {}
    }
    let body = &bytes[2..];
    let Some(at) = body.iter().position(|byte| !(0x20..=0x3f).contains(byte)) else {
        return if body.len() > LONGEST {
            Read::Whole(bytes.len(), None)
        } else {
            Read::Half
        };
    };
    match body[at] {
        // Cut off: this byte starts something else.
        0x00..=0x1f | 0x7f..=0xff => Read::Whole(2 + at, None),
        b'~' if &body[..at] == b"200" => Read::PasteBegins(3 + at),
        b'c' if body[0] == b'?' => Read::Answer(3 + at, answer::attributes(&body[1..at])),
        b'n' if body.starts_with(b"?997;") => match answer::scheme(&body[5..at]) {
            Some(scheme) => Read::Answer(3 + at, scheme),
            None => Read::Whole(3 + at, None),
        },
        last => Read::Whole(3 + at, control::event(&body[..at], last)),
    }
}
