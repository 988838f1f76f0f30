//! What the thread that opens and runs holds between its jobs.

use std::any::Any;
use std::sync::{Arc, Mutex};

use attnscope_checkpoint::Opening;
use attnscope_prompt::{Prompt, Reading, Request};
use attnscope_spec::Model;

use super::against::Against;
use super::asked::UsualPrompt;
use super::context::{Context, ModelRun};
use super::event::{PromptOrigin, Sink};
use super::own_device::OwnDevice;
use super::terms::Terms;

/// Another checkpoint, as it was opened for the last comparison.
pub(super) struct Other {
    pub against: Against,
    pub model: Arc<Model>,
    pub reading: Arc<Reading>,
}

/// What a model read when it wrote last, of whichever device.
pub(super) struct Remembered {
    pub model: Arc<Model>,
    pub past: Box<dyn Any + Send>,
}

/// The thread that opens and runs.
pub(super) struct Runner {
    pub terms: Arc<Terms>,
    pub device: OwnDevice,
    pub context: Arc<Mutex<Context>>,
    pub sink: Sink,
    pub reading: Reading,
    /// What was opened, to be opened again.
    pub opening: Option<Opening>,
    /// What runs where no prompt was asked for yet and a step of a training is opened.
    pub usual: Option<UsualPrompt>,
    /// The prompt that was last asked for.
    pub last: Option<(Request, PromptOrigin)>,
    /// What the last run of A was of.
    pub prompt: Option<Arc<Prompt>>,
    /// The checkpoint that was last run beside A.
    pub other: Option<Other>,
    /// The last run of what is open that came to its end.
    pub before: Option<ModelRun>,
    /// What the model read when it wrote last.
    pub remembered: Option<Remembered>,
}
