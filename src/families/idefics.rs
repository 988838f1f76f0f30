//! IDEFICS on text alone: Llama, between whose layers stand feed-forward layers with a gate. Behind attention to a picture, which a
//! text leaves out, they run on a text too.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{BlockSpec, FeedForward, Layers, Mixer, ModelSpec, SumRule, SumWeights};

use super::Family;
use super::reading::llama_like::{self, Recipe};

pub const FAMILY: Family = Family::own("idefics", "Idefics", read).leaving_unread(&[
    "vision_model.*",
    "perceiver_resampler.*",
    "cross_attn.*",
    "alpha_cross_attn",
    "gated_cross_attn_layers.*",
    "additional_embedding.weight",
    "additional_fc.weight",
]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const EVERY: &str = "cross_layer_interval";
    const KIND: &str = "alpha_type";
    let family = FAMILY.model_type;
    let mut spec = llama_like::read(family, checkpoint, reader, &Recipe::llama())?;
    let default = Origin::Default(EVERY.to_owned());
    let every = reader.size_or("gated_layers_every", EVERY, 1, default)?;
    let d_model = spec.d_model;
    let shape = match reader.word_or("gate", KIND, "float")?.as_str() {
        "float" => vec![1],
        "vector" => vec![1, 1, d_model],
        found => {
            let problem = format!("expected float or vector, found {found:?}");
            return Err(Error::config(reader.path(), KIND, problem));
        }
    };
    let mut blocks = Vec::new();
    for (layer_idx, block) in spec.stacks[0].blocks().iter().enumerate() {
        if layer_idx % every == 0 {
            blocks.push(gated(
                block,
                (layer_idx, layer_idx / every),
                &shape,
                d_model,
            ));
        }
        blocks.push(block.clone());
    }
    spec.stacks[0].layers = Layers::Blocks(blocks);
    for key in [
        "additional_vocab_size",
        "qk_layer_norms",
        "alpha_initializer",
        "alphas_initializer_range",
        "use_resampler",
        "vision_config",
        "perceiver_config",
    ] {
        reader.value(key);
    }
    reader.remark(
        "run on text alone: attention to pictures gives nothing, and the tokens of pictures are left out; the feed-forward layers behind \
         it count as layers"
            .to_owned(),
    );
    Ok(spec)
}

/// The feed-forward layer behind attention to a picture, which stands before a layer of the text and is made as that layer's own.
fn gated(
    of_text: &BlockSpec,
    (layer_idx, nth): (usize, usize),
    shape: &[usize],
    d_model: usize,
) -> BlockSpec {
    let from = format!("layers.{layer_idx}.");
    let place = format!("gated_cross_attn_layers.{nth}.");
    let moved = |name: &String| name.replacen(&from, &place, 1);
    let mut feed_forward = of_text.feed_forward.clone();
    if let FeedForward::Dense(mlp) = &mut feed_forward {
        for map in [&mut mlp.up, &mut mlp.down]
            .into_iter()
            .chain(&mut mlp.gate)
        {
            map.weight = moved(&map.weight);
        }
    }
    let mut mlp_pre = of_text.mlp_pre.clone();
    let gains = mlp_pre.iter_mut().flat_map(|norm| &mut norm.gain);
    let mut tensor = String::new();
    for gain in gains {
        *gain = moved(gain);
        tensor = gain.replace("post_attention_layernorm.weight", "alpha_dense");
    }
    let sum = SumWeights {
        shape: shape.to_vec(),
        ..SumWeights::plain(tensor, d_model, SumRule::Tanh)
    };
    BlockSpec {
        mlp_pre,
        sums: [None, Some(Box::new(sum))],
        ..BlockSpec::mixed(Mixer::None, feed_forward)
    }
}
