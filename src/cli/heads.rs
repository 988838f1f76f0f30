//! `attnscope heads`: classifies each head, on prompts and on repeated random tokens.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use attnscope_checks::stats::{
    Conditions, HeadReport, HeadType, LayerReport, OnRandomTokens, SeenOn,
};
use attnscope_compute::on_device;
use attnscope_report::{
    HeadRow, HeadTypes, ModelRecord, Number, OnPrompt, OnRandom, Output, PromptTypes, printable,
};
use attnscope_run::{Options, Recorded, Stripes, stripes};
use attnscope_spec::{Grid, Place, Stack};

use super::figures::Format;
use super::head_effects::{HeadEffect, HeadEffects};
use super::heads_over_prompts::{self, OverPromptsArgs};
use super::live_args::LiveArgs;
use super::live_target;
use super::progress::note;
use super::prompts::{InputsArgs, ONLY};
use super::session::Session;
use super::written_args::WrittenArgs;
use super::{PositionalPrompt, PromptArgs, RunArgs, WhatIfArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file
    pub(super) checkpoint: PathBuf,
    #[command(flatten)]
    positional: PositionalPrompt,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    /// Add columns of these effect measures (see attnscope effect)
    #[arg(long, value_name = "MEASURE,…", value_delimiter = ',', value_enum)]
    effect: Vec<HeadEffect>,
    /// Heads to list: places, comparisons of statistics, and types, such as "L0-3 entropy<0.5 type=induction"
    #[arg(
        long = "where",
        value_name = "CONDITIONS",
        conflicts_with = "over_prompts"
    )]
    conditions: Option<Conditions>,
    #[command(flatten)]
    pub(super) over: OverPromptsArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) written: WrittenArgs,
    #[command(flatten)]
    what_if: WhatIfArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

pub fn run(args: &Args) -> Result<()> {
    let prompt = args.positional.with(&args.prompt)?;
    if let Some((recorded, _)) =
        live_target::recorded_of(&args.live, &args.checkpoint, (&prompt, &args.what_if))?
    {
        return of_recorded(args, &recorded);
    }
    let session = Session::begin(&args.run, &args.what_if, prompt, &args.inputs)?;
    if args.over.over_prompts {
        return heads_over_prompts::run(args, session);
    }
    let mut opened = session.open(&args.checkpoint)?;
    args.check_conditions(&opened.model.spec.shape())?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    session.ready(&mut opened, OPTIONS, 0)?;
    let random = on_device!(&session.compute, ops => stripes(ops, &opened.model, &|| false))?;
    if random.is_none() {
        note(
            "no columns of repeated random tokens: they need a causal model of one stack with room for a copy",
        );
    }
    let mut asked = args.effect.clone();
    asked.sort_unstable();
    asked.dedup();
    let mut effects = HeadEffects::begin(&asked, &session, &opened.model)?;
    let mut prompts = Vec::new();
    // One prompt after another: whole layers are kept until they have been used.
    for named in &opened.named {
        effects.run(&named.prompt)?;
        let ran = session.run(&opened.model, std::slice::from_ref(named), OPTIONS, true)?;
        for ran in ran {
            let layers = ran.layers.iter();
            prompts.push(PromptTypes {
                id: ran.record.id,
                heads: layers
                    .flat_map(|layer| rows(args, layer, random.as_deref(), Some(&effects)))
                    .collect(),
            });
        }
    }
    let types = HeadTypes::new(ModelRecord::of(&opened.model), session.what_ifs(), prompts)
        .with_effects(effects.columns());
    write(args, &types, output)
}

impl Args {
    /// Refuses places that the model does not have.
    fn check_conditions(&self, grids: &[Grid]) -> Result<()> {
        let Some(conditions) = &self.conditions else {
            return Ok(());
        };
        conditions
            .within(grids)
            .map_err(|reason| anyhow!("--where: {reason}"))
    }
}

/// Writes the heads of a live model or of a trace, seen on its one prompt.
fn of_recorded(args: &Args, recorded: &Recorded) -> Result<()> {
    if !args.effect.is_empty() || args.inputs.is_set() {
        bail!(
            "{}: --effect and --inputs are for checkpoints: a live model or a trace gives the heads of one run",
            recorded.captured.name
        );
    }
    args.check_conditions(&recorded.shape())?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    let layers = recorded.layers.iter();
    let prompts = vec![PromptTypes {
        id: ONLY.to_owned(),
        heads: layers
            .flat_map(|layer| rows(args, layer, None, None))
            .collect(),
    }];
    let model = ModelRecord::of_recorded(recorded);
    write(
        args,
        &HeadTypes::new(model, args.what_if.words(), prompts),
        output,
    )
}

fn write(args: &Args, types: &HeadTypes, output: Output) -> Result<()> {
    if args.conditions.is_some() && types.is_empty() {
        note("no head meets --where");
    }
    let mut content = Vec::new();
    match args.format {
        Format::Json => types.write_json(&mut content)?,
        Format::Csv => types.rows().write_csv(args.written.raw_csv, &mut content)?,
        Format::Markdown => content = printable(types.rows().markdown().as_bytes()),
        Format::Text => content = printable(types.text().as_bytes()),
    }
    Ok(output.write(&content)?)
}

/// Makes the rows of a layer's heads that meet the conditions. `random` has the stripes of every head of the only stack. // [layer, head]
fn rows(
    args: &Args,
    layer: &Arc<LayerReport>,
    random: Option<&[Vec<Stripes>]>,
    effects: Option<&HeadEffects<'_>>,
) -> Vec<HeadRow> {
    let random = random.filter(|_| layer.stack == Stack::Only);
    let of_layer = random.and_then(|all| all.get(layer.layer_idx));
    let heads = layer.heads.iter().enumerate();
    let row = |(head_idx, head): (usize, &HeadReport)| -> Option<HeadRow> {
        let random = of_layer.and_then(|heads| heads.get(head_idx));
        let on_random = random.map(|on| OnRandomTokens {
            previous: on.previous,
            induction: on.induction,
            duplicate: on.duplicate,
        });
        let found = match head.kind {
            // Alignment heads are named by the checkpoint, not seen on a prompt.
            Some(named @ HeadType::Alignment) => Some((named, None)),
            _ => HeadType::of_both(&head.stats, &head.summary, on_random)
                .map(|(kind, seen_on)| (kind, Some(seen_on))),
        };
        let at = (layer.stack, layer.layer_idx, head_idx);
        let kind = found.map(|(kind, _)| kind);
        if let Some(conditions) = &args.conditions
            && !conditions.hold(at, &head.stats, kind)
        {
            return None;
        }
        let row = HeadRow::new(
            (layer.stack.label(), layer.layer_idx, head_idx),
            (
                kind.map(HeadType::title),
                found.and_then(|(_, seen_on)| seen_on.map(SeenOn::label)),
            ),
            OnPrompt::of(|stat| head.stats.measured(stat.idx())),
            random.map(|on| OnRandom {
                previous: Number(on.previous),
                induction: Number(on.induction),
                duplicate: Number(on.duplicate),
            }),
        );
        let place = Place::layer(layer.stack, layer.layer_idx).head(head_idx);
        Some(match effects {
            Some(effects) => row.with_effects(effects.of(place, head)),
            None => row,
        })
    };
    heads.filter_map(row).collect()
}
