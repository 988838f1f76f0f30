//! What-ifs switched on and off one by one, and undo and redo of texts and of what stands beside them.

use attnscope_prompt::Request;
use attnscope_run::WhatIf;

use super::state::app::App;
use super::state::find::{Item, Target};
use super::state::msg::Effect;
use super::state::run::Preparing;
use super::state::runs::Shows;
use super::state::seen::{QUOTED, quoted};
use super::state::supposed::{Situation, Supposed, on};

impl App {
    /// Adds a what-if to the list; B runs once the run on screen has finished.
    pub fn add_what_if(&mut self, what_if: WhatIf) {
        // Of two what-ifs that contradict each other, the newer one wins.
        let all = &mut self.runs.what_ifs;
        all.retain(|known| !known.what_if.contradicts(&what_if));
        all.push(Supposed {
            what_if,
            is_on: true,
        });
        self.suppose_again();
    }

    /// Removes a what-if of the list: the last one that is on, or the last of all, unless one is named.
    pub fn remove_what_if(&mut self, nth: Option<usize>) {
        let all = &self.runs.what_ifs;
        let last_on = || all.iter().rposition(|supposed| supposed.is_on);
        let Some(nth) = nth.or_else(last_on).or(all.len().checked_sub(1)) else {
            return;
        };
        if nth < all.len() {
            let removed = self.runs.what_ifs.remove(nth);
            if removed.is_on {
                self.suppose_again();
            }
        }
    }

    /// Switches a what-if of the list on or off.
    pub fn switch_what_if(&mut self, nth: usize) {
        let Some(supposed) = self.runs.what_ifs.get_mut(nth) else {
            return;
        };
        supposed.is_on = !supposed.is_on;
        let said = if supposed.is_on { "on" } else { "off" };
        self.written = Some(format!("{} is {said}", supposed.what_if));
        self.suppose_again();
    }

    /// Switches all what-ifs off; they stay in the list.
    pub(super) fn switch_all_off(&mut self) {
        let all = self.runs.what_ifs.iter_mut();
        all.for_each(|supposed| supposed.is_on = false);
    }

    /// Makes B of the what-ifs that are on, or drops it if none is.
    fn suppose_again(&mut self) {
        self.drop_second();
        let what_ifs: Vec<WhatIf> = on(&self.runs.what_ifs).collect();
        if !what_ifs.is_empty() {
            self.begin_what_ifs(what_ifs, Shows::B);
        }
    }

    /// The what-ifs of the list, for the palette.
    pub(super) fn supposed_items(&self) -> Vec<Item> {
        let all = self.runs.what_ifs.iter().enumerate();
        all.map(|(nth, supposed)| {
            let (switch, is) = if supposed.is_on {
                ("off", "on")
            } else {
                ("on", "off")
            };
            Item {
                about: format!("a what-if that is {is}"),
                ..Item::new(
                    format!("switch {switch} {}", supposed.what_if),
                    "what if",
                    Target::Supposed(nth),
                )
            }
        })
        .collect()
    }

    /// Runs a text as A, which undo takes back.
    pub(super) fn run_text(&mut self, request: Request, effects: &mut Vec<Effect>) {
        let here = self.situation();
        if here.source.as_ref() != Some(&request.source) {
            self.undone.leave(here);
        }
        self.preparing = Some(Preparing::Text);
        effects.push(Effect::Run(request));
    }

    /// Notes that the last key or click changed what stands beside A, so that undo leads back.
    pub(super) fn note_change(&mut self, before: Situation) {
        let now = self.situation();
        let of = |situation: &Situation| {
            let Situation {
                what_ifs,
                against,
                earlier,
                ..
            } = situation.clone();
            (what_ifs, against, earlier)
        };
        if of(&before) != of(&now) {
            self.undone.leave(before);
        }
    }

    /// Goes back to the text and the what-ifs before the last change, or forward again.
    pub(super) fn undo(&mut self, is_back: bool, effects: &mut Vec<Effect>) {
        let here = self.situation();
        let found = if is_back {
            self.undone.back(here.clone())
        } else {
            self.undone.forward(here.clone())
        };
        let Some(to) = found else {
            let what = if is_back { "undo" } else { "redo" };
            self.notice = Some(format!("nothing to {what}: no text and no what-if changed"));
            return;
        };
        let done = if is_back { "undone" } else { "redone" };
        self.written = Some(format!("{done}: now {}", said(&to)));
        self.restore(to, effects);
    }

    /// Runs a text, and what stood beside it.
    fn restore(&mut self, to: Situation, effects: &mut Vec<Effect>) {
        let here = self.situation();
        self.drop_second();
        self.runs.what_ifs = to.what_ifs.clone();
        let is_other = (&to.source, to.a) != (&here.source, here.a);
        let source = to.source.clone().filter(|_| is_other);
        if let Some((way, shows)) = to.way() {
            self.begin_second(way, shows);
            // With another text, B is asked for once that text runs as A.
            if let Some(second) = &mut self.runs.b {
                second.is_asked = source.is_some();
            }
        }
        if let Some(source) = source {
            self.preparing = Some(Preparing::Text);
            if let Some(a) = to.a {
                effects.push(Effect::Again(a, false));
                return;
            }
            effects.push(Effect::Run(Request {
                source,
                ..Request::text("")
            }));
        }
    }
}

/// A situation in a few words.
fn said(to: &Situation) -> String {
    let shown = quoted(to.source.as_ref(), QUOTED);
    let beside = match to.way() {
        Some((way, _)) => way.words(),
        None => "A alone".to_owned(),
    };
    format!("“{shown}” · {beside}")
}
