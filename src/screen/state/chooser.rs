//! The list of what-ifs to choose from: a few letters narrow it, and any what-if can be typed in full.

use attnscope_run::WhatIf;
use attnscope_spec::{Place, Stack};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::matching::Matching;
use super::supposed::Supposed;

/// Common what-ifs, each with a description.
const CHOICES: &[(&str, &str)] = &[
    ("scale=inv_sqrt_d", "scores divided by √d"),
    ("scale=none", "scores as the products are"),
    ("scale=inv_d", "scores divided by d"),
    ("scale=x2", "scores twice as large"),
    ("scale=x0.5", "scores half as large"),
    ("scale=sum_key_norms", "divided by the sum of key norms"),
    ("scale=mean_key_norm", "divided by the mean key norm"),
    (
        "scale=rms_key_norm",
        "divided by the root of the sum of squared key norms",
    ),
    ("scale=p_norm:3", "divided by the 3-norm of key norms"),
    ("scale=n_sqrt_d", "divided by keys times √d"),
    ("softmax_axis=keys", "each query's weights sum to 1"),
    (
        "softmax_axis=queries",
        "each key's weights sum to 1: the classic mistake",
    ),
    (
        "softmax_axis=heads",
        "each pair's weights sum to 1 over the heads",
    ),
    ("mask=none", "every key is seen"),
    ("mask=causal", "no later key is seen"),
    ("mask=window:64", "the last 64 keys are seen"),
    ("qk_norm=on", "queries and keys of length √d"),
    ("qk_norm=off", "norms of queries and keys left out"),
    ("temperature=2", "a softer softmax"),
    ("temperature=0.5", "a harder softmax"),
    ("softcap=30", "scores bounded by 30"),
    ("softcap=off", "scores not bounded"),
    ("kv=fp8", "keys and values rounded to fp8"),
    ("kv=int8", "keys and values in blocks of 8-bit integers"),
    ("kv=int4", "keys and values in blocks of 4-bit integers"),
    (
        "kv_window=64+sinks:4",
        "a streaming KV cache: the last 64 keys and the first 4",
    ),
    ("top_k_keys=16", "each query sees its 16 largest scores"),
    ("top_k_keys=all", "sparse attention sees all keys"),
    ("weights=bf16", "weights rounded to bf16"),
    ("weights=fp8", "maps of layers rounded to fp8"),
    ("drop=zero", "the head's output becomes 0"),
    ("drop=mean", "the head's output becomes its mean"),
];

/// Where a chosen what-if applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Head,
    Layer,
    Everywhere,
    /// The marked heads.
    Marked,
}

/// State of the list while it is open.
#[derive(Debug)]
pub struct Chooser {
    pub typed: String,
    pub cursor: usize,
    pub reach: Reach,
    /// The selected head.
    at: Place,
    /// The marked heads.
    marked: Vec<Place>,
    /// What-ifs that were made, which stand above the choices.
    pub listed: Vec<Supposed>,
    /// The selected one of them; `None` while a choice is selected.
    pub at_listed: Option<usize>,
    /// Why the typed what-if is invalid.
    pub problem: Option<String>,
}

/// Result of a key in the list.
#[derive(Debug, PartialEq)]
pub enum Chose {
    Going,
    Dismissed,
    WhatIf(Box<WhatIf>),
    /// Remove a what-if of the list, or the last one.
    Less(Option<usize>),
    /// Switch a what-if of the list on or off.
    Switch(usize),
}

impl Chooser {
    pub fn new(stack: Stack, layer_idx: usize, head_idx: usize) -> Self {
        Self {
            typed: String::new(),
            cursor: 0,
            reach: Reach::Everywhere,
            at: Place::layer(stack, layer_idx).head(head_idx),
            marked: Vec::new(),
            listed: Vec::new(),
            at_listed: None,
            problem: None,
        }
    }

    /// The list with what-ifs that were made before, and with heads that are marked.
    #[must_use]
    pub fn with(self, listed: Vec<Supposed>, marked: Vec<Place>) -> Self {
        Self {
            listed,
            marked,
            ..self
        }
    }

    /// Switches a what-if of the list, as it is shown here.
    pub fn switch(&mut self, nth: usize) {
        if let Some(supposed) = self.listed.get_mut(nth) {
            supposed.is_on = !supposed.is_on;
        }
    }

    /// The places that a reach selects; none for everywhere.
    pub fn places(&self, reach: Reach) -> Vec<Place> {
        match reach {
            Reach::Head => vec![self.at],
            Reach::Layer => vec![Place {
                head_idx: None,
                ..self.at
            }],
            Reach::Everywhere => Vec::new(),
            Reach::Marked => self.marked.clone(),
        }
    }

    /// The reaches to choose from.
    pub fn reaches(&self) -> Vec<Reach> {
        let mut all = vec![Reach::Everywhere, Reach::Layer, Reach::Head];
        if !self.marked.is_empty() {
            all.push(Reach::Marked);
        }
        all
    }

    /// The choices that match the typed text.
    ///
    /// A complete number matches exactly: `temperature=0` is not a prefix of `temperature=0.5`.
    pub fn shown(&self) -> Vec<(&'static str, &'static str)> {
        let typed = self.typed.to_lowercase();
        let is_number = typed.contains('=')
            && typed.ends_with(|last: char| last.is_ascii_digit() || last == '.');
        let mut matching = Matching::of_words(&typed);
        let fits = |(words, about): &&(&str, &str)| {
            if is_number {
                return *words == typed;
            }
            matching.score(&format!("{words} {about}")).is_some()
        };
        CHOICES.iter().filter(fits).copied().collect()
    }

    pub fn key(&mut self, key: KeyEvent) -> Chose {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        self.problem = None;
        match (key.code, self.at_listed) {
            (KeyCode::Enter | KeyCode::Char(' '), Some(nth)) => return Chose::Switch(nth),
            (KeyCode::Up, Some(nth)) => {
                self.at_listed = Some(nth.saturating_sub(1));
                return Chose::Going;
            }
            (KeyCode::Down, Some(nth)) => {
                self.at_listed = Some(nth + 1).filter(|nth| *nth < self.listed.len());
                return Chose::Going;
            }
            (KeyCode::Up, None) if self.cursor == 0 => {
                self.at_listed = self.listed.len().checked_sub(1);
                return Chose::Going;
            }
            _ => {}
        }
        match key.code {
            KeyCode::Esc => return Chose::Dismissed,
            KeyCode::Enter => return self.chosen(),
            KeyCode::Delete => return Chose::Less(self.at_listed),
            KeyCode::Up => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Down => self.cursor = (self.cursor + 1).min(self.shown().len().max(1) - 1),
            KeyCode::Tab | KeyCode::Right => self.reach = self.next_reach(1),
            KeyCode::BackTab | KeyCode::Left => self.reach = self.next_reach(-1),
            KeyCode::Backspace => {
                self.typed.pop();
                (self.cursor, self.at_listed) = (0, None);
            }
            KeyCode::Char('u') if is_control => self.typed.clear(),
            KeyCode::Char(letter) if !is_control => {
                self.typed.push(letter);
                (self.cursor, self.at_listed) = (0, None);
            }
            _ => {}
        }
        Chose::Going
    }

    fn next_reach(&self, by: isize) -> Reach {
        let all = self.reaches();
        let here = all.iter().position(|reach| *reach == self.reach);
        let next = (here.unwrap_or(0) as isize + by).rem_euclid(all.len() as isize);
        all[next as usize]
    }

    fn chosen(&mut self) -> Chose {
        let shown = self.shown();
        let read = match shown.get(self.cursor) {
            Some((words, _)) => WhatIf::new(words, self.places(self.reach)),
            None if self.typed.contains('@') => self.typed.parse(),
            None => WhatIf::new(&self.typed, self.places(self.reach)),
        };
        match read {
            Ok(what_if) => Chose::WhatIf(Box::new(what_if)),
            Err(problem) => {
                self.problem = Some(problem);
                Chose::Going
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(chooser: &mut Chooser, text: &str) -> Chose {
        for letter in text.chars() {
            chooser.key(KeyEvent::from(KeyCode::Char(letter)));
        }
        chooser.key(KeyEvent::from(KeyCode::Enter))
    }

    fn words(chose: Chose) -> String {
        match chose {
            Chose::WhatIf(what_if) => what_if.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_choice_is_a_what_if() {
        for (words, about) in CHOICES {
            let read: WhatIf = words.parse().unwrap_or_else(|e| panic!("{words}: {e}"));
            assert_eq!(read.to_string(), *words);
            assert!(!about.is_empty());
        }
    }

    #[test]
    fn letters_narrow_the_list_and_the_reach_selects_the_place() {
        let mut chooser = Chooser::new(Stack::Only, 3, 5);
        chooser.key(KeyEvent::from(KeyCode::Tab));
        assert_eq!(
            words(typed(&mut chooser, "mistake")),
            "softmax_axis=queries@L3"
        );
        let mut chooser = Chooser::new(Stack::Cross, 3, 5);
        chooser.reach = Reach::Head;
        assert_eq!(
            words(typed(&mut chooser, "becomes 0")),
            "drop=zero@cross.L3H5"
        );
    }

    #[test]
    fn what_ifs_of_the_list_are_switched_above_the_choices() {
        let supposed = |words: &str| Supposed {
            what_if: words.parse().expect("a what-if"),
            is_on: true,
        };
        let listed = vec![supposed("scale=none"), supposed("mask=none@L0")];
        let heads = [3, 5].map(|head_idx| Place::layer(Stack::Only, 1).head(head_idx));
        let mut chooser = Chooser::new(Stack::Only, 0, 0).with(listed, heads.to_vec());
        let mut press = |code: KeyCode| chooser.key(KeyEvent::from(code));
        press(KeyCode::Up);
        press(KeyCode::Up);
        assert_eq!(press(KeyCode::Char(' ')), Chose::Switch(0));
        press(KeyCode::Down);
        assert_eq!(press(KeyCode::Delete), Chose::Less(Some(1)));
        // Letters lead back to the choices; the marked heads are a place of their own.
        press(KeyCode::BackTab);
        assert_eq!(
            words(typed(&mut chooser, "becomes 0")),
            "drop=zero@L1H3,L1H5"
        );
    }

    #[test]
    fn any_what_if_can_be_typed_and_an_invalid_one_is_reported() {
        let mut chooser = Chooser::new(Stack::Only, 0, 0);
        assert_eq!(
            words(typed(&mut chooser, "temperature=1.7@L0H1")),
            "temperature=1.7@L0H1"
        );
        let mut chooser = Chooser::new(Stack::Only, 0, 0);
        assert_eq!(words(typed(&mut chooser, "softcap=7.5")), "softcap=7.5");
        // Numbers that begin like those in the list.
        for own in [
            "mask=window:6",
            "softcap=3",
            "scale=x0.25",
            "temperature=0.25",
        ] {
            let mut chooser = Chooser::new(Stack::Only, 0, 0);
            assert_eq!(words(typed(&mut chooser, own)), own);
        }
        for wrong in ["softcap=-1", "temperature=0", "scale=x0"] {
            let mut chooser = Chooser::new(Stack::Only, 0, 0);
            assert_eq!(typed(&mut chooser, wrong), Chose::Going, "{wrong}");
            assert!(chooser.problem.expect("a reason").contains("expected"));
        }
        // A prefix can stand for the whole word.
        let mut chooser = Chooser::new(Stack::Only, 0, 0);
        assert_eq!(words(typed(&mut chooser, "scale=no")), "scale=none");
    }
}
