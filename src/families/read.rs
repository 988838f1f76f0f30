//! Reads how an open checkpoint is to be run: from what a person says, its configuration, or its names and shapes.

use std::sync::Arc;

use attnscope_checkpoint::{Checkpoint, Config, Knob, Origin, Quantisation, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{Model, ModelSpec, StackSpec};
use serde_json::Value;

use super::direction::check_direction;
use super::find::find;
use super::layouts::Tried;
use super::overrides::Overrides;
use super::towers::{Tower, encoder_of};
use super::wrapper::Wrapper;
use super::{
    aliases, classes, described, encoder_decoder, generation, layouts, mixers,
    nemotron3_diarization_audio, published, qwen3_omni_moe_talker_code_predictor, reading,
    relatives, unread, versions, without_attention,
};

/// Reads how an open checkpoint is to be run, and checks that every tensor it needs is there. Where no file says what
/// the weights are, their names and shapes do; what a person says comes before both.
///
/// # Errors
/// When the family is unknown, the weights are quantised in a way that cannot be read, a value of the configuration
/// cannot be right, or a tensor does not fit.
pub fn read(mut checkpoint: Checkpoint) -> Result<Model> {
    let settings = std::mem::take(&mut checkpoint.settings);
    let overrides = Overrides::read(&settings)?;
    if names_no_kind(&checkpoint.config) && !overrides.has("family") && !overrides.describes() {
        // A trainer's own settings, by which home-made code is read.
        let absent = Config::absent(checkpoint.config.path());
        let own = std::mem::replace(&mut checkpoint.config, absent).into_values();
        checkpoint
            .plain_values
            .insert(CONFIG.to_owned(), own.into());
    }
    overrides.check_order(&checkpoint.tensors)?;
    let (config, names) = (
        checkpoint.config.clone(),
        checkpoint.tensors.names_as_they_are(),
    );
    let n_remarks = checkpoint.remarks.len();
    let spec = match read_spec(&mut checkpoint, &overrides, Tried::Libraries) {
        Err(refused @ (Error::Tensor { .. } | Error::File { .. })) => {
            checkpoint.tensors.take_names(&names);
            match read_unwrapped(&mut checkpoint, &config, &overrides) {
                Some(spec) => spec,
                None if config.is_absent() => {
                    // Home-made code is known under any prefix, and last: names of a library tell more.
                    checkpoint.tensors.take_names(&names);
                    checkpoint.config = config.clone();
                    checkpoint.remarks.truncate(n_remarks);
                    read_spec(&mut checkpoint, &overrides, Tried::All)?
                }
                None => return Err(relatives::unknown_wrapper(&config, refused)),
            }
        }
        read => read?,
    };
    checkpoint.settings = settings;
    Ok(Model {
        checkpoint: Arc::new(checkpoint),
        spec,
    })
}

/// The file of a configuration, and of a trainer's own settings.
const CONFIG: &str = "config.json";

/// Whether a configuration says in no way what kind of model it is of.
fn names_no_kind(config: &Config) -> bool {
    let mut renamed = config.clone();
    published::rename_keys(&mut renamed);
    let is_known =
        aliases::complete(&mut renamed).is_err() || find(&mut Reader::new(&renamed)).is_ok();
    let kinds = ["model_type", "architectures"];
    let parts = [
        "text_config",
        "vision_config",
        "encoder",
        "decoder",
        "backbone_config",
    ];
    // What transformers writes is a model's own, however short.
    let of_library = [
        "transformers_version",
        "initializer_range",
        "hidden_act",
        "activation_function",
        "layer_norm_epsilon",
        "layer_norm_eps",
        "rms_norm_eps",
    ];
    !config.is_absent()
        && of_library.iter().all(|key| config.get(key).is_none())
        && !is_known
        && kinds
            .iter()
            .chain(&parts)
            .all(|key| renamed.get(key).is_none())
}

/// The error for weights that neither a configuration nor a layout tells of.
fn unknown(checkpoint: &Checkpoint) -> Error {
    let Some(Value::Object(own)) = checkpoint.plain_values.get(CONFIG) else {
        return layouts::unknown(checkpoint);
    };
    let config = Config::from_map(checkpoint.config.path(), own.clone());
    let hint = relatives::suggestions("", checkpoint, &config);
    let problem = format!("missing, expected the name of a kind of model; {hint}");
    Error::config(config.path(), "model_type", problem)
}

/// Reads weights that were saved inside something else: under their names without what stands before them.
fn read_unwrapped(
    checkpoint: &mut Checkpoint,
    config: &Config,
    overrides: &Overrides<'_>,
) -> Option<ModelSpec> {
    for unwrapped in checkpoint.tensors.unwrapped() {
        checkpoint.tensors.take_names(&unwrapped);
        checkpoint.config = config.clone();
        let remarks = checkpoint.remarks.len();
        if let Ok(mut spec) = read_spec(checkpoint, overrides, Tried::Libraries) {
            // A prefix of a part alone would hide that part, and with it what is missing there.
            let embeds = |stack: &StackSpec| unwrapped.has_moved(&stack.embed.tokens.tensor);
            if !spec.stacks.iter().all(embeds) {
                checkpoint.remarks.truncate(remarks);
                continue;
            }
            let origin = Origin::Derived("tensor names".to_owned());
            spec.knobs.push(Knob {
                name: "tensor_names",
                value: format!("without {}", unwrapped.without),
                origin,
            });
            return Some(spec);
        }
    }
    None
}

/// The decoder of a model whose encoder reads no text, or whose decoder writes none, if its family is known.
fn writer_of(config: &Config) -> Option<Config> {
    config
        .part("encoder")
        .or_else(|| config.part("text_encoder"))?;
    known(config.part("decoder")?)
}

/// What sees in a model that reads no text, if its family is known; older files do not say its kind.
fn eyes_of(config: &Config) -> Option<Config> {
    let mut part = encoder_of(config.part("vision_config")?);
    let word = |config: &Config| Some(config.get("model_type")?.as_str()?.to_owned());
    if word(&part).is_none_or(|own| own.is_empty()) {
        let kind = word(config)?;
        let origin = Origin::Derived(format!("model_type {kind}"));
        part.put("model_type", format!("{kind}_vision_model"), origin);
    }
    known(part)
}

/// Models of which one part is read that reads no text, and its key.
const OF_OTHER: [(&str, &str); 7] = [
    ("musicgen", "decoder"),
    ("musicgen_melody", "decoder"),
    ("nemotron3_5_transcribe_audio", "asr_config"),
    ("nemotron3_diarization", "audio_config"),
    ("sam3_lite_text", "vision_config"),
    ("voxtral_realtime", "audio_config"),
    ("xcodec", "semantic_model_config"),
];

/// Models of whose parts one is read whose ids are not those of the tokenizer beside the weights, and what to give.
const OTHER_IDS: [(&str, &str); 3] = [
    (
        "bark",
        "ids of text begin at text_encoding_offset of the generation settings, which a tokenizer does not add",
    ),
    (
        "musicgen",
        "the decoder that is read takes codes of sound, and the tokenizer is that of the text encoder",
    ),
    (
        "musicgen_melody",
        "the decoder that is read takes codes of sound, and the tokenizer is that of the text encoder",
    ),
];

/// Samples of a step of a codec that does not state its strides.
const STEP_OF_CODEC: u64 = 8 * 5 * 4 * 2;

/// The most samples of such a step.
const MOST_OF_CODEC: u64 = 1 << 16;

/// The part of such a model that is read.
fn other_part(config: &Config) -> Result<Option<Config>> {
    let kind = config.get("model_type").and_then(Value::as_str);
    let of = OF_OTHER.iter().find(|(name, _)| Some(*name) == kind);
    let Some((kind, part)) = of.and_then(|(kind, part)| Some((*kind, config.part(part)?))) else {
        return Ok(None);
    };
    let mut part = encoder_of(part);
    let diarisation = config.part("diarization_config");
    const CHUNK: &str = "chunk_length";
    const MOST: &str = "max_position_embeddings";
    let most = part.get(MOST).and_then(Value::as_u64).unwrap_or(u64::MAX);
    // A longer sound is heard in chunks that see some of each other.
    let holds = diarisation.as_ref().unwrap_or(config);
    if let Some(longest) = holds.get(CHUNK).and_then(Value::as_u64)
        && longest < most
    {
        part.put(MOST, longest, Origin::Key(CHUNK.to_owned()));
    }
    if diarisation.is_some() {
        let origin = Origin::Derived(format!("model_type {kind}"));
        part.put(nemotron3_diarization_audio::NORMS_BANDS, true, origin);
    }
    if kind == "xcodec" {
        // Half a step of the codec beside it stands before and behind every sound.
        let origin = Origin::Derived(format!("{STRIDES} of {CODEC}"));
        part.put(
            reading::wave_like::SILENCE,
            step_of_codec(config)? / 2,
            origin,
        );
    }
    Ok(known(part))
}

const CODEC: &str = "acoustic_model_config";
const STRIDES: &str = "downsampling_ratios";

/// Samples of a step of the codec beside an encoder of sound.
fn step_of_codec(config: &Config) -> Result<u64> {
    let codec = config.part(CODEC);
    let Some(found) = codec.as_ref().and_then(|codec| codec.get(STRIDES)) else {
        return Ok(STEP_OF_CODEC);
    };
    let strides = found.as_array().map(Vec::as_slice);
    let step = strides.and_then(|strides| {
        let strides = strides
            .iter()
            .map(|one| one.as_u64().filter(|one| *one > 0));
        strides
            .into_iter()
            .try_fold(1u64, |all, one| all.checked_mul(one?))
    });
    step.filter(|step| *step <= MOST_OF_CODEC).ok_or_else(|| {
        let problem = format!(
            "expected whole numbers above 0, of at most {MOST_OF_CODEC} together, found {found}"
        );
        Error::config(config.path(), format!("{CODEC}.{STRIDES}"), problem)
    })
}

/// A part of a configuration, if its family is known.
fn known(part: Config) -> Option<Config> {
    find(&mut Reader::new(&part)).ok()?;
    Some(part)
}

/// Reads how weights are to be run under the names that they have now.
fn read_spec(
    checkpoint: &mut Checkpoint,
    overrides: &Overrides<'_>,
    tried: Tried,
) -> Result<ModelSpec> {
    if checkpoint.config.is_absent()
        && !overrides.describes()
        && !layouts::recognise(checkpoint, overrides, tried)?
    {
        // Libraries are tried first: home-made code may still be known.
        return Err(match tried {
            Tried::Libraries => layouts::unknown(checkpoint),
            Tried::All => unknown(checkpoint),
        });
    }
    let stated = checkpoint.config.get("model_type").and_then(Value::as_str);
    let stated = stated.map(str::to_owned);
    let other = OTHER_IDS
        .iter()
        .find(|(kind, _)| stated.as_deref() == Some(*kind));
    if let Some((_, reason)) = other {
        checkpoint.has_text_of_another_part(reason);
    }
    overrides.before(&mut checkpoint.config);
    generation::complete(checkpoint);
    published::rename_keys(&mut checkpoint.config);
    published::rename_tensors(checkpoint)?;
    qwen3_omni_moe_talker_code_predictor::join_tables(&mut checkpoint.tensors);
    aliases::complete(&mut checkpoint.config)?;
    if checkpoint.config.get("model_type").and_then(Value::as_str)
        == Some(described::FAMILY.model_type)
    {
        described::arrange(checkpoint)?;
    }
    if overrides.has("family")
        && let Some(kind) = checkpoint.config.get("model_type").and_then(Value::as_str)
    {
        checkpoint.tokenizer.set_model_type(kind);
    }
    if let Some(problem) = without_attention::said_of_whole(&checkpoint.config) {
        let file = checkpoint.config.path();
        return Err(Error::config(file, "model_type", problem));
    }
    let mut tower = Tower::of(checkpoint, overrides.word("tower"));
    if let Some(tower) = &mut tower {
        published::rename_keys(&mut tower.config);
        aliases::complete(&mut tower.config)?;
    }
    // A model of text and pictures keeps what describes its text apart.
    let of_other = other_part(&checkpoint.config)?;
    let mut text_part = match find(&mut Reader::new(&checkpoint.config)) {
        _ if tower.is_some() => None,
        _ if of_other.is_some() => of_other,
        Ok(_) if encoder_decoder::has_other_decoder(&checkpoint.config) => {
            writer_of(&checkpoint.config)
        }
        Ok(_) => None,
        Err(_) => {
            let config = &checkpoint.config;
            let backbone = || {
                let mut parts = ["backbone_config", "sam_config"].into_iter();
                parts.find_map(|part| known(config.part(part)?))
            };
            config
                .text_part()
                .or_else(|| writer_of(config))
                .or_else(backbone)
                .or_else(|| eyes_of(config))
                .or_else(|| eyes_of(&config.part("detector_config")?))
                .or_else(|| known(config.part("generator")?))
        }
    };
    if let Some(text) = &mut text_part {
        published::rename_keys(text);
        aliases::complete(text)?;
    }
    let wrapper = text_part.as_mut().map(|text| {
        let wrapper = Wrapper::of(&checkpoint.config);
        let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
        let has_head = names.any(|name| name.ends_with("lm_head.weight"));
        wrapper.complete(&checkpoint.config, text, has_head);
        wrapper
    });
    let of_tower = tower.as_ref().map(|tower| &tower.config);
    let config = of_tower.or(text_part.as_ref());
    let mut reader = Reader::new(config.unwrap_or(&checkpoint.config));
    tower.iter().for_each(|tower| tower.note(&mut reader));
    let family = match find(&mut reader) {
        Err(Error::Config { file, key, problem }) => {
            let found = reader.value(&key);
            let found = found.and_then(|found| found.as_str().or_else(|| found.get(0)?.as_str()));
            let config = config.unwrap_or(&checkpoint.config);
            let why = found.and_then(|found| without_attention::said(found, config));
            if let Some(problem) = why {
                return Err(Error::config(file, key, problem));
            }
            let hint = relatives::suggestions(found.unwrap_or_default(), checkpoint, config);
            return Err(Error::config(file, key, format!("{problem}; {hint}")));
        }
        found => found?,
    };
    let quantisation = Quantisation::read(&checkpoint.config)?;
    reader.value("quantization_config");
    if quantisation != Quantisation::None {
        let origin = Origin::Key("quantization_config".to_owned());
        reader.note("quantisation", quantisation, origin);
    }
    // Facts about the file itself, not about attention: read, so that they do not show as forgotten.
    for key in [
        "architectures",
        "torch_dtype",
        "dtype",
        "transformers_version",
        "_name_or_path",
    ] {
        reader.value(key);
    }
    let mut spec = family.read(checkpoint, &mut reader)?;
    generation::settle(checkpoint, &mut spec);
    reading::tasks::settle(checkpoint, &mut reader, &mut spec, &family.tasks)?;
    if !wrapper.as_ref().is_some_and(Wrapper::reads_prefixes) {
        check_direction(&mut reader, &spec)?;
    }
    overrides.check_read(&reader, spec.family)?;
    let mut remarks = reader.remarks();
    (spec.knobs, spec.unread_keys) = reader.finish();
    if let Some(wrapper) = &wrapper {
        remarks.extend(wrapper.apply(&mut spec));
    }
    remarks.extend(versions::remark(&checkpoint.config, family, &spec));
    if let Some(place) = overrides.place("family") {
        let said = (spec.family, place);
        remarks.extend(relatives::overruled(
            stated.as_deref(),
            said,
            &spec.unread_keys,
        ));
    }
    remarks.extend(reading::two_names::remarks(&checkpoint.config, &spec.knobs));
    remarks.extend(mixers::remark(&spec));
    classes::without_false_head(&checkpoint.config, &mut spec);
    spec.knobs.extend(checkpoint.knobs.iter().cloned());
    overrides.after(&mut spec)?;
    spec.check_tensors(&checkpoint.tensors)?;
    let aside = unread::left_aside(&spec, &checkpoint.tensors);
    checkpoint.remarks.extend(remarks);
    checkpoint.remarks.extend(aside.remarks);
    checkpoint.unread = aside.names;
    Ok(spec)
}
