//! OpenAI's privacy filter: GPT-OSS as an encoder, with two-sided windows in every layer and interleaved rotation.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::gpt_oss::{self, GptOssLike};
use super::reading::llama_like::{Recipe, TwoSided};
use super::reading::windows::WindowRule;

pub const FAMILY: Family = Family::own("openai_privacy_filter", "OpenAIPrivacyFilter", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = GptOssLike {
        family: FAMILY.model_type,
        recipe: Recipe {
            window: WindowRule::Always(Some(128)),
            is_causal: false,
            two_sided: TwoSided::WholeEitherWay,
            interleaved: true,
            is_tied: true,
            d_head: None,
            ..gpt_oss::recipe()
        },
        alternates: false,
    };
    gpt_oss::read_as(checkpoint, reader, &like)
}
