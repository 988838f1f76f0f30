//! Kyutai's speech recognition on its own text: Moshi's decoder, where the codes of sound are read as padding.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{ConstantRow, ModelSpec, TableSource};

use super::{Family, moshi};

pub const FAMILY: Family = Family::own("kyutai_speech_to_text", "KyutaiSpeechToText", read)
    .leaving_unread(&["codec_model.*"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const BOOKS: &str = "num_codebooks";
    const CODES: &str = "codebook_vocab_size";
    let mut spec = moshi::read_as(FAMILY.model_type, checkpoint, reader)?;
    let default = |key: &str| Origin::Default(key.to_owned());
    let n_books = reader.size_or("n_books", BOOKS, 32, default(BOOKS))?;
    let n_codes = reader.size_or("n_codes", CODES, 2_049, default(CODES))?;
    let n_rows = n_books
        .checked_mul(n_codes)
        .and_then(|n| n.checked_add(spec.d_vocab + 1));
    let Some(n_rows) = n_rows.filter(|_| n_books <= 1 << 10) else {
        let problem = format!("expected at most 1024 books, found {n_books} of {n_codes} codes");
        return Err(Error::config(reader.path(), BOOKS, problem));
    };
    let padding = reader.count_or("audio_padding", "audio_pad_token_id", 69_569)?;
    if padding >= n_rows {
        let problem = format!("expected a row of {n_rows}, found {padding}");
        return Err(Error::config(reader.path(), "audio_pad_token_id", problem));
    }
    let embed = &mut spec.stacks[0].embed;
    // One table holds the words, then the codes of each book.
    let table = TableSource {
        tensor: embed
            .tokens
            .tensor
            .replace("embed_tokens.weight", "embed_tokens.embed_tokens.weight"),
        n_rows,
        ..embed.tokens.clone()
    };
    embed.tokens = table.clone();
    embed.constants = vec![ConstantRow {
        table,
        row: padding,
        columns: vec![0; n_books],
    }];
    for key in ["audio_bos_token_id", "frame_size"] {
        reader.value(key);
    }
    reader.remark(
        "run on text alone: the codes of sound are read as padding, as before a sound begins"
            .to_owned(),
    );
    Ok(spec)
}
