//! Effects that the worker carries out.

use attnscope_worker::Worker;

use super::state::msg::Effect;

impl Effect {
    /// Sends the request to the worker. The drawing loop handles exports and terminal effects, because it knows the screen.
    pub fn ask(self, worker: &Worker) {
        match self {
            Self::Run(request) => worker.run(request),
            Self::Write => worker.write(),
            Self::Cancel => worker.cancel(),
            Self::LookAt(run, query) => worker.look_at(run, query),
            Self::LookAtPart(run, query) => worker.look_at_part(run, query),
            Self::Tensor(name) => worker.tensor(name),
            Self::Probe(run) => worker.probe(run),
            Self::WhatIf(what_ifs) => worker.run_what_ifs(what_ifs),
            Self::Against(against) => worker.against(against),
            Self::QueryRows(query) => worker.query_rows(query),
            Self::Compare(pair) => worker.compare(pair),
            Self::Reload(a) => worker.reload(a),
            Self::Again(run, is_second) => worker.again(run, is_second),
            Self::OpenStep(step) => worker.open_step(step),
            Self::ReadAgain => worker.read_again(),
            Self::Sweep(query) => worker.sweep(query),
            Self::Measure(query) => worker.measure(query),
            Self::OverPrompts(query) => worker.over_prompts(query),
            Self::SweepLayer(query) => worker.sweep_layer(query),
            Self::Export
            | Self::ExportFigure
            | Self::Stop
            | Self::EditOutside(_)
            | Self::Command(_)
            | Self::Remember(_)
            | Self::Copy(_) => {}
        }
    }
}
