//! The model asked on changed prompts and its weights looked at: by a key, and by itself where that takes no time that anybody would see.

use attnscope_run::{Options, Step, input_of, work_of};

use super::state::app::App;
use super::state::msg::Effect;
use super::state::run::Run;

/// Multiplications of a run up to which a model is asked by itself. Asking takes a few hundred times as many: a second or two.
const SMALL: u64 = 50_000_000;

impl App {
    /// Asks the model on changed prompts, and looks at its weights.
    pub(super) fn probe(&mut self, effects: &mut Vec<Effect>) {
        if let Some(run) = self.runs.shown_mut(self.runs.shows) {
            run.was_considered = true;
            run.probing = Some(Step {
                what: "beginning".to_owned(),
                n_done: 0,
                n: 1,
            });
            effects.push(Effect::Probe(run.id));
        }
    }

    /// Asks the model of the run that is shown without a key: once, when nothing else runs, and only where the model is small.
    pub(super) fn probe_by_itself(&mut self, effects: &mut Vec<Effect>) {
        if !self.asks_by_itself || self.preparing.is_some() {
            return;
        }
        let both = [self.runs.a.as_ref(), self.runs.second()];
        let is_busy = |run: &Run| run.is_running() || run.probing.is_some();
        if both.into_iter().flatten().any(is_busy) {
            return;
        }
        let Some(run) = self.runs.shown_mut(self.runs.shows) else {
            return;
        };
        if run.was_considered || run.is_probed || run.judgement.is_none() {
            return;
        }
        run.was_considered = true;
        if is_small(run) {
            self.probe(effects);
        }
    }
}

/// Whether a run is of a model that is asked by itself.
fn is_small(run: &Run) -> bool {
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let input = input_of(&run.prompt);
    let model = run.subject.model();
    model.is_some_and(|model| work_of(model, &[input], options) <= SMALL)
}
