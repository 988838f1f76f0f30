//! The Python code of live targets, as part of the program.

use attnscope_live::Code;

macro_rules! modules {
    ($($package:literal / $name:literal),* $(,)?) => {
        [$((concat!($package, ".", $name), include_str!(concat!("../python/attnscope/", $package, "/", $name, ".py")))),*]
    };
}

/// Modules of the package, by name.
const MODULES: [(&str, &str); 36] = modules![
    "_capture" / "__init__",
    "_capture" / "adding",
    "_capture" / "axes",
    "_capture" / "buffers",
    "_capture" / "discarding",
    "_capture" / "following",
    "_capture" / "linear",
    "_capture" / "matching",
    "_capture" / "naming",
    "_capture" / "order",
    "_capture" / "pooling",
    "_capture" / "porting",
    "_capture" / "positions",
    "_capture" / "probing",
    "_capture" / "recording",
    "_capture" / "reshaping",
    "_capture" / "shared",
    "_capture" / "turning",
    "_capture" / "untrained",
    "_capture" / "values",
    "_capture" / "words",
    "_live" / "__init__",
    "_live" / "arrays",
    "_live" / "changing",
    "_live" / "channel",
    "_live" / "faults",
    "_live" / "inputs",
    "_live" / "intent",
    "_live" / "labels",
    "_live" / "loading",
    "_live" / "ordering",
    "_live" / "predicting",
    "_live" / "pytorch",
    "_live" / "serving",
    "_live" / "spawned",
    "_live" / "tokenizing",
];

/// What a started Python runs.
pub const CODE: Code = Code {
    bootstrap: include_str!("../python/attnscope/_live/bootstrap.py"),
    modules: &MODULES,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_that_a_started_process_may_import_is_sent() {
        for package in ["_capture", "_live"] {
            let directory = format!(
                "{}/src/python/attnscope/{package}",
                env!("CARGO_MANIFEST_DIR")
            );
            for file in std::fs::read_dir(directory).expect("the package") {
                let path = file.expect("an entry").path();
                let stem = path
                    .file_stem()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                let is_python = path.extension().is_some_and(|ending| ending == "py");
                // `opened` runs where the package is installed; the bootstrap is not imported.
                if !is_python || ["bootstrap", "opened"].contains(&stem.as_str()) {
                    continue;
                }
                let name = format!("{package}.{stem}");
                assert!(MODULES.iter().any(|(known, _)| *known == name), "{name}");
            }
        }
    }
}
