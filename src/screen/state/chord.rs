//! Key chords as text: their names on screen and in settings, and the parser of these names.

use crossterm::event::{KeyCode, KeyModifiers};

/// A key and its modifiers.
pub type Chord = (KeyCode, KeyModifiers);

/// Names of keys that are not letters: the name shown, followed by other spellings.
const NAMED: [(KeyCode, &[&str]); 16] = [
    (KeyCode::Enter, &["Enter", "Return"]),
    (KeyCode::Esc, &["Esc", "Escape"]),
    (KeyCode::Tab, &["Tab"]),
    (KeyCode::BackTab, &["Shift-Tab", "BackTab"]),
    (KeyCode::Char(' '), &["Space"]),
    (KeyCode::Backspace, &["Backspace"]),
    (KeyCode::Delete, &["Delete", "Del"]),
    (KeyCode::Insert, &["Insert", "Ins"]),
    (KeyCode::Home, &["Home"]),
    (KeyCode::End, &["End"]),
    (KeyCode::PageUp, &["PgUp", "PageUp"]),
    (KeyCode::PageDown, &["PgDn", "PageDown", "PgDown"]),
    (KeyCode::Up, &["↑", "Up"]),
    (KeyCode::Down, &["↓", "Down"]),
    (KeyCode::Left, &["←", "Left"]),
    (KeyCode::Right, &["→", "Right"]),
];

/// Ctrl chords with a fixed meaning everywhere, also in text fields.
const FIXED: [(char, &str); 2] = [('c', "quits"), ('z', "suspends")];

/// Formats a chord.
pub fn name_of((code, modifiers): Chord) -> String {
    let mut name = String::new();
    for (modifier, word) in [
        (KeyModifiers::CONTROL, "Ctrl-"),
        (KeyModifiers::ALT, "Alt-"),
        (KeyModifiers::SHIFT, "Shift-"),
    ] {
        if modifiers.contains(modifier) {
            name.push_str(word);
        }
    }
    let named = NAMED.iter().find(|(known, _)| *known == code);
    match (named, code) {
        (Some((_, names)), _) => name.push_str(names[0]),
        (None, KeyCode::F(n)) => name.push_str(&format!("F{n}")),
        (None, KeyCode::Char(c)) if modifiers.contains(KeyModifiers::CONTROL) => {
            name.extend(c.to_uppercase());
        }
        (None, KeyCode::Char(c)) => name.push(c),
        (None, other) => name.push_str(&format!("{other:?}")),
    }
    name
}

/// Parses a chord.
pub fn parse(text: &str) -> Result<Chord, String> {
    let expected = || format!("expected a key as in \"y\", \"Ctrl-S\" or \"PgDn\", found {text:?}");
    let mut rest = text;
    let mut modifiers = KeyModifiers::NONE;
    let is_whole_name = |name: &str| NAMED.iter().any(|(_, names)| names.contains(&name));
    while !is_whole_name(rest) {
        let held = [
            ("ctrl", KeyModifiers::CONTROL),
            ("control", KeyModifiers::CONTROL),
            ("alt", KeyModifiers::ALT),
            ("shift", KeyModifiers::SHIFT),
        ];
        let Some((word, after)) = rest.split_once(['-', '+']) else {
            break;
        };
        let held = held
            .iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name));
        let Some((_, modifier)) = held.filter(|_| !after.is_empty()) else {
            break;
        };
        modifiers |= *modifier;
        rest = after;
    }
    let named = NAMED
        .iter()
        .find(|(_, names)| names.iter().any(|name| name.eq_ignore_ascii_case(rest)));
    let mut letters = rest.chars();
    let code = match (named, letters.next(), letters.as_str()) {
        (Some((code, _)), ..) => *code,
        (None, Some(c), "") if !c.is_control() => KeyCode::Char(c),
        (None, Some('f' | 'F'), number) => match number.parse() {
            Ok(n @ 1..=12) => KeyCode::F(n),
            _ => return Err(expected()),
        },
        _ => return Err(expected()),
    };
    let (code, modifiers) = match code {
        // With Ctrl, upper and lower case are the same.
        KeyCode::Char(c) if modifiers.contains(KeyModifiers::CONTROL) => (
            KeyCode::Char(c.to_ascii_lowercase()),
            modifiers - KeyModifiers::SHIFT,
        ),
        KeyCode::Char(c) if modifiers.contains(KeyModifiers::SHIFT) && c != ' ' => (
            KeyCode::Char(c.to_ascii_uppercase()),
            modifiers - KeyModifiers::SHIFT,
        ),
        KeyCode::Tab if modifiers.contains(KeyModifiers::SHIFT) => {
            (KeyCode::BackTab, modifiers - KeyModifiers::SHIFT)
        }
        code => (code, modifiers),
    };
    let fixed = FIXED
        .iter()
        .find(|(c, _)| (code, modifiers) == (KeyCode::Char(*c), KeyModifiers::CONTROL));
    match fixed {
        Some((_, what)) => Err(format!("{} always {what}", name_of((code, modifiers)))),
        None => Ok((code, modifiers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::keys::BINDINGS;

    #[test]
    fn every_formatted_chord_parses_back() {
        for binding in BINDINGS {
            for chord in binding.chords {
                let name = name_of(*chord);
                if !name.starts_with("Ctrl-C") && !name.starts_with("Ctrl-Z") {
                    assert_eq!(parse(&name), Ok(*chord), "{name}");
                }
            }
        }
        assert_eq!(parse("-"), Ok((KeyCode::Char('-'), KeyModifiers::NONE)));
        assert_eq!(
            parse("Ctrl--"),
            Ok((KeyCode::Char('-'), KeyModifiers::CONTROL))
        );
        assert_eq!(
            parse("shift-tab"),
            Ok((KeyCode::BackTab, KeyModifiers::NONE))
        );
        assert_eq!(
            parse("Shift-y"),
            Ok((KeyCode::Char('Y'), KeyModifiers::NONE))
        );
        assert_eq!(parse("space"), Ok((KeyCode::Char(' '), KeyModifiers::NONE)));
    }
}
