//! AltCLIP's tower of captions: XLM-RoBERTa, a norm, and a map to the width that both towers share.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::Result;
use attnscope_spec::ModelSpec;

use super::reading::bert_like::{self, BertLike, Names};
use super::reading::{layer_norm, linear, prefix};
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("altclip_text_model", "AltCLIPText", read);

/// Prefixes of the encoder.
const BASES: [&str; 3] = ["roberta.", "text_model.roberta.", ""];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    let base = prefix(tensors, &BASES, "embeddings.word_embeddings.weight");
    // Files keep the names of RoBERTa; classes of version 5 have another.
    let probe = format!("{base}encoder.layers.0.output.dense.weight");
    let layers = if tensors.contains(&probe) {
        "encoder.layers"
    } else {
        "encoder.layer"
    };
    let like = BertLike {
        eps: 1e-5,
        may_decode: false,
        names: Names {
            layers,
            ..Names::BERT
        },
        ..roberta::like(base)
    };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let at = base.trim_end_matches("roberta.");
    let map = format!("{at}transformation");
    // The encoder alone ends before them.
    if tensors.contains(&format!("{map}.weight")) {
        let d_model = spec.d_model;
        let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
        let default = Origin::Default("project_dim".to_owned());
        let width = reader.size_or("d_last", "project_dim", 768, default)?;
        let stack = &mut spec.stacks[0];
        stack.final_norm = Some(layer_norm(tensors, &format!("{at}pre_LN"), d_model, eps));
        stack.last_map = Some(linear(&map, d_model, width, true));
    }
    Ok(spec)
}
