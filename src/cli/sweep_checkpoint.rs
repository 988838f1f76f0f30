//! `attnscope sweep CHECKPOINT`: scales the scores of one layer on a prompt.

use std::path::Path;

use anyhow::Result;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::attention::{Bias, SoftmaxAxis};
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_report::chart::Mark;
use attnscope_report::{SweepShown, SweepSource, qk_norm_mark, rule_marks};
use attnscope_run::{LayerSweep, Options, SweepPlace, input_of, sweep_layer};
use attnscope_spec::{Place, Stack};

use super::figures::Targets;
use super::progress::Meter;
use super::prompts::InputsArgs;
use super::session::{Opened, Session};
use super::sweep_args::Args;
use super::sweep_place::missing;

/// Result of a checkpoint's sweep: output targets, numbers, and notes.
pub struct Swept {
    pub targets: Targets,
    pub shown: SweepShown,
    pub notes: Vec<String>,
}

/// # Errors
/// When the checkpoint cannot be opened or run, or has no such place.
pub fn run(args: &Args, checkpoint: &Path) -> Result<Swept> {
    let prompt = args.positional.with(&args.prompt)?;
    let one = InputsArgs::default();
    let session = Session::begin(&args.run, &args.place.what_if, prompt, &one)?;
    let mut opened = session.open(checkpoint)?;
    let (stack, layer_idx, heads) = args.place.find(&opened.model.spec)?;
    let spec = opened.model.spec.attention(stack, layer_idx);
    let spec = spec.ok_or_else(|| missing("layer", layer_idx, 0))?;
    if spec.softmax_axis != SoftmaxAxis::Keys {
        let problem = format!(
            "layer {layer_idx}: its softmax runs over {}; no row of scores has a softmax to sweep",
            spec.softmax_axis
        );
        return Err(Error::Setting(problem).into());
    }
    let marks = rule_marks(spec);
    let scales = args.scales.with(&marks)?;
    let targets = args.figure.open(args.run.force)?;
    let options = Options {
        keep_bytes: None,
        predicts: false,
    };
    session.ready(&mut opened, options, 0)?;
    let Opened { model, named, .. } = opened;
    let compute = &session.compute;
    let Some(named) = named.first() else {
        return Err(Error::Prompt("no prompt to run".to_owned()).into());
    };
    let input = input_of(&named.prompt);
    let n_queries = match (stack, &input.source) {
        (Stack::Encoder, Some(source)) => source.len(),
        _ => input.sequence.len(),
    };
    if let Some(query_idx) = args.place.query().filter(|idx| *idx >= n_queries) {
        return Err(missing("query", query_idx, n_queries).into());
    }
    let place = SweepPlace {
        stack,
        layer_idx,
        heads,
        query_idx: args.place.query(),
    };
    let meter = Meter::of(&model, std::slice::from_ref(&input), options);
    let mut says = |progress| meter.show(progress);
    let LayerSweep { sweep, layer } = on_device!(compute, ops => {
        sweep_layer(ops, &model, &input, &place, &scales, &mut says, &meter)
    })?;
    drop(meter);
    if sweep.n_rows() == 0 {
        let problem =
            "no row of this place sees two keys with finite scores: there is nothing to sweep";
        return Err(Error::Prompt(problem.to_owned()).into());
    }
    let (marks, notes) = with_norms(marks, &place, &layer);
    let name = &model.checkpoint.name;
    let shown = SweepShown {
        of: describe(&place, args.place.head(), name, &session.what_ifs()),
        source: SweepSource::Checkpoint {
            model: name.clone(),
            stack: stack.label(),
            layer: layer_idx,
            head: args.place.head(),
            query: args.place.query(),
            what_if: session.what_ifs(),
        },
        sweep,
        marks,
    };
    Ok(Swept {
        targets,
        shown,
        notes,
    })
}

/// Adds the mark of QK-norm, and notes about the rows.
fn with_norms(
    mut marks: Vec<Mark>,
    place: &SweepPlace,
    layer: &LayerReport,
) -> (Vec<Mark>, Vec<String>) {
    let spec = &layer.spec;
    let mut notes = Vec::new();
    let heads = layer.heads.iter().enumerate();
    let rows = heads
        .filter(|(head_idx, _)| place.heads.contains(head_idx))
        .flat_map(|(_, head)| head.summary.rows.iter().enumerate())
        .filter(|(idx, row)| row.is_real && place.query_idx.is_none_or(|only| only == *idx));
    if let Some(mark) = qk_norm_mark(spec, rows.map(|(_, row)| row)) {
        notes.push(format!(
            "QK-norm without a gain would multiply scores by about {:.3}: √d / (scale · root mean square of ‖q‖‖k‖)",
            mark.at
        ));
        marks.push(mark);
    }
    if spec.softcap.is_some() || spec.bias != Bias::None {
        notes.push(
            "softcap and bias are part of the scores that are multiplied: another scale rule would leave them as they are".to_owned(),
        );
    }
    if layer.has_sinks {
        notes.push(
            "the learned sink is left out: rows are softmaxed over their keys alone".to_owned(),
        );
    }
    (marks, notes)
}

fn describe(place: &SweepPlace, head: Option<usize>, name: &str, what_ifs: &[String]) -> String {
    let at = Place::layer(place.stack, place.layer_idx);
    let heads = match head {
        Some(head_idx) => at.head(head_idx).to_string(),
        None => format!("{at}, {} heads", place.heads.len()),
    };
    let queries = match place.query_idx {
        Some(query_idx) => format!("query {query_idx}"),
        None => "all queries".to_owned(),
    };
    let what_if_words = match what_ifs {
        [] => String::new(),
        what_ifs => format!(", what if {}", what_ifs.join(", ")),
    };
    format!("{name}, {heads}, {queries}{what_if_words}")
}
