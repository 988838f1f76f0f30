//! Parses what a terminal says of itself: its background (OSC 11), its attributes (DA1), and changes between dark and light (mode 2031).

use super::read::{Answer, Read};
use crate::theme::Ground;

/// Longer sequences are not answers to our questions.
const LONGEST: usize = 48;

/// Beginning of an operating system command that reports a background.
pub(super) const BACKGROUND: &[u8] = b"11;rgb";

/// Reads `ESC ] 11 ; rgb:RRRR/GGGG/BBBB` and its terminator; `None` if the bytes are neither such an answer nor the beginning
/// of one.
pub(super) fn of_system(bytes: &[u8]) -> Option<Read> {
    let body = bytes.get(2..)?;
    let n_same = BACKGROUND
        .iter()
        .zip(body)
        .take_while(|(a, b)| a == b)
        .count();
    if n_same < BACKGROUND.len().min(body.len()) || body.is_empty() {
        // Escape and ] alone may be a key; wait for what follows.
        return body.is_empty().then_some(Read::Half);
    }
    let colour = &body[n_same..];
    let is_of_colour = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'/' | b'a');
    let n = colour.iter().take_while(|byte| is_of_colour(byte)).count();
    if n > LONGEST {
        return None;
    }
    // The terminator is a bell, or Escape and \.
    let n_end = match &colour[n..] {
        [] | [0x1b] => return Some(Read::Half),
        [0x07, ..] => 1,
        [0x1b, b'\\', ..] => 2,
        _ => return None,
    };
    let n_bytes = 2 + n_same + n + n_end;
    let channels = colour[..n].strip_prefix(b"a").unwrap_or(&colour[..n]);
    Some(match colour_of(channels.strip_prefix(b":")?) {
        Some(rgb) => Read::Answer(n_bytes, Answer::Background(rgb)),
        None => Read::Whole(n_bytes, None),
    })
}

/// Parses `RRRR/GGGG/BBBB`, with one to four digits each; ignores an alpha after them.
fn colour_of(channels: &[u8]) -> Option<[u8; 3]> {
    let text = std::str::from_utf8(channels).ok()?;
    let mut parts = text.split('/').map(|part| {
        let most = (16u32.checked_pow(u32::try_from(part.len()).ok()?)?).checked_sub(1)?;
        let value = u32::from_str_radix(part, 16).ok()?;
        u8::try_from((value * 255 + most / 2) / most.max(1)).ok()
    });
    Some([parts.next()??, parts.next()??, parts.next()??])
}

/// Number of sixel graphics among the attributes of a terminal.
const SIXEL: &[u8] = b"4";

/// Reads the numbers of `ESC [ ? 62 ; 4 c`. The first is the class of the terminal.
pub(super) fn attributes(numbers: &[u8]) -> Answer {
    let mut numbers = numbers.split(|byte| *byte == b';').skip(1);
    Answer::Attributes {
        has_sixel: numbers.any(|number| number == SIXEL),
    }
}

/// Reads the number of `ESC [ ? 997 ; 1 n`.
pub(super) fn scheme(number: &[u8]) -> Option<Answer> {
    match number {
        b"1" => Some(Answer::Scheme(Ground::Dark)),
        b"2" => Some(Answer::Scheme(Ground::Light)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{Event, KeyCode, KeyModifiers};

    use super::super::control::key;
    use super::super::parser::Parser;
    use super::*;

    /// Parses bytes both all at once and one by one, and checks that the results agree.
    fn read(bytes: &[u8]) -> (Vec<Event>, Vec<Answer>) {
        let (mut at_once, mut events) = (Parser::default(), Vec::new());
        at_once.feed(bytes, &mut events);
        let (mut slowly, mut others) = (Parser::default(), Vec::new());
        let mut answers = Vec::new();
        for byte in bytes {
            slowly.feed(&[*byte], &mut others);
            answers.extend(slowly.take_answers());
        }
        assert_eq!(events, others, "{bytes:?}");
        assert_eq!(at_once.take_answers(), answers, "{bytes:?}");
        (events, answers)
    }

    fn letter(c: char) -> Event {
        key(KeyCode::Char(c), KeyModifiers::NONE)
    }

    #[test]
    fn backgrounds_are_parsed_in_every_form_without_losing_keys_around_them() {
        let white = Answer::Background([255; 3]);
        let plain = Answer::Attributes { has_sixel: false };
        for (bytes, keys, answers) in [
            (&b"j\x1b]11;rgb:ffff/ffff/ffff\x07q"[..], "jq", &[white][..]),
            (b"j\x1b]11;rgb:ff/ff/ff\x1b\\q", "jq", &[white]),
            (b"\x1b]11;rgba:f/f/f/0\x07", "", &[white]),
            (
                b"\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\",
                "",
                &[Answer::Background([30, 30, 46])],
            ),
            (
                b"\x1b]11;rgb:0000/0000/0000\x07\x1b[?62;22cj",
                "j",
                &[Answer::Background([0; 3]), plain],
            ),
            (b"\x1b[?6c", "", &[plain]),
            // A class of 4 is no attribute.
            (b"\x1b[?4;22c", "", &[plain]),
            (
                b"\x1b[?62;4;9;22cq",
                "q",
                &[Answer::Attributes { has_sixel: true }],
            ),
            (
                b"\x1b[?997;2nj\x1b[?997;1n\x1b[?997;3n",
                "j",
                &[Answer::Scheme(Ground::Light), Answer::Scheme(Ground::Dark)],
            ),
            // Without a colour.
            (b"\x1b]11;rgb:/\x07j", "j", &[]),
        ] {
            let (events, said) = read(bytes);
            let expected: Vec<Event> = keys.chars().map(letter).collect();
            assert_eq!((events, said.as_slice()), (expected, answers), "{bytes:?}");
        }
    }

    #[test]
    fn alt_and_a_bracket_are_a_key_and_the_keys_after_it_are_kept() {
        let alt = key(KeyCode::Char(']'), KeyModifiers::ALT);
        let (events, _) = read(b"\x1b]j");
        assert_eq!(events, [alt.clone(), letter('j')]);
        let (events, _) = read(b"\x1b]1j");
        assert_eq!(events, [alt.clone(), letter('1'), letter('j')]);
        let mut parser = Parser::default();
        let mut events = Vec::new();
        parser.feed(b"\x1b]", &mut events);
        assert_eq!(events, []);
        assert!(parser.patience().is_some());
        parser.give_up(&mut events);
        assert_eq!(events, [alt]);
    }
}
