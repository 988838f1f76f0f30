//! `vocab.txt`: WordPiece as in BERT and its successors.

use std::collections::BTreeMap;
use std::path::Path;

use attnscope_checkpoint::{VOCABULARY, read_text};
use attnscope_compute::error::{Error, Result};
use serde_json::{Value, json};

use super::byte_pairs::template;
use super::special::{NAMES, Settings, Token};
use super::{Inner, PromptForm, Tokenizer, directory_of, file_name, stored};

/// Default texts of the named tokens, in the order of `NAMES`.
const NAMED: [Option<&str>; 7] = [
    None,
    None,
    Some("[UNK]"),
    Some("[SEP]"),
    Some("[PAD]"),
    Some("[CLS]"),
    Some("[MASK]"),
];

/// Opens a list of word pieces.
///
/// # Errors
/// When a file is invalid, or a token that every text needs is missing.
pub fn open(path: &Path, model_type: &str) -> Result<PromptForm> {
    let text = read_text(path, VOCABULARY)?;
    let settings = Settings::read(directory_of(path))?;
    let class = settings.class();
    let known = match class {
        Some(class) => {
            ["BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"].contains(&class)
        }
        None => ["bert", "distilbert", "electra"].contains(&model_type),
    };
    let name = file_name(path);
    if !known || settings.flag("do_basic_tokenize")? == Some(false) {
        let of = class.unwrap_or(model_type);
        return Ok(PromptForm::Ids(format!(
            "{name}: how {of} cuts words is not known here"
        )));
    }
    if let Some(reason) = settings.unusual() {
        return Ok(PromptForm::Ids(format!("{name}: {reason}")));
    }
    // For a repeated token, the last index counts.
    let lines = text.lines().enumerate();
    let vocab: BTreeMap<&str, u32> = lines
        .map(|(idx, line)| (line.trim_end(), idx as u32))
        .collect();
    let mut named = Vec::new();
    for (token_name, default) in NAMES.iter().zip(NAMED) {
        named.push(settings.named(token_name, default)?);
    }
    let needed = |name_idx: usize| -> Result<(String, u32)> {
        let content = named[name_idx].as_ref().map_or("", |token| &token.content);
        match vocab.get(content) {
            Some(id) => Ok((content.to_owned(), *id)),
            None => {
                let what = NAMES[name_idx];
                Err(Error::file(
                    path,
                    format!("expected the {what} {content:?} among its tokens, found none"),
                ))
            }
        }
    };
    let (unknown, separator, classifier) = (needed(2)?, needed(3)?, needed(5)?);
    let present: Vec<Token> = named.iter().flatten().cloned().collect();
    let id_of = |text: &str| vocab.get(text).copied();
    let tokens = settings.tokens(&present, &[], id_of, vocab.len() as u32)?;
    let added: Vec<Value> = tokens.iter().map(|(id, token)| token.json(*id)).collect();
    let normalizer = json!({
        "type": "BertNormalizer", "clean_text": true,
        "handle_chinese_chars": settings.flag("tokenize_chinese_chars")?.unwrap_or(true),
        "strip_accents": settings.flag("strip_accents")?,
        "lowercase": settings.flag("do_lower_case")?.unwrap_or(true),
    });
    let value = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": template(Some(classifier), Some(separator)),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
        "model": {
            "type": "WordPiece", "unk_token": unknown.0, "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    });
    Ok(PromptForm::Tokenizer(Tokenizer {
        inner: Inner::Library(stored::build(path, &value)?),
        source_name: name,
        target: None,
    }))
}
