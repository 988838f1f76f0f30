//! The second encoder of DeepSeek-OCR 2: Qwen2's layers over the maps of features that Segment Anything's encoder makes. Rows of a picture
//! see each other, and not the learned queries behind them, which are left out.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::given_rows;
use super::reading::llama_like::{BiasRule, Recipe};
use super::reading::must_be_off;

pub const FAMILY: Family = Family::own("deepseek_ocr2_encoder", "DeepseekOcr2VisionEncoder", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    must_be_off(
        reader,
        "use_sliding_window",
        "windows of a picture's rows are not read",
    )?;
    let recipe = Recipe {
        qkv_bias: BiasRule::Always,
        is_causal: false,
        base: Some(""),
        ..Recipe::llama()
    };
    let both = (checkpoint, &mut *reader);
    let made_by = ("the encoder before it", true);
    let spec = given_rows::read_layers(FAMILY.model_type, both, &recipe, made_by)?;
    for key in ["layer_types", "max_window_layers", "sliding_window"] {
        reader.value(key);
    }
    reader.remark(
        "rows of a picture alone are read: learned queries stand behind them, which no row of the picture sees"
            .to_owned(),
    );
    Ok(spec)
}
