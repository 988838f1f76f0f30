//! Two-tower models, one tower for pictures and one for captions: each is a complete model, and one is read at a time. A model that
//! writes of pictures has a tower that sees too, which is read where a person asks for it.

use attnscope_checkpoint::{Checkpoint, Config, Origin, Reader};
use serde_json::Value;

use super::aliases;
use super::find::named;

/// Two-tower model types, and the default types of their towers.
const TWO: [(&str, &str, &str); 13] = [
    ("aimv2", "aimv2_text_model", "aimv2_vision_model"),
    ("align", "align_text_model", "align_vision_model"),
    ("altclip", "altclip_text_model", "altclip_vision_model"),
    ("blip", "blip_text_model", "blip_vision_model"),
    (
        "chinese_clip",
        "chinese_clip_text_model",
        "chinese_clip_vision_model",
    ),
    ("clip", "clip_text_model", "clip_vision_model"),
    ("clipseg", "clipseg_text_model", "clipseg_vision_model"),
    (
        "metaclip_2",
        "metaclip_2_text_model",
        "metaclip_2_vision_model",
    ),
    ("owlv2", "owlv2_text_model", "owlv2_vision_model"),
    ("owlvit", "owlvit_text_model", "owlvit_vision_model"),
    ("siglip", "siglip_text_model", "siglip_vision_model"),
    ("siglip2", "siglip2_text_model", "siglip2_vision_model"),
    (
        "videoprism",
        "videoprism_text_model",
        "videoprism_vision_model",
    ),
];

/// A tower, and remarks on it.
pub(super) struct Tower {
    pub config: Config,
    /// Why this tower was chosen.
    origin: Origin,
    sees: bool,
}

impl Tower {
    /// The tower of a two-tower model to read; `None` if it is not a two-tower model.
    pub fn of(checkpoint: &Checkpoint, asked: Option<&str>) -> Option<Self> {
        let outer = &checkpoint.config;
        let kind = outer.get("model_type").and_then(Value::as_str)?;
        let Some((_, text, vision)) = TWO.iter().find(|(two, ..)| *two == kind) else {
            return Self::that_sees(outer, kind, asked);
        };
        let (sees, origin) = chosen(checkpoint, asked);
        let (part, name) = if sees {
            ("vision_config", vision)
        } else {
            ("text_config", text)
        };
        let mut config = outer.part(part)?;
        // Old files repeat values that differ from the defaults; the repeated values count.
        if let Some(again) = outer.part(&format!("{part}_dict")) {
            for (key, value) in again.into_values() {
                if !value.is_null() {
                    config.put(&key, value, Origin::Key(format!("{part}_dict {key}")));
                }
            }
        }
        let by = Origin::Derived(format!("model_type {kind}"));
        config.put("model_type", (*name).to_owned(), by);
        Some(Self {
            config,
            origin,
            sees,
        })
    }

    /// The tower of pictures of a model that writes, if a person asks for it and its type is known.
    fn that_sees(outer: &Config, kind: &str, asked: Option<&str>) -> Option<Self> {
        asked.filter(|asked| *asked == "vision")?;
        let mut config = outer.part("vision_config")?;
        config = encoder_of(config);
        // Older files call the tower as they call the whole model.
        let own = config
            .get("model_type")
            .and_then(Value::as_str)
            .unwrap_or("");
        let names = [own.to_owned(), format!("{kind}_vision")];
        let is_known = |name: &&String| *name != kind && is_family(name);
        let name = names.iter().find(is_known)?.clone();
        let by = Origin::Derived(format!("model_type {kind}"));
        config.put("model_type", name, by);
        Some(Self {
            config,
            origin: Origin::Set(attnscope_checkpoint::SetBy::CommandLine),
            sees: true,
        })
    }

    /// Notes which tower is read, and how to read the other.
    pub fn note(&self, reader: &mut Reader<'_>) {
        let word = if self.sees { "vision" } else { "text" };
        reader.is_word("tower", "tower", word);
        reader.note("tower", word, self.origin.clone());
        if self.origin == Origin::Family {
            reader.remark(
                "the tower of captions is read; a picture as the prompt, or --set tower=vision, reads the one that sees"
                    .to_owned(),
            );
        }
    }
}

/// The part of what sees that is an encoder by itself, if its own type is not known and that of the part is.
pub(super) fn encoder_of(config: Config) -> Config {
    let is_known = |config: &Config| {
        let kind = config.get("model_type").and_then(Value::as_str);
        kind.is_some_and(is_family)
    };
    if is_known(&config) {
        return config;
    }
    let parts = ["backbone_config", "sam_config"];
    let mut inside = parts.iter().filter_map(|part| config.part(part));
    inside.find(|part| is_known(part)).unwrap_or(config)
}

/// Whether a model type is known, under its own name or as an alias.
fn is_family(model_type: &str) -> bool {
    let name = aliases::family_of(model_type).unwrap_or(model_type);
    named(name).is_some()
}

fn chosen(checkpoint: &Checkpoint, asked: Option<&str>) -> (bool, Origin) {
    if let Some(asked) = asked {
        let by = attnscope_checkpoint::SetBy::CommandLine;
        return (asked == "vision", Origin::Set(by));
    }
    let class = checkpoint.config.get("architectures");
    let class = class.and_then(|list| list.get(0)).and_then(Value::as_str);
    let class = class.unwrap_or_default();
    for (part, sees) in [
        ("VisionModel", true),
        ("ForImageClass", true),
        ("TextModel", false),
    ] {
        if class.contains(part) {
            return (sees, Origin::Derived(format!("class {class}")));
        }
    }
    let has = |part: &str| {
        let mut names = checkpoint.tensors.iter().map(|(name, _)| name);
        names.any(|name| name.contains(part))
    };
    match (has("vision_model."), has("text_model.")) {
        (true, false) => (
            true,
            Origin::Derived("the tensors that are stored".to_owned()),
        ),
        (false, true) => (
            false,
            Origin::Derived("the tensors that are stored".to_owned()),
        ),
        _ if checkpoint.sees => (true, Origin::Derived("the prompt, a picture".to_owned())),
        _ => (false, Origin::Family),
    }
}
