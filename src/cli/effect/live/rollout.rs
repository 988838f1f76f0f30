//! Rollout of a live model, from the patterns of one run.

use anyhow::Result;
use attnscope_live::LiveTarget;
use attnscope_report::{EffectReport, Labels, ModelRecord, Output, PromptOf, rollout_sheet};
use attnscope_studies::effect::rollout_recorded;

use super::super::{Args, asked, write};
use super::with_padding;
use crate::cli::live_target::recorded;
use crate::cli::prompts::ONLY;
use crate::cli::session::Session;

/// Rolls out the attention of a live model.
///
/// # Errors
/// When the person's code fails, or a layer's patterns are not of all pairs of tokens.
pub fn run(args: &Args, target: &LiveTarget) -> Result<()> {
    let prompt = args.positional.with(&args.prompt)?;
    Session::begin(&args.run, &args.what_if, prompt.clone(), &args.inputs)?;
    let mut session = args.live.session(target)?;
    let recorded = recorded(&args.live, &mut session, (&prompt, &args.what_if))?.recorded;
    let input = with_padding(&recorded, args.live.declared(&prompt))?;
    let positions = [asked::position(args.position, &input)?];
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    let stacks = rollout_recorded(&recorded, &input, &positions)?;
    let source = recorded.prompt.source.as_ref();
    let labels = Labels {
        of_token: &|id| id.to_string(),
        positions: &recorded.prompt.labels,
        source: source.map_or(&[], |source| &source.labels),
    };
    let mut sheet = rollout_sheet(&stacks, &positions, &labels);
    let note = "a live model: the layers whose patterns were seen in its run";
    sheet.notes.push(note.to_owned());
    let report = EffectReport {
        by: args.by.label(),
        model: ModelRecord::of_recorded(&recorded),
        what_if: args.what_if.words(),
        prompts: vec![PromptOf {
            id: ONLY.to_owned(),
            n_tokens: input.sequence.len(),
        }],
        complete: true,
        sheet,
    };
    write(args, &report, output)
}
