//! What a person says about how a checkpoint is read: known keys, checked values, and where each of them is put.

mod changes;
mod fields;
mod given;
mod of_stack;

use attnscope_checkpoint::nearest::did_you_mean;
use attnscope_checkpoint::{Config, Knob, Origin, Reader, SetBy, Setting, Settings, Tensors};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;
use serde_json::Value;

use self::changes::change;
pub use self::fields::settable;
use self::fields::{FIELDS, Field};
use self::given::Given;
pub use self::of_stack::value_of_stack;

/// Checked values, the last one of each key.
#[derive(Default)]
pub struct Overrides<'a> {
    all: Vec<(&'static Field, Given, &'a Setting)>,
    /// The tables of `[tensors]`, where a person describes the model whole.
    tensors: Option<&'a serde_json::Map<String, Value>>,
}

impl<'a> Overrides<'a> {
    /// # Errors
    /// When a key is not known, or its value is not one that it takes.
    pub fn read(settings: &'a Settings) -> Result<Self> {
        let mut overrides = Self {
            tensors: settings.tensors.as_ref(),
            ..Self::default()
        };
        for setting in &settings.values {
            let Some(field) = FIELDS.iter().find(|field| field.name == setting.key) else {
                let known: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
                let problem = format!(
                    "{:?} is not known{}; known: {}",
                    setting.key,
                    did_you_mean(&setting.key, known.iter().copied()),
                    known.join(", ")
                );
                return Err(refused(setting, &problem));
            };
            let Some(given) = (field.read)(&setting.value) else {
                let problem = format!("expected {}, found {:?}", field.takes, setting.value);
                return Err(refused(setting, &problem));
            };
            overrides.all.retain(|(other, ..)| other.name != field.name);
            overrides.all.push((field, given, setting));
        }
        Ok(overrides)
    }

    /// Refuses another number of heads, where rows lie in an order that depends on the one in the file.
    ///
    /// # Errors
    /// Names the value.
    pub fn check_order(&self, tensors: &Tensors) -> Result<()> {
        let of_heads = ["n_heads", "n_kv_heads", "d_head"];
        let found = self
            .all
            .iter()
            .find(|(field, ..)| of_heads.contains(&field.name));
        match found.filter(|_| tensors.is_ordered_by_heads()) {
            None => Ok(()),
            Some((_, _, setting)) => {
                let problem = "the file orders rows of queries and keys by the heads it states; expected no others";
                Err(refused(setting, problem))
            }
        }
    }

    /// Whether a key is given.
    pub fn has(&self, name: &str) -> bool {
        self.all.iter().any(|(field, ..)| field.name == name)
    }

    /// Whether a person says what the weights are, so that nothing has to be found out.
    pub fn describes(&self) -> bool {
        self.tensors.is_some()
            && self
                .word("family")
                .is_none_or(|family| family == "described")
    }

    /// Where a key is given.
    pub fn place(&self, name: &str) -> Option<&str> {
        let (_, _, setting) = self.all.iter().find(|(field, ..)| field.name == name)?;
        Some(&setting.place)
    }

    /// A word that is given.
    pub fn word(&self, name: &str) -> Option<&str> {
        let (_, given, _) = self.all.iter().find(|(field, ..)| field.name == name)?;
        match given {
            Given::Config(value) => value.as_str(),
            _ => None,
        }
    }

    /// A yes or no that is given.
    pub fn flag(&self, name: &str) -> Option<bool> {
        let (_, given, _) = self.all.iter().find(|(field, ..)| field.name == name)?;
        match given {
            Given::Config(value) => value.as_bool(),
            _ => None,
        }
    }

    /// A whole number that is given.
    pub fn size(&self, name: &str) -> Option<usize> {
        let (_, given, _) = self.all.iter().find(|(field, ..)| field.name == name)?;
        match given {
            Given::Config(value) => value.as_u64().map(|size| size as usize),
            _ => None,
        }
    }

    /// Puts what belongs there into the configuration, before a family reads it.
    pub fn before(&self, config: &mut Config) {
        if let Some(tensors) = self.tensors {
            let origin = Origin::Set(SetBy::File);
            if !self.has("family") {
                config.put("model_type", "described", origin.clone());
            }
            config.put("tensors", tensors.clone(), origin);
        }
        for (field, given, setting) in &self.all {
            let origin = Origin::Set(setting.by);
            match given {
                Given::Config(value) if field.name == "family" => {
                    config.put("model_type", value.clone(), origin);
                }
                Given::Config(value) => config.fix(field.name, value.clone(), origin),
                // Families that ask have positions to leave out; of all others they are taken away afterwards.
                Given::NoPositions => config.fix(field.name, "none", origin),
                // Only where nothing but a person says it does a family read the mask.
                Given::Causal(causal) => config.fix(field.name, *causal, origin),
                _ => {}
            }
        }
    }

    /// Refuses a value that the family did not ask for.
    ///
    /// # Errors
    /// Names the first.
    pub fn check_read(&self, reader: &Reader<'_>, family: &str) -> Result<()> {
        let unread = reader.fixed_unread();
        let found = self.all.iter().find(|(field, given, _)| {
            matches!(given, Given::Config(_)) && unread.contains(&field.name)
        });
        match found {
            None => Ok(()),
            Some((field, _, setting)) => {
                let problem = format!(
                    "{family} has no {} to set: it follows from other values, or is always the same",
                    field.name
                );
                Err(refused(setting, &problem))
            }
        }
    }

    /// Puts what belongs there into every attention, after a family has described them.
    ///
    /// # Errors
    /// When the model has nothing of the kind.
    pub fn after(&self, spec: &mut ModelSpec) -> Result<()> {
        for (field, given, setting) in &self.all {
            if matches!(given, Given::Config(_)) {
                if field.name == "family" {
                    note(spec, "family", setting.value.clone(), setting);
                }
                continue;
            }
            let of_one_stack = matches!(given, Given::Causal(_) | Given::NoPositions);
            if of_one_stack && self.describes() && spec.is_encoder_decoder() {
                continue; // read for the decoder
            }
            if matches!(given, Given::Causal(_)) && spec.is_encoder_decoder() {
                let problem =
                    "encoder and decoder have masks of their own; expected a model of one stack";
                return Err(refused(setting, problem));
            }
            let n_changed = change(spec, given);
            if n_changed == 0 {
                let what = match given {
                    Given::LogitScale(_) | Given::LogitSoftcap(_) => {
                        "is read without an unembedding"
                    }
                    Given::WindowLayers(..) => "has no layer that would lose its window",
                    Given::WindowRopeTheta(_) => "has no layer with a window that rotates",
                    _ => "rotates no queries and keys",
                };
                return Err(refused(setting, &format!("{} {what}", spec.family)));
            }
            if *given == Given::NoPositions {
                let gone = [
                    "rope_scaling",
                    "rope_theta",
                    "rotary_share",
                    "rope_factor",
                    "score_bias",
                ];
                spec.knobs.retain(|knob| !gone.contains(&knob.name));
            }
            let Some(attention) = spec.main_stack().first_attention().cloned() else {
                continue;
            };
            let shown = match given {
                Given::Scale(scale) => {
                    let factor = format!("{:.6}", scale.factor(attention.d_head));
                    note(spec, "scale_factor", factor, setting);
                    scale.to_string()
                }
                Given::NoPositions => "none".to_owned(),
                Given::Causal(_) | Given::Window(_) => attention.mask.to_string(),
                Given::RopeInterleaved(interleaved) => {
                    restate_positions(&mut spec.knobs, *interleaved);
                    interleaved.to_string()
                }
                _ => setting.value.clone(),
            };
            let name = match given {
                Given::Window(_) => "mask",
                _ => field.name,
            };
            note(spec, name, shown, setting);
        }
        Ok(())
    }
}

/// Puts a value in the place of what was noted under its name.
fn note(spec: &mut ModelSpec, name: &'static str, value: String, setting: &Setting) {
    let origin = Origin::Set(setting.by);
    let knob = Knob {
        name,
        value,
        origin,
    };
    match spec.knobs.iter().position(|known| known.name == name) {
        Some(idx) => {
            spec.knobs.retain(|known| known.name != name);
            spec.knobs.insert(idx, knob);
        }
        None => spec.knobs.push(knob),
    }
}

/// The knob of positions names how pairs lie.
fn restate_positions(knobs: &mut [Knob], interleaved: bool) {
    let (from, to) = if interleaved {
        ("halves", "interleaved")
    } else {
        ("interleaved", "halves")
    };
    for knob in knobs.iter_mut().filter(|knob| knob.name == "positions") {
        knob.value = knob.value.replace(from, to);
    }
}

fn refused(setting: &Setting, problem: &str) -> Error {
    Error::Setting(format!("{}: {problem}", setting.place))
}

#[cfg(test)]
mod tests {
    use attnscope_compute::attention::Scale;

    use super::*;

    #[test]
    fn values_are_read_or_refused() {
        let read = |name: &str, text: &str| {
            let field = FIELDS.iter().find(|field| field.name == name);
            (field.expect("a key").read)(text)
        };
        assert_eq!(read("scale", "inv_d"), Some(Given::Scale(Scale::InvD)));
        assert_eq!(read("scale", "0.5"), Some(Given::Scale(Scale::Factor(0.5))));
        assert_eq!(read("window", "none"), Some(Given::Window(None)));
        assert_eq!(read("window", "7"), Some(Given::Window(Some(7))));
        assert_eq!(read("mask", "causal"), Some(Given::Causal(true)));
        for (name, text) in [
            ("n_heads", "0"),
            ("n_heads", "-1"),
            ("n_heads", "1.5"),
            ("n_heads", "99999999999"),
            ("scale", "NaN"),
            ("scale", "inf"),
            ("scale", "0"),
            ("softmax_axis", "rows"),
            ("mask", "none"),
            ("window", "0"),
            ("softcap", "0"),
            ("softcap", "1e-300"),
            ("rope_theta", "-1"),
            ("rope_interleaved", "yes"),
            ("norm_eps", "-1e-5"),
            ("activation", "gelo"),
            ("picture_size", "0"),
            ("picture_size", "3 4 5"),
            ("patch_order", "rows"),
            ("picture_mean", "0.5 0.5"),
            ("picture_std", "0"),
        ] {
            assert_eq!(read(name, text), None, "{name}={text}");
        }
    }
}
