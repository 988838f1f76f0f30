//! Compares two checkpoints: settings, weights, and the prompts run through both.

use anyhow::{Result, bail};
use attnscope_compare::{CompareOptions, Comparison, beyond_one_context, tokenizers_differ};
use attnscope_compute::error::Error;
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_prompt::{Prompt, PromptForm, Request, Tokenizer};
use attnscope_run::{MemoryNeed, Options, input_of};
use attnscope_spec::Model;

use super::{Args, Compared, names};
use crate::cli::WhatIfArgs;
use crate::cli::progress::{Meter, Task};
use crate::cli::prompts::{Named, ONLY};
use crate::cli::session::{Opened, Session};

/// Only the comparison of logits needs predictions: neither side keeps its own.
const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

pub(super) fn compare(args: &Args) -> Result<Compared> {
    let nothing = WhatIfArgs::default();
    let session = Session::begin(&args.run, &nothing, args.prompt.clone(), &args.inputs)?;
    let a = session.model(&args.a)?;
    let b = args.what_if.apply(session.model(&args.b)?)?;
    let comparing = args.comparing();
    comparing
        .map
        .check(&a.spec, &b.spec)
        .map_err(anyhow::Error::msg)?;
    let mut comparison = Comparison::of_knobs(&a, &b, &comparing);
    let own = [&a, &b].map(|model| model.checkpoint.name.clone());
    let mut compared_names = names(own, [&args.a, &args.b]);
    let mut notes = Vec::new();
    for (side, model) in [("A", &a), ("B", &b)] {
        let remarks = model.checkpoint.remarks().into_iter();
        notes.extend(remarks.map(|said| format!("{side}: {said}")));
    }
    notes.extend(left_out(&comparison));
    if args.what_if.is_set() {
        notes.push(format!(
            "what if, of B: {}",
            args.what_if.words().join(", ")
        ));
        compared_names[1] += " (what if)";
    }
    let prevented = comparison.prevented();
    let mut sides = None;
    if prevented.is_none() {
        sides = Some(Sides::open(&session, a.clone(), b.clone(), &comparing)?);
    }
    let never = || false;
    let task = Task::begin("comparing tensors", 0);
    let mut told = |n_done: usize, n: usize| task.at(n_done, n);
    comparison.compare_weights(&a, &b, &comparing, &mut told, &never)?;
    drop(task);
    if let Some(sides) = &sides {
        for (named, inputs) in sides.prompts()? {
            let both = [inputs.0.clone(), inputs.1.clone()];
            let meter = Meter::of(&a, &both, OPTIONS);
            let id = named.id.as_str();
            on_device!(&session.compute, ops => comparison.run_prompt(
                ops,
                (&a, &b),
                (id, inputs),
                &comparing,
                &|progress| meter.show(progress),
                &meter,
            ))?;
        }
    }
    Ok(Compared {
        comparison,
        names: compared_names,
        notes,
        refused: prevented,
    })
}

/// Says in one line which layers the map leaves out.
fn left_out(comparison: &Comparison) -> Option<String> {
    let sides = ["A", "B"].iter().zip(&comparison.left_out);
    let sides = sides.filter(|(_, layers)| !layers.is_empty());
    let said: Vec<String> = sides
        .map(|(side, layers)| {
            let layers: Vec<String> = layers.iter().map(|idx| format!("L{idx}")).collect();
            format!("{} of {side}", layers.join(", "))
        })
        .collect();
    (!said.is_empty()).then(|| format!("left out by --map: {}", said.join("; ")))
}

/// The prompts of both sides: the same token ids, with positions counted as each side does.
struct Sides {
    lead: Opened,
    other: Model,
    /// Whether B's tokenizer is used, because only B has one.
    is_turned: bool,
    usual: Request,
}

impl Sides {
    /// Prepares the prompts for both sides, and checks that their token ids are the same.
    fn open(session: &Session<'_>, a: Model, b: Model, comparing: &CompareOptions) -> Result<Self> {
        let readings = [&a, &b].map(|model| Tokenizer::open(&model.checkpoint.tokenizer));
        let [of_a, of_b] = readings;
        let (of_a, of_b) = (of_a?, of_b?);
        let is_turned = of_a.tokenizer().is_none() && of_b.tokenizer().is_some();
        let (model, other, prompt_form, of_other) = if is_turned {
            (b, a, of_b, of_a)
        } else {
            (a, b, of_a, of_b)
        };
        let named = session.prompts(&model, &prompt_form)?;
        if of_other.tokenizer().is_some() {
            let others = session.prompts(&other, &of_other)?;
            for (mine, others) in named.iter().zip(&others) {
                let apart = tokenizers_differ(mine.prompt.given(), others.prompt.given());
                if let Some(apart) = apart {
                    let hint = "give ids with --tokens to compare the models all the same";
                    bail!("{}{apart}; {hint}", before(&mine.id));
                }
            }
        }
        for named in &named {
            if let Some(beyond) = beyond_one_context(&named.prompt, [&model, &other]) {
                return Err(Error::Prompt(format!("{}{beyond}", before(&named.id))).into());
            }
        }
        let mut lead = Opened {
            model,
            named,
            prompt_form,
        };
        let n_threads = rayon::current_num_threads();
        let of_other = MemoryNeed::of(&other, &lead.longest(), OPTIONS, n_threads).total();
        session.ready(&mut lead, OPTIONS, of_other + comparing.row_bytes)?;
        Ok(Self {
            lead,
            other,
            is_turned,
            usual: session.usual(),
        })
    }

    /// Returns every prompt with the inputs of A and B.
    fn prompts(&self) -> Result<Vec<(&Named, (Input, Input))>> {
        let both = self.lead.named.iter().map(|named| {
            let mine = input_of(&named.prompt);
            let others = input_of(&self.counted(&named.prompt)?);
            let inputs = if self.is_turned {
                (others, mine)
            } else {
                (mine, others)
            };
            Ok((named, inputs))
        });
        both.collect()
    }

    /// Converts a prompt to the other side's way of counting positions.
    fn counted(&self, prompt: &Prompt) -> Result<Prompt> {
        let ids = prompt.given();
        let request = Request {
            source: prompt.given_source(),
            target: prompt.given_target(),
            attention_mask: ids.real.clone(),
            truncate: false,
            n_to_write: 0,
            ..self.usual.clone()
        };
        let prompt_form = PromptForm::Ids("ids of the other side".to_owned());
        let theirs = attnscope_prompt::prepare(&request, &prompt_form, self.other.spec.limits())?;
        let n_both = [prompt.tokens.len(), theirs.tokens.len()];
        if prompt.picture.is_some() && n_both[0] != n_both[1] {
            let [n_own, n_other] = n_both;
            let problem =
                format!("one model cuts the picture into {n_own} tokens, the other into {n_other}");
            return Err(Error::Prompt(problem).into());
        }
        Ok(theirs)
    }
}

/// Returns a message prefix that names the prompt, if there are several.
fn before(id: &str) -> String {
    if id == ONLY {
        String::new()
    } else {
        format!("prompt {id}: ")
    }
}
