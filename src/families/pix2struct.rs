//! Pix2Struct: an encoder of pictures, and T5's decoder behind it.

use attnscope_checkpoint::{Checkpoint, Config, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::encoder_decoder::behind;
use super::{Family, pix2struct_text_model, pix2struct_vision_model, published};

pub const FAMILY: Family = Family::own("pix2struct", "Pix2Struct", read);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    for key in ["is_vqa", "initializer_factor", "pad_token_id"] {
        reader.value(key);
    }
    let part = |reader: &Reader<'_>, key: &str| -> Config {
        let mut config = reader.part(key);
        published::rename_keys(&mut config);
        config
    };
    let seeing = part(reader, "vision_config");
    let mut inner = Reader::new(&seeing);
    inner.value("model_type");
    let encoder = pix2struct_vision_model::FAMILY.read(checkpoint, &mut inner)?;
    inner.forget(&["mask"]);
    reader.absorb("vision_config", inner);
    let writing = part(reader, "text_config");
    let mut inner = Reader::new(&writing);
    for key in [
        "model_type",
        "is_encoder_decoder",
        "pad_token_id",
        "eos_token_id",
        "bos_token_id",
    ] {
        inner.value(key);
    }
    let decoder = pix2struct_text_model::read_behind(FAMILY.model_type, checkpoint, &mut inner)?;
    reader.absorb("text_config", inner);
    behind(FAMILY.model_type, reader, encoder, decoder)
}
