//! X-MOD: RoBERTa with a feed-forward layer of one language behind every layer; each layer is read as two.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, FeedForward, Layers, Mixer, MlpSpec, ModelSpec, NormSource};

use super::reading::bert_like::{self, BertLike, Names, Norms};
use super::reading::{layer_norm, linear};
use super::{Family, roberta};

pub const FAMILY: Family = Family::own("xmod", "Xmod", read).leaving_unread(&[
    // Those of other languages.
    "dense1.weight",
    "dense1.bias",
    "dense2.weight",
    "dense2.bias",
]);

const LIKE: BertLike = roberta::like("roberta.");

/// Norms before the branches, which have the names of those after them.
const BEFORE: BertLike = BertLike {
    norms: Norms::Before {
        attention: Names::BERT.attn_norm,
        mlp: Names::BERT.mlp_norm,
        last: "encoder.LayerNorm",
    },
    ..LIKE
};

/// Where the layer of a language reads and adds.
struct Around {
    is_pre_norm: bool,
    has_own_norm: bool,
    reuses_norm: bool,
    adds_to_normed: bool,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let around = Around {
        is_pre_norm: reader.flag_or("norms_before", "pre_norm", false)?,
        has_own_norm: reader.flag_or("adapter_norm", "adapter_layer_norm", false)?,
        reuses_norm: reader.flag_or("adapter_reuses_norm", "adapter_reuse_layer_norm", true)?,
        adds_to_normed: reader.flag_or("adapter_adds_to_normed", "ln_before_adapter", true)?,
    };
    let like = if around.is_pre_norm { BEFORE } else { LIKE };
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, like)?;
    let language = language(reader)?;
    let factor = reader.number_or("adapter_reduction", "adapter_reduction_factor", 2.0)?;
    let width = (spec.d_model as f64 / factor) as usize;
    if width == 0 || width > spec.d_model {
        let problem = format!(
            "expected a number from 1 to hidden_size, {}, found {factor}",
            spec.d_model
        );
        return Err(Error::config(
            reader.path(),
            "adapter_reduction_factor",
            problem,
        ));
    }
    let d_model = spec.d_model;
    let stack = &mut spec.stacks[0];
    let mut blocks = Vec::with_capacity(2 * stack.n_layers());
    for block in stack.blocks() {
        let mut block = block.clone();
        let FeedForward::Dense(dense) = &block.feed_forward else {
            continue;
        };
        let at = dense.down.weight.trim_end_matches("dense.weight");
        let norm = block.mlp_post.take().or_else(|| block.mlp_pre.clone());
        let own = |norm: &NormSource| {
            let name = format!("{at}adapter_layer_norm");
            layer_norm(&checkpoint.tensors, &name, d_model, f64::from(norm.eps))
        };
        let before = match (&norm, around.has_own_norm, around.reuses_norm) {
            (Some(norm), true, _) => Some(own(norm)),
            (Some(norm), false, true) => Some(norm.clone()),
            _ => None,
        };
        let map = |name: &str, n_in, n_out| {
            let name = format!("{at}adapter_modules.{language}.{name}");
            linear(&name, n_in, n_out, true)
        };
        let mlp = MlpSpec::plain(
            map("dense1", d_model, width),
            map("dense2", width, d_model),
            dense.activation,
        );
        let of_language = BlockSpec {
            adds_to_normed: around.adds_to_normed && before.is_some(),
            mlp_pre: before,
            mlp_post: norm.filter(|_| !around.is_pre_norm),
            ..BlockSpec::mixed(Mixer::None, FeedForward::Dense(Box::new(mlp)))
        };
        blocks.extend([block, of_language]);
    }
    reader.remark(format!(
        "the text is read as {language}; layers 0, 2, 4 and so on are those of the file, the ones between them are the language's"
    ));
    reader.forget(&["n_layers"]);
    let origin = Origin::Derived("twice num_hidden_layers".to_owned());
    reader.note("n_layers", blocks.len(), origin);
    stack.layers = Layers::Blocks(blocks);
    Ok(spec)
}

/// The language whose layers run.
fn language(reader: &mut Reader<'_>) -> Result<String> {
    const KEY: &str = "default_language";
    let languages = reader.value("languages").and_then(|list| list.as_array());
    let languages: Vec<String> = languages
        .into_iter()
        .flatten()
        .filter_map(|language| language.as_str().map(str::to_owned))
        .collect();
    let found = reader.value(KEY).and_then(|language| language.as_str());
    match found.map(str::to_owned) {
        Some(language) if languages.contains(&language) => {
            reader.note("language", &language, Origin::Key(KEY.to_owned()));
            Ok(language)
        }
        found => {
            let found = found.unwrap_or_else(|| "none".to_owned());
            let problem = format!(
                "expected the language whose layers run, one of {}, found {found}",
                languages.join(", ")
            );
            Err(Error::config(reader.path(), KEY, problem))
        }
    }
}
