//! The demos: which checkpoint, which text, what is in front, and what is to be tried.

use anyhow::Result;
use attnscope_checks::stats::Stat;
use attnscope_prompt::{Request, Target};
use attnscope_run::WhatIf;
use attnscope_screen::Panel;

use super::story::{Figures, Story};
use super::{collapse, degenerate, effect, history, induction, rescale, variance};
use crate::bundles::DEMO_PROMPT;

/// A German phrase and its translation: units and tens change places.
const GERMAN: &str = "der lehrer hat am neun und zwanzigsten juli drei tausend neun hundert fünf und siebzig sterne gekauft";
const ENGLISH: &str =
    "the teacher bought three thousand nine hundred seventy five stars on july twenty ninth";

const STORY: &str = "the king took a quiet story in the night . a big cat sang in the green city . \
     it sat under the lake and saw a red mat with a big boy in the morning and saw the mat .";

/// As long as the contexts of the training that collapses.
const SHORT_STORY: &str = "the king took a quiet story in the night . a big cat sang in the green city . \
     it sat under the lake and saw a red mat";

/// Every demo: one entry each.
pub static STORIES: &[Story] = &[
    Story {
        name: "induction",
        title: "a small transformer that repeats what it has read: previous-token and induction heads",
        bundle: "induction-demo",
        set: &[],
        text: DEMO_PROMPT,
        target: None,
        panel: Panel::Overview,
        at: (1, 3),
        statistic: Stat::InductionMass,
        what_if: &[],
        hint: "L1H3 is an induction head: Enter opens it · w drop=zero@L0H2 breaks it",
        figures: Figures::Text(induction::figures),
    },
    Story {
        name: "effect",
        title: "what heads do: two heads found by ablation, by attribution and from the weights alone",
        bundle: "induction-demo",
        set: &[],
        text: DEMO_PROMPT,
        target: None,
        panel: Panel::Story,
        at: (1, 3),
        statistic: Stat::InductionMass,
        what_if: &[],
        hint: "→ turns the page · 9 measures every head on your own text",
        figures: Figures::Pages(effect::pages),
    },
    Story {
        name: "collapse",
        title: "an LSTM translator whose unscaled dot products saturate the softmax (Luong attention)",
        bundle: "unscaled-translator",
        set: &[],
        text: GERMAN,
        target: Some(ENGLISH),
        panel: Panel::Story,
        at: (0, 0),
        statistic: Stat::EntropyRelative,
        what_if: &[],
        hint: "→ turns the page · 8 the cause · 6 findings · w scale=inv_sqrt_d heals it",
        figures: Figures::Pages(collapse::pages),
    },
    Story {
        name: "healed",
        title: "its twin with scores divided by √d: same data, seed and steps",
        bundle: "scaled-translator",
        set: &[],
        text: GERMAN,
        target: Some(ENGLISH),
        panel: Panel::Head,
        at: (0, 0),
        statistic: Stat::EntropyRelative,
        what_if: &[],
        hint: "scores are h·k/√d; w scale=none takes the division away",
        figures: Figures::Pages(collapse::pages),
    },
    Story {
        name: "rescale",
        title: "other divisors than √d: the shape of the weights, and what it costs",
        bundle: "induction-demo",
        set: &[],
        text: DEMO_PROMPT,
        target: None,
        panel: Panel::Story,
        at: (1, 3),
        statistic: Stat::EntropyRelative,
        what_if: &["scale=sum_key_norms"],
        hint: "→ turns the page · 7 compares √d with Σ‖k‖ · w tries another divisor",
        figures: Figures::Pages(rescale::pages),
    },
    Story {
        name: "degenerate",
        title: "a softmax over the wrong axis: a loss too good to be true, and text that is gibberish",
        bundle: "degenerate",
        set: &[("softmax_axis", "queries")],
        text: STORY,
        target: None,
        panel: Panel::Story,
        at: (0, 0),
        statistic: Stat::MaxProbability,
        what_if: &["softmax_axis=keys"],
        hint: "→ turns the page · v puts the axis right · G lets both write · 6 findings",
        figures: Figures::Pages(degenerate::pages),
    },
    Story {
        name: "variance",
        title: "why scores are scaled, and what saturation costs the gradient",
        bundle: "induction-demo",
        set: &[],
        text: DEMO_PROMPT,
        target: None,
        panel: Panel::Story,
        at: (0, 0),
        statistic: Stat::ScoreVarRatio,
        what_if: &[],
        hint: "→ turns the page · 3 shows the scores of a head · w qk_norm=on tries QK-norm",
        figures: Figures::Pages(variance::pages),
    },
    Story {
        name: "history",
        title: "a training whose attention collapses midway: when it began, and what warned first",
        bundle: "history-step-400",
        set: &[],
        text: SHORT_STORY,
        target: None,
        panel: Panel::Overview,
        at: (0, 0),
        statistic: Stat::EntropyRelative,
        what_if: &[],
        hint: "←→ walks through steps · f finds what begins · Enter opens 150, 250 or 400",
        figures: Figures::Text(history::figures),
    },
];

impl Story {
    pub fn request(&self) -> Request {
        let request = Request::text(self.text);
        match self.target {
            Some(target) => Request {
                target: Target::Text(target.to_owned()),
                ..request
            },
            None => request,
        }
    }

    /// # Errors
    /// None for stories that are tested.
    pub fn what_ifs(&self) -> Result<Vec<WhatIf>> {
        let read = |words: &&str| words.parse().map_err(anyhow::Error::msg);
        self.what_if.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles;

    #[test]
    fn every_story_has_its_checkpoint_and_names_things_that_are() {
        for story in STORIES {
            assert!(bundles::named(story.bundle).is_some(), "{}", story.name);
            story
                .what_ifs()
                .unwrap_or_else(|e| panic!("{}: {e}", story.name));
            assert!(story.hint.chars().count() <= 78, "{}", story.name);
        }
    }
}
