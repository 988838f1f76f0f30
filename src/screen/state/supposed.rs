//! The list of what-ifs, each of them on or off, and what runs as a whole: a text, and what stands beside it.

use attnscope_prompt::Source;
use attnscope_run::WhatIf;
use attnscope_worker::Against;

use super::app::App;
use super::runs::{SecondRunKind, Shows};

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
}

impl App {
    /// What runs now, or is about to.
    pub fn situation(&self) -> Situation {
        let second = self.runs.b.as_ref().map(|second| &second.way);
        let against = second.and_then(|way| match way {
            SecondRunKind::Against(against) => Some(against.clone()),
            SecondRunKind::WhatIf(_) => None,
        });
        Situation {
            source: self.runs.a.as_ref().map(|run| run.source.clone()),
            what_ifs: self.runs.what_ifs.clone(),
            against,
        }
    }
}

impl Situation {
    /// The same without what-ifs that are switched off.
    #[must_use]
    pub fn in_force(mut self) -> Self {
        self.what_ifs.retain(|supposed| supposed.is_on);
        self
    }

    /// How B is made; `None` without a B.
    pub fn way(&self) -> Option<(SecondRunKind, Shows)> {
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
