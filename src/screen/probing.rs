//! Probing: runs the model on changed prompts and examines its weights, on a key press or automatically if that is quick.

use attnscope_run::{Options, Step, input_of, work_of};

use super::state::app::App;
use super::state::msg::Effect;
use super::state::run::Run;

/// A model is probed automatically up to this many multiplications per run: a tenth of a second on two cores. The budget of the
/// readings bounds what that takes, and whatever else is asked comes first.
const SMALL: u64 = 2_000_000_000;

impl App {
    /// Runs the model on changed prompts and examines its weights.
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

    /// Probes the model of the shown run without a key press: once, when nothing else runs, and only if the model is small.
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

/// Whether a run's model is small enough to be probed automatically.
fn is_small(run: &Run) -> bool {
    let options = Options {
        keep_bytes: None,
        predicts: true,
    };
    let input = input_of(&run.prompt);
    let model = run.subject.model();
    model.is_some_and(|model| work_of(model, &[input], options) <= SMALL)
}
