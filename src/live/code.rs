//! The Python code that a started process runs: it is sent over the channel, so that nothing has to be installed.

use serde_json::{Map, Value};

/// Code of a started process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Code {
    /// What `python -c` runs.
    pub bootstrap: &'static str,
    /// Name of a module within its package, and its source.
    pub modules: &'static [(&'static str, &'static str)],
}

/// Name of the package there; the person's own `attnscope` is another.
const PACKAGE: &str = "_attnscope";

impl Code {
    /// Sources by full module name.
    pub(super) fn sources(&self) -> Map<String, Value> {
        let of = |(name, text): &(&str, &str)| {
            let name = name.strip_suffix(".__init__").unwrap_or(name);
            (format!("{PACKAGE}.{name}"), Value::from(*text))
        };
        let package = (PACKAGE.to_owned(), Value::from(""));
        self.modules.iter().map(of).chain([package]).collect()
    }
}
