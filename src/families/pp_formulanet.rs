//! PP-FormulaNet: Segment Anything's encoder, convolutions that make fewer rows of its patches, and mBART's decoder behind them.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    BlockSpec, Chain, ChainStep, Joining, MergeSpec, ModelSpec, PlaneConvolution,
};

use super::encoder_decoder::{check_both, joined_by};
use super::reading::bart_like::{self, BartLike, decoder_start};
use super::reading::chained::same;
use super::reading::{layer_norm, linear, prefix};
use super::{Family, aliases, pp_formulanet_text, published, sam_vision_model};

pub const FAMILY: Family = Family::own("pp_formulanet", "PPFormulaNet", read);

/// Epsilon of the norms between convolutions, which no key states.
const EPS: f64 = 1e-6;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let seeing = part(reader, ("vision_config", "pp_formulanet_vision"))?;
    let mut inner = Reader::new(&seeing);
    inner.value("model_type");
    let mut encoder = sam_vision_model::FAMILY.read(checkpoint, &mut inner)?;
    inner.forget(&["mask", "neck"]);
    let chain = behind_encoder(checkpoint, &mut inner, encoder.d_model)?;
    encoder.d_model = chain.n_out();
    if let Some(last) = encoder.stacks[0].blocks_mut().last_mut() {
        *last = ending_with(chain, last.clone());
    }
    reader.absorb("vision_config", inner);
    let writing = part(reader, ("text_config", "pp_formulanet_text"))?;
    let mut inner = Reader::new(&writing);
    for key in [
        "model_type",
        "is_encoder_decoder",
        "pad_token_id",
        "bos_token_id",
    ] {
        inner.value(key);
    }
    let like = BartLike {
        is_behind: true,
        ..pp_formulanet_text::LIKE
    };
    let decoder = bart_like::read(FAMILY.model_type, checkpoint, &mut inner, like)?;
    inner.forget(&["half"]);
    let start = decoder_start(&mut inner, Some("bos_token_id"), decoder.d_vocab)?;
    reader.absorb("text_config", inner);
    if encoder.d_model != decoder.d_model {
        let (expected, found) = (decoder.d_model, encoder.d_model);
        let problem = format!("expected {expected}, the d_model of text_config, found {found}");
        return Err(Error::config(
            reader.path(),
            "vision_config.decoder_hidden_size",
            problem,
        ));
    }
    check_both(reader, &encoder, &decoder)?;
    Ok(joined_by(FAMILY.model_type, encoder, decoder, start))
}

/// A part of the configuration, with the defaults of its type.
fn part(reader: &Reader<'_>, (key, kind): (&str, &str)) -> Result<Config> {
    let mut config = reader.part(key);
    if config.get("model_type").is_none() {
        config.put("model_type", kind, Origin::Family);
    }
    published::rename_keys(&mut config);
    aliases::complete(&mut config)?;
    Ok(config)
}

/// What makes the rows that the decoder sees of the patches of the encoder's last layer.
fn behind_encoder(checkpoint: &Checkpoint, reader: &mut Reader<'_>, width: usize) -> Result<Chain> {
    let mut size = |knob: &'static str, key: &'static str, usual: usize| {
        reader.size_or(knob, key, usual, Origin::Default(key.to_owned()))
    };
    let neck = size("d_neck", "output_channels", 256)?;
    let read = size("d_projector_in", "post_conv_in_channels", 256)?;
    let between = size("d_projector_mid", "post_conv_mid_channels", 512)?;
    let wide = size("d_projector", "post_conv_out_channels", 1024)?;
    let seen = size("d_memory", "decoder_hidden_size", 512)?;
    if read != neck {
        let problem = format!("expected {neck}, the output_channels, found {read}");
        return Err(Error::config(
            reader.path(),
            "vision_config.post_conv_in_channels",
            problem,
        ));
    }
    let tensors = &checkpoint.tensors;
    let whole = ["model.encoder.", "encoder.", ""];
    let inside = ["model.encoder.", "model.encoder.vision_tower.", "encoder."];
    let (of_neck, of_projector) = ("neck.conv1.weight", "multi_modal_projector.conv1.weight");
    let neck_at = format!("{}neck", prefix(tensors, &inside, of_neck));
    let at = format!(
        "{}multi_modal_projector",
        prefix(tensors, &whole, of_projector)
    );
    let convolution = |name: String, [n_in, n_out]: [usize; 2], [n_wide, stride]: [usize; 2]| {
        ChainStep::Convolution(PlaneConvolution {
            n_in,
            bias: None,
            strides: [stride; 2],
            ..same(&name, n_out, n_wide)
        })
    };
    let normed = |nth: usize| {
        let name = format!("{neck_at}.layer_norm{nth}");
        ChainStep::Norm(Box::new(layer_norm(tensors, &name, neck, EPS)))
    };
    let map = |nth: usize, [n_in, n_out]: [usize; 2]| {
        let name = format!("{at}.linear_{nth}");
        ChainStep::Map(Box::new(linear(&name, n_in, n_out, true)))
    };
    let steps = vec![
        convolution(format!("{neck_at}.conv1"), [width, neck], [1, 1]),
        normed(1),
        convolution(format!("{neck_at}.conv2"), [neck, neck], [3, 1]),
        normed(2),
        convolution(format!("{at}.conv1"), [neck, between], [3, 2]),
        convolution(format!("{at}.conv2"), [between, wide], [3, 2]),
        map(1, [wide, wide]),
        map(2, [wide, seen]),
    ];
    Ok(Chain::plain(width, steps))
}

/// A block behind which stand convolutions.
fn ending_with(chain: Chain, block: BlockSpec) -> BlockSpec {
    let merge = MergeSpec {
        rows: None,
        joining: Joining::Chain(Box::new(chain)),
        behind: None,
        places: None,
    };
    BlockSpec {
        merge: Some(Box::new(merge)),
        ..block
    }
}
