//! Shows runs of before again: any of them as A, any other as B.

use attnscope_worker::RunId;

use super::state::app::{App, Overlay};
use super::state::find::{Find, Item, Target};
use super::state::msg::Effect;
use super::state::run::Preparing;
use super::state::runs::{SecondRunKind, Shows};
use super::state::seen::{QUOTED, Seen};
use super::state::supposed::Supposed;

impl App {
    /// Opens the list of the session's runs.
    pub(super) fn open_runs(&mut self) {
        let a = self.runs.a.as_ref().map(|run| run.id);
        let current = self.runs.seen.iter().position(|seen| Some(seen.id) == a);
        let numbered = self.runs.seen.iter().enumerate();
        let items = numbered.map(|(nth, seen)| self.seen_item(nth, seen));
        let mut find = Find::at("runs", items.collect(), current);
        find.keys = "Enter shows it as A · Tab as B";
        self.overlay = Some(Overlay::Palette(find));
    }

    /// A line of the list of runs.
    fn seen_item(&self, nth: usize, seen: &Seen) -> Item {
        let id = Some(seen.id);
        let on_screen = match (&self.runs.a, self.runs.second()) {
            (Some(a), _) if Some(a.id) == id => "on screen as A",
            (_, Some(b)) if Some(b.id) == id => "on screen as B",
            _ => "",
        };
        let loss = seen.loss.map(|loss| format!("loss {loss:.3}"));
        let mark = seen
            .mark
            .map(|severity| format!("{severity:?}").to_lowercase());
        let parts = [
            Some(self.apart(seen)),
            loss,
            mark,
            Some(on_screen.to_owned()),
        ];
        let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
        let about = parts.collect::<Vec<_>>().join(" · ");
        let label = format!("{} “{}”", nth + 1, self.text_of(seen, QUOTED));
        Item {
            also: about.clone(),
            about,
            ..Item::new(label, "run", Target::Seen(nth))
        }
    }

    /// Shows the next run as A, or as B.
    pub(super) fn next_run(&mut self, is_second: bool, effects: &mut Vec<Effect>) {
        let at = |id: Option<RunId>| self.runs.seen.iter().position(|seen| Some(seen.id) == id);
        let a = at(self.runs.a.as_ref().map(|run| run.id));
        let b = at(self.runs.second().map(|run| run.id));
        let n = self.runs.seen.len();
        let (here, other) = if is_second { (b.or(a), a) } else { (a, b) };
        // The other side keeps its run, so long as there is a third one.
        let mut ahead = (1..=n).map(|by| (here.unwrap_or(0) + by) % n);
        let found = ahead.find(|nth| Some(*nth) != here && (Some(*nth) != other || n == 2));
        if let Some(nth) = found {
            self.choose_run(nth, is_second, effects);
        }
    }

    /// Shows a run as A or as B. The run that is the other side takes the place of the one that goes.
    pub(super) fn choose_run(&mut self, nth: usize, is_second: bool, effects: &mut Vec<Effect>) {
        let Some(id) = self.runs.seen.get(nth).map(|seen| seen.id) else {
            return;
        };
        let a = self.runs.a.as_ref().map(|run| run.id);
        let b = self.runs.second().map(|run| run.id);
        let (a, b) = match (is_second, Some(id) == a, Some(id) == b) {
            (false, true, _) | (true, _, true) => {
                let side = if is_second { "B" } else { "A" };
                self.notice = Some(format!("run {} is {side} already", nth + 1));
                return;
            }
            (true, true, _) => match b {
                Some(b) => (Some(b), a),
                None => {
                    self.notice = Some("it is A: choose another run as B".to_owned());
                    return;
                }
            },
            (false, _, true) => (b, a),
            (false, ..) => (Some(id), b),
            (true, ..) => (a, Some(id)),
        };
        if let Some(a) = a {
            let here = self.situation();
            self.undone.leave(here);
            self.pair(a, b, effects);
        }
    }

    /// Shows a run as A, and one as B if there is to be a B.
    fn pair(&mut self, a: RunId, b: Option<RunId>, effects: &mut Vec<Effect>) {
        let had_second = self.runs.second().is_some();
        let shows = self.runs.shows;
        self.drop_second();
        self.switch_all_off();
        let of = |id: RunId| self.runs.seen.iter().find(|seen| seen.id == id);
        let way = b.and_then(|b| Some(of(a)?.way_to(of(b)?)));
        let is_new = self.runs.a.as_ref().is_none_or(|run| run.id != a);
        if let Some(way) = way {
            self.switch_on(&way);
            let usual = match &way {
                SecondRunKind::WhatIf(_) => Shows::B,
                _ => Shows::Difference,
            };
            self.begin_second(way, if had_second { shows } else { usual });
            if let Some(second) = &mut self.runs.b {
                // It is asked for once A is there.
                (second.earlier, second.is_asked) = (b, is_new);
            }
        }
        if is_new {
            self.preparing = Some(Preparing::Text);
            effects.push(Effect::Again(a, false));
        }
    }

    /// Switches on the what-ifs with which B is made, and no others.
    fn switch_on(&mut self, way: &SecondRunKind) {
        let SecondRunKind::WhatIf(what_ifs) = way else {
            return;
        };
        let all = &mut self.runs.what_ifs;
        all.retain(|known| !what_ifs.contains(&known.what_if));
        all.extend(what_ifs.iter().map(|what_if| Supposed {
            what_if: what_if.clone(),
            is_on: true,
        }));
    }
}
