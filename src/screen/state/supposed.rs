//! The list of what-ifs, each of them on or off, and what runs as a whole: a text, and what stands beside it.

use attnscope_prompt::Source;
use attnscope_run::WhatIf;
use attnscope_worker::{Against, RunId};

use super::app::App;
use super::run::Run;
use super::runs::{SecondRunKind, Shows};
use super::shown_name::name_of;

/// A what-if of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct Supposed {
    pub what_if: WhatIf,
    /// Whether B runs with it.
    pub is_on: bool,
}

/// What runs: the text of A, and how B is made. Undo leads back to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Situation {
    pub source: Option<Source>,
    pub what_ifs: Vec<Supposed>,
    pub against: Option<Against>,
    /// A, if it is a run of before that was made otherwise than by running the text.
    pub a: Option<RunId>,
    /// B, if it is a run of before that is made in no other way.
    pub earlier: Option<(RunId, String)>,
}

impl App {
    /// What runs now, or is about to.
    pub fn situation(&self) -> Situation {
        let second = self.runs.b.as_ref().map(|second| &second.way);
        let against = second.and_then(|way| match way {
            SecondRunKind::Against(against) => Some(against.clone()),
            SecondRunKind::WhatIf(_) | SecondRunKind::Earlier(..) => None,
        });
        let earlier = second.and_then(|way| match way {
            SecondRunKind::Earlier(id, words) => Some((*id, words.clone())),
            SecondRunKind::WhatIf(_) | SecondRunKind::Against(_) => None,
        });
        let a = self.runs.a.as_ref();
        let name = self.opened.as_ref().map(name_of);
        let is_made = |run: &&Run| {
            let seen = self.seen_of(run);
            seen.is_some_and(|seen| !seen.is_plain() || Some(&seen.name) != name.as_ref())
        };
        Situation {
            source: self.runs.a.as_ref().map(|run| run.source.clone()),
            what_ifs: self.runs.what_ifs.clone(),
            against,
            a: a.filter(is_made).map(|run| run.id),
            earlier,
        }
    }
}

impl Situation {
    /// How B is made; `None` without a B.
    pub fn way(&self) -> Option<(SecondRunKind, Shows)> {
        if let Some((id, words)) = &self.earlier {
            let way = SecondRunKind::Earlier(*id, words.clone());
            return Some((way, Shows::Difference));
        }
        if let Some(against) = &self.against {
            let way = SecondRunKind::Against(against.clone());
            return Some((way, Shows::Difference));
        }
        let on: Vec<WhatIf> = on(&self.what_ifs).collect();
        (!on.is_empty()).then_some((SecondRunKind::WhatIf(on), Shows::B))
    }
}

/// The what-ifs that are on.
pub fn on(all: &[Supposed]) -> impl Iterator<Item = WhatIf> + '_ {
    let on = all.iter().filter(|supposed| supposed.is_on);
    on.map(|supposed| supposed.what_if.clone())
}
