//! Compares a checkpoint with a recording, or two recordings.

use anyhow::{Result, bail};
use attnscope_compare::{Comparison, ModelAndRecording, RecordedTokens, Recording, Side};
use attnscope_compute::on_device;
use attnscope_prompt::{Prompt, PromptForm, Request, Source, Target, Tokenizer};
use attnscope_run::{MemoryNeed, Options, input_of};
use attnscope_spec::Model;

use super::{Args, Compared, names};
use crate::cli::WhatIfArgs;
use crate::cli::progress::Meter;
use crate::cli::prompts::ONLY;
use crate::cli::session::Session;

const OPTIONS: Options = Options {
    keep_bytes: None,
    predicts: true,
};

/// Compares two recordings; no model runs.
pub(super) fn both(args: &Args) -> Result<Compared> {
    let (a, b) = (Recording::open(&args.a)?, Recording::open(&args.b)?);
    let (of_a, of_b) = (a.tokens()?, b.tokens()?);
    if let (Some(of_a), Some(of_b)) = (&of_a.tokens, &of_b.tokens) {
        same_ids(of_a, of_b, "the other recording")?;
    }
    Ok(Compared {
        comparison: Comparison::of_recordings(&a, &b, (ONLY, args.tolerance))?,
        names: names(
            [a.name().to_owned(), b.name().to_owned()],
            [&args.a, &args.b],
        ),
        notes: [&a, &b].into_iter().filter_map(about).collect(),
        refused: None,
    })
}

/// What was read of a dump.
fn about(recording: &Recording) -> Option<String> {
    let about = recording.about()?;
    Some(format!("{}: {about}", recording.name()))
}

/// Compares a checkpoint with a recording, on the recorded tokens.
pub(super) fn model_and_recording(args: &Args, model_is: Side) -> Result<Compared> {
    let (checkpoint, recorded) = match model_is {
        Side::A => (&args.a, &args.b),
        Side::B => (&args.b, &args.a),
    };
    let recording = Recording::open(recorded)?;
    let nothing = WhatIfArgs::default();
    let session = Session::begin(&args.run, &nothing, args.prompt.clone(), &args.inputs)?;
    let model = args.what_if.apply(session.model(checkpoint)?)?;
    let prompt = recorded_prompt(args, &session, &model, &recording)?;
    let input = input_of(&prompt);
    let inputs = [input.clone()];
    let pair = ModelAndRecording {
        model: &model,
        input: &input,
        recording: &recording,
        model_is,
    };
    pair.check()?;
    session.check_memory(MemoryNeed::of(
        &model,
        &inputs,
        OPTIONS,
        rayon::current_num_threads(),
    ))?;
    let meter = Meter::of(&model, &inputs, OPTIONS);
    let comparison = on_device!(&session.compute, ops => Comparison::of_recording(
        ops,
        pair,
        (ONLY, args.tolerance),
        &|progress| meter.show(progress),
        &meter,
    ))?;
    drop(meter);
    let own = match model_is {
        Side::A => [model.checkpoint.name.clone(), recording.name().to_owned()],
        Side::B => [recording.name().to_owned(), model.checkpoint.name.clone()],
    };
    let mut notes: Vec<String> = about(&recording).into_iter().collect();
    if args.what_if.is_set() {
        notes.push(format!("what if: {}", args.what_if.words().join(", ")));
    }
    Ok(Compared {
        comparison,
        names: names(own, [&args.a, &args.b]),
        notes,
        refused: None,
    })
}

/// Returns the recorded prompt, or the given one, which must be the same.
fn recorded_prompt(
    args: &Args,
    session: &Session<'_>,
    model: &Model,
    recording: &Recording,
) -> Result<Prompt> {
    let RecordedTokens {
        tokens,
        decoder_tokens,
        real,
    } = recording.tokens()?;
    if args.inputs.is_set() {
        bail!("--inputs: a recording holds one prompt; give its tokens with --tokens, or none");
    }
    let given = args.prompt.request()?;
    let is_given = given.is_some();
    // A recording of a speech model has numbered places but no sound.
    let hears = model.spec.limits().sound.is_some();
    let Some(tokens) = tokens.filter(|_| is_given == hears) else {
        if hears && !is_given {
            bail!(
                "{}: the recording holds no sound: give its file with --text FILE.wav",
                recording.name()
            );
        }
        if !is_given {
            bail!(
                "{}: expected the tokens that were recorded, found none: give them with --tokens",
                recording.name()
            );
        }
        let prompt_form = Tokenizer::open(&model.checkpoint.tokenizer)?;
        let mut named = session.prompts(model, &prompt_form)?;
        let Some(named) = named.pop() else {
            bail!("expected a prompt, found none");
        };
        if let Some(recorded) = recording.tokens()?.tokens {
            same_ids(&named.prompt.given().tokens, &recorded, "the recording")?;
        }
        return Ok(named.prompt);
    };
    let usual = session.usual();
    let request = Request {
        source: match given {
            Some(given) => given.source,
            None => Source::Ids(tokens),
        },
        target: match decoder_tokens {
            Some(ids) if model.spec.decoder_start.is_some() => Target::Ids(ids),
            _ if model.spec.decoder_start.is_some() => usual.target.clone(),
            _ => Target::Generate(0),
        },
        attention_mask: real.or_else(|| usual.attention_mask.clone()),
        ..usual
    };
    let prompt_form = PromptForm::Ids("ids of the recording".to_owned());
    let prompt = attnscope_prompt::prepare(&request, &prompt_form, model.spec.limits())?;
    if prompt.n_to_generate > 0 {
        bail!(
            "{}: expected decoder_tokens in the recording, found none: give them with --target-tokens",
            recording.name()
        );
    }
    Ok(prompt)
}

fn same_ids(mine: &[u32], others: &[u32], whose: &str) -> Result<()> {
    if mine == others {
        return Ok(());
    }
    let at = mine.iter().zip(others).take_while(|(a, b)| a == b).count();
    let id = |ids: &[u32]| ids.get(at).map_or("nothing".to_owned(), u32::to_string);
    bail!(
        "expected the ids of {whose}, found others from position {at} on: {} and {} ({} and {} tokens)",
        id(mine),
        id(others),
        mine.len(),
        others.len()
    )
}
