//! The text part of Unlimited-OCR: DeepSeek-OCR 2, in which a text that is written sees all of the prompt and a few written tokens.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::{Family, deepseek_ocr2_text};

pub const FAMILY: Family = Family::own("unlimited_ocr_text", "UnlimitedOcrText", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let n_layers = reader.layers("num_hidden_layers")?;
    reader.words_by_layer("layer_types", n_layers)?;
    if let Some(width) = reader.value("sliding_window") {
        reader.remark(format!(
            "the text is taken for a prompt, which sees all tokens before; only tokens written after it have a window, of {width}"
        ));
    }
    deepseek_ocr2_text::read_as(FAMILY.model_type, checkpoint, reader)
}
