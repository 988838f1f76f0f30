//! The runs on screen: A, perhaps B beside it, and which of them panels show.

use std::sync::Arc;

use attnscope_compare::Comparison;
use attnscope_run::{HeadMap, HeadQuery, Pyramid, Step, WhatIf};
use attnscope_spec::Stack;
use attnscope_worker::{Against, RunId};

use super::aligned::Aligned;
use super::run::Run;

/// What panels show while there are two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shows {
    /// The first run.
    #[default]
    A,
    /// The second run.
    B,
    /// B less A, where it is a number or a map; elsewhere as B.
    Difference,
}

/// How B came to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Way {
    /// The prompt of A through the model with another attention.
    WhatIf(Vec<WhatIf>),
    /// Another checkpoint, a trace, or another prompt.
    Against(Against),
}

impl Way {
    /// What B is called in titles, as a person wrote it.
    pub fn words(&self) -> String {
        match self {
            Self::WhatIf(what_ifs) => {
                let words: Vec<String> = what_ifs.iter().map(WhatIf::to_string).collect();
                words.join(", ")
            }
            Self::Against(against) => against.words(),
        }
    }

    /// What a side is called.
    pub fn label(&self, shows: Shows) -> &'static str {
        match (self, shows) {
            (Self::WhatIf(_), Shows::A) => "before",
            (Self::WhatIf(_), Shows::B) => "after",
            (Self::Against(_), Shows::A) => "A",
            (Self::Against(_), Shows::B) => "B",
            (_, Shows::Difference) => "difference",
        }
    }

    /// What A and B are called.
    pub fn labels(&self) -> [&'static str; 2] {
        [Shows::A, Shows::B].map(|side| self.label(side))
    }

    /// What a banner says of B, and what of the side that is shown.
    pub fn banner(&self, shows: Shows) -> [&'static str; 2] {
        match (self, shows) {
            (Self::WhatIf(_), Shows::A) => ["WHAT IF", "the checkpoint as it is"],
            (Self::WhatIf(_), _) => ["WHAT IF", "not the checkpoint as it is"],
            (Self::Against(_), Shows::A) => ["AGAINST", "A alone is shown"],
            (Self::Against(_), Shows::B) => ["AGAINST", "B alone is shown"],
            (Self::Against(_), Shows::Difference) => ["AGAINST", "B less A is shown"],
        }
    }
}

/// How far A and B are compared.
#[derive(Debug, Clone, Default)]
pub enum Comparing {
    /// Nothing was asked.
    #[default]
    No,
    /// The worker was asked; what it does now, once that is told.
    Going(Option<Step>),
    Done(Arc<Comparison>),
    /// It was stopped, or something could not be read or computed: why.
    Ended(String),
}

/// The second run, from when it is wanted on.
#[derive(Debug)]
pub struct Second {
    pub way: Way,
    /// Whether the worker was asked for it.
    pub is_asked: bool,
    /// `None` until it has begun.
    pub run: Option<Run>,
    /// The selected head's map of B less A's; of the scores where they are shown.
    pub difference: Option<(HeadQuery, HeadMap, Arc<Pyramid>)>,
    /// Tokens of A and B that stand for each other, once B has begun: of the prompt, and of what an encoder is given.
    pub aligned: [Aligned; 2],
    pub comparing: Comparing,
    /// Whether the program was started to show it: without it there is nothing to show.
    pub is_demanded: bool,
}

impl Second {
    pub fn new(way: Way) -> Self {
        Self {
            way,
            is_asked: false,
            run: None,
            difference: None,
            aligned: <[Aligned; 2]>::default(),
            comparing: Comparing::default(),
            is_demanded: false,
        }
    }

    /// Which queries, and which keys, of the maps of a grid stand for each other.
    pub fn aligned_axes(&self, grid: Stack) -> (&Aligned, &Aligned) {
        let [prompt, given] = &self.aligned;
        match grid {
            Stack::Encoder => (given, given),
            Stack::Cross => (prompt, given),
            Stack::Only | Stack::Decoder => (prompt, prompt),
        }
    }
}

/// A, perhaps B, and which of them panels show.
#[derive(Debug, Default)]
pub struct Runs {
    pub a: Option<Run>,
    pub b: Option<Second>,
    /// Of no matter while there is no B.
    pub shows: Shows,
}

impl Runs {
    /// The run that panels show of a side; A as long as B has not begun.
    pub fn shown(&self, shows: Shows) -> Option<&Run> {
        match shows {
            Shows::A => self.a.as_ref(),
            Shows::B | Shows::Difference => self.second().or(self.a.as_ref()),
        }
    }

    /// The run that panels show of a side, to be changed.
    pub fn shown_mut(&mut self, shows: Shows) -> Option<&mut Run> {
        let second = self.b.as_mut().and_then(|second| second.run.as_mut());
        match shows {
            Shows::A => self.a.as_mut(),
            Shows::B | Shows::Difference => second.or(self.a.as_mut()),
        }
    }

    /// Both runs but the one with this id: a question about that one takes the place of theirs.
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

    /// The run with an id, shown or not; `None` for one that is no longer on screen.
    pub fn of(&mut self, id: RunId) -> Option<&mut Run> {
        let second = self.b.as_mut().and_then(|second| second.run.as_mut());
        let both = [self.a.as_mut(), second];
        both.into_iter().flatten().find(|run| run.id == id)
    }
}
