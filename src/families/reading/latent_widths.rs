//! Widths of latent attention: the same in all layers, or those that a configuration states for some layers.

use attnscope_checkpoint::{Origin, Reader};
use attnscope_compute::error::{Error, Result};

const TYPES: &str = "layer_types";
const BY_LAYER: &str = "per_layer_config";

/// Widths of a layer's attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Widths {
    pub n_heads: usize,
    /// Width of the part of a head that each head has for itself, and of the part of keys that all heads share.
    pub d_own: usize,
    pub d_shared: usize,
    pub d_value: usize,
    /// Width of the latent of keys and values, and of that of queries.
    pub d_latent: usize,
    pub d_latent_q: Option<usize>,
    /// The width of which the shared part is the share that rotates.
    pub d_stated: usize,
}

impl Widths {
    pub fn d_head(&self) -> usize {
        self.d_own + self.d_shared
    }
}

/// Which keys a layer's attention sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    All,
    /// Those that an indexer picks.
    Picked,
    Window,
}

impl Sees {
    /// The name of a type of layer.
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "full_attention",
            Self::Picked => "indexed_attention",
            Self::Window => "sliding_attention",
        }
    }

    fn of_word(word: &str) -> Option<Self> {
        let all = [Self::All, Self::Picked, Self::Window];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

/// Reads which keys each layer sees: from a list; without a list, the first two layers and the second of every four have an indexer, and
/// the others a window. `use_dsa` says whether layers without a window have an indexer, whatever the list calls them.
///
/// # Errors
/// When a layer has another type.
pub fn seen_by_layer(reader: &mut Reader<'_>, n_layers: usize) -> Result<Vec<Sees>> {
    let is_told = reader.is_stated("use_dsa") || !reader.is_stated(BY_LAYER);
    let picks = if is_told {
        Some(reader.flag_or("picks_keys", "use_dsa", true)?)
    } else {
        None
    };
    let mut all = match reader.words_by_layer(TYPES, n_layers)? {
        Some(words) => {
            let of_word = |word: &String| {
                Sees::of_word(word).ok_or_else(|| {
                    let problem = format!(
                        "expected full_attention, indexed_attention or sliding_attention, found {word:?}"
                    );
                    Error::config(reader.path(), TYPES, problem)
                })
            };
            words.iter().map(of_word).collect::<Result<Vec<_>>>()?
        }
        None => {
            let slides = reader.flag_or("uses_window", "use_sliding_window", true)?;
            let of_layer = |idx: usize| {
                if slides && idx >= 2 && idx % 4 != 1 {
                    Sees::Window
                } else {
                    Sees::Picked
                }
            };
            (0..n_layers).map(of_layer).collect()
        }
    };
    for kind in all.iter_mut().filter(|kind| **kind != Sees::Window) {
        *kind = match picks {
            Some(true) => Sees::Picked,
            Some(false) => Sees::All,
            None => *kind,
        };
    }
    let n_windows = all.iter().filter(|kind| **kind == Sees::Window).count();
    let origin = Origin::Key(TYPES.to_owned());
    reader.note(
        "windowed_layers",
        format!("{n_windows} of {n_layers}"),
        origin,
    );
    Ok(all)
}

/// Reads the widths of every layer: those of `per_layer_config` in place of the model's; without it, layers with a window have those of
/// keys that begin with `swa_`.
///
/// # Errors
/// When a width is no width, or a layer changes something else.
pub fn widths_by_layer(
    reader: &mut Reader<'_>,
    (of_model, seen): (Widths, &[Sees]),
) -> Result<Vec<Widths>> {
    if reader.value(BY_LAYER).is_none() {
        let usual = Widths {
            n_heads: 64,
            d_own: 192,
            d_shared: 0,
            d_value: 128,
            d_latent: 1024,
            d_latent_q: Some(1024),
            d_stated: 256,
        };
        let has_window = seen.contains(&Sees::Window);
        let of_window = if has_window {
            changed(reader, "swa_", usual)?
        } else {
            of_model
        };
        let of_layer = |kind: &Sees| match kind {
            Sees::Window => of_window,
            _ => of_model,
        };
        return Ok(seen.iter().map(of_layer).collect());
    }
    let part = reader.part(BY_LAYER);
    let inside = Reader::new(&part);
    let of_layer = |layer_idx: usize| {
        let own = inside.part(&layer_idx.to_string());
        let mut own = Reader::new(&own);
        let widths = changed(&mut own, "", of_model)?;
        let (_, unread) = own.finish();
        match unread.first() {
            Some(key) => {
                let problem = "expected heads and widths alone to differ between layers";
                let at = format!("{BY_LAYER}.{layer_idx}.{key}");
                Err(Error::config(reader.path(), at, problem))
            }
            None => Ok(widths),
        }
    };
    (0..seen.len()).map(of_layer).collect()
}

/// Widths under keys with a prefix, or those of `usual`.
fn changed(reader: &mut Reader<'_>, prefix: &str, usual: Widths) -> Result<Widths> {
    let mut width = |name: &str, usual: usize| {
        let key = format!("{prefix}{name}");
        let default = Origin::Default(key.clone());
        reader.size_or("d_of_layers", &key, usual, default)
    };
    let n_heads = width("num_attention_heads", usual.n_heads)?;
    width("num_key_value_heads", n_heads)?;
    let (d_stated, d_own) = (
        width("head_dim", usual.d_stated)?,
        width("qk_nope_head_dim", usual.d_own)?,
    );
    // Keys with a prefix may leave out the rotating part: it is the rest of the head.
    let rest = match usual.d_shared {
        0 => d_stated.saturating_sub(d_own),
        d_shared => d_shared,
    };
    let read = Widths {
        n_heads,
        d_own,
        d_shared: width("qk_rope_head_dim", rest)?,
        d_value: width("v_head_dim", usual.d_value)?,
        d_latent: width("kv_lora_rank", usual.d_latent)?,
        d_latent_q: Some(width("q_lora_rank", usual.d_latent_q.unwrap_or(0))?),
        d_stated,
    };
    reader.forget(&["d_of_layers"]);
    Ok(read)
}
