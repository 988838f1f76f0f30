//! A family's tokens around a text that SentencePiece splits, and its numbering of the pieces.

use std::path::Path;

use attnscope_checkpoint::{VOCABULARY, read_whole};
use attnscope_compute::error::{Error, Result};

use super::super::special::{NAMES, Settings, Token};
use super::super::{Inner, PromptForm, Tokenizer, directory_of, file_name};
use super::proto::{self, Kind, ModelFile};
use super::{Algorithm, Encoder, Listing, Mark, Marks, Model, Numbering, Parts};

/// A family's conventions.
struct Habits {
    numbering: Numbering,
    /// Default texts of the named tokens, in the order of `NAMES`.
    named: [Option<&'static str>; 7],
    /// Whether flags of the configuration decide which tokens are added around a text.
    obeys_flags: bool,
    begins: bool,
    ends: bool,
    /// Number of sentinels, numbered downwards after the pieces, unless the configuration says how many.
    n_sentinels: u32,
    /// Language codes, numbered after the pieces; the code of the text's language ends the text.
    languages: &'static [&'static str],
    /// Whether the text after a special token begins with a blank again.
    every_stretch_begins: bool,
}

const LLAMA: Habits = Habits {
    numbering: Numbering::Same,
    named: [
        Some("<s>"),
        Some("</s>"),
        Some("<unk>"),
        None,
        None,
        None,
        None,
    ],
    obeys_flags: true,
    begins: true,
    ends: false,
    n_sentinels: 0,
    languages: &[],
    every_stretch_begins: false,
};

const T5: Habits = Habits {
    numbering: Numbering::Same,
    named: [
        None,
        Some("</s>"),
        Some("<unk>"),
        None,
        Some("<pad>"),
        None,
        None,
    ],
    obeys_flags: false,
    begins: false,
    ends: true,
    n_sentinels: 100,
    languages: &[],
    every_stretch_begins: true,
};

const XLM_ROBERTA: Habits = Habits {
    numbering: Numbering::Fairseq,
    named: [
        Some("<s>"),
        Some("</s>"),
        Some("<unk>"),
        Some("</s>"),
        Some("<pad>"),
        Some("<s>"),
        Some("<mask>"),
    ],
    obeys_flags: false,
    begins: true,
    ends: true,
    n_sentinels: 0,
    languages: &[],
    every_stretch_begins: true,
};

const MBART: Habits = Habits {
    begins: false,
    languages: &[
        "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN", "hi_IN",
        "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP", "nl_XX", "ro_RO",
        "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN",
    ],
    ..XLM_ROBERTA
};

const MARIAN: Habits = Habits {
    n_sentinels: 0,
    ..T5
};

/// The conventions of the class that the configuration names, or of the model type.
fn habits(class: Option<&str>, model_type: &str) -> Option<&'static Habits> {
    Some(match (class, model_type) {
        (Some("LlamaTokenizer"), _) | (None, "llama" | "mistral" | "mixtral") => &LLAMA,
        (Some("T5Tokenizer" | "MT5Tokenizer"), _) | (None, "t5" | "mt5" | "umt5") => &T5,
        (Some("XLMRobertaTokenizer"), _) | (None, "xlm-roberta") => &XLM_ROBERTA,
        (Some("MBartTokenizer"), _) | (None, "mbart") => &MBART,
        (Some("MarianTokenizer"), _) | (None, "marian") => &MARIAN,
        _ => return None,
    })
}

/// Opens a `.model` file. If it is readable but its ids are not certain, returns [`PromptForm::Ids`] with the reason.
///
/// # Errors
/// When the file, or one beside it, is invalid.
pub fn open(path: &Path, model_type: &str) -> Result<PromptForm> {
    let bytes = read_whole(path, VOCABULARY)?;
    let fault = |problem: String| {
        Error::file(
            path,
            format!("is not a SentencePiece model that can be read ({problem})"),
        )
    };
    let file = proto::parse(&bytes).map_err(fault)?;
    let settings = Settings::read(directory_of(path))?;
    let name = file_name(path);
    let class = settings.class();
    let Some(habits) = habits(class, model_type) else {
        let of = class.unwrap_or(model_type);
        return Ok(PromptForm::Ids(format!(
            "{name}: what {of} adds to a text and how it numbers pieces is not known here"
        )));
    };
    let algorithm = match file.model_type {
        1 => Algorithm::Unigram,
        2 => Algorithm::Merges,
        other => {
            return Ok(PromptForm::Ids(format!(
                "{name}: expected a unigram or BPE model, found type {other}"
            )));
        }
    };
    if let Some(reason) = unusual(&file, &settings, habits) {
        return Ok(PromptForm::Ids(format!("{name}: {reason}")));
    }
    let mut dummy_prefix = file.dummy_prefix;
    if habits.obeys_flags && settings.flag("add_prefix_space")? == Some(false) {
        dummy_prefix = false;
    }
    let model = Model::new(Parts {
        pieces: file.pieces,
        algorithm,
        byte_fallback: file.byte_fallback,
        charsmap: &file.charsmap,
        dummy_prefix,
        collapse_blanks: file.collapse_blanks,
    })
    .map_err(fault)?;
    let encoder = match (class, model_type) {
        (Some("MarianTokenizer"), _) | (None, "marian") => {
            let list = directory_of(path).join("vocab.json");
            let separate = settings.flag("separate_vocabs")?.unwrap_or(false);
            if separate || name != "source.spm" || !list.is_file() {
                return Ok(PromptForm::Ids(format!(
                    "{name}: expected source.spm and one vocab.json for both languages"
                )));
            }
            listed(model, &list, &settings)?
        }
        _ => encoder(model, habits, &settings)?,
    };
    let how = match algorithm {
        Algorithm::Unigram => "unigram",
        Algorithm::Merges => "BPE",
    };
    let source_name = format!("{name} (SentencePiece {how})");
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Pieces(Box::new(encoder)),
        source_name,
        target: None,
    }))
}

/// Why the ids of a readable model are not certain.
fn unusual(file: &ModelFile, settings: &Settings, habits: &Habits) -> Option<String> {
    if file.blank_as_suffix || !file.escape_blanks {
        return Some("its blanks are written in a way that is not known here".to_owned());
    }
    if settings.has_single_word() {
        return Some("added tokens that only match whole words are not known here".to_owned());
    }
    let kinds: Vec<Kind> = file.pieces.iter().take(3).map(|piece| piece.kind).collect();
    let fairseq = [Kind::Unknown, Kind::Control, Kind::Control];
    if habits.numbering == Numbering::Fairseq && kinds != fairseq {
        return Some("expected unknown, begin and end as its first pieces".to_owned());
    }
    if settings.has_normalized() && !file.charsmap.is_empty() {
        return Some(
            "added tokens that are matched in the normalised text are not known here".to_owned(),
        );
    }
    settings.unusual()
}

/// A model whose pieces are numbered by a list beside it.
fn listed(model: Model, list: &Path, settings: &Settings) -> Result<Encoder> {
    let mut named = Vec::new();
    for (name, default) in NAMES.iter().zip(MARIAN.named) {
        named.push(settings.named(name, default)?);
    }
    let content = |idx: usize| {
        named[idx]
            .as_ref()
            .map_or("", |token| token.content.as_str())
    };
    let listing = Listing::read(list, content(2))?;
    let present: Vec<Token> = named.iter().flatten().cloned().collect();
    let tokens = settings.tokens(&present, &[], |text| listing.id_of(text), listing.len())?;
    let after = tokens.iter().find(|(_, token)| token.content == content(1));
    Ok(Encoder {
        before: Vec::new(),
        after: after.map(|(id, _)| *id).into_iter().collect(),
        marks: marks(&settings.path, tokens)?,
        every_stretch_begins: true,
        ends_once: false,
        numbering: Numbering::Listed(listing),
        model,
    })
}

fn marks(path: &Path, tokens: Vec<(u32, Token)>) -> Result<Marks> {
    let mark = |(id, token): (u32, Token)| Mark {
        text: token.content,
        id,
        takes_left: token.lstrip,
        takes_right: token.rstrip,
    };
    let marks = Marks::new(tokens.into_iter().map(mark));
    marks.map_err(|problem| Error::file(path, problem))
}

fn encoder(model: Model, habits: &Habits, settings: &Settings) -> Result<Encoder> {
    let n_pieces = model.list().len() as u32;
    let n_languages = habits.languages.len() as u32;
    let n_sentinels = match habits.n_sentinels {
        0 => 0,
        default => settings.count("extra_ids")?.unwrap_or(default),
    };
    if n_sentinels > n_pieces.max(habits.n_sentinels) {
        let problem =
            format!("expected at most {n_pieces}, one for each piece, found {n_sentinels}");
        return Err(Error::config(&settings.path, "extra_ids", problem));
    }
    let id_of = |text: &str| match (&habits.numbering, text) {
        (Numbering::Fairseq, "<s>") => Some(0),
        (Numbering::Fairseq, "<pad>") => Some(1),
        (Numbering::Fairseq, "</s>") => Some(2),
        (Numbering::Fairseq, "<unk>") => Some(3),
        (Numbering::Fairseq, "<mask>") => Some(n_pieces + 1 + n_languages),
        (Numbering::Fairseq, _) => {
            let language = habits.languages.iter().position(|code| *code == text);
            let place = language.map(|idx| n_pieces + idx as u32);
            place.or_else(|| model.id_of(text)).map(|place| place + 1)
        }
        (_, _) => model.id_of(text).or_else(|| {
            let number = text.strip_prefix("<extra_id_")?.strip_suffix('>')?;
            let number: u32 = number.parse().ok().filter(|n| *n < n_sentinels)?;
            Some(n_pieces + n_sentinels - 1 - number)
        }),
    };
    let mut named = Vec::new();
    for (name, default) in NAMES.iter().zip(habits.named) {
        named.push(settings.named(name, default)?);
    }
    let controls = model
        .list()
        .iter()
        .filter(|piece| piece.kind == Kind::Control);
    let further: Vec<Token> = controls
        .map(|piece| Token::special(&piece.text))
        .chain(habits.languages.iter().map(|code| Token::special(code)))
        .chain(
            (0..n_sentinels)
                .rev()
                .map(|i| Token::special(&format!("<extra_id_{i}>"))),
        )
        .collect();
    let n_vocab = match &habits.numbering {
        Numbering::Fairseq => n_pieces + 2 + n_languages,
        _ => n_pieces + n_sentinels,
    };
    let present: Vec<Token> = named.iter().flatten().cloned().collect();
    let tokens = settings.tokens(&present, &further, id_of, n_vocab)?;
    let around = |name_idx: usize, flag: &str, habit: bool| -> Result<Vec<u32>> {
        let stated = if habits.obeys_flags {
            settings.flag(flag)?
        } else {
            None
        };
        if !stated.unwrap_or(habit) {
            return Ok(Vec::new());
        }
        let content = named[name_idx].as_ref().map(|token| token.content.as_str());
        let found = tokens
            .iter()
            .find(|(_, token)| Some(token.content.as_str()) == content);
        Ok(found.map(|(id, _)| *id).into_iter().collect())
    };
    let (before, mut after) = (
        around(0, "add_bos_token", habits.begins)?,
        around(1, "add_eos_token", habits.ends)?,
    );
    if !habits.languages.is_empty() {
        let language = settings.word("src_lang")?.unwrap_or("en_XX");
        let Some((id, _)) = tokens.iter().find(|(_, token)| token.content == language) else {
            let problem = format!("expected a language code, found {language:?}");
            return Err(Error::config(&settings.path, "src_lang", problem));
        };
        after.push(*id);
    }
    let legacy = habits.obeys_flags && settings.flag("legacy")?.unwrap_or(true);
    Ok(Encoder {
        before,
        after,
        marks: marks(&settings.path, tokens)?,
        every_stretch_begins: habits.every_stretch_begins || legacy,
        ends_once: habits.n_sentinels > 0,
        numbering: habits.numbering.clone(),
        model,
    })
}
