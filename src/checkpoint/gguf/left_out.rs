//! Remarks on settings that converters omit, and on the values assumed for them.

use super::facts::{Facts, WINDOW};
use crate::config::Config;

/// A setting that files of an architecture do not state. The last two fields of a variant are the setting and its assumed value.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeftOut {
    Nothing,
    /// A setting that has no key in the format.
    Setting(&'static str, &'static str),
    /// A setting that has no key, and whether it matters for a configuration.
    SettingIf(fn(&Config) -> bool, &'static str, &'static str),
    /// A setting whose key some files lack, and whether it matters for a configuration.
    KeyIf(
        fn(&Config) -> bool,
        &'static str,
        &'static str,
        &'static str,
    ),
    /// A setting whose key some files lack, by the key's ending.
    Key(&'static str, &'static str, &'static str),
    /// Rotary scaling or windows, which converters omit for some models.
    ScalingOrWindow,
}

/// Builds the remark on what a file does not state.
pub(super) fn remark(left_out: LeftOut, facts: &Facts<'_>, config: &Config) -> Option<String> {
    let unsaid =
        |what: &str, taken: &str| format!("the GGUF file does not state {what}: taken as {taken}");
    let states = |tail: &str| facts.metadata.get(&facts.key(tail)).is_some();
    match left_out {
        LeftOut::Nothing => None,
        LeftOut::Setting(what, taken) => Some(unsaid(what, taken)),
        LeftOut::SettingIf(matters, what, taken) => matters(config).then(|| unsaid(what, taken)),
        LeftOut::KeyIf(matters, tail, what, taken) => {
            (matters(config) && !states(tail)).then(|| unsaid(what, taken))
        }
        LeftOut::Key(tail, what, taken) => (!states(tail)).then(|| unsaid(what, taken)),
        LeftOut::ScalingOrWindow => scaling_or_window(config, &facts.key(WINDOW)),
    }
}

/// Builds the remark on scaling and windows; a window that could not be placed is in the configuration under the file's key.
fn scaling_or_window(config: &Config, stated: &str) -> Option<String> {
    if let Some(window) = config.get(stated) {
        return Some(format!(
            "the GGUF file gives a window of {window} but not its layers: the window is ignored, as in llama.cpp; \
             --set window={window} gives it to every layer"
        ));
    }
    let has = |key: &str| config.get(key).is_some_and(|value| !value.is_null());
    (!has("rope_scaling") && !has("sliding_window")).then(|| {
        "the GGUF file states neither a scaling of rotary positions nor a window: converters omit some of these, so results may \
         differ from Hugging Face; attnscope follows llama.cpp"
            .to_owned()
    })
}
