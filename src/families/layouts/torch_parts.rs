//! Parts outside the layers of `torch.nn` models. Their authors chose the names, so shapes and words in the names identify them.

use attnscope_checkpoint::HEADS;
use attnscope_compute::error::Result;

use super::Facts;

/// The tensor that every encoder and decoder layer has.
pub const SELF_ATTENTION: &str = "self_attn.in_proj_weight";

/// Tensors of an encoder layer.
pub const ENCODER_PARTS: &[&str] = &[
    SELF_ATTENTION,
    "self_attn.in_proj_bias",
    "self_attn.out_proj.weight",
    "self_attn.out_proj.bias",
    "linear1.weight",
    "linear1.bias",
    "linear2.weight",
    "linear2.bias",
    "norm1.weight",
    "norm1.bias",
    "norm2.weight",
    "norm2.bias",
];

/// Words in the names of parts outside the layers.
const TOKENS: &[&str] = &["emb", "wte", "tok"];
const POSITIONS: &[&str] = &["pos", "wpe"];
/// The name that tutorials give an untrained table of positions.
const BUFFER: &str = "pe";

/// Tensors outside the layers, sorted by what they can be.
pub struct Outside {
    pub d_model: usize,
    names: Vec<String>,
    pub tokens: Vec<String>,
    pub positions: Vec<String>,
}

impl Outside {
    /// Sorts the tensors outside the layers; `befores` are the prefixes of layer numbers.
    pub fn of(facts: &mut Facts<'_>, befores: &[&str], d_model: usize) -> Self {
        let is_outside = |name: &str| !befores.iter().any(|before| is_in_layer(name, before));
        let all = facts.tensors.iter().map(|(name, _)| name.to_owned());
        let names: Vec<String> = all.filter(|name| is_outside(name)).collect();
        for name in names.iter().filter(|name| is_position(name)) {
            facts.tensors.squeeze(name);
        }
        let tables = |chosen: &dyn Fn(&str) -> bool| -> Vec<String> {
            let is_table = |name: &&String| is_table(facts, name, d_model) && chosen(name);
            names.iter().filter(is_table).cloned().collect()
        };
        Self {
            d_model,
            tokens: tables(&|name| is_tokens(name) && !is_position(name)),
            positions: tables(&is_position),
            names,
        }
    }

    /// The linear map of the inputs, and its input width, for a model that reads numbers instead of tokens.
    pub fn input_map(&self, facts: &Facts<'_>) -> Option<(&str, usize)> {
        self.names.iter().find_map(|name| match facts.shape(name) {
            Some(&[n_out, n_in]) if n_out == self.d_model && n_in != n_out => {
                let is_map = name.ends_with(".weight") && !is_position(name);
                is_map.then_some((name.as_str(), n_in))
            }
            _ => None,
        })
    }

    /// Explains that there is no token table and what was found instead; `ours` is the name that such a table should have.
    pub fn without_tokens(&self, facts: &Facts<'_>, ours: &str) -> String {
        let d_model = self.d_model;
        match self.input_map(facts) {
            Some((name, n_in)) => format!(
                "the model has no table of tokens: {name} [{d_model}, {n_in}] maps {n_in} numbers per position; \
                 [tensors] in attnscope.toml describes such a model, and attnscope capture-script records the attention of any"
            ),
            None => format!(
                "no table of tokens [d_vocab, {d_model}] is known by its name; [rename] \"NAME\" = \"{ours}\" \
                 in attnscope.toml names it; found {}",
                self.some()
            ),
        }
    }

    /// The first few names, for messages.
    pub fn some(&self) -> String {
        let some: Vec<&str> = self.names.iter().map(String::as_str).take(4).collect();
        some.join(", ")
    }

    /// The matrix that turns the last residual into logits.
    ///
    /// # Errors
    /// When several tensors could be it.
    pub fn head(&self, facts: &Facts<'_>, d_vocab: usize) -> Result<Option<String>> {
        let is_head = |name: &&String| {
            is_table(facts, name, self.d_model)
                && facts.shape(name).is_some_and(|shape| shape[0] == d_vocab)
                && !is_tokens(name)
                && !is_position(name)
                && name.ends_with(".weight")
        };
        let heads: Vec<&String> = self.names.iter().filter(is_head).collect();
        only(facts, &heads, "head", "head.weight")
    }

    /// Gains of norms.
    ///
    /// # Errors
    /// When one of them is a norm of embeddings.
    pub fn norms(&self, facts: &Facts<'_>) -> Result<Vec<&String>> {
        let is_norm = |name: &&String| {
            let shape = facts.shape(name);
            name.ends_with(".weight") && shape.is_some_and(|shape| shape == [self.d_model])
        };
        let norms: Vec<&String> = self.names.iter().filter(is_norm).collect();
        match norms.iter().find(|name| is_tokens(name)) {
            None => Ok(norms),
            Some(name) => {
                let problem = "a norm of embeddings is not known in this layout".to_owned();
                Err(facts.at(name, problem))
            }
        }
    }
}

/// Asks for settings that tensors of such layers never reveal.
pub fn ask(facts: &mut Facts<'_>) {
    facts.needed("n_heads", "nhead", &HEADS);
    for key in ["activation", "norm_first", "embed_scale"] {
        facts.needed(key, key, &[key]);
    }
    facts.by_statement("layer_norm_eps", &["layer_norm_eps", "norm_eps"]);
    facts.remarks.push(
        "attention is run over the positions of a sequence; code that gives torch.nn a batch of sequences without batch_first=True \
         attends over the batch instead"
            .to_owned(),
    );
}

/// Prefixes of the layer number in the names of tensors that end in `part`.
pub fn befores(facts: &Facts<'_>, part: &str) -> Vec<String> {
    let first = format!("0.{part}");
    let before = |name: &str| {
        let before = name.strip_suffix(&first)?;
        (before.is_empty() || before.ends_with('.')).then(|| before.to_owned())
    };
    let names = facts.tensors.iter().map(|(name, _)| name);
    names.filter_map(before).collect()
}

/// The name without `.weight`, or the word for an absent part.
pub fn stem(name: Option<&str>) -> String {
    let name = name.map(|name| name.strip_suffix(".weight").unwrap_or(name));
    name.unwrap_or("none").to_owned()
}

/// The only candidate for a part or, among several, the one with our own name.
///
/// # Errors
/// When there are several and none has that name.
pub fn only(
    facts: &Facts<'_>,
    found: &[&String],
    part: &str,
    ours: &str,
) -> Result<Option<String>> {
    match found {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            if several.iter().any(|name| *name == ours) {
                return Ok(Some(ours.to_owned()));
            }
            let problem = format!(
                "{} could be the {part} as well; [rename] \"NAME\" = \"{ours}\" in attnscope.toml says which is",
                several[1]
            );
            Err(facts.at(several[0], problem))
        }
    }
}

/// Whether a name contains one of several words.
pub fn holds(name: &str, words: &[&str]) -> bool {
    let name = name.to_lowercase();
    words.iter().any(|word| name.contains(word))
}

fn is_in_layer(name: &str, before: &str) -> bool {
    let number = name
        .strip_prefix(before)
        .and_then(|rest| rest.split_once('.'));
    number.is_some_and(|(layer, _)| layer.bytes().all(|b| b.is_ascii_digit()))
}

fn is_table(facts: &Facts<'_>, name: &str, d_model: usize) -> bool {
    matches!(facts.shape(name), Some(&[n_rows, width]) if n_rows > 0 && width == d_model)
}

fn is_tokens(name: &str) -> bool {
    holds(name, TOKENS)
}

fn is_position(name: &str) -> bool {
    holds(name, POSITIONS) || name.rsplit('.').next() == Some(BUFFER)
}
