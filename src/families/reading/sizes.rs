//! Sizes that most decoders state, under their usual keys.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};

use super::{check_groups, even_heads};

/// Reads the number of heads under the first key, of which there must be as many for keys and values (the second key), and the width
/// that shares the residual among them.
///
/// # Errors
/// When there are other heads of keys, or the heads do not divide the residual.
pub fn equal_heads(
    reader: &mut Reader<'_>,
    [heads, of_keys]: [&str; 2],
    [knob, knob_of_keys]: [&'static str; 2],
    d_model: usize,
) -> Result<[usize; 2]> {
    let n_heads = reader.size(knob, heads)?;
    let same = Origin::Derived("n_heads".to_owned());
    let found = reader.size_or(knob_of_keys, of_keys, n_heads, same)?;
    if found != n_heads {
        // transformers divides queries among the heads of keys, which runs with as many only.
        let problem = format!("expected as many as heads, {n_heads}, found {found}");
        return Err(Error::config(reader.path(), of_keys, problem));
    }
    Ok([n_heads, even_heads(reader, heads, d_model, n_heads)?])
}

/// Sizes that every family of this kind states.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_model: usize,
    pub d_head: usize,
    pub n_ctx: usize,
    pub d_vocab: usize,
}

impl Sizes {
    /// # Errors
    /// When one is missing or impossible.
    pub fn read(reader: &mut Reader<'_>, d_head: Option<usize>) -> Result<Self> {
        let sizes = Self::without_vocabulary(reader, d_head)?;
        let d_vocab = reader.size("d_vocab", "vocab_size")?;
        Ok(Self { d_vocab, ..sizes })
    }

    /// The sizes of a model that reads rows as wide as its residual in place of tokens.
    ///
    /// # Errors
    /// When one is missing or impossible.
    pub fn without_vocabulary(reader: &mut Reader<'_>, d_head: Option<usize>) -> Result<Self> {
        let n_layers = reader.layers("num_hidden_layers")?;
        let n_heads = reader.size("n_heads", "num_attention_heads")?;
        let same = Origin::Derived("n_heads, no num_key_value_heads".to_owned());
        let n_kv_heads = reader.size_or("n_kv_heads", "num_key_value_heads", n_heads, same)?;
        check_groups(reader, n_heads, n_kv_heads, "num_key_value_heads")?;
        let d_model = reader.size("d_model", "hidden_size")?;
        let (default, origin) = match d_head {
            Some(d_head) => (d_head, Origin::Default("head_dim".to_owned())),
            None => {
                let split = "d_model / n_heads, no head_dim".to_owned();
                ((d_model / n_heads).max(1), Origin::Derived(split))
            }
        };
        let d_head = reader.size_or("d_head", "head_dim", default, origin)?;
        let default = Origin::Default("max_position_embeddings".to_owned());
        let n_ctx = reader.size_or("n_ctx", "max_position_embeddings", 2048, default)?;
        Ok(Self {
            n_layers,
            n_heads,
            n_kv_heads,
            d_model,
            d_head,
            n_ctx,
            d_vocab: d_model,
        })
    }
}
