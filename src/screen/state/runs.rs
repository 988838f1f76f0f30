//! The runs on screen: A, an optional B, and which of them panels show.

use std::sync::Arc;

use attnscope_compare::Comparison;
use attnscope_run::{HeadMap, HeadQuery, Pyramid, Step, WhatIf};
use attnscope_spec::Stack;
use attnscope_worker::{Against, RunId};

use super::aligned::Aligned;
use super::run::Run;
use super::seen::Seen;
use super::supposed::Supposed;

/// The side that panels show when there are two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shows {
    /// The first run.
    #[default]
    A,
    /// The second run.
    B,
    /// B minus A for numbers and maps; elsewhere B.
    Difference,
}

/// How B was made.
#[derive(Debug, Clone, PartialEq)]
pub enum SecondRunKind {
    /// A's prompt through the same model with what-ifs.
    WhatIf(Vec<WhatIf>),
    /// Another checkpoint, a trace, or another prompt.
    Against(Against),
    /// A run of before, by its id and in words.
    Earlier(RunId, String),
}

impl SecondRunKind {
    /// B's name in titles, as the user wrote it.
    pub fn words(&self) -> String {
        match self {
            Self::WhatIf(what_ifs) => {
                let words: Vec<String> = what_ifs.iter().map(WhatIf::to_string).collect();
                words.join(", ")
            }
            Self::Against(against) => against.words(),
            Self::Earlier(_, words) => words.clone(),
        }
    }

    /// The name of a side.
    pub fn label(&self, shows: Shows) -> &'static str {
        match shows {
            Shows::A => "A",
            Shows::B => "B",
            Shows::Difference => "B − A",
        }
    }

    /// The name of a side in tables: `before` and `after` for what-ifs, which scripts read.
    pub fn label_in_tables(&self, shows: Shows) -> &'static str {
        match (self, shows) {
            (Self::WhatIf(_), Shows::A) => "before",
            (Self::WhatIf(_), Shows::B) => "after",
            _ => self.label(shows),
        }
    }

    /// The names of A and B.
    pub fn labels(&self) -> [&'static str; 2] {
        [Shows::A, Shows::B].map(|side| self.label(side))
    }

    /// Banner texts: about B, and about the side shown.
    pub fn banner(&self, shows: Shows) -> [&'static str; 2] {
        let what = match self {
            Self::WhatIf(_) => "WHAT IF",
            Self::Against(_) | Self::Earlier(..) => "AGAINST",
        };
        let shown = match (self, shows) {
            (Self::WhatIf(_), Shows::A) => "Showing A, the checkpoint as it is",
            (Self::Against(_) | Self::Earlier(..), Shows::A) => "Showing A",
            (_, Shows::B) => "Showing B",
            (_, Shows::Difference) => "Showing B − A",
        };
        [what, shown]
    }
}

/// Progress of the comparison of A and B.
#[derive(Debug, Clone, Default)]
pub enum Comparing {
    /// Not requested.
    #[default]
    No,
    /// Requested; holds the worker's current step, once known.
    Going(Option<Step>),
    Done(Arc<Comparison>),
    /// Stopped or failed, with the reason.
    Ended(String),
}

/// The second run, from the moment it is requested.
#[derive(Debug)]
pub struct Second {
    pub way: SecondRunKind,
    /// Whether it was requested from the worker.
    pub is_asked: bool,
    /// The run of before that is shown again, if it is one.
    pub earlier: Option<RunId>,
    /// `None` until it has begun.
    pub run: Option<Run>,
    /// The selected head's map of B minus A's, of the scores if they are shown.
    pub difference: Option<(HeadQuery, HeadMap, Arc<Pyramid>)>,
    /// Alignment of A's and B's tokens, once B has begun: of the prompts, and of the encoder inputs.
    pub aligned: [Aligned; 2],
    pub comparing: Comparing,
    /// Whether the program was started to show it: if it fails, the screen quits.
    pub is_demanded: bool,
}

impl Second {
    pub fn new(way: SecondRunKind) -> Self {
        Self {
            way,
            is_asked: false,
            earlier: None,
            run: None,
            difference: None,
            aligned: <[Aligned; 2]>::default(),
            comparing: Comparing::default(),
            is_demanded: false,
        }
    }

    /// The alignment of the queries and of the keys in a grid's maps.
    pub fn aligned_axes(&self, grid: Stack) -> (&Aligned, &Aligned) {
        let [prompt, given] = &self.aligned;
        match grid {
            Stack::Encoder => (given, given),
            Stack::Cross => (prompt, given),
            Stack::Only | Stack::Decoder => (prompt, prompt),
        }
    }
}

/// A, an optional B, and which of them panels show.
#[derive(Debug, Default)]
pub struct Runs {
    pub a: Option<Run>,
    pub b: Option<Second>,
    /// Ignored while there is no B.
    pub shows: Shows,
    /// Runs of this session that were on screen, the oldest first.
    pub seen: Vec<Seen>,
    /// What-ifs that were made, whether or not B runs with them.
    pub what_ifs: Vec<Supposed>,
}

impl Runs {
    /// The run that panels show for a side; A until B has begun.
    pub fn shown(&self, shows: Shows) -> Option<&Run> {
        match shows {
            Shows::A => self.a.as_ref(),
            Shows::B | Shows::Difference => self.second().or(self.a.as_ref()),
        }
    }

    /// The same run as `shown` returns, mutable.
    pub fn shown_mut(&mut self, shows: Shows) -> Option<&mut Run> {
        let second = self.b.as_mut().and_then(|second| second.run.as_mut());
        match shows {
            Shows::A => self.a.as_mut(),
            Shows::B | Shows::Difference => second.or(self.a.as_mut()),
        }
    }

    /// The runs other than the one with this id, whose pending requests a request for that one replaces.
    pub fn others_than(&mut self, id: RunId) -> impl Iterator<Item = &mut Run> {
        let second = self.b.as_mut().and_then(|second| second.run.as_mut());
        let both = [self.a.as_mut(), second].into_iter().flatten();
        both.filter(move |run| run.id != id)
    }

    /// B, once it has begun.
    pub fn second(&self) -> Option<&Run> {
        self.b.as_ref()?.run.as_ref()
    }

    /// A and B, once both have begun.
    pub fn both(&self) -> Option<[&Run; 2]> {
        Some([self.a.as_ref()?, self.second()?])
    }

    /// The run with an id, shown or not; `None` if it is no longer on screen.
    pub fn of(&mut self, id: RunId) -> Option<&mut Run> {
        let second = self.b.as_mut().and_then(|second| second.run.as_mut());
        let both = [self.a.as_mut(), second];
        both.into_iter().flatten().find(|run| run.id == id)
    }
}
