//! Keys that versions of transformers read differently: remarks on them, with the setting that selects the other reading.

use attnscope_checkpoint::{Config, Origin, Reader};
use attnscope_spec::{BlockSpec, ModelSpec};
use serde_json::Value;

use super::Family;

/// Parses major and minor version of the transformers release that saved a model.
pub(super) fn saved_by(stated: Option<&Value>) -> Option<(u32, u32)> {
    let mut parts = stated?.as_str()?.split('.');
    let major = parts.next()?.parse().ok()?;
    Some((major, parts.next()?.parse().ok()?))
}

/// The version from which the gated norm of a state space is over groups, in families where it used to be over all channels.
const GROUPED_SINCE: (u32, u32) = (5, 23);

/// Number of channel groups of the gated norm, according to the version that saved the model.
pub(super) fn norm_groups(reader: &mut Reader<'_>, n_groups: usize) -> usize {
    let version = saved_by(reader.value("transformers_version"));
    let is_whole = version.is_some_and(|version| version < GROUPED_SINCE);
    if n_groups > 1 {
        let said = if is_whole {
            "all channels together, as transformers before 5.23 has it; later versions norm each group by itself"
        } else {
            "each group by itself, as transformers has it since 5.23; earlier versions norm all channels together"
        };
        reader.note(
            "mixer_norm",
            said,
            Origin::Key("transformers_version".to_owned()),
        );
    }
    if is_whole { 1 } else { n_groups }
}

/// Versions in which the windows of some families reached one key further, in every layer, except with flash attention.
const WIDER: std::ops::Range<(u32, u32)> = (4, 37)..(4, 42);

/// The remark on a window that the saving version applied one key wider.
pub(super) fn remark(config: &Config, family: &Family, spec: &ModelSpec) -> Option<String> {
    let version = saved_by(config.get("transformers_version"))?;
    if !WIDER.contains(&version) || !family.windows_were_wider {
        return None;
    }
    let mut attentions = spec
        .main_stack()
        .blocks()
        .iter()
        .filter_map(BlockSpec::attention);
    let width = attentions.find_map(|own| own.mask.window?.width_back())?;
    let (major, minor) = version;
    let wider = width + 1;
    Some(format!(
        "a window of {width} is read as {width} keys, as transformers does since 4.42; version {major}.{minor}, which saved this \
         model, lets a query see {wider} in every layer: --set window={wider}"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn before_5_23_the_gated_norm_is_over_all_channels() {
        let groups = |text: &str| {
            let config = Config::parse(Path::new("config.json"), text).expect("is read");
            norm_groups(&mut Reader::new(&config), 4)
        };
        assert_eq!(groups(r#"{"transformers_version": "5.17.0"}"#), 1);
        assert_eq!(groups(r#"{"transformers_version": "4.57.1"}"#), 1);
        assert_eq!(groups(r#"{"transformers_version": "5.23.0"}"#), 4);
        assert_eq!(groups("{}"), 4);
    }
}
