//! `attnscope [CHECKPOINT] [PROMPT]`: opens the screen.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use attnscope_checkpoint::nearest::{nearest, path_meant};
use attnscope_checkpoint::values::Values;
use attnscope_checkpoint::{Opening, part_of};
use attnscope_history::is_checkpoint;
use attnscope_live::LiveTarget;
use attnscope_prompt::{Request, Source, is_sound};
use attnscope_report::record::natural;
use attnscope_screen::{InitialState, Panel, Remembered, Session, Shown, Start};
use attnscope_spec::Model;
use attnscope_worker::{Against, FirstPrompt, LiveOpening, PromptOrigin, recorded_prompt};
use clap::CommandFactory;

use super::live_args::LiveArgs;
use super::prompts::InputsArgs;
use super::settings::{self, ScreenArgs};
use super::targets::{is_path, source_of};
use super::{Cli, PositionalPrompt, PromptArgs, RunArgs, default_prompts, names, open_training};

/// Most directory entries searched for other checkpoints, and most of those offered.
const MOST_LISTED: usize = 2000;

const MOST_OFFERED: usize = 100;

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Checkpoint directory or weight file; a directory of checkpoints or a monitor log opens as a history [default: the built-in demo]
    checkpoint: Option<PathBuf>,
    #[command(flatten)]
    positional: PositionalPrompt,
    /// Further checkpoints of one training, and after them a text to run
    #[arg(value_name = "TARGET", hide = true)]
    more: Vec<OsString>,
    /// Show a second run beside the first: a checkpoint or trace, or another text to run
    #[arg(long, value_name = "TARGET")]
    against: Option<OsString>,
    /// Do not save or suggest typed texts
    #[arg(long)]
    no_history: bool,
    /// Continue the last session: its checkpoint (or the given one), panel, selection, statistic and prompt
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    screen: ScreenArgs,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Returns what to run first: the requested prompt, or the built-in one.
pub(super) fn first_prompt(
    prompt: PromptArgs,
    asked: Option<Request>,
    is_demo: bool,
) -> FirstPrompt {
    Box::new(move |model: &Model, has_tokenizer: bool| {
        prompt.check_fits(&model.spec)?;
        Ok(match asked {
            Some(request) => (prompt.chat.apply(request, model)?, PromptOrigin::Asked),
            None => (
                prompt.built_in(is_demo, has_tokenizer, &model.spec),
                PromptOrigin::BuiltIn,
            ),
        })
    })
}

/// Returns what to run first if compared with a trace: its recorded token ids, unless another prompt was requested.
fn first_of_trace(opening: Opening, prompt: PromptArgs, is_demo: bool) -> FirstPrompt {
    Box::new(move |model: &Model, has_tokenizer: bool| {
        match recorded_prompt(&opening, prompt.usual())? {
            Some(request) => Ok((request, PromptOrigin::Asked)),
            None => first_prompt(prompt, None, is_demo)(model, has_tokenizer),
        }
    })
}

/// Interprets `--against`: a path is opened, anything else is a text.
pub(super) fn against_of(
    named: Option<&OsStr>,
    run: &RunArgs,
    prompt: &PromptArgs,
) -> Result<Option<Against>> {
    let Some(named) = named else {
        return Ok(None);
    };
    let is_text = named.to_str().is_some_and(|named| !is_path(named));
    if is_text {
        return Ok(Some(Against::Prompt(Request {
            source: source_of(&named.to_string_lossy()),
            ..prompt.usual()
        })));
    }
    let path = PathBuf::from(named);
    check_exists(&path)?;
    Ok(Some(Against::Target(run.opening(Some(path)))))
}

/// Returns what to run first in a comparison: the token ids of a trace, unless another prompt was requested.
pub(super) fn first_compared_prompt(
    against: Option<&Against>,
    prompt: PromptArgs,
    asked: Option<Request>,
    is_demo: bool,
) -> FirstPrompt {
    match against {
        Some(Against::Target(opening)) if asked.is_none() => {
            first_of_trace(opening.clone(), prompt, is_demo)
        }
        _ => first_prompt(prompt, asked, is_demo),
    }
}

/// Notes that the word after `--against` is run as a text: otherwise a mistyped name would be run without notice.
fn word_notice(against: Option<&Against>) -> Option<String> {
    match against {
        Some(Against::Prompt(Request {
            source: Source::Text(text),
            ..
        })) if !text.contains(char::is_whitespace) && !is_sound(text) => {
            Some(format!("no file is called {text:?}: it is run as a text"))
        }
        _ => None,
    }
}

/// Lists checkpoints and traces next to the opened one, which the user may want to compare.
fn nearby_checkpoints(checkpoint: Option<&Path>) -> Vec<PathBuf> {
    let Some(path) = checkpoint else {
        return Vec::new();
    };
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Vec::new(),
    };
    let found = std::fs::read_dir(parent).into_iter().flatten();
    let paths = found
        .take(MOST_LISTED)
        .filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |path: &PathBuf| {
        let is_file = || {
            path.extension()
                .is_some_and(|ending| ending == "safetensors" || ending == "gguf")
        };
        if path.is_dir() {
            is_checkpoint(path)
        } else {
            is_file()
        }
    };
    let own = path.file_name();
    let mut paths: Vec<PathBuf> = paths
        .filter(|found| found.file_name() != own && is_one(found))
        .map(|found| {
            found
                .strip_prefix("./")
                .map_or(found.clone(), Path::to_path_buf)
        })
        .collect();
    paths.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    paths.truncate(MOST_OFFERED);
    paths
}

/// Refuses the name of a missing file, with or without a terminal; a word may have been meant as a command.
fn check_exists(path: &Path) -> Result<()> {
    let is_named = path.to_str().is_some_and(names::is_model) || LiveTarget::parse(path).is_some();
    if path.symlink_metadata().is_ok() || is_named {
        return Ok(());
    }
    match unknown_command(Some(path.as_os_str().to_owned())) {
        Some(reason) => bail!(reason),
        None if names::may_be_model(path) => Ok(()),
        None => bail!(
            "{}: there is no such file or directory{}",
            path.display(),
            path_meant(path)
        ),
    }
}

/// Describes a first argument that is not a flag, file or command; `None` if it is one or is a path.
pub fn unknown_command(first: Option<OsString>) -> Option<String> {
    let first = first?.to_string_lossy().into_owned();
    let is_word = !first.starts_with('-') && !first.contains(char::is_whitespace);
    if !is_word || is_path(&first) {
        return None;
    }
    let cli = Cli::command();
    let commands: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    if commands.contains(&first.as_str()) || first == "help" {
        return None;
    }
    let meant = match nearest(&first, commands) {
        Some(meant) => format!("did you mean attnscope {meant}?"),
        None => "attnscope --help lists the commands".to_owned(),
    };
    Some(format!(
        "{first}: there is no such file, directory or command; {meant}"
    ))
}

/// Returns what to open, and the text after it: only the last word can be a text.
fn targets(args: &Args) -> Result<(Vec<PathBuf>, Option<String>)> {
    let words = args.positional.word().map(OsString::from);
    let mut words: Vec<OsString> = words.into_iter().chain(args.more.iter().cloned()).collect();
    let is_text = |word: &mut OsString| word.to_str().is_some_and(|word| !is_path(word));
    let text = words.pop_if(is_text);
    let text = text.map(|text| text.to_string_lossy().into_owned());
    for word in &words {
        check_exists(Path::new(word))?;
    }
    let further = words.into_iter().map(PathBuf::from);
    Ok((
        args.checkpoint.iter().cloned().chain(further).collect(),
        text,
    ))
}

/// Completes the command from the last session, and returns the state in which that session ended.
fn resumed(args: &Args) -> Result<(Args, Option<Session>)> {
    let mut args = args.clone();
    if !args.resume {
        return Ok((args, None));
    }
    if args.no_history {
        bail!("--resume: sessions are not read with --no-history");
    }
    let session = match &args.checkpoint {
        Some(path) => {
            let remembered = Remembered::of(Some(path), settings::limits());
            remembered.and_then(|remembered| remembered.session())
        }
        None => Remembered::last(),
    };
    let Some(session) = session else {
        match &args.checkpoint {
            Some(path) => bail!("--resume: no session with {} was kept", path.display()),
            None => bail!("--resume: no session was kept yet"),
        }
    };
    if args.checkpoint.is_none() {
        args.checkpoint = session.checkpoint.clone();
    }
    Ok((args, Some(session)))
}

/// Returns the prompt that a session ran last.
fn resumed_prompt(prompt: &PromptArgs, session: &Session) -> Option<Request> {
    let text = session.prompt.as_ref()?;
    let source = if session.is_picture {
        Source::picture(text)
    } else if session.is_values {
        Source::Values(Values::read(Path::new(text)).ok()?)
    } else if session.is_ids {
        let ids: Result<Vec<u32>, _> = text.split(", ").map(str::parse).collect();
        Source::Ids(ids.ok()?)
    } else {
        Source::Text(text.clone())
    };
    Some(Request {
        source,
        ..prompt.usual()
    })
}

/// Reads the prompts of the Prompts panel, if a file of them is given.
fn prompts_of(args: &Args, prompt: &PromptArgs) -> Result<Option<Vec<(String, Request)>>> {
    let Some(set) = args.inputs.read(prompt)? else {
        return Ok(None);
    };
    let live = args.checkpoint.as_deref().and_then(LiveTarget::parse);
    if live.is_some() {
        bail!(
            "--inputs: expected a checkpoint, found a live model, which runs one input at a time"
        );
    }
    if prompt.chat.is_asked() {
        bail!("--inputs: the screen runs its texts as they are, without --chat");
    }
    Ok(Some(set.requests().to_vec()))
}

pub fn run(args: &Args) -> Result<()> {
    let (args, session) = resumed(args)?;
    let args = &args;
    if let Some(path) = &args.checkpoint {
        check_exists(path)?;
    }
    let (targets, text) = targets(args)?;
    if let Some(sources) = open_training::training_of(&targets)? {
        if args.inputs.is_set() {
            bail!(
                "--inputs: expected one checkpoint, found a training: attnscope batch runs many checkpoints on many prompts"
            );
        }
        if args.against.is_some() {
            bail!(
                "--against: expected one checkpoint, found a training: Space marks a step to compare with"
            );
        }
        let mut prompt = args.prompt.clone();
        prompt.positional(text)?;
        let keeps = settings::keeps_history(args.no_history);
        let setup = args.screen.setup()?;
        let last = session.and_then(|session| resumed_prompt(&prompt, &session));
        return open_training::run(sources, prompt, &args.run, (keeps, last), setup);
    }
    let prompt = args.positional.with(&args.prompt)?;
    let asked = prompt.request()?;
    let prompts = prompts_of(args, &prompt)?;
    let first_of_set = || Some(prompts.as_ref()?.first()?.1.clone());
    let asked = asked.or_else(first_of_set);
    let last = session.as_ref();
    let asked = asked.or_else(|| resumed_prompt(&prompt, last?));
    let against = against_of(args.against.as_deref(), &args.run, &prompt)?;
    let chosen = args.run.set_up()?;
    let mut opening = args.run.opening(args.checkpoint.clone());
    opening.sees = asked
        .as_ref()
        .is_some_and(|asked| matches!(asked.source, Source::Picture(_)));
    // Download what is missing before the screen opens.
    let live = args.checkpoint.as_deref().and_then(LiveTarget::parse);
    let is_file = live.is_none();
    if let Some(path) = opening
        .path
        .as_ref()
        .filter(|path| is_file && !path.exists() && part_of(path).1.is_none())
    {
        opening.path = Some(opening.hub.find(path)?.path);
    }
    if !stdout().is_terminal() || !stdin().is_terminal() {
        bail!(
            "the screen needs a terminal; without one, attnscope report CHECKPOINT writes the same statistics"
        );
    }
    let is_demo = args.checkpoint.is_none();
    let remembered = settings::keeps_history(args.no_history)
        .then(|| Remembered::of(args.checkpoint.as_deref(), settings::limits()))
        .flatten();
    let look = session.and_then(|session| session.look);
    let setup = args.screen.setup()?;
    let shown = match &against {
        Some(_) => Some(Shown {
            statistic_idx: setup.statistic_idx,
            ..Shown::of(Panel::Compare)
        }),
        None if prompts.is_some() => Some(Shown {
            statistic_idx: setup.statistic_idx,
            ..Shown::of(Panel::Prompts)
        }),
        None => look.map(|look| look.shown()),
    };
    let word = word_notice(against.as_ref());
    let offered = default_prompts::offered(args.checkpoint.as_deref(), &prompt);
    let live = live.map(|target| LiveOpening {
        target,
        python: args.live.python.clone(),
        declared: args.live.declared(&prompt),
        first: asked.clone(),
    });
    let first = first_compared_prompt(against.as_ref(), prompt, asked, is_demo);
    Ok(attnscope_screen::run(Start {
        opening,
        first,
        live,
        terms: settings::terms(chosen.device, args.run.force),
        in_front: InitialState {
            notice: chosen.fell_back.or(word),
            shown,
            against,
            prompts,
            nearby_checkpoints: nearby_checkpoints(args.checkpoint.as_deref()),
            offered,
            remembered,
            setup,
            target: Some(
                args.checkpoint
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect(),
            ),
            ..InitialState::default()
        },
        story: None,
    })?)
}
