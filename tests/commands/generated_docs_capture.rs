//! The capture file, which needs nothing beside it: one file made of the modules of the Python package that do the same.

use std::collections::BTreeSet;
use std::path::Path;

use super::generated_docs::is_generated;

const PACKAGE: &str = "src/python/attnscope/_capture";
/// Modules in the order in which the file has them; what runs at import stands before what needs it.
const MODULES: [&str; 8] = [
    "words",
    "recording",
    "following",
    "axes",
    "probing",
    "porting",
    "matching",
    "shared",
];
const WIDTH: usize = 117;

/// A module: its docstring, what it imports from elsewhere, and the rest.
struct Module {
    docstring: String,
    imports: BTreeSet<String>,
    body: String,
}

impl Module {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a module");
        let quoted = text
            .strip_prefix("\"\"\"")
            .expect("begins with a docstring");
        let end = quoted.find("\"\"\"").expect("a docstring that ends");
        let (docstring, rest) = (&text[..end + 6], &text[end + 6..]);
        let mut imports = BTreeSet::new();
        let mut lines = rest.lines().peekable();
        while let Some(line) = lines.peek() {
            let is_import = line.starts_with("import ") || line.starts_with("from ");
            if !is_import && !line.is_empty() {
                break;
            }
            let is_own = line.starts_with("from .");
            if is_own && line.ends_with('(') {
                // Names of another module of the package, over several lines.
                lines.by_ref().find(|line| *line == ")").expect("an end");
                continue;
            }
            if is_import && !is_own {
                assert!(!line.ends_with('('), "{}: {line}", path.display());
                imports.insert((*line).to_owned());
            }
            lines.next();
        }
        let body: Vec<&str> = lines.collect();
        Self {
            docstring: docstring.to_owned(),
            imports,
            body: body.join("\n").trim_end().to_owned(),
        }
    }
}

fn capture_file() -> String {
    let directory = testing::root().join(PACKAGE);
    let read = |name: &str| Module::read(&directory.join(format!("{name}.py")));
    let modules: Vec<Module> = MODULES.iter().map(|name| read(name)).collect();
    let imports: BTreeSet<String> = modules.iter().flat_map(|m| m.imports.clone()).collect();
    let (future, imports): (Vec<String>, Vec<String>) = imports
        .into_iter()
        .partition(|line| line.contains("__future__"));
    let (torch, standard): (Vec<String>, Vec<String>) = imports
        .into_iter()
        .partition(|line| line.contains(" torch"));
    let mut torch = torch;
    torch.sort_by_key(|line| line.starts_with("from"));
    let head = [
        read("__init__").docstring,
        format!("# Made of the modules in {PACKAGE}: change it there."),
        future.join("\n"),
        standard.join("\n"),
        torch.join("\n"),
        "__all__ = [\"capture\", \"probe\", \"record\"]".to_owned(),
    ];
    let mut text = head.join("\n\n") + "\n";
    for (name, module) in MODULES.iter().zip(&modules) {
        let line = "-".repeat(WIDTH - 3 - name.len());
        text += &format!("\n\n# {line} {name}\n\n\n{}\n", module.body);
    }
    text
}

#[test]
fn the_capture_file_is_the_modules_of_the_package() {
    let text = capture_file();
    for name in ["capture", "record"] {
        assert!(text.contains(&format!("\nclass {name}:")), "{name}");
    }
    assert!(text.contains("\ndef probe(") && !text.contains("\nfrom ."));
    is_generated("src/capture/attnscope_capture.py", &text);
    // No module is left out.
    let files = std::fs::read_dir(testing::root().join(PACKAGE)).expect("the package");
    let files = files.map(|file| file.expect("an entry").file_name());
    let files: BTreeSet<String> = files
        .filter_map(|name| Some(name.to_string_lossy().strip_suffix(".py")?.to_owned()))
        .filter(|name| name != "__init__")
        .collect();
    assert_eq!(files, MODULES.iter().map(|m| (*m).to_owned()).collect());
}
