//! `attnscope sweep CHECKPOINT`: the scores that a prompt gives in one layer, multiplied.

use std::ops::Range;
use std::path::Path;

use anyhow::Result;
use clap::ArgGroup;

use super::WhatIfArgs;
use super::progress::Meter;
use super::prompts::InputsArgs;
use super::session::{Opened, Session};
use super::sweep::{Args, write};
use crate::report::chart::Mark;
use crate::report::{SweepShown, SweepSource, qk_norm_mark, rule_marks};
use attnscope_engine::analysis::{LayerSweep, Options, SweepPlace, input_of, sweep_layer};
use attnscope_engine::attention::{Bias, SoftmaxAxis};
use attnscope_engine::error::Error;
use attnscope_engine::model::{ModelSpec, Stack};
use attnscope_engine::on_device;
use attnscope_engine::place::Place;
use attnscope_engine::stats::LayerReport;

/// Which rows.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("where").args(["at", "layer"]))]
pub struct PlaceArgs {
    /// Which place: L3, L3H7, encoder.L3H7, or a row of it: "L3H7 query 5"
    #[arg(long, value_name = "PLACE", requires = "checkpoint", conflicts_with_all = ["layer", "head", "query"])]
    at: Option<Place>,
    /// Which layer: 3, or encoder.3, decoder.3, cross.3 in models with an encoder
    #[arg(long, value_name = "L", value_parser = layer, requires = "checkpoint")]
    layer: Option<(Option<Stack>, usize)>,
    /// Which head [default: every head of the layer]
    #[arg(long, value_name = "H", requires = "checkpoint")]
    head: Option<usize>,
    /// Which query, counted from 0 [default: every query that is no padding]
    #[arg(long, value_name = "Q", requires = "checkpoint")]
    query: Option<usize>,
    #[command(flatten)]
    pub what_if: WhatIfArgs,
}

fn layer(text: &str) -> Result<(Option<Stack>, usize), String> {
    let refused = || format!("expected 3, encoder.3, decoder.3 or cross.3, found {text:?}");
    let (stack, number) = match text.split_once('.') {
        None => (None, text),
        Some((name, number)) => {
            let stacks = [Stack::Encoder, Stack::Decoder, Stack::Cross];
            let stack = stacks.into_iter().find(|s| s.label() == Some(name));
            (Some(stack.ok_or_else(refused)?), number)
        }
    };
    Ok((stack, number.parse().map_err(|_| refused())?))
}

pub fn run(args: &Args, checkpoint: &Path) -> Result<()> {
    let prompt = args.positional.with(&args.prompt)?;
    let one = InputsArgs::default();
    let session = Session::begin(&args.run, &args.place.what_if, prompt, &one)?;
    let mut opened = session.open(checkpoint)?;
    let (stack, layer_idx, heads) = args.place.find(&opened.model.spec)?;
    let spec = opened.model.spec.attention(stack, layer_idx);
    let spec = spec.ok_or_else(|| missing("layer", layer_idx, 0))?;
    if spec.softmax_axis == SoftmaxAxis::Queries {
        let problem = format!(
            "layer {layer_idx}: its softmax runs over queries; a row of scores has none of its own to sweep"
        );
        return Err(Error::Setting(problem).into());
    }
    let marks = rule_marks(spec);
    let scales = args.scales.with(&marks)?;
    let targets = args.figure.open()?;
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
    meter.finish();
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
    write(args, targets, &shown, &notes)
}

fn missing(what: &str, idx: usize, n: usize) -> Error {
    let last = n.saturating_sub(1);
    Error::Setting(format!("{what} {idx} does not exist: expected 0..{last}"))
}

impl PlaceArgs {
    fn head(&self) -> Option<usize> {
        self.at.map_or(self.head, |at| at.head_idx)
    }

    fn query(&self) -> Option<usize> {
        self.at.map_or(self.query, |at| at.query_idx)
    }

    /// # Errors
    /// When the model has no such layer or head.
    fn find(&self, spec: &ModelSpec) -> Result<(Stack, usize, Range<usize>), Error> {
        let grids = spec.grids();
        if let Some(place) = self.at {
            return place_in(spec, place);
        }
        let Some((asked, layer_idx)) = self.layer else {
            let problem = "--at: expected a place to sweep, such as L3 or L3H7";
            return Err(Error::Setting(problem.to_owned()));
        };
        // Without a name it is the only stack, or the decoder.
        let stack = asked.unwrap_or(spec.main_grid());
        if !grids.contains(&stack) {
            let known: Vec<&str> = grids.iter().filter_map(|grid| grid.label()).collect();
            let known = if known.is_empty() {
                "layers of the only stack".to_owned()
            } else {
                known.join(", ")
            };
            let found = stack.label().unwrap_or("the only stack");
            return Err(Error::Setting(format!(
                "--layer: expected {known}, found {found}"
            )));
        }
        if layer_idx >= spec.n_layers(stack) {
            return Err(missing("layer", layer_idx, spec.n_layers(stack)));
        }
        let n_heads = spec.n_heads(stack, layer_idx);
        match self.head {
            Some(head_idx) if head_idx >= n_heads => Err(missing("head", head_idx, n_heads)),
            Some(head_idx) => Ok((stack, layer_idx, head_idx..head_idx + 1)),
            None => Ok((stack, layer_idx, 0..n_heads)),
        }
    }
}

/// # Errors
/// When the model has no such place, or no layer is named.
fn place_in(spec: &ModelSpec, place: Place) -> Result<(Stack, usize, Range<usize>), Error> {
    place.within(&spec.shape()).map_err(|expected| {
        Error::Setting(format!(
            "--at: there is no {place} in this model; expected {expected}"
        ))
    })?;
    let Some(layer_idx) = place.layer_idx else {
        let problem = format!("--at {place}: expected one layer, such as {place}.L3");
        return Err(Error::Setting(problem));
    };
    if place.key_idx.is_some() {
        let problem = format!("--at {place}: a row of scores has all keys; expected no key");
        return Err(Error::Setting(problem));
    }
    // Without a name it is the only stack, or the decoder.
    let stack = place.stack.unwrap_or(spec.main_grid());
    let n_heads = spec.n_heads(stack, layer_idx);
    let heads = place
        .head_idx
        .map_or(0..n_heads, |head_idx| head_idx..head_idx + 1);
    Ok((stack, layer_idx, heads))
}

/// Adds what QK-norm would come to, and what is to be said of the rows.
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
    let supposed = match what_ifs {
        [] => String::new(),
        what_ifs => format!(", what if {}", what_ifs.join(", ")),
    };
    format!("{name}, {heads}, {queries}{supposed}")
}
