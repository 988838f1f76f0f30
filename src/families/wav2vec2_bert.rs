//! wav2vec2-BERT: a Conformer over pairs of Kaldi's frames, with learned vectors of distances.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{BandNorm, Deviation, Mel, SoundRule, SoundWindow, Steps};
use attnscope_spec::{EmbedSpec, ModelSpec, SoundStem, StackSpec, StemEnd, TableSource};

use super::Family;
use super::reading::conformer::{Conformer, ConformerNames, Distances, HALF};
use super::reading::extractor::{Extractor, MOST_SAMPLES};
use super::reading::spectrograms::{heard_in_steps, kaldi};
use super::reading::tasks::refuse_classes;
use super::reading::{
    activation, even_heads, layer_norm, linear, must_be_off, note_attention, note_bias, prefix,
    wave_like,
};

pub const FAMILY: Family =
    Family::own("wav2vec2-bert", "Wav2Vec2Bert", read).leaving_unread(&["masked_spec_embed"]);

/// Values of a row that the model reads, if the configuration does not state it.
const WIDTH: usize = 160;

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    refuse_classes(
        reader,
        &["ForSequenceClassification"],
        "a class that hears, such as one for CTC",
        "maps the mean of its states, which is not read",
    )?;
    must_be_off(
        reader,
        "add_adapter",
        "layers behind the encoder are not read",
    )?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let d_head = even_heads(reader, "num_attention_heads", d_model, n_heads)?;
    let eps = reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?;
    let activation = activation(reader, "hidden_act", "swish")?;
    const WIDE: &str = "conv_depthwise_kernel_size";
    let n_wide = reader.size_or("convolution_width", WIDE, 31, default(WIDE))?;
    if n_wide.is_multiple_of(2) {
        let problem = format!("expected an odd number, found {n_wide}");
        return Err(Error::config(reader.path(), WIDE, problem));
    }
    const INPUT: &str = "feature_projection_input_dim";
    let width = reader.size_or("row_width", INPUT, WIDTH, default(INPUT))?;
    let rule = rule(checkpoint, reader, width)?;
    let distances = distances(reader, rule.n_positions())?;
    let n_positions = match distances {
        Distances::Sines(n) => Some(n),
        Distances::None | Distances::Stored(_) => None,
    };
    let rule = match n_positions {
        Some(n) => SoundRule {
            n_frames: rule
                .n_frames
                .min(n.saturating_mul(rule.frames_per_position)),
            ..rule
        },
        None => rule,
    };
    let base = prefix(
        tensors,
        &["wav2vec2_bert.", ""],
        "feature_projection.projection.weight",
    );
    let conformer = Conformer {
        tensors,
        names: ConformerNames::BERT,
        d_model,
        d_mlp,
        n_heads,
        n_kv_heads: n_heads,
        d_head,
        n_wide,
        mlp_wide: None,
        n_before: n_wide - 1,
        activation,
        eps,
        norms_have_bias: true,
        has_bias: true,
        convolution_has_bias: false,
        norms_rows: true,
        layer_factors: [1.0, HALF],
        convolution_factors: [1.0; 2],
        distances,
        rope: None,
        window: None,
        n_positions,
    };
    note_attention(reader, &conformer.attention(), Origin::Family);
    let projection = format!("{base}feature_projection.projection");
    let places = TableSource {
        tensor: format!("{projection}.weight"),
        n_rows: rule.n_positions(),
        width: d_model,
    };
    let norm = layer_norm(
        tensors,
        &format!("{base}feature_projection.layer_norm"),
        width,
        eps,
    );
    let stem = SoundStem {
        end: Some(Box::new(StemEnd {
            norm: Some(norm),
            ..StemEnd::map(linear(&projection, width, d_model, true))
        })),
        ..SoundStem::plain(rule, activation)
    };
    let embed = EmbedSpec {
        sound: Some(Box::new(stem)),
        ..EmbedSpec::plain(places)
    };
    let block = |layer_idx: usize| conformer.block(&format!("{base}encoder.layers.{layer_idx}"));
    let stack = StackSpec::only(embed, (0..n_layers).map(block).collect(), None);
    let head = wave_like::head(reader, tensors, d_model)?;
    let d_vocab = head.as_ref().map(|head| head.unembed.n_out());
    let spec = ModelSpec::of_one_stack(FAMILY.model_type, stack, head);
    Ok(ModelSpec {
        d_vocab: d_vocab.unwrap_or(spec.d_vocab),
        ..spec
    })
}

/// What distances between positions have; a sound has at most so many positions.
fn distances(reader: &mut Reader<'_>, n_heard: usize) -> Result<Distances> {
    const KIND: &str = "position_embeddings_type";
    const SIDES: [&str; 2] = [
        "left_max_position_embeddings",
        "right_max_position_embeddings",
    ];
    const MOST: &str = "max_source_positions";
    if reader.is_null(KIND) {
        return Ok(Distances::None);
    }
    let kind = reader.value(KIND).map(|kind| kind.as_str());
    match kind.unwrap_or(Some("relative_key")) {
        Some("relative_key") => {
            let before = reader.count_or("distances_before", SIDES[0], 64)?;
            let after = reader.count_or("distances_after", SIDES[1], 8)?;
            note_bias(reader, "learned by distance, and multiplied with queries");
            Ok(Distances::Stored([before, after]))
        }
        Some("relative") => {
            let by = Origin::Default(MOST.to_owned());
            let most = reader.size_or("n_positions", MOST, 5_000, by)?;
            note_bias(reader, "sines of the distance, mapped by each layer");
            Ok(Distances::Sines(most.min(n_heard)))
        }
        found => {
            let problem = format!(
                "expected \"relative_key\", \"relative\" or null: rotations of what the maps read are not read, found {:?}",
                found.unwrap_or("something else")
            );
            Err(Error::config(reader.path(), KIND, problem))
        }
    }
}

/// How a sound becomes rows: some frames beside each other.
fn rule(checkpoint: &Checkpoint, reader: &mut Reader<'_>, width: usize) -> Result<SoundRule> {
    const STRIDE: &str = "stride";
    let extractor = Extractor::of(checkpoint, reader);
    let n_joined = extractor.size(STRIDE, 2, MOST_SAMPLES)?;
    if !width.is_multiple_of(n_joined) {
        let problem = format!(
            "expected a divisor of {width}, the width of the rows that the model reads, found {n_joined}"
        );
        return Err(extractor.error(STRIDE, problem));
    }
    let norm = BandNorm::PerBand(Deviation::OfSample);
    let n_mels = width / n_joined;
    let rule = kaldi(&extractor, reader, n_mels, (SoundWindow::Povey, norm))?;
    let rule = SoundRule {
        mel: Mel {
            n_joined,
            ..rule.mel
        },
        ..rule
    };
    let steps = Steps::of([[n_joined, n_joined, 0]]);
    heard_in_steps(&extractor, reader, rule, (steps, n_joined), None)
}
