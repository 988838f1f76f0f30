//! Audio Spectrogram Transformer: ViT over overlapping patches of Kaldi's filter banks, behind two learned rows.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_prompt::{BandNorm, Mel, SoundPatches, SoundRule, SoundWindow};
use attnscope_spec::{EmbedSpec, ModelSpec, PlaneConvolution, SoundStem, StemPlaces, TableSource};

use super::reading::extractor::{Extractor, MOST_SAMPLES};
use super::reading::spectrograms::{kaldi, note};
use super::reading::vit_like::{self, Reads, VitLike};
use super::{Family, vit};

pub const FAMILY: Family = Family::own("audio-spectrogram-transformer", "AST", read);

/// Learned rows before the patches.
const FIRSTS: [&str; 2] = ["embeddings.cls_token", "embeddings.distillation_token"];

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = VitLike {
        reads: Reads::Sound(embed),
        ..vit::like(&["audio_spectrogram_transformer.", ""])
    };
    vit_like::read(FAMILY.model_type, checkpoint, reader, like)
}

/// How patches of a spectrogram become rows.
fn embed(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (base, d_model): (&str, usize),
) -> Result<EmbedSpec> {
    const FRAMES: &str = "max_length";
    const STRIDES: [&str; 2] = ["frequency_stride", "time_stride"];
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let n_mels = size("n_mels", "num_mel_bins", 128)?;
    let n_frames = size("n_frames", FRAMES, 1_024)?;
    let patch = size("patch", "patch_size", 16)?;
    let strides = [
        size("frequency_stride", STRIDES[0], 10)?,
        size("time_stride", STRIDES[1], 10)?,
    ];
    if n_frames > MOST_SAMPLES / 160 || patch > n_mels || patch > n_frames {
        let problem = format!(
            "expected at most {} frames, and at least as many bands and frames as a patch, {patch}, found {n_mels} bands and {n_frames} frames",
            MOST_SAMPLES / 160
        );
        return Err(Error::config(reader.path(), FRAMES, problem));
    }
    let name = |name: &str| format!("{base}embeddings.{name}");
    let kernel = PlaneConvolution {
        weight: name("patch_embeddings.projection.weight"),
        bias: Some(name("patch_embeddings.projection.bias")),
        n_in: 1,
        n_out: d_model,
        is_by_channel: false,
        is_line: false,
        apart: 1,
        n_wide: patch,
        strides,
        padding: [0; 2],
        is_activated: false,
    };
    let patches = SoundPatches {
        n_first: FIRSTS.len(),
        grid: [kernel.n_along(n_mels, 0), kernel.n_along(n_frames, 1)],
        stride: strides[1],
    };
    let rule = SoundRule {
        n_frames,
        frames_per_position: strides[1],
        patches: Some(patches),
        ..filter_banks(checkpoint, reader, (n_mels, n_frames))?
    };
    let n_rows = patches.n_positions();
    let [along_bands, along_frames] = patches.grid;
    reader.note(
        "positions",
        format!("learned, {n_rows}: {along_bands} × {along_frames} patches behind two rows"),
        Origin::Family,
    );
    let places = StemPlaces {
        firsts: FIRSTS.map(|first| format!("{base}{first}")).to_vec(),
        positions: name("position_embeddings"),
        n_rows,
        width: d_model,
    };
    let rows = TableSource {
        tensor: kernel.weight.clone(),
        n_rows,
        width: d_model,
    };
    Ok(EmbedSpec {
        sound: Some(Box::new(SoundStem {
            planes: vec![kernel],
            has_bands_first: true,
            places: Some(Box::new(places)),
            ..SoundStem::plain(rule, Activation::Identity)
        })),
        ..EmbedSpec::plain(rows)
    })
}

/// The filter banks, shifted and scaled by the extractor's mean and deviation.
fn filter_banks(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    (n_mels, n_frames): (usize, usize),
) -> Result<SoundRule> {
    const FRAMES: &str = "max_length";
    let extractor = Extractor::of(checkpoint, reader);
    let found = extractor.size(FRAMES, n_frames, MOST_SAMPLES)?;
    if found != n_frames {
        let problem = format!("expected the {n_frames} frames of the model, found {found}");
        return Err(extractor.error(FRAMES, problem));
    }
    let norm = if extractor.flag("do_normalize", true)? {
        let billionths = |value: f64| (value * 1e9).round() as i64;
        let mean = extractor.number("mean", -4.267_739_3, 1e6)?;
        let deviation = extractor.number("std", 4.568_997_4, 1e6)?;
        BandNorm::Fixed {
            mean: billionths(mean),
            divisor: billionths(2.0 * deviation),
        }
    } else {
        BandNorm::None
    };
    let rule = kaldi(&extractor, reader, n_mels, (SoundWindow::Symmetric, norm))?;
    // Samples are not counted in steps of 16 bits.
    let rule = SoundRule {
        mel: Mel {
            gain: 1,
            ..rule.mel
        },
        ..rule
    };
    note(&extractor, reader, rule);
    Ok(rule)
}
