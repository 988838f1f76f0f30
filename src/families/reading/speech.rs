//! Settings beside a speech model's configuration: how sound becomes frames, and how the decoder begins.

use attnscope_checkpoint::{Checkpoint, GENERATION, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_prompt::{Mel, Prefix, SoundRule, language_code};
use attnscope_spec::{DecoderInput, DecoderStart, Forced, Timing};
use serde_json::{Map, Value};

use super::extractor::{Extractor, FASTEST, MOST_SAMPLES, WIDEST_WINDOW};

/// Reads how sound becomes frames of `n_mels` bands, as many frames as the model has positions for.
///
/// # Errors
/// When a setting of the feature extractor is impossible, or does not fit the model.
pub fn sound_rule(
    checkpoint: &Checkpoint,
    reader: &mut Reader<'_>,
    n_mels: usize,
    [n_positions, frames_per_position]: [usize; 2],
) -> Result<SoundRule> {
    let extractor = Extractor::of(checkpoint, reader);
    extractor.check_bands(n_mels)?;
    let n_window = extractor.size("n_fft", 400, WIDEST_WINDOW)?;
    let rule = SoundRule {
        rate: extractor.size("sampling_rate", 16_000, FASTEST)?,
        n_window,
        hop: extractor.size("hop_length", 160, WIDEST_WINDOW)?,
        n_mels,
        n_frames: n_positions.saturating_mul(frames_per_position),
        frames_per_position,
        mel: Mel::whisper(n_window),
        waves: None,
        steps: None,
        n_least: 0,
        patches: None,
        is_rows: false,
    };
    let n_samples = rule.n_frames.saturating_mul(rule.hop);
    if n_samples > MOST_SAMPLES {
        let problem = format!("expected at most {MOST_SAMPLES} samples to hear, found {n_samples}");
        return Err(Error::config(
            reader.path(),
            "max_source_positions",
            problem,
        ));
    }
    let chunk = extractor.size("chunk_length", 0, MOST_SAMPLES);
    if let Ok(chunk @ 1..) = chunk {
        let n_frames = chunk.saturating_mul(rule.rate) / rule.hop;
        if n_frames != rule.n_frames {
            reader.remark(format!(
                "{} cuts sounds into {n_frames} frames, the model hears {}: so many are taken",
                extractor.file, rule.n_frames
            ));
        }
    }
    extractor.note_dither(reader);
    let said = format!(
        "{n_mels} mel bands of {} samples every {}, {} Hz, {:.2} s",
        rule.n_window,
        rule.hop,
        rule.rate,
        n_samples as f64 / rule.rate as f64
    );
    reader.note("sound", said, extractor.origin());
    Ok(rule)
}

/// Generation settings: from their own file or, without such a file, from the configuration.
pub struct Generation {
    values: Option<Map<String, Value>>,
}

/// A token that follows the start token of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begin {
    Token(u32),
    /// The language that the model detects.
    Language,
}

impl Generation {
    pub fn of(checkpoint: &Checkpoint) -> Self {
        Self {
            values: checkpoint.sibling_config(GENERATION),
        }
    }

    fn get(&self, reader: &mut Reader<'_>, key: &str) -> Option<Value> {
        let stored = reader.value(key).cloned();
        match &self.values {
            Some(values) => values.get(key).filter(|value| !value.is_null()).cloned(),
            None => stored,
        }
    }

    /// A value of the file, or of the configuration if the file does not give it.
    fn get_or_config(&self, reader: &mut Reader<'_>, key: &str) -> Option<Value> {
        self.get(reader, key).or_else(|| reader.value(key).cloned())
    }

    fn token(&self, reader: &mut Reader<'_>, key: &str) -> Option<u32> {
        self.get(reader, key).as_ref().and_then(id_of)
    }

    fn tokens(&self, reader: &mut Reader<'_>, key: &str) -> Vec<u32> {
        ids_of(self.get(reader, key).as_ref())
    }

    /// Tokens by name: of languages, of tasks.
    fn named(&self, key: &str) -> Vec<(String, u32)> {
        let map = self
            .values
            .as_ref()
            .and_then(|values| values.get(key)?.as_object());
        let named = map.into_iter().flatten();
        named
            .filter_map(|(name, id)| Some((name.clone(), id_of(id)?)))
            .collect()
    }

    /// How the decoder begins, and the tokens that it never generates.
    ///
    /// # Errors
    /// When the model does not have the start token, the language or the task.
    pub fn start(&self, reader: &mut Reader<'_>, d_vocab: usize) -> Result<DecoderStart> {
        const KEY: &str = "decoder_start_token_id";
        let set = reader.token("start_token", KEY, d_vocab)?;
        let of_file = self
            .token(reader, KEY)
            .filter(|_| !reader.is_fixed("start_token"));
        if let Some(id) = of_file.filter(|id| Some(*id) != set) {
            if id as usize >= d_vocab {
                let problem = format!("expected a token id below {d_vocab}, found {id}");
                let path = reader.path().with_file_name(GENERATION);
                return Err(Error::config(path, KEY, problem));
            }
            reader.forget(&["start_token"]);
            reader.note("start_token", id, Origin::Derived(GENERATION.to_owned()));
        }
        let Some(start_token) = of_file.or(set) else {
            let problem = "missing: a target has to begin with some token; --set start_token=ID says with which";
            return Err(Error::config(reader.path(), KEY, problem));
        };
        let begins = self.begins(reader)?;
        let exact = |begins: &[Begin]| -> Vec<u32> {
            let token = |begin: &Begin| match begin {
                Begin::Token(id) => Some(*id),
                Begin::Language => None,
            };
            begins.iter().filter_map(token).collect()
        };
        let n_known = begins
            .iter()
            .take_while(|begin| **begin != Begin::Language)
            .count();
        let prefix = |ids: &[u32]| {
            if let Some(id) = ids.iter().find(|id| **id as usize >= d_vocab) {
                let problem = format!("expected token ids below {d_vocab}, found {id}");
                return Err(Error::config(reader.path(), "forced_decoder_ids", problem));
            }
            Prefix::of(ids).ok_or_else(|| {
                let problem = format!("expected a few tokens, found {}", ids.len());
                Error::config(reader.path(), "forced_decoder_ids", problem)
            })
        };
        let prefixes = [
            prefix(&exact(&begins[..n_known]))?,
            prefix(&exact(&begins))?,
        ];
        let languages: Vec<u32> = self
            .named("lang_to_id")
            .into_iter()
            .map(|(_, id)| id)
            .collect();
        let forced = begins[n_known..].iter().map(|begin| match begin {
            Begin::Token(id) => Forced::Token(*id),
            Begin::Language => Forced::OneOf(languages.clone()),
        });
        let forced: Vec<Forced> = forced.collect();
        let end = reader.tokens("end_token", "eos_token_id");
        let of_file = ids_of(self.get_or_config(reader, "eos_token_id").as_ref());
        let is_set = reader.is_fixed("end_token") || of_file.is_empty();
        Ok(DecoderStart {
            start_token,
            end_tokens: if is_set { end } else { of_file },
            prefixes,
            forced,
            never_written: self.tokens(reader, "suppress_tokens"),
            never_first: self.tokens(reader, "begin_suppress_tokens"),
            reads_again: DecoderInput::Never,
            has_own_vocabulary: false,
        })
    }

    /// Tokens after the start token, as transformers generates them: a language, a task, and whether timestamps follow.
    fn begins(&self, reader: &mut Reader<'_>) -> Result<Vec<Begin>> {
        let languages = self.named("lang_to_id");
        let tasks = self.named("task_to_id");
        let language = self.word(reader, "language");
        let task = self.word(reader, "task");
        let mut begins: Vec<Option<Begin>> = Vec::new();
        let forced = self.get_or_config(reader, "forced_decoder_ids");
        if language.is_none() && task.is_none() {
            begins = forced_in_order(forced.as_ref());
        }
        let begin = match &language {
            Some(name) => Some(Begin::Token(known(reader, "language", &languages, name)?)),
            None if !languages.is_empty() && begins.first().is_none_or(Option::is_none) => {
                Some(Begin::Language)
            }
            None => None,
        };
        match (begin, begins.first_mut()) {
            (Some(begin), Some(first)) => *first = Some(begin),
            (Some(begin), None) => begins.push(Some(begin)),
            (None, _) => {}
        }
        if let Some(name) = &task {
            begins.push(Some(Begin::Token(known(reader, "task", &tasks, name)?)));
        } else if let (Some(_), Some((_, id))) = (
            &language,
            tasks.iter().find(|(name, _)| name == "transcribe"),
        ) {
            begins.push(Some(Begin::Token(*id)));
        }
        let mut begins: Vec<Begin> = begins.into_iter().flatten().collect();
        let no_times = self
            .token(reader, "no_timestamps_token_id")
            .map(Begin::Token);
        let writes_times = self.get(reader, "return_timestamps") == Some(Value::Bool(true));
        match no_times {
            Some(no_times) if !writes_times && begins.last() != Some(&no_times) => {
                begins.push(no_times);
            }
            Some(no_times) if writes_times && begins.last() == Some(&no_times) => {
                begins.pop();
            }
            _ => {}
        }
        Ok(begins)
    }

    /// A word that the user sets, or else the file.
    fn word(&self, reader: &mut Reader<'_>, key: &'static str) -> Option<String> {
        if let Some(word) = reader.word_if_set(key) {
            return Some(word);
        }
        let word = self.get(reader, key)?.as_str()?.to_owned();
        reader.note(key, &word, Origin::Derived(GENERATION.to_owned()));
        Some(word)
    }

    /// The heads of cross-attention that follow the sound, as far as the decoder has them.
    pub fn timing(
        &self,
        reader: &mut Reader<'_>,
        [n_layers, n_heads]: [usize; 2],
    ) -> Option<Timing> {
        let stored = self.get(reader, "alignment_heads");
        let pairs = stored
            .as_ref()
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let pair = |pair: &Value| match pair.as_array()?.as_slice() {
            [layer, head] => Some([layer.as_u64()? as usize, head.as_u64()? as usize]),
            _ => None,
        };
        let pairs: Vec<Option<[usize; 2]>> = pairs.map(pair).collect();
        let n_stored = pairs.len();
        let is_there = |[layer, head]: &[usize; 2]| *layer < n_layers && *head < n_heads;
        let heads: Vec<[usize; 2]> = pairs.into_iter().flatten().filter(is_there).collect();
        if heads.len() < n_stored {
            reader.remark(format!(
                "{} of {n_stored} alignment_heads are none of the decoder's: they are left out",
                n_stored - heads.len()
            ));
        }
        if heads.is_empty() {
            return None;
        }
        let shown = heads
            .iter()
            .map(|[layer, head]| format!("cross.L{layer}H{head}"));
        let shown: Vec<String> = shown.collect();
        let origin = Origin::Derived(GENERATION.to_owned());
        reader.note("alignment_heads", shown.join(", "), origin);
        Some(Timing { heads })
    }
}

/// The token of a language or a task.
fn known(
    reader: &Reader<'_>,
    key: &'static str,
    tokens: &[(String, u32)],
    name: &str,
) -> Result<u32> {
    let name = name.trim().to_lowercase();
    let code = language_code(&name).unwrap_or(&name);
    let spelled = [name.clone(), format!("<|{code}|>")];
    let found = tokens.iter().find(|(token, _)| spelled.contains(token));
    found.map(|(_, id)| *id).ok_or_else(|| {
        let all: Vec<&str> = tokens.iter().map(|(token, _)| token.as_str()).collect();
        let problem = if all.is_empty() {
            format!("{name:?}: expected none, since {GENERATION} names no such tokens")
        } else {
            format!("{name:?} is not known; known: {}", all.join(", "))
        };
        Error::config(reader.path().with_file_name(GENERATION), key, problem)
    })
}

/// Tokens at positions 1, 2, … after the start token; `None` for a position that is left open.
fn forced_in_order(stored: Option<&Value>) -> Vec<Option<Begin>> {
    let pairs = stored.and_then(Value::as_array).into_iter().flatten();
    let pair = |pair: &Value| match pair.as_array()?.as_slice() {
        [place, id] => Some((place.as_u64()?, id_of(id))),
        _ => None,
    };
    let pairs = pairs.map_while(pair).zip(1u64..);
    let in_order = pairs.take_while(|((place, _), nth)| place == nth);
    in_order.map(|((_, id), _)| id.map(Begin::Token)).collect()
}

fn id_of(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|id| u32::try_from(id).ok())
}

fn ids_of(value: Option<&Value>) -> Vec<u32> {
    match value {
        Some(Value::Array(all)) => all.iter().filter_map(id_of).collect(),
        Some(one) => id_of(one).into_iter().collect(),
        None => Vec::new(),
    }
}
