//! The manual: its links resolve, its commands and its Python run, and what it shows is what they print.

mod blocks;
mod gallery;
mod links;
#[cfg(unix)]
mod not_run;
mod outputs;
mod python;
mod readme;
#[cfg(unix)]
mod shell;
mod snippets;
#[cfg(unix)]
mod stand_ins;

use std::path::PathBuf;

/// A page of the manual, or the README.
struct Page {
    path: PathBuf,
    text: String,
}

impl Page {
    /// The page's name from the top of the repository.
    fn name(&self) -> String {
        let inside = self.path.strip_prefix(testing::root());
        inside.expect("a page").display().to_string()
    }
}

/// Every page below docs/, and the README.
fn pages() -> Vec<Page> {
    let root = testing::root();
    let files = std::fs::read_dir(root.join("docs")).expect("the docs");
    let files = files.map(|file| file.expect("an entry").path());
    let mut paths: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .chain([root.join("README.md")])
        .collect();
    paths.sort();
    let read = |path: PathBuf| Page {
        text: std::fs::read_to_string(&path).expect("a page"),
        path,
    };
    paths.into_iter().map(read).collect()
}
