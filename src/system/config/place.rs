//! Path of the settings file.

use std::ffi::OsString;
use std::path::PathBuf;

/// Variable with the path of the settings file; empty for none.
pub const VARIABLE: &str = "ATTNSCOPE_CONFIG";

/// Returns the path, and whether the user named it: then it has to exist.
pub fn path(variable: impl Fn(&str) -> Option<OsString>) -> (Option<PathBuf>, bool) {
    if let Some(named) = variable(VARIABLE) {
        let path = (!named.is_empty()).then(|| PathBuf::from(named));
        return (path, true);
    }
    let of = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let base = of("XDG_CONFIG_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| of("HOME").map(|home| home.join(".config")));
    (base.map(|base| base.join("attnscope/config.toml")), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_the_path_of_the_settings_file() {
        let with = |pairs: &[(&str, &str)]| {
            path(|name| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let home = ("HOME", "/home/x");
        for (pairs, expected, is_named) in [
            (
                &[home][..],
                Some("/home/x/.config/attnscope/config.toml"),
                false,
            ),
            (
                &[home, ("XDG_CONFIG_HOME", "/etc/y")],
                Some("/etc/y/attnscope/config.toml"),
                false,
            ),
            // The XDG specification ignores relative paths.
            (
                &[home, ("XDG_CONFIG_HOME", "y")],
                Some("/home/x/.config/attnscope/config.toml"),
                false,
            ),
            (&[home, (VARIABLE, "mine.toml")], Some("mine.toml"), true),
            (&[home, (VARIABLE, "")], None, true),
            (&[], None, false),
        ] {
            assert_eq!(
                with(pairs),
                (expected.map(PathBuf::from), is_named),
                "{pairs:?}"
            );
        }
    }
}
