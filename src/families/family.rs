//! What a family is: how checkpoints of one `model_type` become a spec.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::layouts::Keys;
use super::reading::bart_like::{self, BartLike};
use super::reading::bert_like::{self, BertLike};
use super::reading::latent::{self, LatentLike};
use super::reading::llama_like::{self, Recipe};
use super::reading::task_rules::TaskRules;
use super::reading::vit_like::{self, VitLike};

/// How checkpoints of one `model_type` are read.
pub struct Family {
    /// `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Prefix of its class names, used where `model_type` is missing.
    pub architecture: &'static str,
    reading: Reading,
    /// How the heads of its task classes differ from those of most families.
    pub(super) tasks: TaskRules,
    /// Suffixes of stored tensors that it computes itself or does not use, or parts of their names that end in `*`; they are not
    /// reported when unread.
    pub(super) unread: &'static [&'static str],
    /// Whether its windows reached one key further in transformers 4.37 to 4.41.
    pub(super) windows_were_wider: bool,
    /// The keys of its configuration, as layouts fill them in.
    pub(super) keys: Keys,
}

/// What turns a checkpoint of a family into a spec.
enum Reading {
    /// The family's own code.
    Own(fn(&Checkpoint, &mut Reader<'_>) -> Result<ModelSpec>),
    /// DeepSeek with these changes.
    Latent(fn() -> LatentLike),
    /// Llama with these changes.
    Decoder(fn() -> Recipe),
    /// BERT with these changes.
    Encoder(fn() -> BertLike),
    /// BART with these changes.
    Translator(fn() -> BartLike),
    /// ViT, or the encoder of captions beside one, with these changes.
    Seeing(fn() -> VitLike),
}

impl Family {
    const fn new(model_type: &'static str, architecture: &'static str, reading: Reading) -> Self {
        Self {
            model_type,
            architecture,
            reading,
            tasks: TaskRules::USUAL,
            unread: &[],
            windows_were_wider: false,
            keys: Keys::OfMost,
        }
    }

    /// Sets the rules for the heads of the family's task classes.
    pub(super) const fn with_tasks(self, tasks: TaskRules) -> Self {
        Self { tasks, ..self }
    }

    /// Names the stored tensors that the family computes or does not use, by suffix or by a part that ends in `*`.
    pub(super) const fn leaving_unread(self, unread: &'static [&'static str]) -> Self {
        Self { unread, ..self }
    }

    /// Marks a family whose windows reached one key further in transformers 4.37 to 4.41.
    pub(super) const fn with_once_wider_windows(self) -> Self {
        Self {
            windows_were_wider: true,
            ..self
        }
    }

    /// Sets the keys that the family's configuration uses.
    pub(super) const fn with_keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    pub(super) const fn own(
        model_type: &'static str,
        architecture: &'static str,
        read: fn(&Checkpoint, &mut Reader<'_>) -> Result<ModelSpec>,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Own(read))
    }

    pub(super) const fn decoder(
        model_type: &'static str,
        architecture: &'static str,
        recipe: fn() -> Recipe,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Decoder(recipe))
    }

    pub(super) const fn latent(
        model_type: &'static str,
        architecture: &'static str,
        like: fn() -> LatentLike,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Latent(like))
    }

    pub(super) const fn encoder(
        model_type: &'static str,
        architecture: &'static str,
        like: fn() -> BertLike,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Encoder(like))
    }

    pub(super) const fn translator(
        model_type: &'static str,
        architecture: &'static str,
        like: fn() -> BartLike,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Translator(like))
    }

    /// Returns the family's changes to BERT; `None` if it is not like BERT.
    pub(super) fn encoder_like(&self) -> Option<BertLike> {
        match self.reading {
            Reading::Encoder(like) => Some(like()),
            _ => None,
        }
    }

    pub(super) const fn seeing(
        model_type: &'static str,
        architecture: &'static str,
        like: fn() -> VitLike,
    ) -> Self {
        Self::new(model_type, architecture, Reading::Seeing(like))
    }

    /// Reads a checkpoint of the family.
    ///
    /// # Errors
    /// When a value of the configuration is missing or impossible.
    pub(super) fn read(
        &self,
        checkpoint: &Checkpoint,
        reader: &mut Reader<'_>,
    ) -> Result<ModelSpec> {
        let name = self.model_type;
        match self.reading {
            Reading::Own(read) => read(checkpoint, reader),
            Reading::Latent(like) => latent::read(name, checkpoint, reader, like()),
            Reading::Decoder(recipe) => llama_like::read(name, checkpoint, reader, &recipe()),
            Reading::Encoder(like) => bert_like::read(name, checkpoint, reader, like()),
            Reading::Translator(like) => bart_like::read(name, checkpoint, reader, like()),
            Reading::Seeing(like) => vit_like::read(name, checkpoint, reader, like()),
        }
    }
}
