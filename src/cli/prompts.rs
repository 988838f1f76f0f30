//! The prompts of a batch command: one from the flags, or a set from a file.

use std::io::{Read, stdin};
use std::ops::Range;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::DOCUMENT;
use attnscope_checkpoint::counted::counted;
use attnscope_checkpoint::machine::mebibytes;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::on_device;
use attnscope_compute::ops::Compute;
use attnscope_compute::pace::Pace;
use attnscope_forward::Input;
use attnscope_prompt::{Prompt, PromptForm, Request, Source, is_sound, parse_inputs, read_inputs};
use attnscope_run::{Rules, WriterMemory, generate, input_of, n_encoded};
use attnscope_spec::Model;

use super::PromptArgs;
use super::progress::{Task, note};

/// Id of a single prompt.
pub const ONLY: &str = "prompt";

/// A set of prompts instead of one.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct InputsArgs {
    /// File with a set of prompts, one JSON object per line: id, text, tokens or image, target, attention_mask; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "text_file", "tokens", "image", "values", "attention_mask"])]
    inputs: Option<PathBuf>,
}

/// The prompts of a set, for any number of targets.
pub struct PromptSet {
    path: PathBuf,
    requests: Vec<(String, Request)>,
}

impl InputsArgs {
    /// Returns the file of the set.
    pub fn file(&self) -> Option<&Path> {
        self.inputs.as_deref()
    }

    /// Whether there is a set.
    pub fn is_set(&self) -> bool {
        self.inputs.is_some()
    }

    /// Returns the requests of the set, if there is one.
    ///
    /// # Errors
    /// As for [`InputsArgs::read`].
    pub fn requests(&self, args: &PromptArgs) -> Result<Option<Vec<Request>>> {
        let set = self.read(args)?;
        Ok(set.map(|set| {
            set.requests
                .into_iter()
                .map(|(_, request)| request)
                .collect()
        }))
    }

    /// Reads the set, if there is one; `args` provides what its lines leave out.
    ///
    /// # Errors
    /// When it cannot be read, or another prompt was given too.
    pub fn read(&self, args: &PromptArgs) -> Result<Option<PromptSet>> {
        let Some(path) = &self.inputs else {
            return Ok(None);
        };
        if args.prompt.is_some() {
            let problem = "expected --inputs FILE or a prompt, found both";
            return Err(Error::Prompt(problem.to_owned()));
        }
        let (path, requests) = if path == Path::new("-") {
            let name = PathBuf::from("standard input");
            let requests = parse_inputs(&name, &standard_input(&name)?, &args.usual())?;
            (name, requests)
        } else {
            (path.clone(), read_inputs(path, &args.usual())?)
        };
        Ok(Some(PromptSet { path, requests }))
    }
}

fn standard_input(name: &Path) -> Result<String> {
    let mut text = String::new();
    let most = DOCUMENT as u64;
    let n_read = stdin().lock().take(most + 1).read_to_string(&mut text);
    let n_read = n_read.map_err(|e| Error::file(name, format!("cannot be read ({e})")))?;
    if n_read as u64 > most {
        let problem = format!("expected at most {most} bytes, found more");
        return Err(Error::file(name, problem));
    }
    Ok(text)
}

impl PromptSet {
    /// Makes a set of the one prompt from the flags.
    pub fn of_one(request: Request) -> Self {
        Self {
            path: PathBuf::new(),
            requests: vec![(ONLY.to_owned(), request)],
        }
    }

    /// Makes a set of prompts that were read from a file elsewhere.
    pub fn of_file(path: &Path, requests: Vec<(String, Request)>) -> Self {
        Self {
            path: path.to_path_buf(),
            requests,
        }
    }

    /// Whether the first prompt is a picture.
    pub fn is_picture(&self) -> bool {
        let first = self.requests.first();
        first.is_some_and(|(_, request)| matches!(request.source, Source::Picture(_)))
    }

    /// Returns the prompts with their ids, in the order of the file.
    pub fn requests(&self) -> &[(String, Request)] {
        &self.requests
    }

    /// Returns some of the prompts.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self {
            path: self.path.clone(),
            requests: self.requests[range].to_vec(),
        }
    }
}

/// A prompt with its id in reports.
pub struct Named {
    pub id: String,
    pub prompt: Prompt,
}

/// Prepares the prompts that the flags give, or the built-in one.
///
/// # Errors
/// When one cannot be read, or the model cannot run it; the error names it.
pub fn prepare(
    args: &PromptArgs,
    set: Option<&PromptSet>,
    model: &Model,
    prompt_form: &PromptForm,
) -> Result<Vec<Named>> {
    args.check_fits(&model.spec)?;
    let Some(set) = set else {
        let request = request(args, model, prompt_form)?;
        let prompt = attnscope_prompt::prepare(&request, prompt_form, model.spec.limits())?;
        told_of(model, &prompt).for_each(|said| note(&said));
        return Ok(vec![Named {
            id: ONLY.to_owned(),
            prompt,
        }]);
    };
    let prepared = set.requests.iter().map(|(id, request)| {
        let request = args.chat.apply(request.clone(), model)?;
        let prompt = attnscope_prompt::prepare(&request, prompt_form, model.spec.limits())
            .map_err(|e| match e {
                Error::Prompt(problem) => Error::file(&set.path, format!("prompt {id}: {problem}")),
                other => other,
            })?;
        let id = id.clone();
        Ok(Named { id, prompt })
    });
    let prepared = prepared.collect::<Result<Vec<Named>>>()?;
    let mut told: Vec<(String, Vec<&str>)> = Vec::new();
    for named in &prepared {
        for said in told_of(model, &named.prompt) {
            match told.iter_mut().find(|(known, _)| *known == said) {
                Some((_, ids)) => ids.push(&named.id),
                None => told.push((said, vec![&named.id])),
            }
        }
    }
    for (said, ids) in told {
        note(&format!("{}: {said}", several(&ids)));
    }
    Ok(prepared)
}

/// Joins the ids of prompts that share a note.
fn several(ids: &[&str]) -> String {
    match ids {
        [] => String::new(),
        [id] => (*id).to_owned(),
        [first, others @ ..] => format!("{first} and {}", counted(others.len(), "other prompt")),
    }
}

/// Returns notes for the user about a prompt that can be run.
fn told_of(model: &Model, prompt: &Prompt) -> impl Iterator<Item = String> {
    let head = model.spec.head.as_ref();
    let labels = head.and_then(|head| head.labels.as_ref());
    let at_padding =
        labels.and_then(|labels| labels.at_padding(&prompt.tokens, prompt.real.as_deref()));
    let beyond = model.spec.limits().beyond(prompt);
    [beyond, prompt.lost_words(), at_padding]
        .into_iter()
        .flatten()
}

/// Names the built-in prompt, by the beginning of its text.
fn built_in_words(request: &Request) -> String {
    const QUOTED: usize = 40;
    match &request.source {
        Source::Text(text) if !is_sound(text) => {
            let words: String = text.chars().take(QUOTED).collect();
            let whole = words
                .rsplit_once(' ')
                .map_or(words.as_str(), |(whole, _)| whole);
            format!("a built-in text, “{whole} …”")
        }
        Source::Ids(ids) => format!("{} built-in token ids", ids.len()),
        _ => "a built-in one".to_owned(),
    }
}

fn request(args: &PromptArgs, model: &Model, prompt_form: &PromptForm) -> Result<Request> {
    Ok(match args.request()? {
        Some(request) => args.chat.apply(request, model)?,
        None => {
            let request = args.built_in(false, prompt_form.tokenizer().is_some(), &model.spec);
            note(&format!(
                "no prompt given: running {}",
                built_in_words(&request)
            ));
            request
        }
    })
}

/// Returns the longest possible inputs of prompts, generated targets included.
pub fn longest_inputs(named: &[Named]) -> Vec<Input> {
    let longest = named.iter().map(|named| input_of(&named.prompt.longest()));
    longest.collect()
}

/// Lets a decoder generate the targets that were not given.
///
/// # Errors
/// When the model has no language-model head, or its tensors are invalid.
pub fn write_targets(
    named: &mut [Named],
    model: &Model,
    prompt_form: &PromptForm,
    compute: &Compute,
    pace: &dyn Pace,
) -> Result<()> {
    let prompt_form = prompt_form.of_target(model.spec.limits());
    if named.iter().any(|named| named.prompt.n_to_generate > 0)
        && let Some(rules) = Rules::of(model).note()
    {
        note(&rules);
    }
    for Named { id, prompt } in named {
        if prompt.n_to_generate == 0 {
            continue;
        }
        let n_source = n_encoded(&model.spec, prompt);
        let held = WriterMemory::of(model, prompt.longest().tokens.len(), n_source);
        log::info!(
            "{id}: writing keeps {} of keys and values, and {} of weights where there is room",
            mebibytes(held.keys_and_values as u64),
            mebibytes(held.weights as u64)
        );
        let task = Task::begin(&format!("writing {id}"), prompt.n_to_generate as u64);
        let mut wrote = |_: &Prompt| task.add(1);
        let label = |id| prompt_form.label(id);
        on_device!(compute, ops => {
            generate(ops, model, prompt, &label, &mut wrote, pace)
        })?;
        drop(task);
        let first = prompt.tokens.len() - prompt.n_written;
        prompt.written = prompt_form.text(&prompt.tokens[first..]);
    }
    Ok(())
}
