//! Where the file of settings lies.

use std::ffi::OsString;
use std::path::PathBuf;

/// Names the file of settings; empty for none at all.
pub const VARIABLE: &str = "ATTNSCOPE_CONFIG";

/// The file, and whether somebody named it: then it has to be there.
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
    fn the_environment_says_where_the_file_lies() {
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
            // The specification has relative paths ignored.
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
