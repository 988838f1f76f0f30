//! What a person is told once, in the first session with a checkpoint of their own: three keys, as they are set.

use std::collections::VecDeque;

use super::keymap::Keymap;
use super::keys::Action;
use super::panel::Panel;
use super::remembered::Remembered;

/// The tips of a session that keeps what it did: all of them in the first one, none in others.
pub fn tips_of(remembered: Option<&Remembered>, keys: &Keymap) -> VecDeque<String> {
    match remembered {
        Some(remembered) if remembered.begins_first() => tips(keys),
        _ => VecDeque::new(),
    }
}

/// The tips, in the order in which they are shown: one after each key.
fn tips(keys: &Keymap) -> VecDeque<String> {
    let key = |action: Action| keys.key(action);
    let told = [
        format!(
            "{} lists what is wrong and why, {} asks what only other prompts show",
            key(Action::Go(Panel::Checks)),
            key(Action::Probe)
        ),
        format!(
            "{} edits the text, {} changes attention, {} compares the two",
            key(Action::Edit),
            key(Action::WhatIf),
            key(Action::NextSide)
        ),
        format!(
            "{} lists every key, {} finds anything",
            key(Action::Help),
            key(Action::Palette)
        ),
    ];
    let n = told.len();
    let numbered = told
        .iter()
        .enumerate()
        .map(|(idx, tip)| format!("tip {} of {n}: {tip}", idx + 1));
    numbered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fits_a_line_and_names_the_keys_as_they_are() {
        let all = tips(&Keymap::default());
        assert_eq!(all.len(), 3);
        for tip in &all {
            assert!(tip.chars().count() < 79, "{tip}");
        }
        assert!(all[0].contains("6 lists"), "{}", all[0]);
        assert!(all[2].contains("? lists"), "{}", all[2]);
    }
}
