//! Conversations in the format of a checkpoint's chat template: messages → text as the model was trained on.

mod namespaces;
mod python;
mod render;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use attnscope_checkpoint::{CONFIGURATION, TokenizerFile, read_text};
use attnscope_compute::error::{Error, Result};
use minijinja::Value as Item;
use minijinja::value::ValueKind;
use serde_json::{Map, Value};

/// A chat template with the special tokens that it may use.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    path: PathBuf,
    source: String,
    tokens: BTreeMap<String, String>,
}

/// A conversation: messages with a role and content, in the form that templates take.
#[derive(Debug, Clone, PartialEq)]
pub struct Messages(Vec<Item>);

/// The file that holds only a template, and the settings file that may contain one.
const ALONE: &str = "chat_template.jinja";
const SETTINGS: &str = "tokenizer_config.json";
/// The name of the default template among several.
const USUAL: &str = "default";

impl Messages {
    /// One user message, after a system message if there is one.
    pub fn turn(system: Option<&str>, text: &str) -> Self {
        Self(vec![said("user", text)]).with_system(system)
    }

    /// Reads messages from a JSON file: a list, or a map whose `messages` is one.
    ///
    /// # Errors
    /// When it cannot be read, or a message has no role.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path, CONFIGURATION)?;
        // Parsed as template values, so that the arguments of a tool call keep their order.
        let value: Item = serde_json::from_str(&text)
            .map_err(|e| Error::file(path, format!("is not JSON ({e})")))?;
        let list = match value.kind() {
            ValueKind::Map => value.get_attr("messages").unwrap_or_default(),
            _ => value,
        };
        let list: Vec<Item> = match (list.kind(), list.try_iter()) {
            (ValueKind::Seq, Ok(messages)) => messages.collect(),
            _ => Vec::new(),
        };
        if list.is_empty() {
            let problem = "expected a list of messages, each with a role and a content";
            return Err(Error::file(path, problem.to_owned()));
        }
        match list.iter().position(|message| role(message).is_none()) {
            Some(idx) => Err(Error::file(
                path,
                format!("message {idx}: expected a role, found none"),
            )),
            None => Ok(Self(list)),
        }
    }

    /// Puts a system message before the messages.
    #[must_use]
    pub fn with_system(mut self, system: Option<&str>) -> Self {
        if let Some(text) = system {
            self.0.insert(0, said("system", text));
        }
        self
    }

    /// Upper limit of steps, and so of memory, for rendering them; templates of chat models take some dozens per message.
    fn steps(&self) -> u32 {
        const LEAST: usize = 200_000;
        const OF_MESSAGE: usize = 1_000;
        const MOST: u32 = 1_000_000;
        let n_bytes: usize = self.0.iter().map(|message| message.to_string().len()).sum();
        let n_steps = LEAST + OF_MESSAGE * self.0.len() + n_bytes;
        u32::try_from(n_steps).unwrap_or(MOST).min(MOST)
    }

    /// Whether the user or a tool spoke last, so that the model answers next.
    fn awaits_answer(&self) -> bool {
        let last = self.0.last().and_then(role);
        last.as_deref() != Some("assistant")
    }
}

fn said(role: &str, text: &str) -> Item {
    Item::from_pairs([("role", Item::from(role)), ("content", Item::from(text))])
}

fn role(message: &Item) -> Option<String> {
    let role = message.get_attr("role").ok()?;
    Some(role.as_str()?.to_owned())
}

impl ChatTemplate {
    /// Reads the template of a checkpoint.
    ///
    /// # Errors
    /// When there is none, or a file that may hold one cannot be read.
    pub fn of(tokenizer: &TokenizerFile) -> Result<Self> {
        let files = tokenizer.files();
        let directory = files.first().and_then(|path| path.parent());
        let Some(directory) = directory else {
            let problem =
                "--chat: the checkpoint has no tokenizer beside it, and so no chat template";
            return Err(Error::Prompt(problem.to_owned()));
        };
        let settings = directory.join(SETTINGS);
        let values = if settings.is_file() {
            let text = read_text(&settings, CONFIGURATION)?;
            let parsed = serde_json::from_str::<Map<String, Value>>(&text);
            parsed.map_err(|e| Error::file(&settings, format!("is not JSON ({e})")))?
        } else {
            Map::new()
        };
        let tokens = special_tokens(&values);
        let alone = directory.join(ALONE);
        if alone.is_file() {
            return Ok(Self {
                source: read_text(&alone, CONFIGURATION)?,
                path: alone,
                tokens,
            });
        }
        let source = values.get("chat_template").and_then(template_of);
        let missing = || {
            let problem = format!(
                "--chat: expected a chat_template in it, or a file {ALONE} beside it, found neither"
            );
            Error::file(&settings, problem)
        };
        Ok(Self {
            source: source.ok_or_else(missing)?,
            path: settings,
            tokens,
        })
    }

    /// A template from its source text.
    pub fn new(path: PathBuf, source: String, tokens: BTreeMap<String, String>) -> Self {
        Self {
            path,
            source,
            tokens,
        }
    }

    /// Renders a conversation up to where the model's answer begins. `now` is the time that a template may ask for, in seconds
    /// since 1970.
    ///
    /// # Errors
    /// When the template is broken, refuses the conversation, or takes too long or too much memory.
    pub fn apply(&self, messages: &Messages, now: u64) -> Result<String> {
        let prompts = messages.awaits_answer();
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(name, text)| (name.as_str(), Item::from(text.as_str())));
        let given = [
            ("messages", Item::from(messages.0.clone())),
            ("add_generation_prompt", Item::from(prompts)),
            ("tools", Item::from(())),
            ("documents", Item::from(())),
        ];
        let context = Item::from_pairs(tokens.chain(given));
        render::render(&self.source, context, now, messages.steps())
            .map_err(|problem| Error::file(&self.path, format!("chat template: {problem}")))
    }
}

/// The template in a settings value: a string, or a list of names and strings.
fn template_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(list) => {
            let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(USUAL);
            let found = list.iter().find(named).or(list.first())?;
            Some(found.get("template")?.as_str()?.to_owned())
        }
        Value::Object(map) => {
            let found = map.get(USUAL).or_else(|| map.values().next())?;
            Some(found.as_str()?.to_owned())
        }
        _ => None,
    }
}

/// Special tokens, by the names that templates use.
fn special_tokens(settings: &Map<String, Value>) -> BTreeMap<String, String> {
    let is_token = |name: &&String| name.ends_with("_token");
    let names = settings.keys().filter(is_token);
    let named = names.filter_map(|name| {
        let text = match &settings[name] {
            Value::String(text) => text.clone(),
            Value::Object(token) => token.get("content")?.as_str()?.to_owned(),
            _ => return None,
        };
        Some((name.clone(), text))
    });
    named.collect()
}
