//! Weights without a configuration: tensor names give the layout, shapes give the sizes, and the user is asked for the rest.

mod bert;
mod fairseq;
mod given;
mod gpt2;
mod homemade;
mod litgpt;
mod llama;
mod megatron;
mod olmo_core;
mod parts;
mod templates;
mod timm;
mod torch_encoder;
mod torch_parts;
mod torch_transformer;
mod transformer_lens;
mod x_transformers;

use std::collections::BTreeSet;

pub use llama::INTERLEAVED;
use serde_json::Value;

use super::find::named;
use super::overrides::Overrides;
use attnscope_checkpoint::{Checkpoint, Config, Origin, Tensors};
use attnscope_compute::error::{Error, Result};

/// A way of naming and storing tensors.
struct Layout {
    /// Its name in messages, with the tensor that identifies it.
    known_by: &'static str,
    /// Fills in the configuration; returns whether the tensors are of this layout.
    describe: fn(&mut Facts<'_>) -> Result<bool>,
}

/// Layouts that a library fixes.
static LAYOUTS: &[Layout] = &[
    gpt2::LAYOUT,
    llama::LAYOUT,
    llama::META,
    llama::TORCHTUNE,
    litgpt::LAYOUT,
    transformer_lens::LAYOUT,
    x_transformers::LAYOUT,
    olmo_core::LAYOUT,
    megatron::LAYOUT,
    fairseq::LAYOUT,
    bert::LAYOUT,
    timm::LAYOUT,
    torch_transformer::LAYOUT,
    torch_encoder::LAYOUT,
];

/// Places beside the weights where trainers store values.
const PLACES: [&str; 6] = [
    "model_args",
    "params.json",
    "model_config.yaml",
    "header",
    "config.json",
    "module attributes",
];

/// Where trainers store their command-line arguments.
const ARGUMENTS: &str = "args";

/// Which layouts are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    /// Those that a library fixes.
    Libraries,
    /// Also that of home-made code, which fixes no name.
    All,
}

/// Identifies the layout of the weights and gives the checkpoint a matching configuration; returns whether it is known.
///
/// # Errors
/// When the layout leaves something open that the user has not set, or a tensor does not fit it.
pub fn recognise(
    checkpoint: &mut Checkpoint,
    overrides: &Overrides<'_>,
    tried: Tried,
) -> Result<bool> {
    let left_aside = templates::forget(&mut checkpoint.tensors);
    checkpoint.remarks.extend(left_aside);
    let own = (tried == Tried::All).then_some(&homemade::LAYOUT);
    // The refusal of a library's layout for parts that it does not have: home-made code may use the same names.
    let mut refusal = None;
    for layout in LAYOUTS.iter().chain(own) {
        let is_own = own.is_some_and(|own| std::ptr::eq(own, layout));
        if refusal.is_some() && !is_own {
            continue;
        }
        let mut facts = Facts {
            config: Config::absent(checkpoint.config.path()),
            tensors: &mut checkpoint.tensors,
            plain_values: &checkpoint.plain_values,
            overrides,
            missing: Vec::new(),
            remarks: Vec::new(),
            no_text: None,
            has_other_parts: false,
        };
        let is_known = match (layout.describe)(&mut facts) {
            Ok(is_known) => is_known,
            // The user's family shares these names but has other shapes.
            Err(_) if overrides.has("family") => break,
            Err(e) if facts.has_other_parts || is_own => {
                refusal.get_or_insert(if is_own { homemade::refused(e) } else { e });
                continue;
            }
            Err(e) => return Err(e),
        };
        if is_known && facts.is_of_given_family() {
            facts.complete()?;
            let (config, no_text) = (facts.config, facts.no_text);
            checkpoint.remarks.extend(facts.remarks);
            checkpoint.describe(config);
            if let Some(reason) = no_text {
                checkpoint.has_no_text(reason);
            }
            return Ok(true);
        }
    }
    if let Some(refusal) = refusal {
        return Err(refusal);
    }
    if overrides.has("family") {
        let config = given::describe(&checkpoint.tensors, checkpoint.config.path());
        checkpoint.describe(config);
        return Ok(true);
    }
    Ok(false)
}

/// The error for weights of an unknown layout, without a configuration.
pub fn unknown(checkpoint: &Checkpoint) -> Error {
    let all = LAYOUTS.iter().chain([&homemade::LAYOUT]);
    let known: Vec<&str> = all.map(|layout| layout.known_by).collect();
    let found: Vec<&str> = checkpoint
        .tensors
        .iter()
        .map(|(name, _)| name)
        .take(4)
        .collect();
    let more = if checkpoint.tensors.len() > found.len() {
        ", …"
    } else {
        ""
    };
    let problem = format!(
        "no config.json beside it, and the tensors are of no layout that is known; expected {}; found {}{more}; \
         attnscope guess finds out from text what such weights are",
        known.join(", "),
        found.join(", ")
    );
    Error::file(checkpoint.config.path(), problem)
}

/// Facts found out about the weights so far.
struct Facts<'a> {
    tensors: &'a mut Tensors,
    config: Config,
    plain_values: &'a serde_json::Map<String, Value>,
    overrides: &'a Overrides<'a>,
    missing: Vec<&'static str>,
    /// Remarks for the user on how the layout was interpreted.
    remarks: Vec<String>,
    /// Why prompts must be token ids, if there is no tokenizer beside the weights.
    no_text: Option<&'static str>,
    /// Whether a layer has parts that the layout does not know.
    has_other_parts: bool,
}

/// The keys of a family's configuration, as layouts fill them in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// Llama's, or those of a family that none of the following layouts fills in.
    OfMost,
    Gpt2,
    Bert,
    TorchEncoder,
    TorchTransformer,
    Described,
}

impl Facts<'_> {
    /// Whether the family set by the user, if any, reads the keys that this layout fills in.
    fn is_of_given_family(&self) -> bool {
        let found = self.config.get("model_type").and_then(Value::as_str);
        let (Some(given), Some(found)) = (self.overrides.word("family"), found) else {
            return true;
        };
        let keys = |name: &str| named(name).map_or(Keys::OfMost, |family| family.keys);
        keys(given) == keys(found)
    }

    fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.info(name).map(|info| info.shape.as_slice())
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains(name)
    }

    /// The two axes of a matrix.
    ///
    /// # Errors
    /// When the tensor is missing or not a matrix.
    fn matrix(&self, name: &str) -> Result<[usize; 2]> {
        match self.shape(name) {
            Some(&[n_rows, n_columns]) if n_rows > 0 && n_columns > 0 => Ok([n_rows, n_columns]),
            Some(other) => Err(self.at(name, format!("expected a matrix, found shape {other:?}"))),
            None => Err(self.at(name, "missing, expected a matrix".to_owned())),
        }
    }

    fn at(&self, name: &str, problem: String) -> Error {
        Error::tensor(self.tensors.file_of(name), name, problem)
    }

    /// Records a value that the tensor names imply.
    fn by_names(&mut self, key: &str, value: impl Into<Value>) {
        let origin = Origin::Derived("the tensors' names".to_owned());
        self.config.put(key, value, origin);
    }

    /// Records a size taken from a shape; a value stated beside the weights must agree.
    ///
    /// # Errors
    /// When it disagrees.
    fn by_shape(&mut self, key: &str, size: usize, tensor: &str, stated_as: &[&str]) -> Result<()> {
        if let Some((place, stated)) = self.stated(stated_as)
            && stated.as_u64().is_some_and(|stated| stated != size as u64)
        {
            let problem = format!("its shape says {size}, {place} says {stated}");
            return Err(self.at(tensor, problem));
        }
        let origin = Origin::Derived(format!("shape of {tensor}"));
        self.config.put(key, size, origin);
        Ok(())
    }

    /// A value stored beside the weights under one of several names, and where it was found.
    fn stated(&self, names: &[&str]) -> Option<(String, Value)> {
        PLACES.iter().find_map(|place| {
            let values = self.plain_values.get(*place)?;
            let found = names.iter().find_map(|name| {
                let value = values.get(name).filter(|value| !value.is_null())?;
                Some((format!("{place} {name}"), value.clone()))
            });
            found.filter(|(_, value)| value.as_i64() != Some(-1))
        })
    }

    /// Records a value stated beside the weights, if there is one.
    fn by_statement(&mut self, key: &str, names: &[&str]) -> bool {
        match self.stated(names) {
            Some((place, value)) => {
                self.config.put(key, value, Origin::Derived(place));
                true
            }
            None => false,
        }
    }

    /// A training argument by name, if the file stores the arguments.
    fn argument(&self, name: &str) -> Option<&Value> {
        let value = self.plain_values.get(ARGUMENTS)?.get(name)?;
        Some(value).filter(|value| !value.is_null())
    }

    /// Whether a training argument switches something on.
    fn is_argument(&self, name: &str) -> bool {
        self.argument(name) == Some(&Value::Bool(true))
    }

    /// Records the first training argument found among several names, if any.
    fn by_argument(&mut self, key: &str, names: &[&str]) -> bool {
        let found = names
            .iter()
            .find_map(|name| Some((format!("{ARGUMENTS} {name}"), self.argument(name)?.clone())));
        match found {
            Some((place, value)) => {
                self.config.put(key, value, Origin::Derived(place));
                true
            }
            None => false,
        }
    }

    /// Requires a value that no shape reveals: stated beside the weights, set by the user, or listed as missing.
    fn needed(&mut self, field: &'static str, key: &str, names: &[&str]) {
        if self.by_statement(key, names) || self.overrides.has(field) {
            return;
        }
        match self.stated_anywhere(names, |value| !value.is_null()) {
            Some((place, value)) => self.config.put(key, value, Origin::Derived(place)),
            None => self.missing.push(field),
        }
    }

    /// A value under one of several names that fits, in any dictionary that a trainer stores with the weights, or beside them.
    fn stated_anywhere(
        &self,
        names: &[&str],
        fits: impl Fn(&Value) -> bool,
    ) -> Option<(String, Value)> {
        let found = |value: Option<&Value>| value.filter(|value| fits(value)).cloned();
        let inside = self.plain_values.iter().find_map(|(place, values)| {
            names
                .iter()
                .find_map(|name| Some((format!("{place} {name}"), found(values.get(*name))?)))
        });
        let alone = || {
            names.iter().find_map(|name| {
                Some((
                    format!("the file's {name}"),
                    found(self.plain_values.get(*name))?,
                ))
            })
        };
        inside.or_else(alone)
    }

    /// A whole number of the configuration, including what the user set.
    fn size(&self, field: &str, key: &str) -> Option<usize> {
        let noted = || self.config.get(key)?.as_u64().map(|size| size as usize);
        self.overrides.size(field).or_else(noted).filter(|n| *n > 0)
    }

    /// Counts the layers. `before` and `probe` surround the layer number in a tensor name that every layer has.
    ///
    /// # Errors
    /// When a layer in between is missing, or a layer has a tensor that is not among `parts`.
    fn layers(&mut self, key: &str, before: &str, probe: &str, parts: &[&str]) -> Result<usize> {
        let mut found: BTreeSet<usize> = BTreeSet::new();
        for (name, _) in self.tensors.iter() {
            let Some((layer, part)) = name.strip_prefix(before).and_then(|n| n.split_once('.'))
            else {
                continue;
            };
            if !parts.contains(&part) && !self.overrides.has("family") {
                let problem = "is no part of a layer of this layout; --set family=NAME reads it as a known family";
                let refused = self.at(name, problem.to_owned());
                self.has_other_parts = true;
                return Err(refused);
            }
            if part == probe {
                found.extend(layer.parse::<usize>().ok());
            }
        }
        let n_layers = found.len();
        if let Some(gap) = (0..n_layers).find(|layer_idx| !found.contains(layer_idx)) {
            let name = format!("{before}{gap}.{probe}");
            return Err(self.at(&name, "missing, while later layers are there".to_owned()));
        }
        self.by_names(key, n_layers);
        if let Some((place, stated)) = self.stated(&["n_layer", "n_layers"])
            && stated
                .as_u64()
                .is_some_and(|stated| stated != n_layers as u64)
        {
            let problem = format!("{n_layers} layers are stored, {place} says {stated}");
            return Err(self.at(&format!("{before}0.{probe}"), problem));
        }
        Ok(n_layers)
    }

    /// Fails if required values are missing.
    fn complete(&self) -> Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let examples: Vec<String> = self
            .missing
            .iter()
            .map(|field| format!("--set {field}={}", example(field)))
            .collect();
        let lacking = if self.plain_values.contains_key("config.json") {
            "config.json names no kind of model"
        } else {
            "there is no config.json"
        };
        let problem = format!(
            "{lacking}, and tensor names and shapes do not tell {}; pass them as in {}, or put them under [set] in attnscope.toml",
            self.missing.join(", "),
            examples.join(" ")
        );
        Err(Error::file(self.config.path(), problem))
    }
}

/// The origin of a value stated in a file beside the weights.
fn stated_in(file: &str) -> Origin {
    Origin::Derived(file.to_owned())
}

/// An example value for a field, for messages.
fn example(field: &str) -> &'static str {
    match field {
        "family" => "roberta",
        "n_heads" => "12",
        "rope_theta" => "10000",
        "norm_eps" => "1e-5",
        "activation" => "gelu",
        "mask" => "causal",
        "norm_first" | "norm_adds_one" | "rope_interleaved" => "true",
        "embed_scale" => "sqrt_d",
        "positions" => "sines",
        "logit_scale" => "1",
        "start_token" => "2",
        "pooled" => "mean",
        "block" => "serial",
        "d_rotary" => "64",
        "picture_size" => "32",
        "patch_order" => "channels_first",
        "head_activation" => "tanh",
        _ => "VALUE",
    }
}
