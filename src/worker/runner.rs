//! State that the opening and running thread keeps between jobs.

use std::any::Any;
use std::sync::{Arc, Mutex};

use attnscope_checkpoint::Opening;
use attnscope_prompt::{Prompt, PromptForm, Request};
use attnscope_spec::Model;

use super::against::Against;
use super::asked::UsualPrompt;
use super::context::{Context, ModelRun};
use super::event::{PromptOrigin, Sink};
use super::own_device::OwnDevice;
use super::terms::Terms;
use super::unchecked::Unchecked;

/// Another checkpoint, kept open from the last comparison.
pub(super) struct Other {
    pub against: Against,
    pub model: Arc<Model>,
    pub prompt_form: Arc<PromptForm>,
}

/// KV cache of a model's last generation, on any device.
pub(super) struct Remembered {
    pub model: Arc<Model>,
    pub past: Box<dyn Any + Send>,
}

/// State of the thread that opens and runs.
pub(super) struct Runner {
    pub terms: Arc<Terms>,
    pub device: OwnDevice,
    pub context: Arc<Mutex<Context>>,
    pub sink: Sink,
    pub prompt_form: Arc<PromptForm>,
    /// The last opening, for opening it again.
    pub opening: Option<Opening>,
    /// Chooses the prompt for a training step if none was requested yet.
    pub usual: Option<UsualPrompt>,
    /// The last requested prompt.
    pub last: Option<(Request, PromptOrigin)>,
    /// The prompt of A's last run.
    pub prompt: Option<Arc<Prompt>>,
    /// The checkpoint last compared with A.
    pub other: Option<Other>,
    /// The last finished run of the open subject.
    pub before: Option<ModelRun>,
    /// Name of a live subject's tokenizer, if it has one.
    pub live_tokenizer: Option<String>,
    /// Runs of a live subject whose checks have not run, the newest last.
    pub unchecked: Vec<Unchecked>,
    /// KV cache of the last generation.
    pub remembered: Option<Remembered>,
}
