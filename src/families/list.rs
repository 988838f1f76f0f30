//! The type of a family, and the list of all families.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bart_like::{self, BartLike};
use super::reading::bert_like::{self, BertLike};
use super::reading::llama_like::{self, Recipe};
use super::reading::vit_like::{self, VitLike};

/// A family: how checkpoints of one `model_type` are read.
pub struct Family {
    /// The `model_type` in `config.json`.
    pub model_type: &'static str,
    /// Prefix of its class names, for configurations that only give a class.
    pub architecture: &'static str,
    reading: Reading,
}

/// How a checkpoint of a family becomes a spec.
enum Reading {
    /// The family's own code.
    Own(fn(&Checkpoint, &mut Reader<'_>) -> Result<ModelSpec>),
    /// Differences from Llama.
    Decoder(fn() -> Recipe),
    /// Differences from BERT.
    Encoder(fn() -> BertLike),
    /// Differences from BART.
    Translator(fn() -> BartLike),
    /// Differences from ViT, or from the caption encoder of a two-tower model.
    Seeing(fn() -> VitLike),
}

impl Family {
    const fn new(model_type: &'static str, architecture: &'static str, reading: Reading) -> Self {
        Self {
            model_type,
            architecture,
            reading,
        }
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

    /// The family's differences from BERT; `None` if it is not BERT-like.
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
            Reading::Decoder(recipe) => llama_like::read(name, checkpoint, reader, &recipe()),
            Reading::Encoder(like) => bert_like::read(name, checkpoint, reader, like()),
            Reading::Translator(like) => bart_like::read(name, checkpoint, reader, like()),
            Reading::Seeing(like) => vit_like::read(name, checkpoint, reader, like()),
        }
    }
}

/// Every family, sorted by name, one per line.
pub static FAMILIES: &[Family] = &[
    super::albert::FAMILY,
    super::apertus::FAMILY,
    super::arcee::FAMILY,
    super::bamba::FAMILY,
    super::bart::FAMILY,
    super::bert::FAMILY,
    super::bert_generation::FAMILY,
    super::big_bird::FAMILY,
    super::biogpt::FAMILY,
    super::blenderbot::FAMILY,
    super::blenderbot_small::FAMILY,
    super::bloom::FAMILY,
    super::clip_text_model::FAMILY,
    super::clip_vision_model::FAMILY,
    super::codegen::FAMILY,
    super::cohere::FAMILY,
    super::cohere2::FAMILY,
    super::ctrl::FAMILY,
    super::cwm::FAMILY,
    super::data2vec_text::FAMILY,
    super::dbrx::FAMILY,
    super::deberta::FAMILY,
    super::deberta_v2::FAMILY,
    super::deepseek_v2::FAMILY,
    super::deepseek_v3::FAMILY,
    super::deit::FAMILY,
    super::described::FAMILY,
    super::diffllama::FAMILY,
    super::dinov2::FAMILY,
    super::dinov2_with_registers::FAMILY,
    super::distilbert::FAMILY,
    super::electra::FAMILY,
    super::encoder_decoder::FAMILY,
    super::ernie::FAMILY,
    super::ernie4_5::FAMILY,
    super::ernie4_5_moe::FAMILY,
    super::esm::FAMILY,
    super::eurobert::FAMILY,
    super::exaone4::FAMILY,
    super::fairseq::FAMILY,
    super::falcon::FAMILY,
    super::falcon_h1::FAMILY,
    super::gemma::FAMILY,
    super::gemma2::FAMILY,
    super::gemma3_text::FAMILY,
    super::gemma3n_text::FAMILY,
    super::gemma4_text::FAMILY,
    super::glm::FAMILY,
    super::glm4::FAMILY,
    super::glm4_moe::FAMILY,
    super::gpt2::FAMILY,
    super::gpt_bigcode::FAMILY,
    super::gpt_neo::FAMILY,
    super::gpt_neox::FAMILY,
    super::gpt_oss::FAMILY,
    super::gptj::FAMILY,
    super::granite::FAMILY,
    super::granitemoe::FAMILY,
    super::granitemoehybrid::FAMILY,
    super::helium::FAMILY,
    super::hunyuan_v1_dense::FAMILY,
    super::jamba::FAMILY,
    super::led::FAMILY,
    super::lfm2::FAMILY,
    super::llama::FAMILY,
    super::llama4_text::FAMILY,
    super::longformer::FAMILY,
    super::lstm_seq2seq::FAMILY,
    super::m2m_100::FAMILY,
    super::marian::FAMILY,
    super::mbart::FAMILY,
    super::megatron_bert::FAMILY,
    super::minimax::FAMILY,
    super::ministral::FAMILY,
    super::ministral3::FAMILY,
    super::mistral::FAMILY,
    super::mixtral::FAMILY,
    super::modernbert::FAMILY,
    super::mpnet::FAMILY,
    super::mpt::FAMILY,
    super::mt5::FAMILY,
    super::nanogpt::FAMILY,
    super::nemotron::FAMILY,
    super::nemotron_h::FAMILY,
    super::nllb_moe::FAMILY,
    super::nomic_bert::FAMILY,
    super::olmo::FAMILY,
    super::olmo2::FAMILY,
    super::olmo3::FAMILY,
    super::olmoe::FAMILY,
    super::openai_gpt::FAMILY,
    super::opt::FAMILY,
    super::pegasus::FAMILY,
    super::persimmon::FAMILY,
    super::phi::FAMILY,
    super::phi3::FAMILY,
    super::phimoe::FAMILY,
    super::qwen2::FAMILY,
    super::qwen2_moe::FAMILY,
    super::qwen3::FAMILY,
    super::qwen3_moe::FAMILY,
    super::qwen3_next::FAMILY,
    super::recurrent_gemma::FAMILY,
    super::rembert::FAMILY,
    super::roberta::FAMILY,
    super::roformer::FAMILY,
    super::seed_oss::FAMILY,
    super::siglip_text_model::FAMILY,
    super::siglip_vision_model::FAMILY,
    super::smollm3::FAMILY,
    super::stablelm::FAMILY,
    super::starcoder2::FAMILY,
    super::t5::FAMILY,
    super::t5gemma::FAMILY,
    super::torch_encoder::FAMILY,
    super::torch_transformer::FAMILY,
    super::umt5::FAMILY,
    super::vit::FAMILY,
    super::whisper::FAMILY,
    super::xglm::FAMILY,
    super::xlm::FAMILY,
    super::xlm_roberta::FAMILY,
    super::xlm_roberta_xl::FAMILY,
];
