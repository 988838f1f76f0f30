//! `attnscope heads --over-prompts`: every head over a set of prompts, in memory that does not depend on their number.

use anyhow::{Result, bail};
use attnscope_checkpoint::counted::counted;
use attnscope_checks::stats::{Stat, index_of};
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_report::{
    HeadsOverPrompts, ModelRecord, Output, one_line, over_prompts_rows, over_prompts_summary,
    printable,
};
use attnscope_run::{Options, input_of};
use attnscope_studies::over_prompts::{AT_ONCE, Labels, OverPrompts};

use super::figures::Format;
use super::heads::Args;
use super::progress::{Meter, Task};
use super::prompts::PromptSet;
use super::session::Session;

#[derive(Debug, clap::Args)]
pub struct OverPromptsArgs {
    /// Summarise each head over all prompts: mean, extremes and deciles of each statistic, and the tokens that excite it most
    #[arg(long, requires = "inputs", conflicts_with = "effect")]
    pub over_prompts: bool,
    /// Statistic of the summary in text and markdown; JSON and CSV have all of them [default: entropy_relative]
    #[arg(long, value_name = "STATISTIC", requires = "over_prompts", value_parser = statistic)]
    statistic: Option<usize>,
}

fn statistic(id: &str) -> Result<usize, String> {
    let found = index_of(id).filter(|idx| Stat::ALL[*idx].statistic().is_per_head());
    found.ok_or_else(|| {
        let per_head = Stat::ALL
            .iter()
            .filter(|stat| stat.statistic().is_per_head());
        let ids: Vec<&str> = per_head.map(|stat| stat.id()).collect();
        match attnscope_checkpoint::nearest::nearest(id, ids.iter().copied()) {
            Some(meant) => format!("expected a statistic of heads; did you mean {meant}?"),
            None => format!("expected a statistic of heads: {}", ids.join(", ")),
        }
    })
}

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: false,
};

/// Runs all prompts of the set, some at a time, and writes what was found.
pub(super) fn run(args: &Args, mut session: Session<'_>) -> Result<()> {
    let Some(set) = session.set()? else {
        bail!("--over-prompts: expected --inputs FILE, found none");
    };
    let mut opened = session.open_alone(&args.checkpoint)?;
    let output = Output::open_or_replace(&args.written.output, args.run.force)?;
    let mut over = OverPrompts::new(&opened.model);
    let n = set.requests().len();
    let task = Task::begin("", n as u64);
    for first in (0..n).step_by(AT_ONCE) {
        task.at(first, n);
        task.say(&format!("{first} of {n} prompts"));
        let range = first..(first + AT_ONCE).min(n);
        session.give(&mut opened, &set.part(range))?;
        session.ready(&mut opened, OPTIONS, 0)?;
        let named = opened.named.iter();
        let inputs: Vec<Input> = named.map(|named| input_of(&named.prompt)).collect();
        let (model, form) = (&opened.model, &opened.prompt_form);
        let target = form.of_target(model.spec.limits());
        let labels = Labels {
            source: &|id| form.label(id),
            target: &|id| target.label(id),
        };
        let meter = Meter::of(model, &inputs, OPTIONS);
        on_device!(&session.compute, ops => over.add(ops, model, &inputs, labels, &meter))?;
    }
    drop(task);
    opened.model.checkpoint.unchanged()?;
    let model = ModelRecord::of(&opened.model);
    let content = content(args, (model, session.what_ifs()), &over, &set)?;
    Ok(output.write(&content)?)
}

fn content(
    args: &Args,
    (model, what_ifs): (ModelRecord, Vec<String>),
    over: &OverPrompts,
    set: &PromptSet,
) -> Result<Vec<u8>> {
    let ids = |idx: usize| set.requests()[idx].0.clone();
    let statistic_idx = args.over.statistic.unwrap_or(Stat::EntropyRelative.idx());
    let summary = || over_prompts_summary(over, statistic_idx, &ids);
    let mut content = Vec::new();
    match args.format {
        Format::Json => {
            HeadsOverPrompts::new(model, what_ifs, over, &ids).write_json(&mut content)?;
        }
        Format::Csv => {
            over_prompts_rows(over, &ids).write_csv(args.written.raw_csv, &mut content)?;
        }
        Format::Markdown => content = printable(summary().markdown().as_bytes()),
        Format::Text => {
            let (n, n_tokens) = (over.n_prompts, over.n_tokens);
            let name = one_line(&model.name);
            let id = Stat::ALL[statistic_idx].id();
            let (n, n_tokens) = (counted(n, "prompt"), counted(n_tokens, "token"));
            let heading = format!("{name}: {id} over {n} of {n_tokens}\n\n");
            content = printable((heading + &summary().text()).as_bytes());
        }
    }
    Ok(content)
}
