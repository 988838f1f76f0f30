//! `attnscope capture-script`: the Python recorder, for models that are not a checkpoint yet.

use std::collections::BTreeSet;

use anyhow::Result;
use attnscope_report::Output;

/// A module of the Python package, by name.
macro_rules! module {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../python/attnscope/_capture/", $name, ".py")),
        )
    };
}

/// The package itself; its docstring is that of the file.
const PACKAGE: (&str, &str) = module!("__init__");
/// Modules in the order of the file: code that runs at import comes before the code that needs it.
const MODULES: [(&str, &str); 20] = [
    module!("words"),
    module!("values"),
    module!("pooling"),
    module!("positions"),
    module!("turning"),
    module!("buffers"),
    module!("reshaping"),
    module!("adding"),
    module!("discarding"),
    module!("linear"),
    module!("order"),
    module!("recording"),
    module!("following"),
    module!("naming"),
    module!("axes"),
    module!("probing"),
    module!("porting"),
    module!("matching"),
    module!("shared"),
    module!("untrained"),
];
/// Width of the lines between modules.
const WIDTH: usize = 117;

pub fn run() -> Result<()> {
    Ok(Output::Stdout.write(joined().as_bytes())?)
}

/// A module: its docstring, its imports from other packages, and the rest.
struct Module<'a> {
    docstring: &'a str,
    imports: BTreeSet<&'a str>,
    body: String,
}

impl<'a> Module<'a> {
    fn of(text: &'a str) -> Self {
        let quote = "\"\"\"";
        let after_quote = text.strip_prefix(quote).unwrap_or_default();
        let end = after_quote
            .find(quote)
            .map_or(0, |end| end + 2 * quote.len());
        let (docstring, rest) = text.split_at(end);
        let mut imports = BTreeSet::new();
        let mut lines = rest.lines().peekable();
        while let Some(line) = lines.peek() {
            let is_import = line.starts_with("import ") || line.starts_with("from ");
            if !is_import && !line.is_empty() {
                break;
            }
            let is_own = line.starts_with("from .");
            if is_own && line.ends_with('(') {
                // Skip an import from the package that spans several lines.
                lines.by_ref().find(|line| *line == ")");
                continue;
            }
            if is_import && !is_own {
                imports.insert(*line);
            }
            lines.next();
        }
        let body: Vec<&str> = lines.collect();
        Self {
            docstring,
            imports,
            body: body.join("\n").trim_end().to_owned(),
        }
    }
}

/// Joins the package's recording modules into one file that needs only torch.
fn joined() -> String {
    let modules = MODULES.map(|(name, text)| (name, Module::of(text)));
    let imports: BTreeSet<&str> = modules
        .iter()
        .flat_map(|(_, module)| module.imports.iter().copied())
        .collect();
    let (future, others): (Vec<&str>, Vec<&str>) = imports
        .into_iter()
        .partition(|line| line.contains("__future__"));
    let (mut torch, standard): (Vec<&str>, Vec<&str>) =
        others.into_iter().partition(|line| line.contains(" torch"));
    torch.sort_by_key(|line| line.starts_with("from"));
    let head = [
        Module::of(PACKAGE.1).docstring,
        "# Made of the modules in src/python/attnscope/_capture: change it there.",
        &future.join("\n"),
        &standard.join("\n"),
        &torch.join("\n"),
        "__all__ = [\"capture\", \"probe\", \"record\"]",
    ];
    let mut text = head.join("\n\n") + "\n";
    for (name, module) in modules {
        let line = "-".repeat(WIDTH - 3 - name.len());
        text += &format!("\n\n# {line} {name}\n\n\n{}\n", module.body);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_contains_every_module_of_the_package_and_imports_none() {
        let text = joined();
        for part in ["\nclass capture(", "\nclass record:", "\ndef probe("] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("\nfrom ."));
        // An import over several lines would be cut.
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with("from ") && line.ends_with('('))
        );
        let package = concat!(env!("CARGO_MANIFEST_DIR"), "/src/python/attnscope/_capture");
        let files = std::fs::read_dir(package).expect("the package");
        let files: BTreeSet<String> = files
            .map(|file| file.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|end| end == "py"))
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .filter(|name| name != PACKAGE.0)
            .collect();
        assert_eq!(files, MODULES.map(|(name, _)| name.to_owned()).into());
    }
}
