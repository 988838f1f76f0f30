//! Speech to Text (fairseq S2T): gated convolutions over Kaldi's frames, then BART's blocks with sines of positions.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{
    BandNorm, Deviation, MOST_CONVOLUTIONS, PositionRule, SoundRule, SoundWindow, Steps,
};
use attnscope_spec::{
    DecoderInput, EmbedSpec, ModelSpec, Sines, SoundStem, StemConvolution, StemEnd, StemSines,
    TableSource,
};

use super::Family;
use super::reading::bart_like::{self, BartLike, Positions};
use super::reading::expected::{Expected, check};
use super::reading::extractor::Extractor;
use super::reading::prefix;
use super::reading::spectrograms::{heard_in_steps, kaldi};

pub const FAMILY: Family = Family::own("speech_to_text", "Speech2Text", read);

/// Frames from one output of a convolution to the next.
const STRIDE: usize = 2;

const LIKE: BartLike = BartLike {
    positions: Positions::SinusoidNotPad,
    norms_before: true,
    tied_alone: true,
    reads_again: DecoderInput::Never,
    n_ctx: ["max_target_positions"; 2],
    activation: "relu",
    scales: Some(true),
    ..BartLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bart_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    check(reader, &[("input_channels", Expected::Number(1))])?;
    let [encoder, _] = &mut spec.stacks[..] else {
        let problem = "expected an encoder and a decoder, found one of them".to_owned();
        return Err(Error::file(reader.path(), problem));
    };
    let pad = match spec.positions {
        PositionRule::NotPad { pad } if pad > 0 => pad as usize,
        _ => {
            let problem =
                "expected a token above 0: positions of sounds are counted from it, found 0";
            return Err(Error::config(reader.path(), "pad_token_id", problem));
        }
    };
    let probe = "encoder.conv.conv_layers.0.weight";
    let base = prefix(&checkpoint.tensors, &["model.", ""], probe);
    let stem = stem(
        checkpoint,
        reader,
        &format!("{base}encoder.conv.conv_layers"),
        StemSines {
            order: Sines::HalvesToEnd,
            first: pad + 1,
            scale: encoder.embed.scale,
        },
        spec.d_model,
    )?;
    let places = TableSource {
        tensor: stem.convolutions[0].weight.clone(),
        n_rows: stem.rule.n_positions(),
        width: spec.d_model,
    };
    encoder.embed = EmbedSpec {
        sound: Some(Box::new(stem)),
        ..EmbedSpec::plain(places)
    };
    Ok(spec)
}

/// What turns frames into rows.
fn stem(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    at: &str,
    sines: StemSines,
    d_model: usize,
) -> Result<SoundStem> {
    const WIDTHS: &str = "conv_kernel_sizes";
    let n_mels = reader.size("n_mels", "input_feat_per_channel")?;
    let n_channels = reader.size("stem_channels", "conv_channels")?;
    let n_convolutions = reader.size("n_convolutions", "num_conv_layers")?;
    let n_positions = reader.size("source positions", "max_source_positions")?;
    let widths = reader.numbers(WIDTHS)?.unwrap_or(vec![5, 5]);
    let fits = widths.len() == n_convolutions && n_convolutions <= MOST_CONVOLUTIONS;
    if !fits || !widths.iter().all(|wide| wide % 2 == 1 && *wide < 64) {
        let problem = format!(
            "expected an odd width below 64 for each of {n_convolutions} convolutions, at most {MOST_CONVOLUTIONS}, found {widths:?}"
        );
        return Err(Error::config(reader.path(), WIDTHS, problem));
    }
    if !n_channels.is_multiple_of(2) {
        let problem = format!("expected an even number, half of them gates, found {n_channels}");
        return Err(Error::config(reader.path(), "conv_channels", problem));
    }
    let convolution = |(nth, wide): (usize, &u64)| StemConvolution {
        weight: format!("{at}.{nth}.weight"),
        bias: Some(format!("{at}.{nth}.bias")),
        n_in: if nth == 0 { n_mels } else { n_channels / 2 },
        n_out: if nth + 1 == n_convolutions {
            d_model
        } else {
            n_channels / 2
        },
        is_gated: true,
        n_wide: *wide as usize,
        stride: STRIDE,
        padding: [*wide as usize / 2; 2],
        norm: None,
        activation: None,
        last_norm: None,
    };
    let steps = widths.iter().map(|wide| *wide as usize);
    let steps = Steps::of(steps.map(|wide| [wide, STRIDE, wide - 1]));
    let apart = STRIDE.pow(n_convolutions as u32);
    let rule = rule(checkpoint, reader, n_mels, (steps, apart), n_positions)?;
    Ok(SoundStem {
        convolutions: widths.iter().enumerate().map(convolution).collect(),
        end: Some(Box::new(StemEnd {
            norm: None,
            projection: None,
            n_pooled: 1,
            positions: Vec::new(),
            sines: Some(sines),
        })),
        ..SoundStem::plain(rule, Activation::Identity)
    })
}

/// How a sound becomes frames, and those positions.
fn rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    n_mels: usize,
    steps: (Steps, usize),
    n_positions: usize,
) -> Result<SoundRule> {
    const NORM: &str = "do_ceptral_normalize";
    const PARTS: [&str; 2] = ["normalize_means", "normalize_vars"];
    let extractor = Extractor::of(checkpoint, reader);
    let is_normed = extractor.flag(NORM, true)?;
    for key in PARTS {
        if is_normed && !extractor.flag(key, true)? {
            let problem = "expected true: bands with a mean or a variance of their own are not read, found false";
            return Err(extractor.error(key, problem.to_owned()));
        }
    }
    let norm = if is_normed {
        BandNorm::PerBand(Deviation::OfAll)
    } else {
        BandNorm::None
    };
    let rule = kaldi(&extractor, reader, n_mels, (SoundWindow::Povey, norm))?;
    heard_in_steps(&extractor, reader, rule, steps, Some(n_positions))
}
