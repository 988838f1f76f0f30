//! Maps complete control sequences to events: keys and mouse.

use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

pub(super) fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    // As in crossterm, a capital letter implies Shift.
    let shift = match code {
        KeyCode::Char(c) if c.is_uppercase() => KeyModifiers::SHIFT,
        _ => KeyModifiers::NONE,
    };
    Event::Key(KeyEvent::new(code, modifiers | shift))
}

/// Returns the event of a sequence, from its parameters and its final byte.
pub(super) fn event(parameters: &[u8], last: u8) -> Option<Event> {
    let text = std::str::from_utf8(parameters).ok()?;
    if let Some(text) = text.strip_prefix('<') {
        let [button, column, row] = numbers(text)?;
        return match last {
            b'M' | b'm' => mouse(button, column, row, last == b'm'),
            _ => None,
        };
    }
    let mut parts = text.split(';');
    // Subparameters follow a colon.
    let mut number = || {
        let part = parts.next()?.split(':').next()?;
        part.parse::<u32>().ok()
    };
    let (first, second, third) = (number(), number(), number());
    let modifiers = second.map_or(KeyModifiers::NONE, modifiers);
    match last {
        b'~' => match (first?, third) {
            (27, Some(letter)) => Some(key(of_letter(letter)?, modifiers)),
            (number, _) => Some(key(of_number(number)?, modifiers)),
        },
        b'u' => Some(key(of_letter(first?)?, modifiers)),
        b'Z' => Some(key(KeyCode::BackTab, modifiers | KeyModifiers::SHIFT)),
        b'I' if text.is_empty() => Some(Event::FocusGained),
        b'O' if text.is_empty() => Some(Event::FocusLost),
        b'a'..=b'd' if text.is_empty() => {
            let code = function_key(last.to_ascii_uppercase())?;
            Some(key(code, KeyModifiers::SHIFT))
        }
        // Mouse event in urxvt's form.
        b'M' => {
            let [button, column, row] = numbers(text)?;
            mouse(button.checked_sub(32)?, column, row, false)
        }
        // Sequences with other first numbers are unrequested answers of the terminal.
        _ if first.is_none_or(|first| first == 1) => Some(key(function_key(last)?, modifiers)),
        _ => None,
    }
}

/// Returns the key of a final letter, with or without parameters.
pub(super) fn function_key(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'M' => KeyCode::Enter,
        b'P'..=b'S' => KeyCode::F(letter - b'P' + 1),
        _ => return None,
    })
}

fn of_number(number: u32) -> Option<KeyCode> {
    Some(match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        // The numbering has gaps.
        11..=15 => KeyCode::F(number as u8 - 10),
        17..=21 => KeyCode::F(number as u8 - 11),
        23..=26 => KeyCode::F(number as u8 - 12),
        28..=29 => KeyCode::F(number as u8 - 13),
        31..=34 => KeyCode::F(number as u8 - 14),
        _ => return None,
    })
}

/// Returns the key of a character code.
fn of_letter(letter: u32) -> Option<KeyCode> {
    Some(match letter {
        9 => KeyCode::Tab,
        13 => KeyCode::Enter,
        27 => KeyCode::Esc,
        127 => KeyCode::Backspace,
        letter => KeyCode::Char(char::from_u32(letter).filter(|c| !c.is_control())?),
    })
}

fn modifiers(number: u32) -> KeyModifiers {
    let bits = number.saturating_sub(1);
    let of = |bit: u32, modifier| {
        if bits & bit == 0 {
            KeyModifiers::NONE
        } else {
            modifier
        }
    };
    of(1, KeyModifiers::SHIFT) | of(2, KeyModifiers::ALT) | of(4, KeyModifiers::CONTROL)
}

fn numbers(text: &str) -> Option<[u16; 3]> {
    let mut parts = text.split(';').map(|part| part.parse().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Returns the mouse event at a column and a row counted from 1; the bits of `button` give the button and the action.
pub(super) fn mouse(button: u16, column: u16, row: u16, is_up: bool) -> Option<Event> {
    let has = |bit: u16| button & bit != 0;
    let which = match (button & 0b11) | (button & 0b1100_0000) >> 4 {
        0 => Some(MouseButton::Left),
        1 => Some(MouseButton::Middle),
        2 => Some(MouseButton::Right),
        _ => None,
    };
    let kind = match (has(64), has(32), which) {
        (true, _, _) => match button & 0b11 {
            0 => MouseEventKind::ScrollUp,
            1 => MouseEventKind::ScrollDown,
            2 => MouseEventKind::ScrollLeft,
            _ => MouseEventKind::ScrollRight,
        },
        (false, true, Some(which)) => MouseEventKind::Drag(which),
        (false, true, None) => MouseEventKind::Moved,
        (false, false, Some(which)) if is_up => MouseEventKind::Up(which),
        (false, false, Some(which)) => MouseEventKind::Down(which),
        // Old forms do not say which button was released.
        (false, false, None) => MouseEventKind::Up(MouseButton::Left),
    };
    let mut modifiers = KeyModifiers::NONE;
    modifiers.set(KeyModifiers::SHIFT, has(4));
    modifiers.set(KeyModifiers::ALT, has(8));
    modifiers.set(KeyModifiers::CONTROL, has(16));
    Some(Event::Mouse(MouseEvent {
        kind,
        column: column.checked_sub(1)?,
        row: row.checked_sub(1)?,
        modifiers,
    }))
}
