//! `attnscope DIR`, `attnscope ckpt-*`, `attnscope run.jsonl`: opens a training on the screen.

use std::io::{IsTerminal, stdin, stdout};
use std::path::PathBuf;

use anyhow::{Result, bail};
use attnscope_compute::error::Error;
use attnscope_history::log::is_monitor_log;
use attnscope_history::{Following, RereadQueue, Sources, is_checkpoint};
use attnscope_prompt::Request;
use attnscope_screen::{
    HistoryReader, HistoryView, InitialState, Remembered, Setup, Steps, Training,
};
use attnscope_spec::Model;
use attnscope_worker::{PromptOrigin, UsualPrompt};

use super::history_reading::{Asked, history_of, read, sources_of};
use super::prompts::InputsArgs;
use super::targets::training_in;
use super::{PromptArgs, RunArgs, WhatIfArgs, settings};

/// Returns the training at some targets; `None` if they are one checkpoint, a trace, or nothing.
///
/// # Errors
/// When a directory cannot be listed, or several targets do not belong to one training.
pub fn training_of(targets: &[PathBuf]) -> Result<Option<Sources>> {
    match targets {
        [] => Ok(None),
        [only] if only.is_dir() => {
            let is_one = is_checkpoint(only);
            let n = match training_in(only) {
                Ok(found) => found.map_or(0, |found| found.len()),
                // A single checkpoint opens whatever is next to it.
                Err(_) if is_one => 0,
                Err(e) => return Err(e.into()),
            };
            if n > 1 || n == 1 && !is_one {
                return Ok(Some(Sources::Checkpoints(targets.to_vec())));
            }
            match sources_of(targets, false)? {
                Sources::Log(log) if !is_one => Ok(Some(Sources::Log(log))),
                _ => Ok(None),
            }
        }
        [only] => Ok(is_monitor_log(only).then(|| Sources::Log(only.clone()))),
        several => Ok(Some(sources_of(several, false)?)),
    }
}

/// Shows a training while reading it; `last` is what the resumed session ran last.
///
/// # Errors
/// When there is no terminal, or the device is not available.
pub fn run(
    sources: Sources,
    prompt: PromptArgs,
    run: &RunArgs,
    (keeps, last): (bool, Option<Request>),
    setup: Setup,
) -> Result<()> {
    let asked_prompt = prompt.request()?.or(last);
    let chosen = run.set_up()?;
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "the screen needs a terminal; without one, attnscope history TARGET tells what begins at which step"
        );
    }
    let history = history_of(&sources);
    let again = RereadQueue::default();
    let steps = Steps::Files(Box::new(run.opening(None)), again.clone());
    let remembered = match &sources {
        Sources::Checkpoints(roots) if keeps => {
            Remembered::of(roots.first().map(PathBuf::as_path), setup.limits)
        }
        _ => None,
    };
    let asked = Asked {
        prompt: prompt.clone(),
        inputs: InputsArgs::default(),
        what_if: WhatIfArgs::default(),
        // Threads and log are already set up; lines on standard error would overwrite the screen.
        run: RunArgs {
            threads: None,
            log: None,
            quiet: true,
            ..run.clone()
        },
    };
    let following = Following {
        cache: asked.cache(),
        again: again.clone(),
        opening: asked.run.opening(None),
        sources,
        watches: true,
        rereads: true,
    };
    let usual: UsualPrompt = Box::new(move |model: &Model, has_tokenizer| {
        prompt.check_fits(&model.spec)?;
        Ok(match &asked_prompt {
            Some(request) => (request.clone(), PromptOrigin::Asked),
            None => (
                prompt.built_in(false, has_tokenizer, &model.spec),
                PromptOrigin::BuiltIn,
            ),
        })
    });
    let in_front = InitialState {
        notice: chosen.fell_back,
        training: Some(Training {
            view: HistoryView::new(history, steps).judged_by(settings::thresholds(None)?),
            reader: Some(reader(following, asked)),
        }),
        remembered,
        setup,
        ..InitialState::default()
    };
    Ok(attnscope_screen::run_training(
        usual,
        settings::terms(chosen.device, run.force),
        in_front,
    )?)
}

/// Makes a reader that runs the requested prompt on each step of a training.
fn reader(following: Following, asked: Asked) -> HistoryReader {
    Box::new(move |sink| {
        let session = match following.sources {
            Sources::Checkpoints(_) => {
                let begun = asked.session();
                Some(begun.map_err(|e| Error::Prompt(format!("{e:#}")))?)
            }
            Sources::Log(_) => None,
        };
        let mut read = |found: &_| match &session {
            Some(session) => read(session, found),
            None => Err(Error::Cancelled),
        };
        following.run(&mut read, sink)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_checkpoint_is_not_a_training_and_several_are() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("run/step-5")).expect("makes");
        std::fs::write(at("run/step-5/config.json"), "{}").expect("writes");
        std::fs::create_dir_all(at("one")).expect("makes");
        std::fs::write(at("one/config.json"), "{}").expect("writes");
        std::fs::write(at("notes.jsonl"), "{}\n").expect("writes");
        let of = |names: &[&str]| {
            let targets: Vec<PathBuf> = names.iter().map(|name| at(name)).collect();
            training_of(&targets).expect("resolves")
        };
        assert_eq!(of(&["one"]), None);
        assert_eq!(of(&["notes.jsonl"]), None);
        assert_eq!(of(&["run"]), Some(Sources::Checkpoints(vec![at("run")])));
        let both = vec![at("one"), at("run/step-5")];
        assert_eq!(of(&["one", "run/step-5"]), Some(Sources::Checkpoints(both)));
        let log = "fixtures/histories/jump.jsonl";
        let log = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(log);
        assert_eq!(
            training_of(std::slice::from_ref(&log)).expect("resolves"),
            Some(Sources::Log(log))
        );
    }
}
