//! Flags that make a prompt a conversation.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{ChatTemplate, Messages, Request, Source};
use attnscope_spec::Model;

/// Whether the prompt is a turn of a conversation, and what the system says before it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ChatArgs {
    /// Apply the checkpoint's chat template: to the prompt as a user message, or to all messages of a JSON file
    #[arg(long, value_name = "FILE|TEXT", num_args = 0..=1, default_missing_value = "")]
    chat: Option<String>,
    /// System message of the conversation
    #[arg(long, value_name = "TEXT", requires = "chat")]
    system: Option<String>,
}

impl ChatArgs {
    /// Returns the value given with the flag: a file of messages, or a text.
    pub fn said(&self) -> Option<&str> {
        self.chat.as_deref().filter(|said| !said.is_empty())
    }

    /// Whether the prompt is a conversation.
    pub fn is_asked(&self) -> bool {
        self.chat.is_some()
    }

    /// Applies the checkpoint's chat template to a prompt; returns the prompt unchanged if no chat was requested.
    ///
    /// # Errors
    /// When there is no template, it refuses the conversation, or the prompt is not text.
    pub fn apply(&self, request: Request, model: &Model) -> Result<Request> {
        if self.chat.is_none() {
            return Ok(request);
        }
        let system = self.system.as_deref();
        let messages = match (self.said(), &request.source) {
            (Some(said), _) if is_file_of_messages(said) => {
                Messages::read(Path::new(said))?.with_system(system)
            }
            (_, Source::Text(text)) => Messages::turn(system, text),
            (_, Source::Ids(_) | Source::Picture(_) | Source::Values(_)) => {
                let problem =
                    "--chat: expected a text, or a JSON file of messages, found another prompt";
                return Err(Error::Prompt(problem.to_owned()));
            }
        };
        let template = ChatTemplate::of(&model.checkpoint.tokenizer)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let text = template.apply(&messages, now.map_or(0, |since| since.as_secs()))?;
        // The template includes special tokens.
        Ok(Request {
            source: Source::Text(text),
            special_tokens: false,
            ..request
        })
    }
}

fn is_file_of_messages(said: &str) -> bool {
    Path::new(said).is_file() || said.ends_with(".json")
}
